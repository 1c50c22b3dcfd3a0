"""How long a static runtime takes, node by node, beside eager and torch's interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from statistics import median
from time import perf_counter_ns
from typing import Any, Protocol

import torch
from rich.table import Table
from torch.utils import _pytree as pytree

from memplan_engine.errors import InputError
from memplan_engine.runtime.observer.temporaries import written_in_place
from memplan_engine.runtime.program import Program
from memplan_engine.runtime.static.static_records import Tape
from memplan_engine.runtime.trial.restore_state import settling
from memplan_engine.units import format_percent

MILLISECOND = 1e6


class Shaped(Protocol):
    """What was prepared for inputs of one shape."""

    @property
    def program(self) -> Program:
        """The program with every size a plain number."""
        ...


class Runtime(Protocol):
    """What is asked of the runtime that is timed."""

    @property
    def name(self) -> str:
        """The name of the model."""
        ...

    @property
    def module(self) -> torch.nn.Module:
        """The model itself."""
        ...

    @property
    def runs(self) -> int:
        """The iterations so far."""
        ...

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """One iteration."""
        ...

    def checked(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], Any]:
        """The leaves of the inputs, and what was prepared for their shapes."""
        ...

    def settle_plan(self, shaped: Any, leaves: Sequence[Any]) -> Tape:
        """The records with every storage in its slot."""
        ...

    def buffer(self) -> AbstractContextManager[Any]:
        """The buffer, allocated for one iteration."""
        ...

    def one_at_a_time(self) -> AbstractContextManager[None]:
        """Raise MemplanError where a run is under way."""
        ...


@dataclass(frozen=True, slots=True)
class NodeTime:
    """One record: the op that it is for, the kind of that, what is called (`clamp_min` for a `relu` that
    writes in place), whether through an `out` variant, and the median of its milliseconds."""

    op: str
    kind: str
    call: str
    out: bool
    ms: float


@dataclass(frozen=True, slots=True)
class KindTime:
    """All ops of one kind: milliseconds of all together, their part of all nodes, how many ops there are, and
    how many of them write through `out` variants."""

    kind: str
    ms: float
    share: float
    count: int
    out: int


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Medians of wall time in milliseconds over `runs`, after `warmup` runs of each: `ms` of a whole
    iteration, `eager_ms` of the module itself, `interpreter_ms` of torch's interpreter of fx graphs on the
    same graph, in turns in one process. `setup_ms` is what goes before the first node (inputs checked, buffer
    allocated). `nodes` were timed one by one in iterations of their own."""

    name: str
    warmup: int
    runs: int
    ms: float
    eager_ms: float
    interpreter_ms: float
    setup_ms: float
    nodes: tuple[NodeTime, ...]

    @property
    def nodes_ms(self) -> float:
        """All nodes together."""
        return sum(node.ms for node in self.nodes)

    @property
    def kinds(self) -> tuple[KindTime, ...]:
        """The operators, those that take longest first."""
        whole = self.nodes_ms
        groups: dict[str, list[NodeTime]] = {}
        for node in self.nodes:
            groups.setdefault(node.kind, []).append(node)
        found = []
        for kind, nodes in groups.items():
            ms = sum(node.ms for node in nodes)
            share = ms / whole if whole else 0.0
            # Several records may be for one op.
            count, out = len({node.op for node in nodes}), len({node.op for node in nodes if node.out})
            found.append(KindTime(kind, ms, share, count, out))
        return tuple(sorted(found, key=lambda kind: -kind.ms))

    @property
    def against_eager(self) -> float:
        """This runtime's time over eager's."""
        return self.ms / self.eager_ms

    @property
    def against_interpreter(self) -> float:
        """This runtime's time over the interpreter's."""
        return self.ms / self.interpreter_ms

    def table(self, nodes: bool = False) -> Table:
        """The operators (or, with `nodes`, every node) as a Rich table; times of whole iterations are in its
        caption."""
        caption = (
            f"{self.ms:.3f} ms per iteration, {self.setup_ms:.3f} ms of it setting up; "
            f"eager {self.eager_ms:.3f} ms ({self.against_eager:.2f} ×), "
            f"interpreter {self.interpreter_ms:.3f} ms ({self.against_interpreter:.2f} ×); "
            f"medians of {self.runs} runs"
        )
        table = Table(title=f"{self.name}: static runtime", caption=caption)
        table.add_column("node" if nodes else "operator")
        for heading in ("ms", "share", "kind", "call") if nodes else ("ms", "share", "ops", "out"):
            table.add_column(heading, justify="left" if heading in ("kind", "call") else "right")
        if nodes:
            for node in self.nodes:
                share = node.ms / self.nodes_ms if self.nodes_ms else 0.0
                table.add_row(node.op, f"{node.ms:.4f}", format_percent(share), node.kind, node.call)
        else:
            for kind in self.kinds:
                figures = (f"{kind.ms:.4f}", format_percent(kind.share), str(kind.count), str(kind.out))
                table.add_row(kind.kind, *figures)
        return table


