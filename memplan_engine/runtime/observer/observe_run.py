"""Watching a real run: every allocation and free, with the op that caused it, at two levels; of a program, of
a model or one training step of it as eager PyTorch takes it, or of whatever else runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch._C._autograd import (
    _record_function_with_args_enter,
    _record_function_with_args_exit,
)
from torch.utils import _pytree as pytree

from memplan_engine.callers import UNKNOWN_STACK, Frame
from memplan_engine.errors import InputError
from memplan_engine.recordings.observation import Level, Observation
from memplan_engine.runtime.observer.allocations import (
    MARK,
    AllocatorLog,
    CudaHistory,
    OpLog,
    Position,
    StorageLog,
    python_stack,
)
from memplan_engine.runtime.program import Program, flat_outputs, run_nodes
from memplan_engine.torch_capture.capture_module import as_given, register_caches
from memplan_engine.torch_capture.torch_run import as_input_error
from memplan_engine.torch_capture.torch_storages import OperatorMode, run_functions, takes_functions
from memplan_engine.torch_capture.training.torch_recipe import (
    Recipe,
    check_recipe,
    drop_gradients,
    make_optimizer,
    take_step,
)

BOTH = (Level.DISPATCH, Level.ALLOCATOR)


def observe(
    subject: Program | Callable[..., Any],
    *args: Any,
    levels: Iterable[str] = BOTH,
    stacks: bool = False,
    kernels: bool = False,
    name: str | None = None,
    **kwargs: Any,
) -> Observation:
    """Run `subject(*args, **kwargs)` once and note every allocation and free; its result is let go.

    Of a Program the ops are the nodes of its graph, by name. Of anything else they are the operators as they
    reach torch's dispatcher below autograd ("convolution", "convolution_1", …); with `levels` of the
    allocator alone they are the outermost operators, and no Python runs between them. `stacks` keeps the
    lines of Python of each op, `kernels` the innermost operator that asked for memory. What existed before
    the call (weights, arguments) counts nowhere. A `subject` that itself takes an argument of one of these
    names goes through `observe_result`.

    Raises
    ------
    InputError: an unknown level, a profiler that is running already, a subject that cannot be called; of a
        Program, inputs other than those captured. What the call itself raises is passed on.
    """
    return observe_result(subject, args, kwargs, levels=levels, stacks=stacks, kernels=kernels, name=name)[0]


def observe_result(
    subject: Program | Callable[..., Any],
    args: Iterable[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    levels: Iterable[str] = BOTH,
    stacks: bool = False,
    kernels: bool = False,
    name: str | None = None,
) -> tuple[Observation, Any]:
    """As `observe`, with what the call returned."""
    args, kwargs = tuple(args), dict(kwargs or {})
    if isinstance(subject, Program):
        inputs = subject.inputs(args, kwargs)
        observation, values = observe_inputs(
            subject, inputs, levels=levels, stacks=stacks, kernels=kernels, name=name
        )
        return observation, subject.outputs(values, inputs)
    label = name or getattr(subject, "__name__", None) or type(subject).__name__
    if not callable(subject):
        raise InputError(
            "observe", "subject", f"a {type(subject).__name__}", "a program, a module or a function"
        )
    observer = Observer(levels=levels, stacks=stacks, kernels=kernels, name=str(label))
    register_caches()
    observer.given(pytree.tree_leaves((args, kwargs)))
    if isinstance(subject, torch.nn.Module):
        observer.given([*subject.parameters(), *subject.buffers()])
    with observer:
        result = subject(*args, **kwargs)
    return observer.observation, result


def observe_inputs(
    program: Program,
    inputs: Sequence[Any],
    *,
    levels: Iterable[str] = BOTH,
    stacks: bool = False,
    kernels: bool = False,
    name: str | None = None,
) -> tuple[Observation, list[Any]]:
    """Run the nodes of `program` on the flat `inputs` (`Program.inputs`) and note every allocation and free;
    the observation, and the flat outputs, which `Program.outputs` takes. A value goes after its last reader,
    one that nobody reads at once. The stack of an op is the line that the graph says it comes from."""
    label = name or program.name
    observer = Observer(levels=levels, stacks=stacks, kernels=kernels, name=label, each_operator=False)
    for op in program.graph.ops:
        if op.source is not None:
            frame = Frame(op.module.rpartition(".")[2] or op.name, op.source.file, op.source.line)
            observer.lines[op.name] = (frame,)
    observer.given(list(inputs))
    with observer, torch.no_grad():
        values = run_nodes(program.module, inputs, observer.around)
    return observer.observation, flat_outputs(values)


class Observer:
    """Watches what runs inside `with Observer() as observer:`; `observer.observation` is there afterwards.

    `kernels` keeps, for each request to the allocator, the innermost operator that asked: torch's profiler
    then notes every operator. `each_operator` makes an op of every operator that reaches the dispatcher;
    without it the caller says what an op is, through `around`.

    Raises
    ------
    InputError: an unknown level; on entering, a profiler that is running already, or an observer that has
        been used before.
    """

    def __init__(
        self,
        *,
        levels: Iterable[str] = BOTH,
        stacks: bool = False,
        name: str = "observation",
        kernels: bool = False,
        each_operator: bool = True,
    ) -> None:
        levels = [levels] if isinstance(levels, str) else list(levels)
        if not levels or any(level not in list(Level) for level in levels):
            raise InputError(name, "levels", ", ".join(map(str, levels)) or "none", f"of {', '.join(Level)}")
        self.name, self.keep_stacks, self.each_operator = name, stacks, each_operator
        self.position = Position()
        self.ops = OpLog()
        # Where ops known by name come from in the user's code.
        self.lines: dict[str, tuple[Frame, ...]] = {}
        self.storages = StorageLog(self.position) if Level.DISPATCH in levels else None
        self.cuda = CudaHistory()
        looks = self.storages is not None or (each_operator and stacks)
        self.allocator = None
        if Level.ALLOCATOR in levels:
            self.allocator = AllocatorLog(name, operators=kernels or (each_operator and not looks))
        self.mode = _Dispatched(self) if looks else None
        self._seen: Observation | None = None

    @property
    def observation(self) -> Observation:
        """What was seen; raises InputError while the run is not over."""
        if self._seen is None:
            raise InputError(self.name, "observation", "a run that is not over", "the end of the with block")
        return self._seen

    def __enter__(self) -> Observer:
        if self.ops.epoch:
            raise InputError(self.name, "observer", "one that has been used", "a new one for each run")
        _warm()
        with ExitStack() as undo:
            if self.allocator is not None:
                self.cuda.start(self.keep_stacks)
                undo.callback(self.cuda.stop)
                self.allocator.start()
                undo.callback(self.allocator.stop)
            if self.mode is not None:
                undo.enter_context(self.mode)
            undo.pop_all()
        self.ops.epoch = time.time_ns()
        return self

    def __exit__(self, *error: Any) -> None:
        ended = time.time_ns()
        if self.mode is not None:
            self.mode.__exit__(*error)  # type: ignore[no-untyped-call]
        if self.storages is not None:
            self.storages.close()
        ranges = self.allocator.stop() if self.allocator is not None else None
        devices = self.cuda.stop() if self.allocator is not None else None
        if error[0] is None:
            self._seen = self.ops.finished(
                self.name,
                ended,
                storages=None if self.storages is None else self.storages.rows,
                ranges=ranges,
                devices=devices,
                outermost=self.each_operator and self.mode is None,
            )

    def given(self, value: Any) -> None:
        """The storages of the tensors in `value` are there before the run."""
        if self.storages is not None:
            self.storages.exclude(value)

    def around(self, name: str, kind: str, call: Callable[[], Any]) -> Any:
        """Run `call()` as the op `name`."""
        mark = self._begin(name, kind)
        try:
            return call()
        finally:
            self._end(mark)

    def dispatched(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator that has reached the dispatcher."""
        if not self.each_operator or self.position.inside:
            return self._noted(func, args, kwargs)
        mark = self._begin("", func)
        try:
            # A model may catch what an operator raises, and go on.
            return self._noted(func, args, kwargs)
        finally:
            self._end(mark)

    def _noted(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator, with what runs inside where it takes functions, and note what it gives back."""
        if self.mode is not None and takes_functions(func):
            value = run_functions(func, args, kwargs, self.mode)
        else:
            value = func(*args, **kwargs)
        if self.storages is not None:
            self.storages.returned(value, args, kwargs, func)
        return value

    def _begin(self, name: str, kind: Any) -> Any:
        """An op begins; the profiler's handle on it."""
        stack = UNKNOWN_STACK
        if self.keep_stacks or self.lines:
            frames = self.lines.get(name) or (python_stack() if self.keep_stacks else ())
            stack = self.ops.stack_number(frames) if frames else stack
        position = self.position
        position.op = number = self.ops.begin(name, kind, stack)
        position.inside = True
        if self.allocator is None:
            return None
        return _record_function_with_args_enter(f"{MARK}{number}")

    def _end(self, mark: Any) -> None:
        if mark is not None:
            _record_function_with_args_exit(mark)
        self.ops.ended()
        self.position.inside = False


class _Dispatched(OperatorMode):  # type: ignore[no-untyped-call]
    """Tells the observer of every operator."""

    def __init__(self, observer: Observer) -> None:
        super().__init__()
        self.observer = observer

    def operate(self, operator: Any, args: Any, kwargs: Any) -> Any:
        return self.observer.dispatched(operator, args, kwargs)


def _warm() -> None:
    """The first operator under a mode has torch import what takes a second: not within the run."""
    with OperatorMode():
        torch.empty(0)


def observe_model(
    model: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    recipe: Recipe | None = None,
    name: str | None = None,
) -> Observation:
    """Run `model(*args, **kwargs)` once without gradients, observed at both levels with the lines of Python;
    with a `recipe` a training step instead: forward, backward, optimizer.

    Of training the second step is observed: the first one makes what the optimizer keeps. There are no
    gradients before it, and they live to its end. The weights are those that the steps leave behind.

    Raises
    ------
    InputError: a recipe that makes no sense, a model without a loss, a profiler that is running already, and
        whatever the model itself raises, with its line.
    """
    label = name or type(model).__name__
    register_caches()
    args, kwargs = as_given((tuple(args), dict(kwargs or {})))
    there = [*model.parameters(), *model.buffers(), *pytree.tree_leaves((args, kwargs))]
    with as_input_error(label, "run", "a model that runs on these inputs", lines=True):
        if recipe is None:
            return _observed(lambda: model(*args, **kwargs), there, label, gradients=False)
        check_recipe(recipe, label)
        optimizer = make_optimizer(recipe, model, label)

        def step() -> Any:
            places, names = as_given((args, kwargs))
            return take_step(recipe, model, optimizer, places, names, label)

        step()
        drop_gradients(model)
        there += pytree.tree_leaves(list(optimizer.state.values()))
        return _observed(step, there, label, gradients=True)


def _observed(call: Callable[[], Any], there: Sequence[Any], name: str, gradients: bool) -> Observation:
    """What `call()` allocates beside the tensors among `there`; what it gives is held to the end."""
    observer = Observer(stacks=True, name=name)
    observer.given(there)
    with torch.set_grad_enabled(gradients), observer:
        result = call()
    del result
    return observer.observation
