"""Where more is live than a capacity holds, and the buffers whose absence leaves no step overfull."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from memplan_engine.problem import Ints, Pieces, Problem
from memplan_engine.profile import Load, Sections, bytes_at, live_at, load_of


@dataclass(frozen=True, slots=True)
class Stretch:
    """In the steps `[start, end)` more is live than fits at each; `nbytes` live bytes at the worst."""

    start: int
    end: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Member:
    """A buffer live at some overfull step: its index, size in bytes, and at how many of them it is live."""

    buffer: int
    nbytes: int
    steps: int


@dataclass(frozen=True, slots=True)
class Shortage:
    """The live bytes pass `capacity`: whatever the packing, they must fall by `nbytes` at `step`, the worst.

    `stretches` are all overfull steps, in order of time, `steps` how many there are; `members` whoever is
    live at one of them, those at most steps first, then the largest. `single` has the buffers (ascending)
    that alone could make room: live at every overfull step with enough bytes.
    """

    capacity: int
    nbytes: int
    step: int
    stretches: tuple[Stretch, ...]
    members: tuple[Member, ...]
    single: tuple[int, ...]

    @property
    def steps(self) -> int:
        """The number of overfull steps."""
        return sum(stretch.end - stretch.start for stretch in self.stretches)


def find_shortage(problem: Problem, capacity: int) -> Shortage | None:
    """The shortage of `capacity` bytes; None when the live bytes never pass it. O(n log n)."""
    load = load_of(problem)
    pieces, sections, live = load.pieces, load.sections, load.live
    over = np.flatnonzero(live > capacity)
    if not len(over):
        return None
    worst = over[int(np.argmax(live[over]))]
    return Shortage(
        capacity,
        int(live[worst]) - capacity,
        int(sections.bounds[worst]),
        _stretches(sections, live, over),
        _members(problem, pieces, sections, over),
        tuple(_single(problem, load, over, live - capacity).tolist()),
    )


def _stretches(sections: Sections, live: Ints, over: Ints) -> tuple[Stretch, ...]:
    """Overfull sections, those next to each other as one."""
    runs = np.split(over, np.flatnonzero(np.diff(over) > 1) + 1)
    bounds = sections.bounds
    return tuple(Stretch(int(bounds[run[0]]), int(bounds[run[-1] + 1]), int(live[run].max())) for run in runs)


def _members(problem: Problem, pieces: Pieces, sections: Sections, over: Ints) -> tuple[Member, ...]:
    widths = np.zeros(len(sections) + 1, dtype=np.int64)
    widths[over + 1] = np.diff(sections.bounds)[over]
    before = np.cumsum(widths)
    steps = np.zeros(len(problem), dtype=np.int64)
    held = (pieces.high > pieces.low) * (before[sections.last] - before[sections.first])
    np.add.at(steps, pieces.owner, held)
    rows = np.flatnonzero(steps)
    rows = rows[np.lexsort((rows, -problem.size[rows], -steps[rows]))]
    return tuple(Member(row, int(problem.size[row]), int(steps[row])) for row in rows.tolist())


def _single(problem: Problem, load: Load, over: Ints, excess: Ints) -> Ints:
    """Who holds, in every overfull section, at least what is too much there."""
    pieces, sections = load.pieces, load.sections
    first, last = int(sections.bounds[over[0]]), int(sections.bounds[over[-1]])
    spanning = (problem.start <= first) & (problem.end > last) & (problem.size >= excess[over].max())
    for buffer in [row for row in problem.gaps if spanning[row]]:
        own = range(int(pieces.first[buffer]), int(pieces.first[buffer + 1]))
        held = np.zeros(len(sections), dtype=np.int64)
        for piece in own:
            held[sections.first[piece] : sections.last[piece]] = pieces.high[piece] - pieces.low[piece]
        spanning[buffer] = bool((held[over] >= excess[over]).all())
    return np.flatnonzero(spanning)


def _stretches_of(load: Load, row: int) -> list[tuple[int, int, int]]:
    """Where a buffer is live: sections `[first, last)` and the bytes that it holds there."""
    pieces, sections = load.pieces, load.sections
    own = slice(int(pieces.first[row]), int(pieces.first[row + 1]))
    held = pieces.high[own] - pieces.low[own]
    return list(zip(sections.first[own].tolist(), sections.last[own].tolist(), held.tolist(), strict=True))


def _without(load: Load, rows: Sequence[int]) -> Ints:
    """The live bytes of each section when the buffers `rows` are left out."""
    live = load.live.copy()
    for row in rows:
        for first, last, held in _stretches_of(load, row):
            live[first:last] -= held
    return live


def greedy_cover(problem: Problem, capacity: int, stop: Callable[[], bool]) -> tuple[int, ...] | None:
    """Buffers (ascending) to leave out: at the worst step whoever holds most bytes over most overfull
    sections, again and again; at last without those not needed. None when `stop` ended it."""
    chosen: dict[int, None] = {}
    load = load_of(problem)
    live, bounds = load.live.copy(), load.sections.bounds
    while live.max(initial=0) > capacity:
        if stop():
            return None
        rows = live_at(problem, int(bounds[np.argmax(live)]))
        rows = rows[[row not in chosen for row in rows.tolist()]]
        before = np.concatenate([[0], np.cumsum(live > capacity)])
        first = np.searchsorted(bounds, problem.start[rows])
        last = np.searchsorted(bounds, problem.end[rows])
        gain = problem.size[rows].astype(np.float64) * (before[last] - before[first])
        row = int(rows[int(np.argmax(gain))])
        chosen[row] = None
        for begin, end, held in _stretches_of(load, row):
            live[begin:end] -= held
    for row in sorted(chosen, key=lambda row: (-int(problem.size[row]), row)):
        stretches = _stretches_of(load, row)
        if all(int(live[begin:end].max()) + held <= capacity for begin, end, held in stretches):
            del chosen[row]
            for begin, end, held in stretches:
                live[begin:end] += held
    return tuple(sorted(chosen))


def least_losses(problem: Problem, rows: Sequence[int], capacity: int) -> dict[int, int]:
    """Row → by how many bytes it must shrink, where leaving all `rows` out brings the live bytes down to
    `capacity`: the largest first take back as much as there is room for. No loss can be made smaller alone.
    """
    load = load_of(problem)
    live = _without(load, rows)
    losses = {}
    for row in sorted(rows, key=lambda row: (-int(problem.size[row]), row)):
        size, stretches = int(problem.size[row]), _stretches_of(load, row)
        room = min((capacity - int(live[begin:end].max()) for begin, end, _ in stretches), default=size)
        # A window of a gap gets smaller with its buffer, or not at all: such a buffer stays out.
        back = 0 if row in problem.gaps else min(room, size)
        for begin, end, _ in stretches:
            live[begin:end] += back
        if back < size:
            losses[row] = size - back
    return losses


MOST_LOOKS = 50_000
"""How many buffers the exact search may look at before the greedy one takes over."""


@dataclass(frozen=True, slots=True)
class Cover:
    """Without the buffers `rows` (ascending) no step holds more than the capacity. `exact`: no fewer buffers
    would do, and no other choice of as many has fewer bytes; otherwise they were chosen greedily."""

    rows: tuple[int, ...]
    exact: bool


@dataclass(frozen=True, slots=True)
class _Row:
    """At one step: `need` bytes too many, and the bytes that each buffer holds there."""

    need: int
    held: dict[int, int]


def smallest_cover(problem: Problem, capacity: int, stop: Callable[[], bool] = lambda: False) -> Cover | None:
    """The fewest buffers (of these the fewest bytes) to leave out for live bytes of at most `capacity`; None
    when `stop` says so before they are found.

    Steps enter one by one, the worst of those that the choice so far leaves overfull: few of them matter.
    """
    load = load_of(problem)
    rows: list[_Row] = []
    chosen: tuple[int, ...] = ()
    search = _Search(problem, MOST_LOOKS)
    while search.exact:
        live = _without(load, chosen)
        if live.max(initial=0) <= capacity:
            return Cover(tuple(sorted(chosen)), True)
        worst = int(np.argmax(live))
        step = int(load.sections.bounds[worst])
        held = {buffer: bytes_at(problem, buffer, step) for buffer in live_at(problem, step).tolist()}
        rows.append(_Row(int(load.live[worst]) - capacity, held))
        chosen = search.solve(rows)
    greedy = greedy_cover(problem, capacity, stop)
    return None if greedy is None else Cover(greedy, False)


@dataclass(slots=True)
class _Search:
    """Iterative deepening over the number of buffers; `looks` are what is left of MOST_LOOKS."""

    problem: Problem
    looks: int
    exact: bool = True
    least: int = 1
    best: tuple[int, ...] | None = None
    best_bytes: int = 0
    rows: list[_Row] = field(default_factory=list)

    def solve(self, rows: list[_Row]) -> tuple[int, ...]:
        """Buffers that cover every row; () when no looks are left, and `exact` is false then."""
        self.rows = rows
        while self.exact:
            self.best = None
            self._deepen((), tuple(row.need for row in rows), frozenset(), self.least)
            self.exact = self.looks > 0
            if self.best is not None and self.exact:
                return self.best
            # More rows never make fewer buffers enough: the next call begins here.
            self.least += 1
        return ()

    def _deepen(
        self, chosen: tuple[int, ...], needs: tuple[int, ...], banned: frozenset[int], more: int
    ) -> None:
        worst = max(range(len(needs)), key=lambda row: needs[row])
        if needs[worst] <= 0:
            size = int(self.problem.size[list(chosen)].sum())
            if self.best is None or size < self.best_bytes:
                self.best, self.best_bytes = chosen, size
            return
        held = self.rows[worst].held
        free = [buffer for buffer in held if buffer not in banned]
        if sum(held[buffer] for buffer in free[:more]) < needs[worst]:
            return
        tried: set[tuple[int, ...]] = set()
        for buffer in free:
            self.looks -= 1
            # `held` is sorted by bytes: if this one and the next few do not reach the need, none does.
            if self.looks <= 0 or held[buffer] * more < needs[worst]:
                return
            # Buffers that hold the same everywhere stand for each other.
            alike = (int(self.problem.size[buffer]), *(row.held.get(buffer, 0) for row in self.rows))
            banned |= {buffer}
            if alike in tried:
                continue
            tried.add(alike)
            rest = tuple(need - held_bytes for need, held_bytes in zip(needs, alike[1:], strict=True))
            if more > 1 or max(rest) <= 0:
                self._deepen((*chosen, buffer), rest, banned, more - 1)
