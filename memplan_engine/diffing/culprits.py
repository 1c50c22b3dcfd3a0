"""Why the peak changed, line by line: what a moment holds more or less, grouped by who is to blame for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from memplan_engine.analysis.buffer_names import buffer_names, op_names
from memplan_engine.analysis.provenance import UNKNOWN, Provenance, find_provenance
from memplan_engine.diffing.moment import CAUSES, Cause, Footing, Moment, compare_moments, counterpart
from memplan_engine.diffing.regression import Diff
from memplan_engine.diffing.rows import profiles_beside
from memplan_engine.graph import Op, Source
from memplan_engine.kernels.alignment import NOBODY
from memplan_engine.problem import Ints, Problem
from memplan_engine.profile import Load, live_bytes

LEAST_GROWTH, LEAST_HEIGHT = 0.01, 0.5
"""Of the head's peak: another peak that grew by less, or that is lower, is not reported."""
MOST_CANDIDATES = 16
"""How many other peaks are looked at, the highest first."""


class Fate(StrEnum):
    """How a tensor of both sides comes to be live at a step at which it was not, or no longer is."""

    RETURNED = "returned"
    LAST_READER = "another last reader"
    KEPT = "held past its last read"
    FREED = "last reader moved"
    MADE = "maker moved"
    STEP = "in use at one of the two steps"


@dataclass(frozen=True, slots=True)
class Holder:
    """Until when a buffer is held, and by whom: the last `step` at which it is live, and the op that touches
    it last, or, where it is `returned` and so held to the end, the op that makes what is (None where no graph
    says so); `op_label` is what people call that op. `kept`: it is live after that op, as where a reference
    in Python outlives the last read."""

    step: int
    op: Op | None = None
    returned: bool = False
    op_label: str = ""
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """A buffer that holds more or less at a moment: bytes on both sides, who held it until when on each (None
    where it is not there), and where it comes from, "" and None for a side that does not have it. `label` is
    what people call it: in the head, or in the base where only that has it."""

    base: str
    head: str
    label: str
    base_bytes: int
    head_bytes: int
    base_holder: Holder | None
    base_from: Provenance | None
    head_holder: Holder | None
    head_from: Provenance | None

    @property
    def name(self) -> str:
        """The head's name, or the base's where only that has it."""
        return self.head or self.base

    @property
    def delta(self) -> int:
        """How many bytes more the head holds."""
        return self.head_bytes - self.base_bytes

    @property
    def provenance(self) -> Provenance:
        """Where it comes from, in the head if it is there."""
        return self.head_from or self.base_from or UNKNOWN


@dataclass(frozen=True, slots=True)
class Culprit:
    """Buffers that one line makes hold more or less at a moment, the largest difference first. `fate` is why
    they are live on one side alone, None for other causes; `source` the line of the last reader where that
    is the fate, else the line that makes them."""

    cause: Cause
    fate: Fate | None
    source: Source | None
    buffers: tuple[Held, ...]

    @property
    def nbytes(self) -> int:
        """What they add to the moment's difference."""
        return sum(buffer.delta for buffer in self.buffers)

    @property
    def largest(self) -> Held:
        """The one that adds most."""
        return self.buffers[0]


@dataclass(frozen=True, slots=True)
class Explanation:
    """`delta` bytes taken apart: the culprits and `elsewhere` sum to it. Culprits in the direction of `delta`
    come first, the largest first. `knows_why`: the two steps of `moment` do stand for each other. `second`
    is another peak that grew, for another reason."""

    delta: int
    moment: Moment
    culprits: tuple[Culprit, ...]
    elsewhere: int
    knows_why: bool
    second: Explanation | None = None


def explain(diff: Diff) -> Explanation:
    """Δdemand by culprit, exactly: at the larger of the two peaks, as `Diff.moment` has it. O(n log n)."""
    culprits = tuple(_culprits(diff, diff.moment, diff.demand_delta))
    knows_why = diff.related and diff.moment.footing is not Footing.NOTHING
    second = _second_peak(diff, {_reason(culprit) for culprit in culprits}) if knows_why else None
    return Explanation(diff.demand_delta, diff.moment, culprits, diff.elsewhere, knows_why, second)


