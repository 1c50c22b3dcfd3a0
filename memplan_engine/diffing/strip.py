"""The live bytes of both sides on one axis, for drawing their difference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memplan_engine.diffing.regression import Diff
from memplan_engine.problem import Ints


@dataclass(frozen=True, slots=True, eq=False)
class ProfileDifference:
    """Live bytes over the head's steps: stretch s covers the steps `[bounds[s], bounds[s + 1])`, in which the
    head holds `head[s]` bytes and the base, at the steps that stand for them, at most `base[s]`. For steps of
    the head before the first or behind the last one of the base, that one stands."""

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
    # Beyond either end of the base its outermost step goes on: what it holds there is not freed.
    low = np.clip(places[:-1], 0, max(0, len(live) - 1))
    high = np.maximum(np.minimum(places[1:], len(live)), low + 1)
    padded = np.append(live, [0, 0])
    edges = np.column_stack([low, high]).ravel()
    highest = np.maximum.reduceat(padded, edges)[::2] if len(edges) else live[:0]
    return ProfileDifference(bounds, highest, diff.head_load.live)
