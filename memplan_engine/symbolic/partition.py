"""tract's memory schema: a plan whose sharing holds for every value of the symbols.

Buffers whose lifetimes are disjoint share a partition, so whatever sizes they take on, a partition as large
as its largest buffer holds them all. Which buffers share is decided at a hint (`DeviceMemSchema` of
github.com/sonos/tract, gpu/src/memory/schema.rs).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import lcm
from typing import TYPE_CHECKING, Unpack

import numpy as np

from memplan_engine.errors import InputError
from memplan_engine.graph import MAX_BYTES, Graph, Symbol
from memplan_engine.kernels.shared_objects.objects import assign_to_fullest
from memplan_engine.lifetimes import DEFAULT_ALIGNMENT, PlanningOptions
from memplan_engine.plan import Plan
from memplan_engine.planner import adopt
from memplan_engine.problem import Ints, make_problem
from memplan_engine.schedule import Schedule
from memplan_engine.symbolic.expression import parse, to_sympy, to_text
from memplan_engine.symbolic.maxima import symbolic_max, symbolic_peak
from memplan_engine.symbolic.symbol_values import Values, sympy_symbols
from memplan_engine.symbolic.symbolic_problem import SymbolicProblem, symbolic_problem

if TYPE_CHECKING:
    import sympy

STRATEGY = "partition"
EMPTY = "*"


@dataclass(frozen=True, slots=True)
class Requirement:
    """tract's NodeMemReq: what `node` needs over the half-open lifetime `[start, end)`, in steps. `size` is a
    formula in bytes."""

    node: int
    start: int
    end: int
    size: str
    name: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class MemorySchema:
    """The buffers of `problem` in partitions of disjoint lifetimes.

    `partitions` are the buffers (indices) of each, in the order in which they joined. `nodes[i]` is the
    number under which buffer i stands in the table. `unit` is what the size of a partition is rounded up to,
    bytes: tract's `vector_size()`. `hint` are the values at which it was decided who shares with whom.
    """

    problem: SymbolicProblem
    partitions: tuple[tuple[int, ...], ...]
    nodes: tuple[int, ...]
    unit: int
    hint: tuple[tuple[str, int], ...]

    @property
    def objects(self) -> Ints:
        """The partition of each buffer."""
        objects = np.zeros(len(self.problem), dtype=np.int64)
        for number, members in enumerate(self.partitions):
            objects[list(members)] = number
        return objects

    def size_by_partition(self) -> tuple[sympy.Expr, ...]:
        """The size of each partition in bytes, not rounded: the symbolic maximum over its buffers."""
        problem, symbols = self.problem, sympy_symbols(self.problem.graph.symbols)
        sizes = [to_sympy(formula, symbols) for formula in problem.formulas]
        return tuple(
            symbolic_max((sizes[problem.which[member]] for member in members), problem.graph.symbols)
            for members in self.partitions
        )

    def memory_size(self) -> sympy.Expr:
        """The sum of the sizes of the partitions, in bytes, not rounded."""
        import sympy

        return sympy.Add(*self.size_by_partition())

    def peak_size(self) -> sympy.Expr:
        """The largest sum of sizes alive together, in bytes, as a symbolic maximum."""
        return symbolic_peak(self.problem)

    def sizes_at(self, values: Mapping[str, int] | None = None) -> tuple[int, ...]:
        """The size of each partition at `values` (hints for the rest), rounded up to `unit`, in bytes."""
        checked = self._values(values)
        return self._rounded(self.problem.sizes(checked))

    def memory_bytes(self, values: Mapping[str, int] | None = None) -> int:
        """What has to be allocated at `values`: the sum of `sizes_at`. The arena of `resolve` is up to
        `unit` − 1 bytes smaller, as nothing lies behind the last partition."""
        return sum(self.sizes_at(values))

    def resolve(self, values: Mapping[str, int] | None = None) -> Plan:
        """The plan at `values` (hints for the rest): every buffer at the start of its partition.

        Raises
        ------
        InputError: as `check_values`; sizes that are impossible or too large at these values.
        """
        checked = self._values(values)
        problem = self.problem.at(checked, origin=bool(self.problem.graph.ops))
        bases = np.cumsum([0, *self._rounded(problem.size)], dtype=np.int64)
        objects = self.objects
        return adopt(problem, bases[objects], STRATEGY, objects=objects)

    def peak(self, values: Mapping[str, int] | None = None) -> int:
        """The largest sum of sizes alive together at `values`, in bytes: `eval_peak_memory_size`."""
        frame, sizes = self.problem.frame, self.problem.sizes(self._values(values))
        change = np.zeros(frame.steps + 1, dtype=np.int64)
        np.add.at(change, frame.start, sizes)
        np.subtract.at(change, frame.end, sizes)
        return int(np.cumsum(change).max(initial=0))

    def usage(self, values: Mapping[str, int] | None = None) -> float:
        """Peak over allocated bytes at `values`: 1.0 is a schema without waste, and so is one without bytes
        (for which tract divides 0 by 0)."""
        allocated = self.memory_bytes(values)
        return self.peak(values) / allocated if allocated else 1.0

    def by_steps(self) -> tuple[tuple[int | None, ...], ...]:
        """The buffer alive in each partition at each step, None where it is free."""
        frame = self.problem.frame
        rows = []
        for step in range(frame.steps):
            alive = ((frame.start <= step) & (step < frame.end)).tolist()
            rows.append(tuple(next((m for m in members if alive[m]), None) for members in self.partitions))
        return tuple(rows)

    def table(self, *, names: bool = False) -> str:
        """The step × partition table as tract prints it, with its last line, the symbolic memory size;
        `names` shows buffers by name instead of by number."""
        labels = self.problem.frame.names if names else tuple(map(str, self.nodes))
        lines = []
        for step, row in enumerate(self.by_steps()):
            cells = "|".join(f"{EMPTY if buffer is None else labels[buffer]:^7}" for buffer in row)
            lines.append(f"step: {step:5} => |{cells}|")
        return "\n".join([*lines, f"memory_size: {to_text(self.memory_size())}", ""])

    def _values(self, values: Mapping[str, int] | None) -> Values:
        return self.problem.values({**dict(self.hint), **(values or {})})

    def _rounded(self, sizes: Ints) -> tuple[int, ...]:
        largest = [int(sizes[list(members)].max(initial=0)) for members in self.partitions]
        rounded = tuple(-(-size // self.unit) * self.unit for size in largest)
        if sum(rounded) > MAX_BYTES:
            raise InputError(
                self.problem.graph.name, "partitions", "sizes that sum past 2^63-1", "a smaller total"
            )
        return rounded


def schema_of(
    graph: Graph,
    values: Mapping[str, int] | None = None,
    schedule: Schedule | None = None,
    **options: Unpack[PlanningOptions],
) -> MemorySchema:
    """The memory schema of `graph`, decided at `values`, the symbols' hints for the rest.

    A buffer's number in the table is the place, in `graph.ops`, of the op at which it comes alive. Partitions
    are rounded up to the alignment (bytes): to the least common multiple where storages have their own.

    Raises
    ------
    InputError: a symbol without value or hint, values out of range, formulas that cannot be read.
    """
    problem = symbolic_problem(graph, schedule, **options)
    return _build(problem, problem.values(values), _first_ops(problem))


def build_schema(
    requirements: Sequence[Requirement],
    steps: int,
    hint: Mapping[str, int] | None = None,
    *,
    symbols: Sequence[Symbol] = (),
    unit: int = DEFAULT_ALIGNMENT,
    name: str = "schema",
) -> MemorySchema:
    """The schema of somebody else's requirements, in their order, over `steps` steps: the same input gives
    what tract gives.

    Raises
    ------
    InputError: a lifetime that is empty or ends after `steps`; formulas and values as for `schema_of`.
    """
    frame = make_problem(
        [requirement.start for requirement in requirements],
        [requirement.end for requirement in requirements],
        [0] * len(requirements),
        names=[requirement.name or str(requirement.node) for requirement in requirements],
        alignment=unit,
        steps=steps,
        name=name,
    )
    graph = Graph(name, (), (), (), (), (), symbols=tuple(symbols))
    known = {symbol.name: symbol for symbol in symbols}
    read = partial(parse, names=known, source=name)
    sizes = [read(each.size, place=f"requirement {each.name or each.node}") for each in requirements]
    rows = {formula: place for place, formula in enumerate(dict.fromkeys(sizes))}
    which = np.array([rows[formula] for formula in sizes], dtype=np.int64)
    problem = SymbolicProblem(graph, Schedule((), steps), frame, tuple(rows), which)
    nodes = tuple(requirement.node for requirement in requirements)
    return _build(problem, problem.values(hint), nodes)


def _build(problem: SymbolicProblem, hint: Values, nodes: tuple[int, ...]) -> MemorySchema:
    frame, sizes = problem.frame, problem.sizes(hint)
    # As Rust's sort_by: stable, so equal sizes stay in the problem's order.
    order = np.argsort(-sizes, kind="stable")
    never = np.zeros(1, dtype=np.bool_)
    objects = assign_to_fullest(order, np.array(frame.start), np.array(frame.end), sizes, never)
    members: list[list[int]] = [[] for _ in range(int(objects.max(initial=-1)) + 1)]
    for buffer in order.tolist():
        members[objects[buffer]].append(buffer)
    unit = lcm(*np.unique(frame.alignment).tolist()) if len(frame) else 1
    if unit > MAX_BYTES:
        expected = "alignments with a common multiple below 2^63"
        raise InputError(problem.graph.name, "alignment", f"a common multiple of {unit}", expected)
    return MemorySchema(problem, tuple(map(tuple, members)), nodes, unit, tuple(hint.items()))


def _first_ops(problem: SymbolicProblem) -> tuple[int, ...]:
    """The place of the op that first makes or reads each buffer."""
    graph = problem.graph
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    first: dict[str, int] = {}
    for place, op in enumerate(graph.ops):
        for tensor in (*op.inputs, *op.mutates, *op.outputs):
            first.setdefault(home[tensor], place)
    return tuple(first.get(name, 0) for name in problem.frame.names)
