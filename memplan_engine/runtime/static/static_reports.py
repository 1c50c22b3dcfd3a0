"""What a static runtime says of itself: its memory, when it planned anew, and how long it takes, node by
node, beside eager and torch's interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter_ns
from typing import Any

from rich.table import Table

from memplan_engine.errors import InputError
from memplan_engine.runtime.slab.slab_report import MadeStorage
from memplan_engine.runtime.static.static_records import Tape
from memplan_engine.runtime.trial.bench import time_by_turns
from memplan_engine.units import count_of, format_bytes, format_percent

MILLISECOND = 1e6
WAYS = ("runtime", "eager", "interpreter", "watched")


@dataclass(frozen=True, slots=True)
class Grown:
    """A storage that has become larger: bytes before (0: it was not there) and now."""

    storage: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Replan:
    """A plan made anew before run number `run` (the first is 1), because of the storages in `grown`; () where
    only lifetimes differ. `before` and `after` are bytes of the buffer, `shapes` those of the tensors among
    the inputs, by name."""

    run: int
    before: int
    after: int
    grown: tuple[Grown, ...]
    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    def __str__(self) -> str:
        shapes = ", ".join(f"{name} {shape}" for name, shape in self.shapes)
        what = (
            f"{count_of(len(self.grown), 'storage')} grew" if self.grown else "storages live at other times"
        )
        sizes = f"buffer {format_bytes(self.before)} → {format_bytes(self.after)}"
        return f"run {self.run} ({shapes}): {what}, planned anew, {sizes}"


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Bytes, for the largest sizes seen so far.

    `buffer_bytes` is the one buffer as planned by `strategy`, `held_bytes` what of it is allocated now;
    `slots_bytes` what it would be with a slot of its own for each storage, as Static Runtime has it, and
    `bound_bytes` a lower bound on every placement. `storages` are managed, with `tensors` in them and
    `managed_bytes` in all. `share` of the bytes made (of those not returned) is written into the buffer, in
    the run before this report. `left` is what stays with the allocator, and why; `constant_bytes` are
    results worked out once."""

    strategy: str
    buffer_bytes: int
    held_bytes: int
    slots_bytes: int
    bound_bytes: int
    storages: int
    tensors: int
    managed_bytes: int
    share: float
    constant_bytes: int
    left: tuple[MadeStorage, ...]
    replans: int

    @property
    def saved_bytes(self) -> int:
        """What sharing bytes over time saves."""
        return self.slots_bytes - self.buffer_bytes

    @property
    def saved_share(self) -> float:
        """The same as a part of the slots; 0.0 where there are none."""
        return self.saved_bytes / self.slots_bytes if self.slots_bytes else 0.0

    def __str__(self) -> str:
        return (
            f"{count_of(self.storages, 'storage')} ({count_of(self.tensors, 'tensor')}) in one buffer of "
            f"{format_bytes(self.buffer_bytes)} ({self.strategy}); a slot for each would be "
            f"{format_bytes(self.slots_bytes)}: {format_percent(self.saved_share)} saved, bound "
            f"{format_bytes(self.bound_bytes)}; {format_percent(self.share)} of the bytes made lie there"
        )


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
        kinds = []
        for kind, nodes in groups.items():
            ms = sum(node.ms for node in nodes)
            share = ms / whole if whole else 0.0
            # Several records may be for one op.
            count, out = len({node.op for node in nodes}), len({node.op for node in nodes if node.out})
            kinds.append(KindTime(kind, ms, share, count, out))
        return tuple(sorted(kinds, key=lambda kind: -kind.ms))

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


class WatchedNodes:
    """Times of single records, over `warmup` iterations that do not count and others."""

    def __init__(self, tape: Tape, kinds: Mapping[str, str], warmup: int) -> None:
        self.tape, self.kinds, self.warmup = tape, kinds, warmup
        self.setup: list[int] = []
        self.nodes: list[list[int]] = [[] for _ in tape.records]

    def around(self, index: int, call: Callable[[], Any], args: Any, kwargs: Any) -> Any:
        """Run the record of that index."""
        began = perf_counter_ns()
        value = call()
        self.nodes[index].append(perf_counter_ns() - began)
        return value

    def milliseconds(self, times: Sequence[int]) -> float:
        """The median of times in ns, one an iteration."""
        return median(times[self.warmup :]) / MILLISECOND

    def node_times(self) -> tuple[NodeTime, ...]:
        """The median of each node."""
        rows = zip(self.tape.records, self.nodes, strict=True)
        return tuple(
            NodeTime(r.op, self.kinds.get(r.op, r.kind), r.kind, r.out, self.milliseconds(each))
            for r, each in rows
        )


def check_turns(warmup: int, runs: int, name: str) -> None:
    """Raise InputError for fewer than 0 warm-ups or than 1 run."""
    if not isinstance(warmup, int) or not isinstance(runs, int) or warmup < 0 or runs < 1:
        found = f"{warmup} warm-ups and {runs} runs"
        raise InputError(name, "benchmark", found, "whole numbers from 0 and from 1")


def run_benchmark(
    name: str, calls: Sequence[Callable[[], Any]], watched: WatchedNodes, runs: int
) -> Benchmark:
    """Run `calls` in turns: the runtime, eager, torch's interpreter, and the runtime under `watched`."""
    seconds, _ = time_by_turns(dict(zip(WAYS, calls, strict=True)), warmup=watched.warmup, runs=runs)
    ms, eager_ms, interpreter_ms, _ = (1000 * seconds[way] for way in WAYS)
    setup_ms = watched.milliseconds(watched.setup)
    nodes = watched.node_times()
    return Benchmark(name, watched.warmup, runs, ms, eager_ms, interpreter_ms, setup_ms, nodes)
