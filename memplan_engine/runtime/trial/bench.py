"""Runs of one target, plain and in a slab, that begin alike, what is compared of them, and how long they
take."""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from memplan_engine.errors import InputError, MemplanError
from memplan_engine.formats.memplan_json.run_format import CheckEntry, KindEntry, ProfileEntry
from memplan_engine.graph import Graph
from memplan_engine.plan import Plan
from memplan_engine.runtime.eager_step import EagerStep, named_step
from memplan_engine.runtime.loading import RunTarget
from memplan_engine.runtime.program import Program, run_nodes
from memplan_engine.runtime.slab.insert_slab import OP
from memplan_engine.runtime.trial.closeness import far_off
from memplan_engine.runtime.trial.comparison import EAGER, INTERPRETER, reference_of
from memplan_engine.runtime.trial.equality import (
    Equality,
    compare_named,
    digest,
    digests_of,
    first_difference,
    restoring,
    written_tensors,
)
from memplan_engine.runtime.trial.kept_memory import kept_memory
from memplan_engine.runtime.trial.safety import run_safely
from memplan_engine.torch_capture.torch_storages import tensors_in
from memplan_engine.torch_capture.training.torch_step import SEED
from memplan_engine.units import count_of

MOST_RUNS, LEAST_RUNS, WARMUP = 50, 3, 2
MOST_SECONDS = 3.0
KIND_RUNS = 5


