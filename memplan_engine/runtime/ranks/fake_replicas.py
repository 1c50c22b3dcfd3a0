"""What DistributedDataParallel holds of its gradients: its reducer, which is C++ and reads values, written
again for fake tensors.

By `torch/csrc/distributed/c10d/reducer.cpp` of torch 2.13: the gradients of a bucket lie in one tensor, made
at once; a gradient that is ready is copied there, and, with `gradient_as_bucket_view`, is that part of it
from then on; a bucket whose gradients are all ready is reduced; after the first step the buckets are made
anew in the order in which gradients came.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch.nn.parallel import distributed as replicated

from memplan_engine.errors import InputError
from memplan_engine.runtime.ranks.fake_meshes import Patch
from memplan_engine.torch_capture.training.torch_origins import who_asks


def replica_patches() -> list[Patch]:
    """For `torch_fake.patched`: the reducer, its logger, and no comparison of shapes between ranks."""
    alike: Callable[..., None] = lambda *args, **kwargs: None  # noqa: E731
    return [
        (dist, "Reducer", FakeReducer),
        (dist, "Logger", _Unheard),
        (replicated, "_verify_param_shape_across_processes", alike),
        (dist, "_register_comm_hook", _no_hook),
        (dist, "_register_builtin_comm_hook", _no_hook),
    ]


def _no_hook(*args: Any, **kwargs: Any) -> NoReturn:
    found = f"a communication hook of DistributedDataParallel {who_asks()}, which nobody has written again"
    raise InputError("fake run", "", found, "gradients that are reduced as they are")


class _Unheard:
    """A logger that hears of anything."""

    def __init__(self, reducer: Any) -> None:
        self.reducer = reducer

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


class _Bucket:
    """The gradients of the parameters `members` in one tensor."""

    def __init__(self, members: Sequence[int], parameters: Sequence[torch.Tensor]) -> None:
        self.members = members
        kind = parameters[members[0]]
        counts = [parameters[each].numel() for each in members]
        self.flat = torch.empty(sum(counts), dtype=kind.dtype, device=kind.device)
        self.views = {}
        start = 0
        for each, count in zip(members, counts, strict=True):
            part, like = self.flat.narrow(0, start, count), parameters[each]
            dense = not like.is_contiguous() and torch.ops.aten.is_non_overlapping_and_dense(like)
            strides = like.stride() if dense else torch.empty(like.shape, device="meta").stride()
            self.views[each] = self.flat.as_strided(like.shape, strides, part.storage_offset())
            start += count
        self.pending = len(members)


class FakeReducer:
    """As `torch.distributed.Reducer`, what DistributedDataParallel calls of it."""

    def __init__(
        self,
        parameters: Sequence[torch.Tensor],
        buckets: Sequence[Sequence[int]],
        limits: Sequence[int],
        group: Any,
        sparse: Sequence[bool],
        cap: int = 25 << 20,
        find_unused: bool = False,
        as_view: bool = False,
        names: Any = None,
        first_cap: int = 1 << 20,
        skip_unused: bool = False,
        use_python: bool = False,
        later_limits: Sequence[int] = (),
        *more: Any,
    ) -> None:
        self.parameters, self.group, self.sparse = list(parameters), group, list(sparse)
        self.find_unused, self.as_view = find_unused, as_view
        self.later_limits = list(later_limits) or [first_cap, cap]
        self.ready: list[int] = []
        self.rebuilt = self.expects = self.static = False
        self.works: list[Any] = []
        self._make(buckets)
        for number, parameter in enumerate(self.parameters):
            parameter.register_post_accumulate_grad_hook(self._hook(number))  # type: ignore[no-untyped-call]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None

    def _set_static_graph(self) -> None:
        self.static = True

    def _make(self, buckets: Sequence[Sequence[int]]) -> None:
        # The old ones go first, but for what gradients still show.
        self.buckets: list[_Bucket] = []
        self.home: dict[int, _Bucket] = {}
        for members in buckets:
            bucket = _Bucket(members, self.parameters)
            self.buckets.append(bucket)
            self.home |= dict.fromkeys(members, bucket)
            for each in members if self.as_view else ():
                gradient = self.parameters[each].grad
                if gradient is not None:
                    bucket.views[each].copy_(gradient)
                    self.parameters[each].grad = bucket.views[each]

    def _rebuild_buckets(self) -> bool:
        """Anew, in the order in which gradients came."""
        due = not self.rebuilt and (self.static or not self.find_unused)
        if not due or len(self.ready) < len(self.parameters):
            return False
        self.rebuilt = True
        order, self.ready = self.ready, []
        ordered = [self.parameters[each] for each in order]
        sparse = [self.sparse[each] for each in order]
        buckets, _ = dist._compute_bucket_assignment_by_size(ordered, self.later_limits, sparse, order)
        self._agree(len(order), len(buckets))
        self._make(buckets)
        return True

    def _agree(self, parameters: int, buckets: int) -> None:
        """The order of the first rank, as numbers on the device."""
        device = self.parameters[0].device
        for count in (parameters + 1, buckets):
            numbers = torch.zeros(count, dtype=torch.int32).to(device)
            dist.broadcast(numbers, group=self.group, group_src=0)
            del numbers

    def prepare_for_forward(self) -> None:
        """Nothing is made."""

    def prepare_for_backward(self, outputs: Sequence[torch.Tensor]) -> None:
        """All gradients are to come."""
        self.expects = True
        for bucket in self.buckets:
            bucket.pending = len(bucket.members)
        if not outputs or not self.find_unused:
            return
        found = f"find_unused_parameters {who_asks()}"
        raise InputError(
            "fake run", "", found, "find_unused_parameters=False: which are used no run says here"
        )

    def _hook(self, number: int) -> Callable[[torch.Tensor], None]:
        def ready(parameter: torch.Tensor) -> None:
            if self.expects:
                self._ready(number, parameter)

        return ready

    @torch.no_grad()
    def _ready(self, number: int, parameter: torch.Tensor) -> None:
        bucket = self.home[number]
        view, gradient = bucket.views[number], parameter.grad
        if not self.rebuilt:
            self.ready.append(number)
        assert gradient is not None
        if gradient.untyped_storage()._cdata == view.untyped_storage()._cdata:
            view.div_(self.group.size())
        else:
            torch.mul(gradient, 1.0 / self.group.size(), out=view)
            if self.as_view:
                parameter.grad = view
        bucket.pending -= 1
        if bucket.pending == 0:
            self.works.append(dist.all_reduce(bucket.flat, group=self.group, async_op=True))
        if all(each.pending == 0 for each in self.buckets):
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)

    @torch.no_grad()
    def _finish(self) -> None:
        self.expects = False
        self.works.clear()
        for bucket in () if self.as_view else self.buckets:
            for number, view in bucket.views.items():
                gradient = self.parameters[number].grad
                if gradient is not None:
                    gradient.copy_(view)