def run_benchmark(
    runtime: Runtime, args: Sequence[Any], kwargs: Mapping[str, Any], warmup: int, runs: int
) -> Benchmark:
    """Run eager, interpreter and `runtime` in turns, on copies of the inputs; the last in two ways, as a
    whole and node by node. What the model writes into its buffers it writes each time; afterwards they are,
    as the random state is, what they were before.

    Raises
    ------
    InputError: inputs that do not fit; fewer than 0 warm-ups or than 1 run.
    """
    if not isinstance(warmup, int) or not isinstance(runs, int) or warmup < 0 or runs < 1:
        found = f"{warmup} warm-ups and {runs} runs"
        raise InputError(runtime.name, "benchmark", found, "whole numbers from 0 and from 1")
    copies: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_map(
        lambda leaf: leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf,
        (tuple(args), dict(kwargs)),
    )
    args, kwargs = copies
    with runtime.one_at_a_time():
        leaves, shaped = runtime.checked(args, kwargs)
    with settling(_written(shaped, leaves), torch.initial_seed()):
        if runtime.runs == 0:
            runtime.run(args, kwargs)
        with runtime.one_at_a_time():
            leaves, shaped = runtime.checked(args, kwargs)
            tape = runtime.settle_plan(shaped, leaves)
        return _measure(runtime, shaped, tape, copies, (warmup, runs))


def _written(shaped: Shaped, leaves: Sequence[Any]) -> list[torch.Tensor]:
    """The model's buffers that a run writes."""
    program = shaped.program
    touched = zip([*program.state, *leaves], written_in_place(program), strict=True)
    return [value for value, wrote in touched if wrote and isinstance(value, torch.Tensor)]


def _measure(
    runtime: Runtime,
    shaped: Shaped,
    tape: Tape,
    copies: tuple[tuple[Any, ...], dict[str, Any]],
    turns: tuple[int, int],
) -> Benchmark:
    """All ways in turns, `turns` being how often to warm up and how often to measure."""
    warmup, runs = turns
    timed = _Timed(runtime, tape, {op.name: op.kind for op in shaped.program.graph.ops})
    ways = _ways(runtime, shaped, *copies, timed)
    times: list[list[int]] = [[] for _ in ways]
    for turn in range(warmup + runs):
        if turn == warmup:
            timed.clear()
        for number in range(len(ways)):
            # Each way comes first as often as the others.
            way = (number + turn) % len(ways)
            began = perf_counter_ns()
            ways[way]()
            if turn >= warmup:
                times[way].append(perf_counter_ns() - began)
    whole, eager, interpreter, _ = (median(each) / MILLISECOND for each in times)
    return Benchmark(
        runtime.name, warmup, runs, whole, eager, interpreter, timed.setup_ms(), timed.node_times()
    )


def _ways(
    runtime: Runtime, shaped: Shaped, args: tuple[Any, ...], kwargs: dict[str, Any], timed: _Timed
) -> tuple[Callable[[], Any], ...]:
    def eager() -> None:
        with torch.no_grad():
            runtime.module(*args, **kwargs)

    return (
        lambda: runtime.run(args, kwargs),
        eager,
        lambda: shaped.program.interpret(args, kwargs),
        lambda: timed.run(args, kwargs),
    )


class _Timed:
    """Iterations in which every node is timed."""

    def __init__(self, runtime: Runtime, tape: Tape, kinds: Mapping[str, str]) -> None:
        self.runtime, self.tape, self.kinds = runtime, tape, kinds
        self.clear()

    def clear(self) -> None:
        """Forget what was measured."""
        self.setup: list[int] = []
        self.nodes: list[list[int]] = [[] for _ in self.tape.records]

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """One iteration."""
        began = perf_counter_ns()
        with self.runtime.one_at_a_time(), torch.no_grad():
            leaves, _ = self.runtime.checked(args, kwargs)
            with self.runtime.buffer():
                self.setup.append(perf_counter_ns() - began)
                self.tape.watched(leaves, self._around)

    def _around(self, index: int, call: Callable[[], Any], args: Any, kwargs: Any) -> Any:
        began = perf_counter_ns()
        value = call()
        self.nodes[index].append(perf_counter_ns() - began)
        return value

    def setup_ms(self) -> float:
        """The median of what goes before the nodes."""
        return median(self.setup) / MILLISECOND

    def node_times(self) -> tuple[NodeTime, ...]:
        """The median of each node."""
        rows = zip(self.tape.records, self.nodes, strict=True)
        return tuple(
            NodeTime(r.op, self.kinds.get(r.op, r.kind), r.kind, r.out, median(each) / MILLISECOND)
            for r, each in rows
        )
