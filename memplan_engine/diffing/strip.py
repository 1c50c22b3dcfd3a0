"""The live bytes of both sides on one axis, for drawing their difference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memplan_engine.diffing.regression import Diff
from memplan_engine.problem import Ints


@dataclass(frozen=True, slots=True, eq=False)
class ProfileDifference:
    """Live bytes over the head's steps: stretch s covers the steps `[bounds[s], bounds[s + 1])`, in which the
    head holds `head[s]` bytes and the base, at the steps that stand for them, at most `base[s]`."""

    bounds: Ints
    base: Ints
    head: Ints

    @property
    def delta(self) -> Ints:
        """How many bytes more the head holds, a value a stretch."""
        return self.head - self.base


def profile_difference(diff: Diff) -> ProfileDifference:
    """The profiles of `diff` beside each other, a stretch wherever the head's live bytes may change."""
    bounds, live = diff.head_load.sections.bounds, diff.base_load.live
    places = np.searchsorted(diff.base_load.sections.bounds, diff.timeline.to_base(bounds), side="right") - 1
    low = np.clip(places[:-1], 0, len(live))
    high = np.clip(np.maximum(places[1:], low + 1), 0, len(live))
    # Beyond either end of the base nothing is alive.
    padded = np.append(live, [0, 0])
    edges = np.column_stack([low, np.maximum(high, low + 1)]).ravel()
    highest = np.maximum.reduceat(padded, edges)[::2] if len(edges) else live[:0]
    return ProfileDifference(bounds, np.where(places[:-1] < 0, 0, highest), diff.head_load.live)
