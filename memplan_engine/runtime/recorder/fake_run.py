"""Models and training steps on fake tensors under a recorder: what an eager run allocates, and no run."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.optim.optimizer as optimizer_types
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils import _foreach_utils

from memplan_engine.errors import InputError
from memplan_engine.recordings.observation import Level, Observation, flow_changes
from memplan_engine.recordings.observed_flow import Category, flow_peak
from memplan_engine.runtime.observer.allocations import OpLog
from memplan_engine.runtime.recorder.eager_kernels import as_in_eager
from memplan_engine.runtime.recorder.flow_log import FlowLog
from memplan_engine.runtime.recorder.op_origins import OpOrigins
from memplan_engine.torch_capture.capture_module import as_given, check_module, tracing
from memplan_engine.torch_capture.torch_exporting import as_fused
from memplan_engine.torch_capture.torch_fake import RECORDED, FakeTwins, fake_mode
from memplan_engine.torch_capture.torch_storages import OperatorMode
from memplan_engine.torch_capture.training.torch_eager_ops import as_eager
from memplan_engine.torch_capture.training.torch_origins import RunningModules, who_asks
from memplan_engine.torch_capture.training.torch_recipe import (
    Recipe,
    check_recipe,
    check_trainable,
    kept_by_optimizers,
    random_state,
)
from memplan_engine.torch_capture.training.torch_trainer import FakeCall, Trainer, input_names
from memplan_engine.torch_capture.training.torch_values import answering

SEED = 0
STEPS = 2
"""The first step makes what the optimizer keeps, the second is what every other one is like."""
IGNORED = ("prim::device", "profiler::", "memplan::", "mkldnn::_is_")
"""Operators that are no part of a run: questions about tensors, marks for profilers, and our own, which stand
for what eager mode does beside the dispatcher (the state of the random generator)."""


class Recorder(OperatorMode):  # type: ignore[no-untyped-call]
    """Notes every operator that reaches the dispatcher below autograd, on whatever tensors."""

    def __init__(self, origins: OpOrigins) -> None:
        super().__init__()
        self.origins = origins
        self.ops, self.flow = OpLog(), FlowLog()
        self._ignored: dict[Any, bool] = {}

    def operate(self, operator: Any, args: Any, kwargs: Any) -> Any:
        """Run it, in storages as CPU kernels make them, and note what it did."""
        ignored = self._ignored.get(operator)
        if ignored is None:
            ignored = self._ignored[operator] = operator.name().startswith(IGNORED)
        if ignored:
            return operator(*args, **kwargs)
        origin = self.origins.here()
        self.flow.begin(self.ops.begin("", operator, origin.stack), origin)
        try:
            # A model may catch what an operator raises, and go on.
            value = as_in_eager(operator, operator(*args, **kwargs), args, kwargs)
            self.flow.returned(value, operator, args, kwargs)
            return value
        finally:
            self.ops.ended()

    def resized(self, storage: torch.UntypedStorage) -> None:
        """A storage that is known has been given another size by itself: an op of its own."""
        origin = self.origins.here()
        self.flow.begin(self.ops.begin("", "resize_storage", origin.stack), origin)
        self.flow.resized(storage)
        self.ops.ended()


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """With `recorder` on; what is made meanwhile is known to it until the end. Python's own collector of
    garbage stands still: when it runs is nobody's to predict."""
    table = recorder.flow.table

    def begin(optimizer: Any, *call: Any) -> None:
        recorder.origins.updating = True
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        table.mark((each.grad for each in parameters if each.grad is not None), Category.GRADIENT)

    def end(optimizer: Any, *call: Any) -> None:
        recorder.origins.updating = False
        table.mark((tensor for _, _, tensor in kept_by_optimizers(optimizer)), Category.STATE)

    def resize(storage: torch.UntypedStorage, size: int) -> Any:
        result = torch._C.StorageBase.resize_(storage, size)  # type: ignore[attr-defined]
        recorder.resized(storage)
        return result

    collects = gc.isenabled()
    with ExitStack() as undo:
        undo.enter_context(recorder.origins.modules)
        for register, hook in (
            (register_optimizer_step_pre_hook, begin),
            (register_optimizer_step_post_hook, end),
        ):
            undo.callback(register(hook).remove)
        torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign, assignment]
        undo.callback(delattr, torch.UntypedStorage, "resize_")
        gc.collect()
        gc.disable()
        undo.callback(gc.enable if collects else gc.disable)
        recorder.ops.epoch = time.time_ns()
        undo.enter_context(recorder)
        yield


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


class Assumed:
    """Answers for values that are not known, each noted once with the line that asks: a loss or a norm that
    is written to a log is taken as 1."""

    def __init__(self) -> None:
        self.notes: dict[str, None] = {}

    def __call__(self, operator: Any, args: Any) -> Any:
        """What `operator` says of values of `args`; None for what shall be refused."""
        if operator is not torch.ops.aten._local_scalar_dense.default:
            return None
        if args[0].numel() != 1 or not args[0].dtype.is_floating_point:
            return None
        self.notes[f"the value of a tensor of {tuple(args[0].shape)}, asked for {who_asks()}, as 1"] = None
        return 1.0


