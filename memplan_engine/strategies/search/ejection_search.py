"""The repair kernel with its state, as strategies use it: offsets in, better offsets out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memplan_engine.kernels.search import repair, time_index
from memplan_engine.problem import FREE, Ints
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.strategies.constructive.orders import Timeline, kernel_columns
from memplan_engine.strategies.search.search_params import DEFAULTS


@dataclass(frozen=True, slots=True, eq=False)
class EjectionSearch:
    """Repairs placements of one problem below one ceiling after the other."""

    state: repair.Repair
    length: Ints

    def begin(self, offsets: Ints, ceiling: int, by_size: float, by_length: float) -> None:
        """Start from `offsets`, with what has none or ends above `ceiling` bytes in the pool.

        A buffer weighs its size to the power `by_size` × its length in sections to the power `by_length`.
        """
        columns = self.state.columns
        columns.weight[:] = (
            np.maximum(columns.size, 1.0) ** by_size * np.maximum(self.length, 1.0) ** by_length
        )
        repair.begin(self.state, np.array(offsets), ceiling)

    @property
    def out(self) -> int:
        """How many buffers are in the pool."""
        return int(self.state.counts[repair.OUT])

    @property
    def moves(self) -> int:
        """How many moves it has made since the begin."""
        return int(self.state.counts[repair.MOVES])

    @property
    def spent(self) -> int:
        """How many neighbours these moves have looked at: what they cost."""
        return int(self.state.counts[repair.EFFORT])

    @property
    def offsets(self) -> Ints:
        """Where each buffer lies now, UNPLACED for those in the pool."""
        return self.state.offset.copy()

    def repair(
        self, ceiling: int, best: int, allowed: repair.RepairLimits, seed: int, limits: SolveLimits
    ) -> Ints | None:
        """Go on until an arena below `best` bytes is found; its offsets, or None at what is `allowed`.

        To go on afterwards, call again.
        """
        arena = repair.repair(self.state, ceiling, best, allowed, seed, limits.stop, limits.counter)
        return self.state.whole.copy() if arena < best else None


def make_ejection_search(timeline: Timeline, params: repair.RepairParams = DEFAULTS.repair) -> EjectionSearch:
    """An ejection search with nothing placed: O(n log n) time, O(n) memory."""
    first, start, end, low, high, size, alignment = kernel_columns(timeline)
    index = time_index.make_time_index(first, start, end, low, high, len(timeline.sections))
    total = np.concatenate([[0], np.cumsum(end - start)])
    length = total[first[1:]] - total[first[:-1]]
    held = timeline.problem.fixed != FREE
    columns = repair.Columns(first, start, end, low, high, size, alignment, held, np.ones(len(size)))
    return EjectionSearch(repair.make_repair(columns, index, _room(first, start, end), params), length)


def _room(first: Ints, start: Ints, end: Ints) -> int:
    """The most pieces that one buffer meets, each counted once for each of its own pieces that it meets."""
    meets = np.searchsorted(np.sort(start), end) - np.searchsorted(np.sort(end), start, side="right")
    total = np.concatenate([[0], np.cumsum(meets)])
    return int((total[first[1:]] - total[first[:-1]]).max(initial=0))
