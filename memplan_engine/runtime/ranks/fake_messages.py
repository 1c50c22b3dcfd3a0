"""What ranks send each other: tensors, whose buffers are held until the work is over, and objects."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed import distributed_c10d
from torch.distributed.pipelining import stage as stages
from torch.distributed.pipelining.stage import InferenceMode

from memplan_engine.runtime.ranks.fake_meshes import Patch, everywhere
from memplan_engine.runtime.ranks.mailbox import Mailbox


class HeldWork:
    """A work that holds its tensors as long as it is held, as those of gloo do, and NCCL's until they are
    waited for."""

    def __init__(self, work: Any, tensors: Sequence[torch.Tensor]) -> None:
        self.work, self.tensors = work, tensors

    def __getattr__(self, name: str) -> Any:
        return getattr(self.work, name)


def message_patches(mailbox: Mailbox) -> list[Patch]:
    """For `torch_fake.patched`: `isend` and `irecv` that hold their tensors, objects through `mailbox`."""
    own = distributed_c10d
    patches = []
    for name in ("isend", "irecv"):
        call = vars(own)[name]
        patches += everywhere(name, call, _held(call))
    batch = own.batch_isend_irecv
    patches += everywhere("batch_isend_irecv", batch, _held_batch(batch))
    objects = _Objects(mailbox)
    for name in ("send_object_list", "recv_object_list", "broadcast_object_list", "all_gather_object"):
        patches += everywhere(name, vars(own)[name], getattr(objects, name))
    votes = _Votes(mailbox)
    return [
        *patches,
        (stages.PipelineStage, "_warmup_forward_vote", votes.forward()),
        (stages.PipelineStage, "_warmup_backward_result", votes.backward()),
    ]


def _held(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def held(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return HeldWork(call(tensor, *args, **kwargs), [tensor])

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
