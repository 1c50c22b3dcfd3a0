"""The recorder: every operator below autograd, with what it reads, writes and makes, up to the last training
step wanted."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Protocol
from weakref import WeakSet

import torch
import torch.optim.optimizer as optimizer_types
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.parameter import is_lazy
from torch.nn.utils import stateless
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils import _foreach_utils
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from memplan_engine.recordings.observed_flow import HELD, KEPT, Category, Flow, Stage, flow_peak
from memplan_engine.runtime.observer.allocations import OpLog
from memplan_engine.runtime.recorder.eager_kernels import as_in_eager
from memplan_engine.runtime.recorder.fake_device import CurrentDevice
from memplan_engine.runtime.recorder.flow_log import FlowLog
from memplan_engine.runtime.recorder.op_origins import OpOrigins, Origin
from memplan_engine.runtime.recorder.refusals import RefusedTypes
from memplan_engine.torch_capture.torch_fake import patched, storage_of
from memplan_engine.torch_capture.torch_storages import OperatorMode, tensors_in
from memplan_engine.torch_capture.training.torch_recipe import kept_by_optimizers
from memplan_engine.units import exact

EVERY, SHARE = 16, 16
"""Garbage is looked for every 16 ops, and in a long run after each 16th part of its ops so far."""
IGNORED = ("prim::device", "profiler::", "memplan::", "mkldnn::_is_")
"""Operators that are no part of a run: questions about tensors, marks for profilers, and our own, which stand
for what eager mode does beside the dispatcher (the state of the random generator)."""

WAITS = 4
"""A run is recorded for up to this many times the wanted steps while an optimizer has taken none."""
NO_PASS = -1
"""The number of the backward pass outside of all."""


class KernelLog(Protocol):
    """Hears of every op, and adds what it knows to the flow of the run."""

    def begin(self) -> None:
        """An op begins."""

    def called(self, operator: Any, args: Any, kwargs: Any, value: Any) -> None:
        """The op that began last is this call of an operator, and has given `value`."""

    def laid_over(self, flow: Flow) -> Flow:
        """`flow` of the run that is over, with what was noted."""


class FunctionCalls(Protocol):
    """Runs operators that take functions."""

    def run(self, operator: Any, args: Any, kwargs: Any, mode: OperatorMode) -> Any:
        """Return what `operator` gives; `mode` sees the operators that its functions call."""


class Enough(BaseException):
    """As many steps as were wanted have been taken. No error: what a script catches must not be this."""


class TrainingSteps:
    """The training steps of a run, by what its optimizers do.

    Each optimizer updates once in a step: those of a GAN, of each layer, or of each parameter from hooks of a
    backward pass take one step together. A step is over when every optimizer of the step before has updated
    again, and at the latest when one updates for the second time, or is gone. An optimizer that calls another
    one updates with it.
    """

    def __init__(self, most: int | None) -> None:
        self.most = most
        self.ends: list[int] = []
        """After each step, how many ops there were."""
        # Those of an earlier run are no part of this one.
        self._known: WeakSet[Any] = WeakSet(objects_of(torch.optim.Optimizer) if most else ())
        self._before: WeakSet[Any] = WeakSet()
        self._now: WeakSet[Any] = WeakSet()
        self._count = self._depth = 0
        self._pass = NO_PASS
        self._idle: list[str] = []

    @property
    def updating(self) -> bool:
        """True while an optimizer runs."""
        return self._depth > 0

    @property
    def is_new(self) -> bool:
        """True if only one optimizer has updated in this step."""
        return self._count == 1

    def begin(self, optimizer: Any) -> bool:
        """Note that `optimizer` begins to update; return whether the steps before are as many as wanted."""
        self._depth += 1
        repeats = optimizer in self._now or len(self._now) < self._count
        if self._depth > 1 or not repeats:
            return False
        self._before, self._now, self._count = self._now, WeakSet(), 0
        return self._are_enough()

    def end(self, optimizer: Any, after: Callable[[], None]) -> None:
        """Note that `optimizer` has updated. Call `after` once it, and the backward pass in which it did, are
        over."""
        self._depth -= 1
        self._known.add(optimizer)
        if self._depth:
            return
        if not self._count:
            self.ends.append(0)
        self._now.add(optimizer)
        self._count = len(self._now)
        running: int = torch._C._current_graph_task_id()
        if running == NO_PASS:
            after()
        elif running != self._pass:
            self._pass = running
            torch.autograd.Variable._execution_engine.queue_callback(after)

    def are_over(self) -> bool:
        """Return whether this step is over, and the last one wanted."""
        return bool(self._before) and self._before <= self._now and self._are_enough()

    def _are_enough(self) -> bool:
        if self.most is None or len(self.ends) < self.most:
            return False
        updated = {id(each) for optimizer in self._known for each in _parameters(optimizer)}
        self._idle = [
            type(optimizer).__name__
            for optimizer in objects_of(torch.optim.Optimizer)
            if updated.isdisjoint(map(id, _parameters(optimizer)))
        ]
        return not self._idle or len(self.ends) >= WAITS * self.most

    @property
    def assumed(self) -> tuple[str, ...]:
        """The assumptions about optimizers that took none of the steps."""
        return tuple(
            f"{name}, which updates nothing in {len(self.ends)} training steps, as never used"
            for name in self._idle
        )


def _parameters(optimizer: Any) -> Iterator[Any]:
    for group in optimizer.param_groups:
        yield from group["params"]


class Recorder(OperatorMode):  # type: ignore[no-untyped-call]
    """Notes every operator that reaches the dispatcher below autograd, on whatever tensors, in a run on
    `device`."""

    def __init__(
        self,
        origins: OpOrigins,
        most_steps: int | None = None,
        device: CurrentDevice | None = None,
        kernels: KernelLog | None = None,
        higher_order: FunctionCalls | None = None,
    ) -> None:
        super().__init__()
        self.kernels, self.higher_order = kernels, higher_order
        self.origins, self.steps = origins, TrainingSteps(most_steps)
        self.replaced: set[int] = set()
        """Storages of weights and of optimizers' state that were gone when a step ended."""
        self.notes: dict[str, bool] = {}
        """Assumptions of the run, in words, for `Flow.assumed`; True where a real run may hold something
        else."""
        self.batches = 0
        """How many batches data loaders gave that had more."""
        device = device or CurrentDevice()
        self.ops, self.flow = OpLog(), FlowLog(device)
        self.inside = False
        """Whether an operator runs."""
        self.is_paused = False
        """True while what runs is not noted."""
        self.refused_types = RefusedTypes()
        self.collected: dict[int, int] = {}
        """Storages that only Python's collector frees, each with the last op that had begun when it found
        them."""
        self._held_by_cycles: set[int] = set()
        self._looked = 0
        self._ignored: dict[Any, bool] = {}

    def operate(self, operator: Any, args: Any, kwargs: Any) -> Any:
        """Run it, in storages as CPU kernels make them, and note what it did."""
        if self.is_paused:
            return operator(*args, **kwargs)
        if self.higher_order is not None and isinstance(operator, torch._ops.HigherOrderOperator):
            self.origins.here(has_gradient=True)
            return self.higher_order.run(operator, args, kwargs, self)
        ignored = self._ignored.get(operator)
        if ignored is None:
            ignored = self._ignored[operator] = operator.name().startswith(IGNORED)
        if ignored:
            return operator(*args, **kwargs)
        origin = self.origins.here()
        self._begin(operator, origin)
        self.inside = True
        try:
            # A model may catch what an operator raises, and go on.
            if origin.stage is not Stage.BACKWARD:
                self.refused_types.check(operator, args, kwargs)
            value = as_in_eager(operator, operator(*args, **kwargs), args, kwargs)
            self.flow.returned(value, operator, args, kwargs)
            if self.kernels is not None:
                self.kernels.called(operator, args, kwargs, value)
            return value
        finally:
            self.inside = False
            self.ops.ended()

    def _begin(self, operator: Any, origin: Origin) -> None:
        """An op begins, called by its operator."""
        number = len(self.flow.origins)
        if number - self._looked >= max(EVERY, number // SHARE):
            self._looked = number
            self.collect()
        self.flow.begin(self.ops.begin("", operator, origin.stack), origin)
        if self.kernels is not None:
            self.kernels.begin()

    @contextmanager
    def paused(self, is_paused: bool = True) -> Iterator[None]:
        """Note nothing meanwhile; with `is_paused=False` note everything, within such a pause too."""
        before, self.is_paused = self.is_paused, is_paused
        try:
            yield
        finally:
            self.is_paused = before

    def has_seen(self, value: Any) -> bool:
        """Return whether `value` is a tensor whose storage was there before the run or was noted in it."""
        return any(self.flow.table.known(storage_of(each)) is not None for each in tensors_in(value))

    def collect(self) -> None:
        """Run Python's collector, and take what it frees as held to the end: when it would run cannot be
        predicted. Cycles also hold what the run itself still refers to, and lets go of later."""
        table = self.flow.table
        found: list[int] = []
        heard, table.when_freed = table.when_freed, found.append
        debugs, kept = gc.get_debug(), gc.garbage[:]
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            gc.collect()
            garbage = gc.garbage[len(kept) :]
            self._held_by_cycles.update(self._held_by(garbage))
            garbage.clear()
            gc.garbage[:] = kept
            gc.set_debug(debugs)
            gc.collect()
        finally:
            gc.set_debug(debugs)
            table.when_freed = heard
        for number in found:
            self._is_collected(number)

    def _held_by(self, garbage: Iterable[Any]) -> Iterator[int]:
        """The numbers of the storages that the objects in `garbage` refer to."""
        for each in garbage:
            for held in (each, *gc.get_referents(each)):
                if issubclass(type(held), torch.Tensor):
                    number = self.flow.table.known(storage_of(held))
                    if number is not None:
                        yield number

    def end(self) -> None:
        """Collect for the last time. What cycles held beside the run is held to the end, too."""
        self.collect()
        for number in self._held_by_cycles:
            self._is_collected(number)

    def _is_collected(self, number: int) -> None:
        """Take a storage that is gone as one that only the collector frees."""
        released = self.flow.table.released
        if released[number] != HELD:
            self.collected[number], released[number] = released[number], HELD

    def resized(self, storage: torch.UntypedStorage) -> None:
        """A storage that is known has been given another size by itself: an op of its own."""
        origin = self.origins.here()
        # Its old bytes are gone, whatever holds it.
        self._held_by_cycles.discard(self.flow.table.known(storage._cdata))
        self._begin("resize_storage", origin)
        self.flow.resized(storage)
        self.ops.ended()


def recorder_on() -> Recorder | None:
    """The recorder that notes what runs now; None without one."""
    modes = _get_current_dispatch_mode_stack()
    return next((mode for mode in modes if isinstance(mode, Recorder)), None)


@contextmanager
def recording(recorder: Recorder, makes_models: bool = True) -> Iterator[None]:
    """Record what runs until the end; `makes_models` says whether the run may make models.

    Python's collector of garbage runs where the recorder says, on what is made meanwhile.
    """
    table, steps = recorder.flow.table, recorder.steps
    made_before = objects_of(torch.nn.Module) if makes_models else []

    def mark_weights() -> None:
        """Mark the weights of all models, also of those that are never called, such as averages."""
        table.mark(weights_of((*made_before, *objects_of(torch.nn.Module))), Category.WEIGHT)

    def begin(optimizer: Any, *call: Any) -> None:
        if steps.begin(optimizer):
            mark_kept()
            raise Enough
        recorder.origins.updating = True
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        table.mark((each.grad for each in parameters if each.grad is not None), Category.GRADIENT)
        table.mark(parameters, Category.WEIGHT)

    def end(optimizer: Any, *call: Any) -> None:
        table.mark((tensor for _, _, tensor in kept_by_optimizers(optimizer)), Category.STATE)
        steps.end(optimizer, settle)
        recorder.origins.updating = steps.updating

    def settle() -> None:
        steps.ends[-1] = len(recorder.flow.origins)
        over = steps.are_over()
        if over or steps.is_new:
            mark_kept()
        if over:
            raise Enough

    def mark_kept() -> None:
        if makes_models:
            mark_weights()
        kept = (number for number, category in enumerate(table.categories) if category in KEPT)
        recorder.replaced.update(number for number in kept if table.released[number] != HELD)

    def given(module: torch.nn.Module, *args: Any, **options: Any) -> Any:
        """Weights that take the place of a model's own are the user's tensors; the model's are its own."""
        if makes_models and recorder.origins.modules.is_new(module):
            mark_weights()
        recorder.origins.modules.path_of(module)
        return reparametrize(module, *args, **options)

    def resize(storage: torch.UntypedStorage, size: int) -> Any:
        result = torch._C.StorageBase.resize_(storage, size)  # type: ignore[attr-defined]
        if not recorder.inside:
            recorder.resized(storage)
        return result

    collects, reparametrize = gc.isenabled(), stateless._reparametrize_module
    with ExitStack() as undo, patched((stateless, "_reparametrize_module", given)):
        # First in, last out: whoever ends the run within a step leaves no hook behind.
        undo.enter_context(recorder.origins.modules)
        for register, hook in (
            (register_optimizer_step_pre_hook, begin),
            (register_optimizer_step_post_hook, end),
        ):
            undo.callback(register(hook).remove)
        torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign, assignment]
        undo.callback(delattr, torch.UntypedStorage, "resize_")
        gc.disable()
        undo.callback(gc.enable if collects else gc.disable)
        gc.freeze()
        undo.callback(gc.unfreeze)
        undo.callback(recorder.end)
        recorder.ops.epoch = time.time_ns()
        undo.enter_context(recorder)
        yield