class Bench:
    """Runs of one target, plain and in the slab, that all begin with the same inputs."""

    def __init__(
        self, target: RunTarget, in_slab: Program, step: EagerStep | None, begin: Callable[[], None]
    ) -> None:
        """`begin` puts back the weights that `step` was taken from."""
        self.target, self.program, self.in_slab, self.step = target, target.program, in_slab, step
        self.begin = begin
        self.inputs = self.program.inputs(target.args, target.kwargs)
        self.written = written_tensors(self.program, self.inputs)

    def after(self) -> list[torch.Tensor]:
        """What is in the weights, buffers and inputs that a run writes: as much its result as what it
        returns."""
        return [value.detach().clone() for value in self.written]

    def reference(self) -> Any:
        """What the model itself gives, or the interpreter where there is no model."""
        return reference_of(self.program, self.target.eager, self.target.args, self.target.kwargs)

    def equality(self, restore: Callable[[], None], observed: Equality) -> Equality:
        """Whether the run in the slab gives what the reference gives; else where it first does not."""
        name, expected = self.expected(restore)
        restore()
        result = self.in_slab.run(self.target.args, self.target.kwargs)
        equality = compare_named(expected, self.named(result) | self.returned_by_model(restore), name)
        if equality.exact:
            return equality
        if self.target.in_pieces:
            # The first piece differs in its last digits, which says nothing of the eager step.
            return replace(equality, op=observed.op)
        op = self._first_differing(restore) or self._first_uneager(restore) or observed.op
        return replace(equality, op=op, unrepeatable=self._unrepeatable())

    def is_close(self, restore: Callable[[], None]) -> bool:
        """Whether the run in the slab gives what the reference gives but for last digits."""
        _, expected = self.expected(restore)
        restore()
        result = self.named(self.in_slab.run(self.target.args, self.target.kwargs))
        return not far_off(expected, result | self.returned_by_model(restore))

    def _unrepeatable(self) -> str:
        """What two eager steps from the same beginning differ in, "" where they are alike."""
        if self.step is None or self.target.step is None:
            return ""
        return compare_named(named_step(self.step), named_step(self._again(False))).output

    def _again(self, watched: bool) -> EagerStep:
        """Another eager step, from the weights that the one before was taken from."""
        assert self.target.step is not None
        with restoring(list(self.program.named_state.values()), SEED):
            self.begin()
            return self.target.step.take(watched)

    def expected(self, restore: Callable[[], None]) -> tuple[str, dict[str, Any]]:
        """What is compared with, in words, and all that it gives and leaves, by name."""
        if self.step is None:
            restore()
            return INTERPRETER if self.target.eager is None else EAGER, self.named(self.reference())
        paths = [output.path for output in self.target.step.outputs] if self.target.step else []
        # A step that frees its gradients does not return them.
        held = self.target.step.held if self.target.step else ()
        gradients = {path: self.step.gradients[path] for path in held if path in self.step.gradients}
        outputs = {path: self.step.outputs[path] for path in paths}
        step = replace(self.step, outputs=outputs, gradients=gradients)
        counts = [
            "loss" if list(step.results) == ["the loss"] else count_of(len(step.results), "result"),
            count_of(len(step.outputs), "output"),
            count_of(len(step.gradients), "gradient"),
            count_of(len(step.after), "tensor") + " of state",
        ]
        # The first one makes what the optimizer keeps; what Python counts stands where the second one has it.
        return f"the second eager step ({', '.join(counts)})", named_step(step)

    def named(self, result: Any) -> dict[str, Any]:
        """What a run of the program gave, and what it wrote, by name."""
        if self.step is None or self.target.step is None:
            leaves = pytree.tree_flatten_with_path(result)[0]
            after = {f"what is written in place ({index})": value for index, value in enumerate(self.after())}
            return {f"output{pytree.keystr(path)}": leaf for path, leaf in leaves} | after
        names = self.target.step.results
        results = dict(zip(names, result, strict=False))
        state = {name: tensor.clone() for name, tensor in self.program.named_state.items()}
        held = dict(zip(self.target.step.held, result[len(names) :], strict=True))
        # Nothing of an eager step is known of what only the trace keeps.
        after = {name: tensor for name, tensor in state.items() if name in self.step.after}
        return named_step(EagerStep({}, after, results, held, {}))

    def returned_by_model(self, restore: Callable[[], None]) -> dict[str, Any]:
        """The outputs of the model inside a training step, which does not return them, as they were when they
        were returned; another run in the slab."""
        outputs = self.target.step.outputs if self.target.step else ()
        if not outputs:
            return {}
        names = {output.tensor for output in outputs}
        tensors: dict[str, Any] = dict(zip(self.program.placeholders, self.inputs, strict=True))
        returned: dict[str, Any] = {}

        def note(moment: str) -> None:
            here = (output for output in outputs if output.moment == moment)
            returned.update((output.path, tensors[output.tensor].clone()) for output in here)

        def around(name: str, kind: str, call: Callable[[], Any]) -> Any:
            value = call()
            for index, leaf in enumerate(pytree.tree_leaves(value)):
                label = name if isinstance(value, torch.Tensor) else f"{name}.{index}"
                if label in names:
                    tensors[label] = leaf
            note(name)
            return value

        restore()
        with torch.no_grad():
            note("")
            run_nodes(self.in_slab.module, self.inputs, around)
        return returned

    def _first_uneager(self, restore: Callable[[], None]) -> str | None:
        """The first op of the captured step whose result is not the one that an eager step had."""
        if self.target.step is None:
            return None
        watched = self._again(True)
        restore()
        return first_difference(watched.rows, digests_of(self.program, self.inputs))

    def _first_differing(self, restore: Callable[[], None]) -> str | None:
        """The first op whose result in the slab is not the one outside of it."""
        plain, slab = (self._digests(each, restore) for each in (self.program, self.in_slab))
        return next((name for name, value in plain.items() if slab.get(name, value) != value), None)

    def _digests(self, program: Program, restore: Callable[[], None]) -> dict[str, tuple[int, ...]]:
        digests: dict[str, tuple[int, ...]] = {}

        def around(name: str, kind: str, call: Callable[[], Any]) -> Any:
            value = call()
            # Memory that is only allocated holds anything.
            if "empty" not in kind:
                digests[name] = tuple(digest(tensor) for tensor in tensors_in(value))
            return value

        restore()
        with torch.no_grad():
            run_nodes(program.module, self.inputs, around)
        return digests

    def check(
        self, restore: Callable[[], None], plan: Plan, force: bool, equality: Equality
    ) -> tuple[CheckEntry, Equality]:
        """What safety mode says; its result has to be the reference's, too."""
        name, expected = self.expected(restore)
        restore()
        try:
            safe = run_safely(self.program, plan, self.target.args, self.target.kwargs, force=force)
        except InputError:
            raise
        except MemplanError as error:
            return CheckEntry(fault=str(error)), equality
        if equality.exact:
            actual = self.named(safe.value)
            equality = compare_named(
                {path: expected[path] for path in expected if path in actual}, actual, name
            )
        figures = {name: getattr(safe, name) for name in ("ops", "compared_bytes", "arena_bytes", "guard")}
        return CheckEntry(**figures), equality

    def profile(self, restore: Callable[[], None], setup: float) -> ProfileEntry:
        """Seconds an iteration, by turns, and by kind of op."""
        args, kwargs = self.target.args, self.target.kwargs
        calls: dict[str, Callable[[], Any]] = {} if self.target.eager is None else {EAGER: self.reference}
        calls[INTERPRETER] = lambda: self.program.interpret(args, kwargs)
        calls["slab"] = lambda: self.in_slab.run(args, kwargs)
        seconds, runs = time_by_turns(calls, restore)
        modules = (self.program.module, self.in_slab.module)
        with kept_memory():
            alone, inside = (time_ops(each, self.inputs, restore) for each in modules)
        graph = self.program.graph
        times = tuple(alone.get(op.name, 0.0) for op in graph.ops)
        kinds = by_kind(graph, alone, inside)
        return ProfileEntry(runs=runs, setup=setup, kinds=kinds, op_seconds=times, **seconds)


