"""The smallest change that makes a problem fit: one edit of each kind, or several buffers to drop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from memplan_engine.bounds import contributors
from memplan_engine.feasibility.decision import Decision
from memplan_engine.plan import Plan
from memplan_engine.problem import Buffer, Problem
from memplan_engine.profile import live_at
from memplan_engine.strategies.base import NODES_PER_SECOND, SolveLimits, limits_were_budget
from memplan_engine.verdict import Verdict
from memplan_engine.what_if.edits import Align, Drop, Edit, Pin, Resize, Shorten, Split
from memplan_engine.what_if.suggestions.cover import (
    Cover,
    Shortage,
    find_shortage,
    least_losses,
    smallest_cover,
)
from memplan_engine.what_if.suggestions.heuristic import leave_out
from memplan_engine.what_if.suggestions.trials import Trials, decide_from

DEFAULT_SECONDS = 5.0
"""Default time limit of a look for suggestions."""
LEAST_SECONDS_EACH = 1.0
"""How long one trial may take at least."""
DECIDING_SECONDS = 2.0
"""How long to decide whether it fits."""
MOST_TRIES = 16
"""How many buffers are tried one after another before every kind of edit goes on by halving."""
MOST_ROUNDS = 6
"""How often the set of buffers to drop may grow because packing loses what is gained."""


MANY = 5_000
"""From so many buffers on trials seldom come to an end in time, and the heuristic goes first."""
SHARE_OF_MANY = 0.6
"""What the heuristic may take of the time then."""
QUICK_SECONDS = 0.3
"""What it may take beyond the limit where nothing else was found."""


RELAXATIONS: tuple[type[Pin | Align | Split], ...] = (Pin, Align, Split)
"""The edits that change no bytes, in the order in which they are tried and offered."""


class Kind(StrEnum):
    """What a suggestion does."""

    RELAX = "relax"
    SHRINK = "shrink"
    DROP = "drop"
    CUT = "cut the lifetime"
    DROP_SEVERAL = "drop several"
    SHRINK_SEVERAL = "shrink several"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """After `edits` the problem fits, into an arena of `arena_bytes`; `nbytes` are the bytes they change.

    `proved`: nothing smaller of this kind will do. SHRINK: no buffer needs to lose fewer bytes; DROP: no
    smaller buffer could go instead; CUT: of no smaller buffer could the end of the lifetime be cut instead;
    DROP_SEVERAL: no fewer buffers, and no as many of fewer bytes; RELAX changes no bytes at all;
    SHRINK_SEVERAL never is. `exact` is false for a set that was chosen greedily. `heuristic`: found without
    any search, because nothing else was in time; less may well do. `short_of_all`, of a SHRINK that
    is not proved: it is but for buffers of fewer bytes, one of which may do by losing all of them.
    """

    kind: Kind
    edits: tuple[Edit, ...]
    nbytes: int
    arena_bytes: int
    proved: bool
    exact: bool = True
    heuristic: bool = False
    short_of_all: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class FitReport:
    """The answer to "does it fit, and if not, what would make it?".

    `decision` has the verdict with its plan or proof; `shortage` says where more is live than fits (None
    when only packing stands in the way); `suggestions` are ranked by the bytes they change. `complete`:
    nothing was left untried for want of time.
    """

    decision: Decision
    shortage: Shortage | None
    suggestions: tuple[Suggestion, ...]
    complete: bool


def suggest(
    decision: Decision,
    *,
    seconds: float = DEFAULT_SECONDS,
    threads: int = 0,
    seed: int = 0,
    limits: SolveLimits | None = None,
) -> FitReport:
    """The smallest change of each kind that makes `decision.plan.problem` fit into its capacity; of those
    that change no bytes one of each edit: an offset freed, an alignment given up, a buffer in two.

    Candidates come from the proof that it does not fit: where live bytes pass the capacity, only a buffer
    that is live at every overfull step can help alone; else one of the core. Each trial is decided by the
    strategy `auto`. Where no trial fits in time, the best that a heuristic finds is suggested: of many
    buffers it is looked for first. `limits` replace `seconds`, `threads` and `seed`. With one thread, nodes
    and no seconds, equal plans give equal suggestions.
    """
    if decision.placed is Verdict.FITS:
        return FitReport(decision, None, (), True)
    limits = limits or SolveLimits(seconds, seed, threads)
    with limits.running():
        return _suggested(decision, limits)


def _suggested(decision: Decision, limits: SolveLimits) -> FitReport:
    problem, capacity, seconds = decision.plan.problem, decision.capacity, limits.remaining
    many = len(problem) > MANY
    quick = _quickly(decision, limits.part(SHARE_OF_MANY * seconds)) if many else ()
    trials = Trials(problem, capacity, limits, max(LEAST_SECONDS_EACH, seconds / 5))
    shortage = find_shortage(problem, capacity)
    search = _Search(trials, shortage, *_candidates(decision, shortage), decision)
    # One relaxation goes before all other kinds; the time that these leave is for the rest.
    waiting = list(RELAXATIONS)
    tried: list[Suggestion | None] = []
    while waiting and not any(tried):
        tried.append(search.relax(waiting.pop(0)))
    tried += [search.shrink(), dropped := search.drop(), search.cut()]
    if dropped is None:
        tried += search.several()
    tried += [search.relax(each) for each in waiting]
    suggestions = [suggestion for suggestion in tried if suggestion is not None]
    suggestions = suggestions or list(quick) or _quickly(decision, _beyond(limits))
    ranked = sorted(
        suggestions, key=lambda suggestion: (suggestion.nbytes, list(Kind).index(suggestion.kind))
    )
    return FitReport(decision, search.shortage, tuple(ranked), not trials.over)


@limits_were_budget
def fit_into(
    plan: Plan, capacity: int, *, limits: SolveLimits | None = None, seconds: float = DEFAULT_SECONDS
) -> FitReport:
    """Whether the problem of `plan` fits into `capacity` bytes, decided under `limits` (2 s unless given)
    where the plan does not say so already; and, looked for during `seconds`, what would make it. Where
    `limits` have nodes, suggestions have as many nodes instead of `seconds`.

    Raises InputError for a capacity below 0.
    """
    limits = limits or SolveLimits(DECIDING_SECONDS)
    searching = limits.again(reports=False)
    if not limits.counts_nodes:
        searching.seconds = seconds
    decision = decide_from(plan, capacity, limits.again())
    return suggest(decision, limits=searching)


def _beyond(limits: SolveLimits) -> SolveLimits:
    """Return limits for a last quick look after `limits` have ended."""
    if limits.counts_nodes:
        return SolveLimits(limits.seconds, nodes=int(QUICK_SECONDS * NODES_PER_SECOND))
    return SolveLimits(QUICK_SECONDS)


def _quickly(decision: Decision, limits: SolveLimits) -> list[Suggestion]:
    """What a heuristic would leave out, or shrink; [] where even that is nothing."""
    problem = decision.plan.problem
    dropped, shrunk = leave_out(decision.plan, decision.capacity, limits)
    several = []
    for reduction, kinds in (
        (shrunk, (Kind.SHRINK, Kind.SHRINK_SEVERAL)),
        (dropped, (Kind.DROP, Kind.DROP_SEVERAL)),
    ):
        if reduction is None or not reduction.losses:
            continue
        edits = tuple(
            Drop(problem.names[row])
            if reduction is dropped
            else Resize(problem.names[row], int(problem.size[row]) - loss)
            for row, loss in reduction.losses.items()
        )
        kind = kinds[len(edits) > 1]
        several.append(Suggestion(kind, edits, reduction.nbytes, reduction.arena_bytes, False, False, True))
    return several


def _candidates(decision: Decision, shortage: Shortage | None) -> tuple[tuple[int, ...], bool]:
    """The buffers of which one must change, smallest first, and whether that is proved."""
    problem = decision.plan.problem
    if shortage is not None:
        rows, proved = np.array(shortage.single, dtype=np.int64), True
    elif decision.placed is Verdict.DOES_NOT_FIT:
        rows, proved = contributors(problem, decision.bound), True
    else:
        rows, proved = live_at(problem, decision.bound.step), False
    return tuple(rows[np.lexsort((rows, problem.size[rows]))].tolist()), proved


@dataclass(slots=True)
class _Search:
    trials: Trials
    shortage: Shortage | None
    rows: tuple[int, ...]
    proved: bool
    """Whether one of `rows` must change."""
    decision: Decision

    @property
    def problem(self) -> Problem:
        return self.trials.problem

    def relax(self, edit_type: type[Pin | Align | Split]) -> Suggestion | None:
        """An offset freed, an alignment given up or a buffer in two, the largest buffers first: the live
        bytes stay as they are."""
        if self.shortage is not None:
            return None
        edits = [
            each for row in self.rows[::-1] if (each := _relaxed(self.problem[row], edit_type)) is not None
        ]
        for edit in edits[:MOST_TRIES]:
            if self.trials.fits(edit):
                return Suggestion(Kind.RELAX, (edit,), 0, self.trials.arena(edit), True)
        return None

    def drop(self) -> Suggestion | None:
        """The smallest buffer without which it fits."""
        drops = [Drop(self.problem.names[row]) for row in self.rows]
        index = _first(drops, self.trials)
        if index is None:
            return None
        row, edit = self.rows[index], drops[index]
        size = self.problem.size
        smaller = [drop for drop, other in zip(drops, self.rows, strict=True) if size[other] < size[row]]
        proved = self.proved and all(self.trials.refused(drop) for drop in smaller)
        return Suggestion(Kind.DROP, (edit,), int(size[row]), self.trials.arena(edit), proved)

    def cut(self) -> Suggestion | None:
        """The smallest buffer for which it is enough to end before the peak."""
        step = self.shortage.stretches[0].start if self.shortage else self.decision.bound.step
        start, size = self.problem.start, self.problem.size
        able = [row for row in self.rows if start[row] < step]
        cuts = [Shorten(self.problem.names[row], int(start[row]), step) for row in able]
        index = _first(cuts, self.trials)
        if index is None:
            return None
        row, edit = able[index], cuts[index]
        # An earlier end might do where this one does not, but only if leaving the buffer out would.
        smaller = [other for other in self.rows if size[other] < size[row]]
        proved = self.proved and all(
            (self.shortage is not None and start[other] >= step)
            or self.trials.refused(Drop(self.problem.names[other]))
            for other in smaller
        )
        return Suggestion(Kind.CUT, (edit,), int(size[row]), self.trials.arena(edit), proved)

    def shrink(self) -> Suggestion | None:
        """The buffer that has to lose the fewest bytes."""
        floor = self.shortage.nbytes if self.shortage else 1
        largest = self.rows[::-1][:MOST_TRIES]
        best: tuple[int, int] | None = next(
            ((floor, row) for row in largest if self._fits_without(row, floor)), None
        )
        if best is None:
            for row in largest:
                least = self._least_loss(row, best[0] if best else None)
                best = (least, row) if least is not None else best
        if best is None:
            return None
        loss, row = best
        short_of_all, proved = (True, True) if loss == floor else self._no_smaller_loss(loss - 1)
        edit = self._without(row, loss)
        arena = self.trials.arena(edit)
        return Suggestion(Kind.SHRINK, (edit,), loss, arena, proved, short_of_all=short_of_all and not proved)

    def _no_smaller_loss(self, loss: int) -> tuple[bool, bool]:
        """Whether it is proved that no buffer can do with a loss of at most `loss` bytes that leaves some of
        it; and that none can even with one that leaves nothing."""
        if not self.proved or len(self.rows) > MOST_TRIES:
            return False, False
        size = self.problem.size
        most = [(row, min(loss, max(0, int(size[row]) - 1))) for row in self.rows]
        if not all(self.trials.refused(self._without(row, least)) for row, least in most):
            return False, False
        rows = [row for row in self.rows if size[row] <= loss]
        return True, all(self.trials.refused(self._without(row, loss)) for row in rows)

    def _least_loss(self, row: int, below: int | None) -> int | None:
        """By how many bytes the buffer must shrink, by halving: what fits goes on fitting when it shrinks.
        None when that is not fewer than `below`."""
        size = int(self.problem.size[row])
        high = size - 1 if below is None else min(below, size) - 1
        if high < 1 or not self._fits_without(row, high):
            return None
        low = 0
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._fits_without(row, middle) else (middle, high)
        return high

    def _fits_without(self, row: int, loss: int) -> bool:
        return loss < int(self.problem.size[row]) and self.trials.fits(self._without(row, loss))

    def _without(self, row: int, loss: int) -> Resize:
        return Resize(self.problem.names[row], max(0, int(self.problem.size[row]) - loss))

    def several(self) -> list[Suggestion | None]:
        """The fewest buffers to drop, more of them where packing loses what that gains; and the same ones
        shrunk as little as that allows."""
        target, proved = self.trials.capacity, True
        for _ in range(MOST_ROUNDS):
            if target < 0 or self.trials.over:
                break
            cover = smallest_cover(self.problem, target, lambda: self.trials.over)
            if cover is None:
                break
            edits = tuple(Drop(self.problem.names[row]) for row in cover.rows)
            if self.trials.fits(*edits):
                size = int(self.problem.size[list(cover.rows)].sum())
                arena = self.trials.arena(*edits)
                dropped = Suggestion(
                    Kind.DROP_SEVERAL, edits, size, arena, proved and cover.exact, cover.exact
                )
                return [dropped, self._shrink_several(cover, target)]
            if self.trials.decision(edits) is not None:
                # What the best packing lost beyond the live bytes has to go as well.
                target -= self.trials.arena(*edits) - self.trials.capacity
            proved = False
        return []

    def _shrink_several(self, cover: Cover, target: int) -> Suggestion | None:
        losses = least_losses(self.problem, cover.rows, target)
        edits = tuple(self._without(row, loss) for row, loss in losses.items())
        if len(edits) < 2 or not self.trials.fits(*edits):
            return None
        return Suggestion(
            Kind.SHRINK_SEVERAL, edits, sum(losses.values()), self.trials.arena(*edits), False, cover.exact
        )


def _relaxed(buffer: Buffer, edit_type: type[Pin | Align | Split]) -> Edit | None:
    """The edit of type `edit_type` that gives `buffer` more room; None where it has none. At a fixed offset
    neither alignment nor parts make a difference."""
    if edit_type is Pin:
        return None if buffer.fixed is None else Pin(buffer.name, None)
    if buffer.fixed is not None:
        return None
    if edit_type is Align:
        return Align(buffer.name, 1) if buffer.alignment > 1 else None
    return Split(buffer.name, 2) if buffer.size > buffer.alignment else None


def _first(edits: Sequence[Edit], trials: Trials) -> int | None:
    """The first of `edits` with which it fits: the first few in turn, then by halving, for what a larger
    buffer frees is mostly enough where a smaller one's is."""
    for place, edit in enumerate(edits[:MOST_TRIES]):
        if trials.fits(edit):
            return place
    low, high = MOST_TRIES - 1, len(edits) - 1
    if high <= low or not trials.fits(edits[high]):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if trials.fits(edits[middle]) else (middle, high)
    return high
