"""A plan made at a hint, checked anew over the whole range of the symbols: do its offsets still hold?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product

import numpy as np

from memplan_engine.errors import InputError
from memplan_engine.graph import Role, Symbol
from memplan_engine.plan import Plan
from memplan_engine.planner import adopt
from memplan_engine.symbolic.expression import Formula, parse
from memplan_engine.symbolic.monotone import Trend, trend
from memplan_engine.symbolic.symbol_values import (
    Values,
    corners,
    ends,
    in_words,
    samples,
    steps_between,
    upper_corner,
)
from memplan_engine.symbolic.symbolic_problem import (
    ImpossibleSizeError,
    SymbolicProblem,
    numbered,
    size_at,
    symbolic_problem,
)
from memplan_engine.verify.validate import Rule, validate_plan

MOST_ENUMERATED = 400
"""Of at most so many points every one is tried, which proves as much as a proof does."""
SCANNED = 48


class Proof(StrEnum):
    """How far a report can be relied on. A failing value is a fact either way."""

    PROVED = "proved"
    SAMPLED = "sampled"


@dataclass(frozen=True, slots=True)
class Failure:
    """The values at which offsets fail, the buffers that collide (one, where a buffer has no place at all),
    and what the checker says."""

    values: tuple[tuple[str, int], ...]
    buffers: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True)
class RangeReport:
    """Whether one plan's offsets hold over `ranges` (name, smallest, largest value looked at).

    `failure` is the first failing point, None when there is none: in the order of the symbols, the first
    value of one that fails with all others at their hints; where none fails alone, a point of which no symbol
    can be lowered. `limits` has for each symbol the first value that fails with the others at their hints,
    None where none does. `unlimited` are the symbols without a known limit: for them the range is a choice of
    ours. `reason` says why it is proved, or not. `points` were checked; at `impossible` others a size is
    negative or not whole, so no model runs there. `arena_bytes` is the largest arena met, at valid points and
    failing ones.
    """

    proof: Proof
    reason: str
    ranges: tuple[tuple[str, int, int], ...]
    unlimited: tuple[str, ...]
    points: int
    impossible: int
    arena_bytes: int
    failure: Failure | None
    limits: tuple[tuple[str, int | None], ...]

    @property
    def valid(self) -> bool:
        """Whether no failing value was found."""
        return self.failure is None

    @property
    def summary(self) -> str:
        """One line for people."""
        where = ", ".join(
            f"{name} {low}–{high}" if low < high else f"{name}={low}" for name, low, high in self.ranges
        )
        if self.failure:
            return f"fails at {in_words(dict(self.failure.values))}: {self.failure.message}"
        return f"holds for {where}: {self.proof} ({self.reason})"


def revalidate(plan: Plan, *, count: int = 200, seed: int = 0) -> RangeReport:
    """Check the offsets of `plan`, which was made of a graph with symbols, over the symbols' ranges.

    Where every size is proved to grow with a symbol, its largest value is the worst: offsets that hold there
    hold below. If that is so for all symbols, one check proves the range; what remains is enumerated when it
    is small, else sampled: corners, every symbol by itself, and `count` points drawn with `seed`.

    Raises
    ------
    InputError: a plan of no graph, or of one without symbols; buffers that are not the graph's storages; gaps
        with windows in bytes; a range in which no size is possible at all.
    """
    return _Check(plan).report(count, seed)


class _Check:
    """One plan, and what has been found out about it so far."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.problem, self.placeless = _symbolic(plan)
        self.symbols = self.problem.graph.symbols
        self.hints = self.problem.values()
        self.points = self.impossible = self.arena = 0
        self.first_impossible: ImpossibleSizeError | None = None
        self._failures: dict[tuple[int, ...], Failure | None] = {}
        self._no_sizes: set[tuple[int, ...]] = set()

    def report(self, count: int, seed: int) -> RangeReport:
        rising = self._rising()
        if rising:
            self.fails(upper_corner(self.symbols))
            # A size that is no whole number at the top says nothing about those below.
            rising = set() if self.impossible else rising
        reason, proof, points = self._plan_of_points(rising, count, seed)
        failing = next((point for point in points if self.fails(point)), None)
        failure: Failure | None = None
        limits: tuple[tuple[str, int | None], ...] = tuple((symbol.name, None) for symbol in self.symbols)
        if failing is not None:
            limits = tuple((symbol.name, self._limit(symbol, rising)) for symbol in self.symbols)
            failure = self.fails(self._first(limits, failing, rising))
            proof, reason = Proof.PROVED, "found and checked"
        if not self.points and self.first_impossible:
            raise self.first_impossible
        return RangeReport(
            proof,
            reason,
            tuple((symbol.name, *ends(symbol)) for symbol in self.symbols),
            tuple(symbol.name for symbol in self.symbols if symbol.high is None),
            self.points,
            self.impossible,
            self.arena,
            failure,
            limits,
        )

    def fails(self, values: Values) -> Failure | None:
        """What is wrong at `values`, None when nothing is or when the values are impossible."""
        key = tuple(values.values())
        if key not in self._failures:
            try:
                self._failures[key] = self._checked(values)
                self.points += 1
            except ImpossibleSizeError as error:
                self._failures[key], self.impossible = None, self.impossible + 1
                self._no_sizes.add(key)
                self.first_impossible = self.first_impossible or error
        return self._failures[key]

    def _checked(self, values: Values) -> Failure | None:
        point = tuple(values.items())
        try:
            sizes = self.problem.sizes(values)
            named = [
                name
                for name, formula in self.placeless.items()
                if size_at(formula, values, self.problem.graph.name, f"storage {name!r}")
            ]
        except ImpossibleSizeError:
            raise
        except InputError as error:
            return Failure(point, (), str(error))
        offsets = self.plan.offsets
        if len(sizes) and int(sizes.max()) > np.iinfo(np.int64).max - int(offsets.max()):
            return Failure(point, (), "offsets and sizes pass 2^63-1")
        self.arena = max(self.arena, int((offsets + sizes).max(initial=0)))
        for name in named:
            return Failure(point, (name,), f"{name} has bytes, but none where the plan was made: no place")
        broken = validate_plan(adopt(replace(self.problem.frame, size=sizes), offsets)).violations
        for violation in broken:
            if violation.rule is Rule.OVERLAP:
                return Failure(point, violation.buffers, violation.message)
        return None

    def _rising(self) -> set[str]:
        """The symbols with which every size is proved to grow."""
        formulas = [*self.problem.formulas, *self.placeless.values()]
        limited = {symbol.name: replace(symbol, high=ends(symbol)[1]) for symbol in self.symbols}
        return set(limited) - {
            name
            for formula in formulas
            for name in formula.names
            if trend(formula, name, [limited[each] for each in formula.names])
            not in (Trend.UP, Trend.CONSTANT)
        }

    def _plan_of_points(self, rising: set[str], count: int, seed: int) -> tuple[str, Proof, Iterator[Values]]:
        """Why, how surely, and which points are to be checked."""
        rest = [symbol for symbol in self.symbols if symbol.name not in rising]
        top = upper_corner(self.symbols)
        if not rest:
            return "no size falls when a symbol grows, and the upper corner holds", Proof.PROVED, iter([top])
        names = [symbol.name for symbol in rest]
        if math.prod(high - low + 1 for low, high in map(ends, rest)) <= MOST_ENUMERATED:
            every = product(*(range(low, high + 1) for low, high in map(ends, rest)))
            points = ({**top, **dict(zip(names, point, strict=True))} for point in every)
            return f"every value of {', '.join(names)} was tried", Proof.PROVED, points
        reason = f"sizes are not known to grow with {', '.join(names)}"
        return reason, Proof.SAMPLED, self._sampled(rest, top, count, seed)

    def _sampled(self, rest: Sequence[Symbol], top: Values, count: int, seed: int) -> Iterator[Values]:
        for symbol in rest:
            for value in steps_between(*ends(symbol), SCANNED):
                yield {**self.hints, symbol.name: value}
        for point in (*corners(rest), *samples(rest, count, seed)):
            yield {**top, **point}

    def _limit(self, symbol: Symbol, rising: set[str]) -> int | None:
        """The first value of `symbol` that fails with all others at their hints; where sizes are not
        known to grow with it by trying all, or if these are too many some, and one between may be missed."""
        low, high = ends(symbol)
        every = MOST_ENUMERATED if high - low < MOST_ENUMERATED else SCANNED
        values = [low, high] if symbol.name in rising else steps_between(low, high, every)
        before = low - 1
        for value in values:
            if self.fails({**self.hints, symbol.name: value}):
                return self._bisect(self.hints, symbol.name, before, value)
            before = value
        return None

    def _first(self, limits: Sequence[tuple[str, int | None]], failing: Values, rising: set[str]) -> Values:
        for name, value in limits:
            if value is not None:
                return {**self.hints, name: value}
        point = dict(failing)
        for symbol in self.symbols:
            if symbol.name in rising:
                point[symbol.name] = self._bisect(point, symbol.name, symbol.low - 1, point[symbol.name])
        return point

    def _bisect(self, point: Values, name: str, good: int, bad: int) -> int:
        """The first failing value of `name` above `good`, all others as in `point`; `bad` fails."""
        while bad - good > 1:
            middle = self._possible(point, name, good, bad)
            if middle is None:
                break
            if self.fails({**point, name: middle}):
                bad = middle
            else:
                good = middle
        return bad

    def _possible(self, point: Values, name: str, good: int, bad: int) -> int | None:
        """A value of `name` strictly between, as near the middle as there is one at which sizes are possible;
        None when there is none (or none near, where the range is very large)."""
        middle = (good + bad) // 2
        for distance in range(min(bad - good, MOST_ENUMERATED)):
            for value in dict.fromkeys((middle + distance, middle - distance)):
                if good < value < bad:
                    values = {**point, name: value}
                    self.fails(values)
                    if tuple(values.values()) not in self._no_sizes:
                        return value
        return None