def time_by_turns(
    calls: Mapping[str, Callable[[], Any]],
    restore: Callable[[], None] = lambda: None,
    *,
    warmup: int = WARMUP,
    runs: int | None = None,
) -> tuple[dict[str, float], int]:
    """The median seconds of each of `calls`, and of how many runs: one of each by turns, so that whatever
    else the machine does meets all of them alike, each first as often as the others. After `warmup` turns
    there are `runs` of them or, without, as many as fit into MOST_SECONDS (LEAST_RUNS to MOST_RUNS).
    `restore` is called before each and counts nowhere."""
    durations: dict[str, list[float]] = {name: [] for name in calls}
    names, least, most = list(calls), runs or LEAST_RUNS, runs or MOST_RUNS
    begun, turn = time.perf_counter(), -warmup
    while turn < most and (turn < least or time.perf_counter() - begun < MOST_SECONDS):
        if turn == 0:
            begun = time.perf_counter()
        for index in range(len(names)):
            name = names[(index + turn) % len(names)]
            restore()
            start = time.perf_counter()
            calls[name]()
            if turn >= 0:
                durations[name].append(time.perf_counter() - start)
        turn += 1
    return {name: statistics.median(times) for name, times in durations.items()}, turn


def by_kind(graph: Graph, alone: Mapping[str, float], inside: Mapping[str, float]) -> tuple[KindEntry, ...]:
    """Seconds by kind of op, the most first, of the seconds of ops `alone` and `inside` the slab."""
    kinds = []
    for kind, number in Counter(op.kind for op in graph.ops).items():
        names = [op.name for op in graph.ops if op.kind == kind]
        plain, slab = (sum(times.get(name, 0.0) for name in names) for times in (alone, inside))
        kinds.append(KindEntry(kind=kind, ops=number, plain=plain, slab=slab))
    return tuple(sorted(kinds, key=lambda kind: -max(kind.plain, kind.slab)))


def time_ops(module: GraphModule, inputs: Sequence[Any], restore: Callable[[], None]) -> dict[str, float]:
    """Seconds of each op by itself, the shortest of several iterations: what the machine does beside them is
    none of theirs."""
    stands_for = {node.name: node.meta.get(OP, node.name) for node in module.graph.nodes}
    shortest: dict[str, float] = {}

    def around(name: str, kind: str, call: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        value = call()
        spent[stands_for.get(name, name)] += time.perf_counter() - start
        return value

    begun = time.perf_counter()
    for turn in range(MOST_RUNS + 1):
        if turn > KIND_RUNS and time.perf_counter() - begun > MOST_SECONDS:
            break
        spent: dict[str, float] = defaultdict(float)
        restore()
        with torch.no_grad():
            run_nodes(module, inputs, around)
        for op, seconds in spent.items():
            shortest[op] = min(shortest.get(op, seconds), seconds)
    return shortest
