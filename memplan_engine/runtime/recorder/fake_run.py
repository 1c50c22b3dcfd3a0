"""Models and training steps on fake tensors under a recorder: what an eager run allocates, and no run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from memplan_engine.calibration.kernel_table import Calibration
from memplan_engine.errors import InputError
from memplan_engine.recordings.observation import Level, Observation, flow_changes
from memplan_engine.recordings.observed_flow import Category, flow_peak, settled_flow, step_peaks
from memplan_engine.runtime.cached_fakes import cached_fakes
from memplan_engine.runtime.calibrate.model_calls import AskedCall, CallLog
from memplan_engine.runtime.calibrate.seen_call import this_machine
from memplan_engine.runtime.recorder.asked_values import answering_python
from memplan_engine.runtime.recorder.assumed_values import Assumed
from memplan_engine.runtime.recorder.calibrated_ops import CalibratedOps, check_calibration
from memplan_engine.runtime.recorder.fake_device import current_device, observed_on, target_of
from memplan_engine.runtime.recorder.higher_order import HigherOrder, functions_compiled
from memplan_engine.runtime.recorder.left_as_found import left_as_found
from memplan_engine.runtime.recorder.op_origins import OpOrigins
from memplan_engine.runtime.recorder.op_recorder import (
    Enough,
    KernelLog,
    Recorder,
    objects_of,
    recording,
    said_of_cycles,
    taken_for_plain,
    weights_of,
)
from memplan_engine.runtime.recorder.own_process import in_own_thread
from memplan_engine.runtime.recorder.refusals import refused
from memplan_engine.runtime.recorder.unknown_count import telling_of_counts
from memplan_engine.torch_capture.capture_module import as_given, tracing
from memplan_engine.torch_capture.torch_exporting import as_fused, hearing_of_compiled
from memplan_engine.torch_capture.torch_fake import RECORDED, FakeTwins, patched
from memplan_engine.torch_capture.training.torch_answers import answering
from memplan_engine.torch_capture.training.torch_eager_ops import as_eager
from memplan_engine.torch_capture.training.torch_origins import CALLERS, RunningModules, who_asks
from memplan_engine.torch_capture.training.torch_recipe import (
    Recipe,
    check_made,
    check_recipe,
    check_trainable,
    kept_by_optimizers,
    random_state,
)
from memplan_engine.torch_capture.training.torch_trainer import FakeCall, Trainer, input_names

SEED = 0
STEPS = 2
"""The first step makes what the optimizer keeps, the second is what every other one is like."""

MakeLog = Callable[[], KernelLog]
"""Makes what hears of the ops of one step."""


def observe_fake(
    subject: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    recipe: Recipe | None = None,
    name: str | None = None,
    device: str = "cpu",
    arch: str | None = None,
    cards: int = 1,
    calibration: Calibration | None = None,
) -> Observation:
    """What `observe_model` would see of an eager run, by fake tensors: nothing is exported, and nothing is
    allocated but what the Python around the tensors takes.

    A module runs once without gradients, or, with a `recipe`, takes two training steps, of which the second
    is recorded: the first makes what the optimizer keeps. Any other `subject` is called as it is, and all
    that it does is recorded; the weights that it makes and what its optimizers keep count as there before.
    `subject` and its inputs may be real, meta or fake; they are not changed. The observation has one level,
    DISPATCH, and a `flow`; with a `calibration` the flow also says what kernels take for themselves.

    With the device "cuda" the model and its inputs lie there, whether this machine has it or not, on a card
    of the architecture `arch` ("sm90" unless given); figures are of what lies there. A function may use
    several `cards`, and has figures of each. Without a card the run takes a process of its own
    (`fake_device`). `flow.assumed` says what it rests on.

    Raises
    ------
    InputError: another device, architecture or number of cards, a calibration for another device, what cannot
        be called, a recipe that makes no sense, a subject that fails on fake tensors, or that asks for a
        value that is not known, with the line of the user's code.
    """
    label = str(name or getattr(subject, "__name__", None) or type(subject).__name__)
    if not callable(subject):
        raise InputError(label, "subject", f"a {type(subject).__name__}", "a module or a function")
    target = target_of(device, arch, label, cards)
    check_calibration(calibration, device, label)
    kernels = _calibrated(calibration)

    def observe() -> Observation:
        return _observed(subject, args, kwargs or {}, recipe, label, kernels)

    return observed_on(target, observe, label)


def _calibrated(calibration: Calibration | None) -> MakeLog | None:
    return None if calibration is None else partial(CalibratedOps, calibration, this_machine())


def distinct_calls(
    subject: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    recipe: Recipe | None = None,
    name: str,
) -> dict[str, AskedCall]:
    """The calls of operators that `observe_fake` would see of a module on the CPU, each once, by its text.

    Raises
    ------
    InputError: as `observe_fake`.
    """
    log = CallLog()
    _observed(subject, args, kwargs or {}, recipe, name, lambda: log)
    return log.calls


def _observed(
    subject: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    recipe: Recipe | None,
    label: str,
    kernels: MakeLog | None,
) -> Observation:
    """As `observe_fake`, on the device that is the current one."""
    with _faking(label, FAKEABLE) as twins:
        if isinstance(subject, torch.jit.ScriptModule):
            raise InputError(
                label, "model", "a module that torch.jit has compiled", f"the model itself, {RECORDED}"
            )
        if isinstance(subject, torch.nn.Module):
            if recipe is not None:
                return _step(subject, args, kwargs, recipe, label, twins, kernels)
            return _inference(subject, args, kwargs, label, twins, kernels)
        if recipe is not None:
            raise InputError(label, "recipe", "one for a function", "a module, or a function that trains")
        call = FakeCall(torch.nn.Module(), list(args), dict(kwargs), label, twins)
        with left_as_found():
            try:
                return _FakeRun(call, label, kernels).whole(lambda: subject(*call.args, **call.kwargs), None)
            finally:
                call.values.generators.put_back()


def observe_whole(
    run: Callable[[], Any],
    name: str,
    expected: str,
    *,
    most_steps: int | None = None,
    calibration: Calibration | None = None,
) -> Observation:
    """As `observe_fake(run)`, up to the end of the step `most_steps`; errors expect what `expected` says."""
    with _faking(name, expected) as twins:
        call = FakeCall(torch.nn.Module(), [], {}, name, twins)
        return _FakeRun(call, name, _calibrated(calibration)).whole(run, most_steps)


@contextmanager
def swapping() -> Iterator[None]:
    """With `Module.to` for weights that somebody has weak references to, as fake tensors' mode has."""
    with patched((torch.utils, "weakref", SimpleNamespace(getweakrefs=lambda tensor: []))):
        yield