def _second_peak(diff: Diff, blamed: set[tuple[object, ...]]) -> Explanation | None:
    """The highest other peak of the head that grew for another reason than those `blamed`, where it is high
    enough and grew enough to be of interest. A peak holds more than the steps beside it."""
    for step in _candidates(diff):
        base_step, footing = counterpart(step, diff.timeline, diff.base_load)
        if footing is Footing.NOTHING:
            continue
        problems = diff.base.problem, diff.head.problem
        moment = compare_moments(problems[0], base_step, problems[1], step, diff.matching, footing)
        if moment.delta < _least(diff):
            continue
        culprits = tuple(_culprits(diff, moment, moment.delta))
        if _reason(culprits[0]) not in blamed:
            return Explanation(moment.delta, moment, culprits, 0, True)
    return None


def _reason(culprit: Culprit) -> tuple[object, ...]:
    """What tells two reasons apart. One change of a shape makes tensors larger everywhere."""
    if culprit.cause is Cause.LARGER:
        return (culprit.cause,)
    line = culprit.source
    return culprit.cause, culprit.fate, (line.file, line.line) if line else culprit.largest.name


def _least(diff: Diff) -> int:
    return max(1, int(LEAST_GROWTH * diff.head_load.peak))


def _candidates(diff: Diff) -> list[int]:
    """Steps of the head's other peaks that grew by buffers which change nothing at the first, the highest
    first."""
    moment, load = diff.moment, diff.head_load
    changed = np.flatnonzero(moment.base_held != moment.head_held)
    sides = ((diff.base_load, moment.base[changed]), (load, moment.head[changed]))
    base, head = (_live_without(load, rows) for load, rows in sides)
    grown = head - profiles_beside(diff, base)
    # A plateau counts by its first section, and one that only rises or falls is none.
    rises = np.diff(load.live, prepend=-1) > 0
    steep = np.flatnonzero(np.diff(load.live, append=-1) != 0)
    falls = np.zeros(len(load.live), dtype=np.bool_)
    if len(steep):
        following = steep[np.minimum(np.searchsorted(steep, np.arange(len(load.live))), len(steep) - 1)]
        falls = np.append(load.live, -1)[following + 1] < load.live
    high = load.live >= LEAST_HEIGHT * load.peak
    found = np.flatnonzero(rises & falls & high & (grown >= _least(diff)))
    found = found[found != load.sections.at(moment.head_step)]
    order = np.lexsort((found, -load.live[found]))
    return load.sections.bounds[found[order][:MOST_CANDIDATES]].tolist()  # type: ignore[no-any-return]


def _live_without(load: Load, rows: Ints) -> Ints:
    """The live bytes, a value a section, of all buffers but `rows`."""
    pieces = load.pieces
    kept = np.isin(pieces.owner, rows, invert=True)
    return live_bytes(load.sections, np.where(kept, pieces.high - pieces.low, 0))


def _culprits(diff: Diff, moment: Moment, delta: int) -> list[Culprit]:
    """What `moment` holds more or less, by culprit."""
    groups: dict[tuple[object, ...], list[tuple[Cause, Fate | None, Source | None, Held]]] = defaultdict(list)
    for cause, fate, source, held in _changes(diff, moment):
        where = (source.file, source.line) if source else (held.base, held.head)
        groups[cause, fate, *where].append((cause, fate, source, held))
    culprits = []
    for parts in groups.values():
        buffers = sorted((held for *_, held in parts), key=lambda held: -abs(held.delta))
        cause, fate, source, _ = parts[0]
        culprits.append(Culprit(cause, fate, source, tuple(buffers)))
    against = -1 if delta < 0 else 1
    return sorted(culprits, key=lambda each: (each.nbytes * against < 0, -abs(each.nbytes)))