def _symbolic(plan: Plan) -> tuple[SymbolicProblem, dict[str, Formula]]:
    """The sizes of the plan's buffers as formulas, and the formulas of storages that have no place in it."""
    frame, origin = plan.problem, plan.problem.origin
    if origin is None:
        raise InputError(
            frame.name, "plan", "a problem that was made of no graph", "a plan of a graph with symbols"
        )
    graph = origin.graph
    if not graph.symbols:
        raise InputError(frame.name, "symbols", "none", "a graph with symbols")
    if any(gap.low < gap.high for gaps in frame.gaps.values() for gap in gaps):
        raise InputError(
            frame.name, "gaps", "windows in bytes, which have no formulas", "gaps of whole buffers"
        )
    storages = {storage.name: storage for storage in graph.storages}
    by_name = {symbol.name: symbol for symbol in graph.symbols}
    formulas: list[Formula] = []
    for name in frame.names:
        place = f"buffer {name!r}"
        if name not in storages:
            raise InputError(frame.name, place, "no storage of that name", "storages of the graph")
        text = storages[name].formula or str(storages[name].nbytes)
        formulas.append(parse(text, by_name, frame.name, place))
    problem = SymbolicProblem(graph, origin.schedule, frame, *numbered(formulas))
    problem = replace(problem, round_sizes=_are_rounded(plan, problem))
    with_inputs = any(storages[name].role is Role.INPUT for name in frame.names)
    every = symbolic_problem(graph, origin.schedule, plan_inputs=with_inputs)
    placed = set(frame.names)
    missing = {
        name: every.formula(row)
        for row, name in enumerate(every.frame.names)
        if name not in placed and storages[name].formula and not storages[name].nbytes
    }
    return problem, missing


def _are_rounded(plan: Plan, problem: SymbolicProblem) -> bool:
    """Whether the plan's sizes are the formulas' rounded up to the alignment."""
    planned, exact = plan.problem.size, problem.sizes(problem.values())
    if np.array_equal(planned, exact):
        return False
    if np.array_equal(planned, exact + -exact % plan.problem.alignment):
        return True
    row = int(np.argmax(planned != exact))
    buffer = plan.problem[row]
    raise InputError(
        plan.problem.name,
        f"buffer {buffer.name!r}",
        f"{buffer.size} bytes in the plan",
        f"{exact[row]}, which its formula {problem.formula(row).text} gives at the symbols' hints",
    )