def weights_of(modules: Iterable[torch.nn.Module]) -> Iterator[torch.Tensor | None]:
    """Weights and buffers of `modules`, except lazy ones that have no size yet."""
    for each in modules:
        for tensors in (vars(each).get("_parameters", {}), vars(each).get("_buffers", {})):
            yield from (tensor for tensor in tensors.values() if not is_lazy(tensor))


def objects_of(kind: type) -> list[Any]:
    """Return all objects of a class and its subclasses."""
    # By the type: `isinstance` asks objects, of which some do things when they are asked.
    return [each for each in gc.get_objects() if issubclass(type(each), kind)]


def said_of_cycles(flow: Flow, collected: Mapping[int, int], first: int = 0) -> Flow:
    """`flow`, in which no reference cycle is ever collected, with what its peak would be where those are: the
    storages `collected` go after the ops given there. The first training step ends before the op `first`."""
    storages = flow.storages
    released = storages.released.copy()
    for number, op in collected.items():
        released[number] = op
    never, _ = flow_peak(flow)
    often, _ = flow_peak(replace(flow, storages=replace(storages, released=released)))
    if often == never:
        return flow
    kept = sum(int(storages.nbytes[number]) for number in collected)
    grows = any(storages.maker[number] >= first for number in collected)
    more = ", more with each further step" if grows else ""
    rounds = f"every {EVERY} ops (in a long run after each {SHARE}th)"
    note = (
        f"Python's collector of reference cycles as never running: it would free {exact(kept)}{more}; "
        f"where it runs {rounds} the peak is {exact(often)}"
    )
    return replace(flow, assumed=(*flow.assumed, note), doubts=(*flow.doubts, note))


@contextmanager
def taken_for_plain() -> Iterator[None]:
    """With fake tensors among the types that torch takes for many at once (`_foreach_norm`), as it does real
    ones."""
    kinds = (_foreach_utils._foreach_supported_types, optimizer_types._foreach_supported_types)
    for types in kinds:
        types.append(FakeTensor)
    try:
        yield
    finally:
        for types in kinds:
            types.remove(FakeTensor)