def _copied(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    """`copy.deepcopy` of a tensor, a parameter without its gradient. torch's own copies the value too that a
    fake one knows, in memory that the mode takes for its own: the process may crash."""
    if id(tensor) not in memo:
        if not tensor.is_leaf:
            raise RuntimeError(f"a deep copy of a tensor that is no leaf of the graph {who_asks()}")
        copy = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        if isinstance(tensor, torch.nn.Parameter):
            copy = torch.nn.Parameter(copy, tensor.requires_grad)
        else:
            copy.grad = deepcopy(tensor.grad, memo)
            own = vars(copy)
            own.update({name: deepcopy(kept, memo) for name, kept in vars(tensor).items() if name not in own})
        memo[id(tensor)] = copy
    return memo[id(tensor)]  # type: ignore[no-any-return]


@contextmanager
def _faking(label: str, expected: str) -> Iterator[FakeTwins]:
    """With what eager mode takes, for fake tensors; errors are InputErrors."""
    # Importing it takes a second or two.
    from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

    # torch and Dynamo remember functions: as they are, not as they are patched.
    torch.overrides.get_overridable_functions()
    TorchInGraphFunctionVariable._get_handlers()
    # What the model compiles itself must not run on fake tensors, which have no bytes.
    alone = torch.compiler.set_stance("force_eager")
    with (
        tracing(label, "fake run", expected),
        as_eager(),
        as_fused(),
        taken_for_plain(),
        alone,
        in_own_thread(label),
        swapping(),
        patched(
            *refused(label),
            (torch.Tensor, "__deepcopy__", _copied),
        ),
        random_state(SEED),
        cached_fakes() as mode,
    ):
        device = "cuda:0" if current_device().is_cuda else ""
        yield FakeTwins(mode, meta_device="cpu", device=device)


FAKEABLE = f"a model that runs on fake tensors, {RECORDED}"


def _inference(
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    label: str,
    twins: FakeTwins,
    kernels: MakeLog | None,
) -> Observation:
    check_made(model, label)
    call = FakeCall(model, list(args), dict(kwargs), label, twins)
    places, names = as_given((call.args, call.kwargs))
    run = _FakeRun(call, label, kernels)
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
    kernels: MakeLog | None,
) -> Observation:
    check_trainable(model, label)
    check_recipe(recipe, label)
    trainer = Trainer(model, list(args), dict(kwargs), label, twins, recipe=recipe)
    run = _FakeRun(trainer, label, kernels)
    for _ in range(STEPS):
        run.record(trainer.take, [tensor for _, _, tensor in kept_by_optimizers(trainer.optimizer)])
    return run.observation(STEPS)


