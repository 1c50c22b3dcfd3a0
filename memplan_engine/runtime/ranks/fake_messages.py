"""What ranks send each other: tensors, whose buffers are held until the work is over, and objects."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed import distributed_c10d
from torch.distributed.pipelining import stage as stages
from torch.distributed.pipelining.stage import InferenceMode

from memplan_engine.errors import InputError
from memplan_engine.runtime.ranks.fake_meshes import Patch, everywhere
from memplan_engine.runtime.ranks.mailbox import Mailbox
from memplan_engine.runtime.ranks.tensor_messages import ANY, TensorMessages, way
from memplan_engine.torch_capture.training.torch_origins import who_asks


class HeldWork:
    """A work that holds its tensors as long as it is held, as those of gloo do, and NCCL's until they are
    waited for."""

    def __init__(self, work: Any, tensors: Sequence[torch.Tensor]) -> None:
        self.work, self.tensors = work, tensors

    def __getattr__(self, name: str) -> Any:
        return getattr(self.work, name)


GATHERED = ("all_gather_object", "gather_object")
"""What gives objects of ranks that do not run."""


def message_patches(mailbox: Mailbox, tensors: TensorMessages) -> list[Patch]:
    """For `torch_fake.patched`: `isend` and `irecv` that hold their tensors and are noted in `tensors`,
    objects through `mailbox`."""
    own = distributed_c10d
    patches = []
    for name, lines in (("isend", tensors.sent), ("irecv", tensors.received)):
        call = vars(own)[name]
        patches += everywhere(name, call, _held(_to_a_rank(_noted(call, lines))))
    patches += everywhere("send", own.send, _to_a_rank(own.send))
    patches += everywhere("recv", own.recv, _of_somebody(_to_a_rank(own.recv)))
    batch = own.batch_isend_irecv
    patches += everywhere("batch_isend_irecv", batch, _held_batch(batch))
    objects = _Objects(mailbox)
    for name in ("send_object_list", "recv_object_list", "broadcast_object_list", *GATHERED):
        patches += everywhere(name, vars(own)[name], getattr(objects, name))
    votes = _Votes(mailbox)
    return [
        *patches,
        (stages.PipelineStage, "_warmup_forward_vote", votes.forward()),
        (stages.PipelineStage, "_warmup_backward_result", votes.backward()),
    ]


def _to_a_rank(call: Callable[..., Any]) -> Callable[..., Any]:
    """`call`, which sends to a rank or receives from one, for those that there are: a fake group asks for
    none."""

    @functools.wraps(call)
    def checked(tensor: torch.Tensor, peer: Any = None, *args: Any, **kwargs: Any) -> Any:
        named = [kwargs.get(name) for name in ("dst", "src") if kwargs.get(name) is not None]
        world = dist.get_world_size()
        for rank in [peer, *named]:
            if isinstance(rank, int) and not 0 <= rank < world:
                found = f"rank {rank} of a world of {world}, named {who_asks()}"
                raise InputError("fake run", "", found, f"a rank from 0 to {world - 1}")
        given = (tensor,) if peer is None else (tensor, peer)
        return call(*given, *args, **kwargs)

    return checked


def _of_somebody(call: Callable[..., Any]) -> Callable[..., Any]:
    """`recv` of a rank that is named: it gives the one that has sent."""
    form = inspect.signature(call)

    @functools.wraps(call)
    def received(*args: Any, **kwargs: Any) -> Any:
        given = form.bind(*args, **kwargs).arguments
        if given.get("src") is None and given.get("group_src") is None:
            found = f"a tensor of whichever rank has sent one {who_asks()}"
            raise InputError("fake run", "", found, "a rank that is named (src)")
        return call(*args, **kwargs)

    return received


def _noted(call: Callable[..., Any], lines: dict[str, list[str]]) -> Callable[..., Any]:
    """`call`, which `send` and `recv` make, too, with its line among `lines`."""
    form, within = inspect.signature(call), False

    @functools.wraps(call)
    def noted(*args: Any, **kwargs: Any) -> Any:
        nonlocal within
        if within:
            # A mode, such as that of a default device, calls it once more.
            return call(*args, **kwargs)
        within = True
        try:
            work = call(*args, **kwargs)
        finally:
            within = False
        if work is not None:
            lines.setdefault(_way(**form.bind(*args, **kwargs).arguments), []).append(who_asks())
        return work

    return noted


def _way(tensor: torch.Tensor, group: Any = None, tag: int = 0, **named: Any) -> str:
    rank, of_group = (named.get(f"{of}dst", named.get(f"{of}src")) for of in ("", "group_"))
    peer = ANY if rank is None and of_group is None else _peer(rank, of_group, group)
    # NCCL has no tags.
    return way(peer, _ranks_of(group), tag if tensor.device.type == "cpu" else 0)


def _ranks_of(group: Any) -> str:
    """What tells a group from others on each of its ranks, short; "" for all ranks."""
    if group is None or group.size() == dist.get_world_size():
        return ""
    ranks = dist.get_process_group_ranks(group)
    return hashlib.sha256(repr(ranks).encode()).hexdigest()[:12]


def _held(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def held(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        work = call(tensor, *args, **kwargs)
        # None on a rank that is not in the group.
        return None if work is None else HeldWork(work, [tensor])

    return held


def _held_batch(call: Callable[..., Any]) -> Callable[..., Any]:
    """Of several at once each has a work of its own, which holds its tensor: gloo does not coalesce."""

    @functools.wraps(call)
    def held(operations: Sequence[Any]) -> Any:
        return [
            each.op(
                each.tensor,
                group=each.group,
                tag=each.tag,
                **{"group_dst" if each.op is dist.isend else "group_src": each.group_peer},
            )
            for each in operations
        ]

    return held


class _Objects:
    """Collectives of Python objects."""

    def __init__(self, mailbox: Mailbox) -> None:
        self.mailbox = mailbox

    def send_object_list(self, objects: Any, dst: Any = None, group: Any = None, **how: Any) -> None:
        """As ever, but for the tensors that it packs the objects in."""
        to = _peer(dst, how.get("group_dst"), group)
        for each in objects:
            self.mailbox.send(each, to)

    def recv_object_list(self, objects: Any, src: Any = None, group: Any = None, **how: Any) -> int:
        """As ever."""
        sender = _peer(src, how.get("group_src"), group)
        objects[:] = [self.mailbox.receive(sender) for _ in objects]
        return sender

    def broadcast_object_list(self, objects: Any, src: Any = None, group: Any = None, **how: Any) -> None:
        """As ever; each group has messages of its own."""
        sender = _peer(src, how.get("group_src"), group)
        name = f"all-{distributed_c10d._group_or_default_group(group).group_name}"
        if sender == self.mailbox.rank:
            self.mailbox.send(list(objects), name)
        else:
            objects[:] = self.mailbox.receive(sender, name)

    def all_gather_object(self, objects: Any, own: Any, group: Any = None) -> None:
        """This rank's object in the place of each."""
        objects[:] = [own] * len(objects)

    def gather_object(
        self, own: Any, objects: Any = None, dst: Any = None, group: Any = None, group_dst: Any = None
    ) -> None:
        """As `all_gather_object`, where they are gathered on this rank."""
        if objects is not None:
            objects[:] = [own] * len(objects)


