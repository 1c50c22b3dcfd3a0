"""tract's memory schema: a plan whose sharing holds for every value of the symbols.

Buffers whose lifetimes are disjoint share a partition, so whatever sizes they take on, a partition as large
as its largest buffer holds them all. Which buffers share is decided at a hint (`DeviceMemSchema` of
github.com/sonos/tract, gpu/src/memory/schema.rs). Of a symbolic maximum what can never be the largest is left
out, so that people can read what remains.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import lcm
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from memplan_engine.errors import InputError
from memplan_engine.graph import MAX_BYTES, Graph, Symbol
from memplan_engine.kernels.shared_objects.objects import assign_to_fullest
from memplan_engine.lifetimes import DEFAULT_ALIGNMENT, PlanningOptions
from memplan_engine.plan import Plan
from memplan_engine.planner import adopt
from memplan_engine.problem import Ints, cut, make_problem
from memplan_engine.schedule import Schedule
from memplan_engine.symbolic.expression import parse, to_sympy, to_text
from memplan_engine.symbolic.symbol_values import Values, sympy_symbols
from memplan_engine.symbolic.symbolic_problem import SymbolicProblem, numbered, symbolic_problem

if TYPE_CHECKING:
    import sympy

MOST_COMPARED = 60
"""Of more different expressions each is kept: comparing all pairs would take too long."""
MOST_TERMS = 500
"""Of an expression that is multiplied out."""


def symbolic_max(expressions: Iterable[sympy.Expr], symbols: Sequence[Symbol]) -> sympy.Expr:
    """The maximum of `expressions`, which are sizes and so never negative, over the ranges of `symbols`; 0 of
    none.

    An expression is left out when another one is a multiple of it, or minus it is a sum of terms none of
    which is negative, with the symbols counted from their smallest values. What these proofs do not reach
    stays.
    """
    import sympy

    distinct = sorted(dict.fromkeys(expressions), key=sympy.default_sort_key)
    if len(distinct) > MOST_COMPARED:
        return sympy.Max(*distinct, evaluate=False)
    terms = [(_unit(expression), _terms(expression, symbols)) for expression in distinct]
    maximal: list[int] = []
    for index in range(len(distinct)):
        if any(_covers(*terms[other], *terms[index]) for other in maximal):
            continue
        maximal = [other for other in maximal if not _covers(*terms[index], *terms[other])] + [index]
    # Not evaluated: sympy would ask of every pair once more which is larger, which takes seconds.
    remaining = [distinct[index] for index in maximal]
    return sympy.Max(*remaining, evaluate=False) if len(remaining) > 1 else sympy.Add(*remaining)


def symbolic_peak(problem: SymbolicProblem) -> sympy.Expr:
    """The largest sum of sizes that are live together, in bytes: the lower bound LOAD as a formula."""
    import sympy

    symbols = sympy_symbols(problem.graph.symbols)
    sizes = [_unit(to_sympy(formula, symbols)) for formula in problem.formulas]
    loads: list[dict[Any, Any]] = []
    for live in distinct_loads(problem):
        load: dict[Any, Any] = {}
        for formula, count in live.items():
            factor, unit = sizes[formula]
            load[unit] = load.get(unit, 0) + count * factor
        loads.append(load)
    maximal = [load for load in loads if not any(_holds(other, load) for other in loads)]
    sums = (sympy.Add(*(factor * unit for unit, factor in load.items())) for load in maximal)
    return symbolic_max(sums, problem.graph.symbols)


def _unit(size: Any) -> tuple[Any, Any]:
    """`size` as a positive number times something that, as the size itself, is never negative."""
    factor, unit = size.as_coeff_Mul()
    return (factor, unit) if factor > 0 else (1, size)


def _holds(one: dict[Any, Any], other: dict[Any, Any]) -> bool:
    """Whether `one` has at least as much of everything as `other`, and is not the same."""
    return one != other and all(factor <= one.get(unit, 0) for unit, factor in other.items())


def distinct_loads(problem: SymbolicProblem) -> list[Counter[int]]:
    """What is live together, as counts of formulas: a step each, without those that another one holds."""
    pieces = cut(problem.frame)
    loads: dict[bytes, None] = {}
    for start in np.unique(pieces.start):
        live = pieces.owner[(pieces.start <= start) & (start < pieces.end)]
        counts = np.bincount(problem.which[live], minlength=len(problem.formulas))
        loads[counts.tobytes()] = None
    rows = [np.frombuffer(row, dtype=np.int64) for row in loads]
    kept: list[Any] = []
    for row in sorted(rows, key=lambda row: -int(row.sum())):
        if not any((other >= row).all() for other in kept):
            kept.append(row)
    return [Counter({int(i): int(row[i]) for i in np.flatnonzero(row)}) for row in kept]


def _terms(expression: Any, symbols: Sequence[Symbol]) -> dict[Any, Any]:
    """Monomial → coefficient of `expression`, in terms of how far each symbol is above its smallest value."""
    import sympy

    by_name = sympy_symbols(symbols)
    above = {
        by_name[symbol.name]: symbol.low + sympy.Symbol(symbol.name, integer=True, nonnegative=True)
        for symbol in symbols
    }
    counted = expression.xreplace(above)
    # Multiplied out, unless that gives so many terms that it would take long.
    expanded = counted.expand() if _most_terms(counted) <= MOST_TERMS else counted
    return dict(expanded.as_coefficients_dict())


def _most_terms(expression: Any) -> int:
    """How many terms `expression` has at most when it is multiplied out."""
    if expression.is_Add:
        return sum(_most_terms(part) for part in expression.args)
    if expression.is_Mul:
        return math.prod(_most_terms(part) for part in expression.args)
    if expression.is_Pow and expression.exp.is_Integer:
        terms, power = _most_terms(expression.base), abs(int(expression.exp))
        return math.comb(terms + power - 1, power)
    # What is inside a rounding or a maximum is multiplied out, too, but stays in one term.
    inside = max((_most_terms(part) for part in expression.args), default=1)
    return inside if inside > MOST_TERMS else 1


def _covers(
    one: tuple[Any, Any], one_terms: dict[Any, Any], other: tuple[Any, Any], other_terms: dict[Any, Any]
) -> bool:
    """Whether the first expression is proved never to be below the other."""
    if one[1] == other[1] and one[0] >= other[0]:
        return True
    terms = {**one_terms, **other_terms}
    differences = {term: one_terms.get(term, 0) - other_terms.get(term, 0) for term in terms}
    return all(value == 0 or (value > 0 and bool(term.is_nonnegative)) for term, value in differences.items())


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
        """The largest sum of sizes live together, in bytes, as a symbolic maximum."""
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
        """The largest sum of sizes live together at `values`, in bytes: `eval_peak_memory_size`."""
        pieces = cut(self.problem.frame)
        sizes = self.problem.sizes(self._values(values))[pieces.owner]
        change = np.zeros(self.problem.frame.steps + 1, dtype=np.int64)
        np.add.at(change, pieces.start, sizes)
        np.subtract.at(change, pieces.end, sizes)
        return int(np.cumsum(change).max(initial=0))

    def usage(self, values: Mapping[str, int] | None = None) -> float:
        """Peak over allocated bytes at `values`: 1.0 is a schema without waste, and so is one without bytes
        (for which tract divides 0 by 0)."""
        allocated = self.memory_bytes(values)
        return self.peak(values) / allocated if allocated else 1.0

    def by_steps(self) -> tuple[tuple[int | None, ...], ...]:
        """The buffer live in each partition at each step, None where it is free."""
        frame = self.problem.frame
        rows = []
        for step in range(frame.steps):
            live = ((frame.start <= step) & (step < frame.end)).tolist()
            rows.append(tuple(next((m for m in members if live[m]), None) for members in self.partitions))
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

    A buffer's number in the table is the place, in `graph.ops`, of the op at which it becomes live.
    Partitions are rounded up to the alignment (bytes): to the least common multiple where storages have their
    own.

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
    by_name = {symbol.name: symbol for symbol in symbols}
    read = partial(parse, names=by_name, source=name)
    sizes = [
        read(requirement.size, place=f"requirement {requirement.name or requirement.node}")
        for requirement in requirements
    ]
    problem = SymbolicProblem(graph, Schedule((), steps), frame, *numbered(sizes))
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
    for index, op in enumerate(graph.ops):
        for tensor in (*op.inputs, *op.mutates, *op.outputs):
            first.setdefault(home[tensor], index)
    return tuple(first.get(name, 0) for name in problem.frame.names)
