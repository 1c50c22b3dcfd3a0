"""The fewest buffers whose absence leaves no step overfull: a set cover with bytes, exact while small."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from memplan_engine.problem import Problem
from memplan_engine.profile import alive_at, bytes_at
from memplan_engine.what_if.suggestions.greedy_drops import Live, greedy_cover

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
    live = Live.of(problem)
    rows: list[_Row] = []
    chosen: tuple[int, ...] = ()
    search = _Search(problem, MOST_LOOKS)
    while search.exact:
        left = live.without(chosen)
        worst = left.worst()
        if left.nbytes[worst] <= capacity:
            return Cover(tuple(sorted(chosen)), True)
        step = int(live.sections.bounds[worst])
        held = {buffer: bytes_at(problem, buffer, step) for buffer in alive_at(problem, step).tolist()}
        rows.append(_Row(int(live.nbytes[worst]) - capacity, held))
        chosen = search.solve(rows)
    found = greedy_cover(problem, live, capacity, stop)
    return None if found is None else Cover(found, False)


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
            rest = tuple(need - got for need, got in zip(needs, alike[1:], strict=True))
            if more > 1 or max(rest) <= 0:
                self._deepen((*chosen, buffer), rest, banned, more - 1)