def _peer(rank: Any, of_group: Any, group: Any) -> int:
    """The number of a rank in the whole run."""
    if rank is not None:
        return int(rank)
    return int(dist.get_global_rank(distributed_c10d._group_or_default_group(group), of_group or 0))


class _Votes:
    """Whether all stages of a pipeline know the forms of what they are sent: the protocol of
    `_warmup_p2p`, by numbers instead of tensors. Without others each votes as this one."""

    def __init__(self, mailbox: Mailbox) -> None:
        self.mailbox = mailbox

    def forward(self) -> Callable[..., torch.Tensor]:
        """For `PipelineStage._warmup_forward_vote`."""

        def vote(stage: Any, has_backward: bool, received_acc: Any = None) -> torch.Tensor:
            own = int(not InferenceMode.needs_dynamic(stage._user_meta, has_backward))
            if not stage.is_first and stage._is_same_rank(stage.stage_index - 1):
                own *= int(received_acc)
            elif not stage.is_first and self.mailbox.folder is not None:
                own *= self.mailbox.receive(stage._resolve_peer_global_rank(stage.stage_index - 1))
            if not stage.is_last and not stage._is_same_rank(stage.stage_index + 1):
                self.mailbox.send(own, stage._resolve_peer_global_rank(stage.stage_index + 1))
            return _number(own)

        return vote

    def backward(self) -> Callable[..., torch.Tensor]:
        """For `PipelineStage._warmup_backward_result`."""

        def result(stage: Any, received_result: Any = None) -> torch.Tensor:
            elsewhere = not stage.is_last and not stage._is_same_rank(stage.stage_index + 1)
            if elsewhere and self.mailbox.folder is not None:
                peer = stage._resolve_peer_global_rank(stage.stage_index + 1)
                received_result = self.mailbox.receive(peer)
            elif received_result is None:
                received_result = not InferenceMode.needs_dynamic(stage._user_meta, True)
            if not stage.is_first and not stage._is_same_rank(stage.stage_index - 1):
                self.mailbox.send(
                    int(received_result), stage._resolve_peer_global_rank(stage.stage_index - 1)
                )
            return _number(int(received_result))

        return result


def _number(value: int) -> torch.Tensor:
    with unset_fake_temporarily():
        return torch.tensor(value, dtype=torch.int32, device="cpu")