class _FakeRun:
    """Records calls of what lies on fake tensors, one after the other; the last of them is told of."""

    def __init__(self, call: FakeCall, label: str, kernels: MakeLog | None) -> None:
        self.call, self.label, self.kernels = call, label, kernels
        self.assumed = Assumed(_called.__code__)
        call.values.generators.is_global = True
        self.peaks: list[int] = []
        self._steps: list[int] = []
        self._replaced: set[int] = set()
        self._collected: dict[int, int] = {}
        self._stopped = self._compiled = False
        """True if the last call was ended before its end; if `torch.compile` compiles some of it."""
        self._last: Observation | None = None

    def whole(self, run: Callable[[], Any], most_steps: int | None) -> Observation:
        """All that `run()` does up to the step `most_steps`, where it takes so many; weights and what
        optimizers keep count as there before, wherever they were made."""
        self.record(run, most_steps=most_steps, makes_models=True)
        assert self._last is not None
        assert self._last.flow is not None
        flow = settled_flow(self._last.flow, self._replaced)
        steps = self._steps
        flow = replace(flow, steps=len(steps), step_peaks=step_peaks(flow, steps))
        flow = said_of_cycles(flow, self._collected, next(iter(steps), 0))
        changes = {Level.DISPATCH: flow_changes(flow, self._last.ops)}
        return replace(self._last, changes=changes, flow=flow)

    def record(
        self,
        run: Callable[[], Any],
        state: Sequence[torch.Tensor] = (),
        most_steps: int | None = None,
        makes_models: bool = False,
    ) -> None:
        """Record `run()`; `state` is there before it, as are weights and inputs. What it gives is held to the
        end. With `makes_models` the weights of modules that it leaves are weights, called or not."""
        model = self.call.model
        parameters = dict(model.named_parameters())
        owners = {id(each): path.rpartition(".")[0] for path, each in parameters.items()}
        paths = {id(each): path for path, each in model.named_modules()}
        modules = RunningModules(paths, adopt=lambda name, root: self._adopt(recorder, name, root))
        self.assumed.within_model = lambda: bool(modules.running)
        kernels = None if self.kernels is None else self.kernels()
        origins = OpOrigins(modules, owners, _called.__code__)
        higher_order = HigherOrder(self.call.values, self.assumed, self.label)
        recorder = Recorder(origins, most_steps, current_device(), kernels, higher_order)
        self._given(recorder.flow.table, state)
        mode, values = self.call.twins.mode, self.call.values
        result = None
        self._stopped = True
        with (
            suppress(Enough),
            hearing_of_compiled(self.call.original) as heard,
            mode,
            answering(values, self.label, self.assumed),
            answering_python(values, self.assumed, self.label),
            telling_of_counts(),
            recording(recorder, makes_models),
            functions_compiled(recorder, modules, mode),
        ):
            result = _called(run)
            self._stopped = False
        self._compiled = bool(heard)
        self._steps, self._replaced = recorder.steps.ends, recorder.replaced
        self._collected = recorder.collected
        gradients = (each.grad for each in parameters.values() if each.grad is not None)
        recorder.flow.table.mark(gradients, Category.GRADIENT)
        if makes_models:
            recorder.flow.table.mark(weights_of(objects_of(torch.nn.Module)), Category.WEIGHT)
        else:
            # What nobody has given is the model's: tensors that are no buffers, caches of an earlier step.
            recorder.flow.table.recategorize(Category.UNKNOWN, Category.WEIGHT)
        recorder.flow.table.close()
        del result
        self._last = self._finished(recorder)

    def _adopt(self, recorder: Recorder, name: str, root: torch.nn.Module) -> None:
        """A model that the run has made itself is called for the first time."""
        recorder.flow.table.adopt(name, root)
        for path, parameter in root.named_parameters(prefix=name):
            recorder.origins.owners[id(parameter)] = path.rpartition(".")[0]

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
        notes = {
            **dict.fromkeys(current_device().assumed, current_device().stands_in),
            **{note: note in self.assumed.doubts for note in self.assumed.notes},
            **{note: note in self.assumed.doubts for note in self.call.values.reasons.used},
            # An optimizer that is used later keeps state that is not counted.
            **dict.fromkeys(recorder.steps.assumed, True),
            **recorder.notes,
        }
        flow = recorder.flow.finished(origins.sources(), tuple(notes), self._compiled)
        doubts = tuple(note for note, may_differ in notes.items() if may_differ)
        flow = replace(flow, doubts=doubts, stopped=self._stopped, batches=recorder.batches)
        if recorder.kernels is not None:
            flow = recorder.kernels.laid_over(flow)
        self.peaks.append(flow_peak(flow)[0])
        changes = {Level.DISPATCH: flow_changes(flow, seen.ops)}
        return replace(seen, changes=changes, stacks=origins.stacks(), flow=flow)

    def observation(self, steps: int) -> Observation:
        """What the last call did, after `steps` training steps."""
        assert self._last is not None
        assert self._last.flow is not None
        flow = replace(self._last.flow, steps=steps, step_peaks=tuple(self.peaks))
        flow = said_of_cycles(flow, self._collected)
        return replace(self._last, flow=flow)


def _called(run: Callable[[], Any]) -> Any:
    """What `run()` gives; calls of the user's code are looked for up to here."""
    return run()


CALLERS.add(_called.__code__)
