"""Operators that take functions (`cond`, `while_loop`, `scan`, `map`, `flex_attention`), as eager mode runs
them.

Eager mode has Dynamo take the functions apart, with the backend "eager", and runs the graphs that it makes in
Python. A graph lets go of a value after its last use, and a gradient is worked out by a graph that is traced
in the backward pass. Both happen here too, on fake tensors, so that the same storages come and go.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch
from torch._higher_order_ops import partitioner, utils
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from memplan_engine.errors import InputError
from memplan_engine.runtime.recorder.assumed_values import Assumed
from memplan_engine.runtime.recorder.eager_kernels import as_in_eager
from memplan_engine.runtime.recorder.op_recorder import Recorder
from memplan_engine.torch_capture.torch_fake import RECORDED, patched
from memplan_engine.torch_capture.torch_storages import (
    TAKE_FUNCTIONS,
    OperatorMode,
    StorageSizes,
    modules_with,
    run_functions,
    takes_functions,
)
from memplan_engine.torch_capture.training.torch_answers import unknown
from memplan_engine.torch_capture.training.torch_origins import RunningModules, who_asks
from memplan_engine.torch_capture.training.torch_values import KnownValues

_ATTENTION = import_module("torch.nn.attention.flex_attention")
# Its package has an operator of the same name.
_FLEX = import_module("torch._higher_order_ops.flex_attention")


MATERIALIZE = "materialize_as_graph"
"""It makes a graph of a function."""
LOOP_ROUNDS = 2
"""Rounds of a loop whose end is unknown. A carried value has the same size in each round and is gone
one round later, so that the second one holds as much as any."""


class HigherOrder:
    """Runs operators that take functions in a run that is called `source`; what is not known of values is
    `assumed`."""

    def __init__(self, values: KnownValues, assumed: Assumed, source: str) -> None:
        self.values, self.assumed, self.source = values, assumed, source

    def run(self, operator: Any, args: Any, kwargs: Any, mode: OperatorMode) -> Any:
        """Return what `operator` gives; `mode` sees the operators that its functions call.

        Raises
        ------
        InputError: an operator that does not run as Python in eager mode, and a loop of unknown length whose
            gradients are wanted.
        """
        name = operator.name()
        if not takes_functions(operator):
            found = f"the higher-order operator {name} {who_asks()}"
            expected = f"one of {', '.join(sorted(TAKE_FUNCTIONS))}, {RECORDED}"
            raise InputError(self.source, "fake run", found, expected)
        # Nothing is said of a branch that is only tried.
        is_noted = isinstance(mode, Recorder)
        if name == "cond":
            self._choose(is_noted, *args)
        elif name.startswith("while_loop"):
            args = (self._ending(name, args[0], is_noted), *args[1:])
        return run_functions(operator, args, kwargs, mode)

    def _choose(
        self,
        is_noted: bool,
        predicate: Any,
        true: Callable[..., Any],
        false: Callable[..., Any],
        given: Any,
    ) -> None:
        """Assume of a `predicate` that is not known the branch that holds more while it runs."""
        if not isinstance(predicate, torch.Tensor) or self.values.of(predicate) is not None:
            return
        most = [_Held(self).most(branch, given) for branch in (true, false)]
        chosen = most[0] >= most[1]
        word = "both branches hold as much" if most[0] == most[1] else "that branch holds more"
        if is_noted:
            self.assumed.note(f"the condition of torch.cond {who_asks()} as {str(chosen).lower()}: {word}")
        self.values.assume(predicate, chosen)

    def _ending(self, name: str, goes_on: Callable[..., Any], is_noted: bool) -> Callable[..., Any]:
        """Return `goes_on`, the condition of a loop, with an answer for values that are not known."""
        rounds = 0

        def answered(*given: Any) -> Any:
            nonlocal rounds
            answer = goes_on(*given)
            if isinstance(answer, torch.Tensor) and self.values.of(answer) is None:
                if name != "while_loop":
                    raise unknown(self.source, "fake run", "how often a while_loop runs in training")
                if is_noted:
                    times = f"run {LOOP_ROUNDS} times: no later round holds more"
                    self.assumed.note(f"the while_loop {who_asks()} as {times}")
                self.values.assume(answer, rounds < LOOP_ROUNDS)
            rounds += 1
            return answer

        return answered


class _Held(OperatorMode):  # type: ignore[no-untyped-call]
    """Sums up the storages that a function makes, with those of functions that it calls."""

    def __init__(self, calls: HigherOrder) -> None:
        super().__init__()
        self._calls, self._sizes, self._most = calls, StorageSizes(), 0

    def most(self, function: Callable[..., Any], given: Any) -> int:
        """Return the most bytes that `function(*given)` holds at a time."""
        self._sizes.exclude(given)
        with self:
            result = function(*given)
        del result
        self._sizes.close()
        return self._most

    def operate(self, operator: Any, args: Any, kwargs: Any) -> Any:
        if isinstance(operator, torch._ops.HigherOrderOperator):
            return self._calls.run(operator, args, kwargs, self)
        value = as_in_eager(operator, operator(*args, **kwargs), args, kwargs)
        self._sizes.returned(value, args, kwargs, operator)
        self._most = max(self._most, int(self._sizes.nbytes))
        return value


@contextmanager
def _collecting(recorder: Recorder) -> Iterator[None]:
    """Collect the garbage that is made meanwhile, and no other: Dynamo and tracers leave cycles that hold
    what they were given, to the end of the run as far as is known."""
    frozen = gc.get_freeze_count()
    if not frozen:
        gc.freeze()
    try:
        yield
    finally:
        recorder.collect()
        if not frozen:
            gc.unfreeze()


@contextmanager
def functions_compiled(recorder: Recorder, modules: RunningModules, mode: FakeTensorMode) -> Iterator[None]:
    """With Dynamo for the functions that such operators are given, as in eager mode.

    What it and the tracers of gradients run is not recorded: a real run does it on fake tensors. The tracers'
    example inputs are real there, and are recorded.
    """
    set_up, materialize = utils.setup_compilation_env, utils.materialize_as_graph

    @contextmanager
    def compiling() -> Iterator[Any]:
        with (
            _collecting(recorder),
            torch.compiler.set_stance("default"),
            modules.aside(),
            set_up() as backend,
        ):
            yield backend

    def materialized(function: Any, args: Any, *rest: Any, **options: Any) -> Any:
        with recorder.paused(False):
            make: Any = utils._from_fun
            _examples = [make(arg) for arg in args if recorder.has_seen(arg)]
        # A tracer has symbols for values that are not known.
        with recorder.paused(), _collecting(recorder), patched((mode, "shape_env", ShapeEnv())):
            return materialize(function, args, *rest, **options)

    def unrecorded(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            with recorder.paused():
                return call(*args, **kwargs)

        return called

    with patched(
        *((module, "setup_compilation_env", compiling) for module in (utils, _ATTENTION)),
        *((module, MATERIALIZE, materialized) for module in modules_with(MATERIALIZE)),
        (partitioner, "create_hop_joint_graph", unrecorded(partitioner.create_hop_joint_graph)),
        (_FLEX, "create_fw_bw_graph", unrecorded(_FLEX.create_fw_bw_graph)),
    ):
        yield