def observe_fake(
    subject: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    recipe: Recipe | None = None,
    name: str | None = None,
) -> Observation:
    """What `observe_model` would see of an eager run, by fake tensors: nothing is exported, and nothing is
    allocated but what the Python around the tensors takes.

    A module runs once without gradients, or, with a `recipe`, takes two training steps, of which the second
    is recorded: the first makes what the optimizer keeps. Any other `subject` is called as it is, and all
    that it makes is recorded, its weights among it. `subject` and its inputs may be real, meta or fake; they
    are not changed. The observation has one level, DISPATCH, and a `flow`.

    Raises
    ------
    InputError: what cannot be called, a recipe that makes no sense, a subject that fails on fake tensors, or
        that asks for a value that is not known, with the line of the user's code.
    """
    label = str(name or getattr(subject, "__name__", None) or type(subject).__name__)
    if not callable(subject):
        raise InputError(label, "subject", f"a {type(subject).__name__}", "a module or a function")
    twins = FakeTwins(fake_mode(unknown_sizes=False), meta_device="cpu")
    # What the model compiles itself must not run on fake tensors, which have no bytes.
    alone = torch.compiler.set_stance("force_eager")
    with (
        tracing(label, "fake run", FAKEABLE),
        as_eager(),
        as_fused(),
        taken_for_plain(),
        alone,
        random_state(SEED),
    ):
        if isinstance(subject, torch.nn.Module):
            check_module(subject, label)
            if recipe is not None:
                return _step(subject, args, kwargs or {}, recipe, label, twins)
            return _inference(subject, args, kwargs or {}, label, twins)
        if recipe is not None:
            raise InputError(label, "recipe", "one for a function", "a module, or a function that trains")
        return _function(subject, args, kwargs or {}, label, twins)


FAKEABLE = f"a model that runs on fake tensors, {RECORDED}"


def _inference(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], label: str, twins: FakeTwins
) -> Observation:
    call = FakeCall(model, list(args), dict(kwargs), label, twins)
    places, names = as_given((call.args, call.kwargs))
    run = _FakeRun(call, label)
    with torch.no_grad():
        run.record(lambda: call.model(*places, **names))
    return run.observation(0)


def _step(
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    recipe: Recipe,
    label: str,
    twins: FakeTwins,
) -> Observation:
    check_trainable(model, label)
    check_recipe(recipe, label)
    trainer = Trainer(model, list(args), dict(kwargs), label, twins, recipe=recipe)
    run = _FakeRun(trainer, label)
    for _ in range(STEPS):
        run.record(trainer.take, [tensor for _, _, tensor in kept_by_optimizers(trainer.optimizer)])
    return run.observation(STEPS)


def _function(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    label: str,
    twins: FakeTwins,
) -> Observation:
    call = FakeCall(torch.nn.Module(), list(args), dict(kwargs), label, twins)
    run = _FakeRun(call, label)
    run.record(lambda: function(*call.args, **call.kwargs))
    return run.observation(0)


class _FakeRun:
    """Records calls of what lies on fake tensors, one after the other; the last of them is told of."""

    def __init__(self, call: FakeCall, label: str) -> None:
        self.call, self.label = call, label
        self.assumed = Assumed()
        self.peaks: list[int] = []
        self._last: Observation | None = None

    def record(self, run: Callable[[], Any], state: Sequence[torch.Tensor] = ()) -> None:
        """Record `run()`; `state` is there before it, as are weights and inputs. What it gives is held to the
        end."""
        model = self.call.model
        modules = RunningModules({id(each): path for path, each in model.named_modules()}, roots=True)
        parameters = dict(model.named_parameters())
        owners = {id(each): path.rpartition(".")[0] for path, each in parameters.items()}
        recorder = Recorder(OpOrigins(modules, owners, _called.__code__))
        self._given(recorder.flow.table, state)
        mode, values = self.call.twins.mode, self.call.values
        with mode, answering(values, self.label, self.assumed), recording(recorder):
            result = _called(run)
        gradients = (each.grad for each in parameters.values() if each.grad is not None)
        recorder.flow.table.mark(gradients, Category.GRADIENT)
        recorder.flow.table.close()
        del result
        self._last = self._finished(recorder)

    def _given(self, table: Any, state: Sequence[torch.Tensor]) -> None:
        model = self.call.model
        for path, tensor in (*model.named_parameters(), *model.named_buffers()):
            table.given(path, tensor, Category.WEIGHT)
        for name, leaf in input_names(model, self.call.args, self.call.kwargs):
            if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided:
                table.given(name, leaf, Category.INPUT)
        for tensor in state:
            table.given("", tensor, Category.STATE)

    def _finished(self, recorder: Recorder) -> Observation:
        seen = recorder.ops.finished(
            self.label, time.time_ns(), storages=None, ranges=None, devices=None, outermost=False
        )
        origins = recorder.origins
        flow = recorder.flow.finished(origins.sources(), tuple(self.assumed.notes))
        self.peaks.append(flow_peak(flow)[0])
        changes = {Level.DISPATCH: flow_changes(flow, seen.ops)}
        return replace(seen, changes=changes, stacks=origins.stacks(), flow=flow)

    def observation(self, steps: int) -> Observation:
        """What the last call did, after `steps` training steps."""
        assert self._last is not None
        assert self._last.flow is not None
        flow = replace(self._last.flow, steps=steps, step_peaks=tuple(self.peaks))
        return replace(self._last, flow=flow)


def _called(run: Callable[[], Any]) -> Any:
    """What `run()` gives; calls of the user's code are looked for up to here."""
    return run()