def _changes(diff: Diff, moment: Moment) -> Iterator[tuple[Cause, Fate | None, Source | None, Held]]:
    """Each buffer of `moment` that differs, why, and the line that is to blame."""
    changed = np.flatnonzero(moment.cause != NOBODY)
    columns = (moment.base, moment.head, moment.base_held, moment.head_held, moment.cause)
    for base, head, before, after, number in zip(*(each[changed].tolist() for each in columns), strict=True):
        cause = CAUSES[number]
        base_side, head_side = _side(diff.base.problem, base), _side(diff.head.problem, head)
        names = base_side[0], head_side[0], head_side[1] or base_side[1]
        held = Held(*names, before, after, *base_side[2:], *head_side[2:])
        fate = _fate(diff, moment, (base, head), held) if cause in (Cause.LONGER, Cause.SHORTER) else None
        yield cause, fate, _blamed(held, fate), held


def _side(problem: Problem, row: int) -> tuple[str, str, Holder | None, Provenance | None]:
    if row == NOBODY:
        return "", "", None, None
    label, provenance = buffer_names(problem)[row], find_provenance(problem)[row]
    return problem.names[row], label, holder_of(problem, row), provenance


def _blamed(held: Held, fate: Fate | None) -> Source | None:
    """The line that is to blame: of the last reader on the side on which the buffer is live where that is
    another one, else of what makes it."""
    holder = held.head_holder if held.head_bytes else held.base_holder
    if fate is Fate.LAST_READER and holder and holder.op:
        return holder.op.source
    return held.provenance.source


def _fate(diff: Diff, moment: Moment, rows: tuple[int, int], held: Held) -> Fate:
    """Why a buffer of both sides holds bytes at one of the two steps alone."""
    before, after = held.base_holder, held.head_holder
    sides = ((diff.base.problem, moment.base_step), (diff.head.problem, moment.head_step))
    problem, step = sides[held.base_bytes > 0]
    row = rows[held.base_bytes > 0]
    # Where the op of one step has no counterpart, only a lifetime that did change says anything.
    changed = int(diff.lived[np.searchsorted(diff.matching.pairs[0], rows[0])]) * held.delta > 0
    in_gap = problem.start[row] <= step < problem.end[row]
    if in_gap or before is None or after is None or not (changed or moment.footing is Footing.SAME_OP):
        return Fate.STEP
    if problem.start[row] > step:
        return Fate.MADE
    if before.returned != after.returned:
        return Fate.RETURNED
    if before.kept != after.kept and after.kept == (held.delta > 0):
        return Fate.KEPT
    known = before.op is not None and after.op is not None
    return Fate.LAST_READER if known and before.step not in diff.timeline.base_of(after.step) else Fate.FREED


def holder_of(problem: Problem, row: int) -> Holder:
    """Who holds the buffer `row` longest: O(ops) once a problem."""
    name, (last, returned, steps) = problem.names[row], problem.once(_last_ops)
    op = returned.get(name) or last.get(name)
    until = int(problem.end[row]) - 1
    kept = op is not None and name not in returned and until > steps[op.name]
    return Holder(until, op, name in returned, op_names(problem)[op.name] if op else "", kept)


def _last_ops(problem: Problem) -> tuple[dict[str, Op], dict[str, Op | None], dict[str, int]]:
    """The op that touches each storage last; for those that are returned the op that makes what is; the step
    of each op."""
    if problem.origin is None:
        return {}, {}, {}
    graph, steps = problem.origin.graph, problem.origin.schedule.step_of_op
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    last: dict[str, Op] = {}
    maker: dict[str, Op] = {}
    for op, _ in sorted(zip(graph.ops, steps, strict=True), key=lambda pair: pair[1]):
        maker |= dict.fromkeys(op.outputs, op)
        last |= {home[name]: op for name in (*op.inputs, *op.mutates, *op.outputs)}
    step_of = {op.name: step for op, step in zip(graph.ops, steps, strict=True)}
    return last, {home[name]: maker.get(name) for name in graph.outputs}, step_of
