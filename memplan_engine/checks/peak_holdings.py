"""What a peak is made of, short enough to be kept beside a test: counterparts in the layers of a model count
as one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memplan_engine.analysis.buffer_names import SEPARATOR
from memplan_engine.analysis.peak import Contributor, Peak
from memplan_engine.analysis.tied_peaks import repeated
from memplan_engine.graph import Source


@dataclass(frozen=True, slots=True)
class Holding:
    """`count` buffers of the same name but for the number of the layer ("h.*.mlp · gelu"), which hold
    `nbytes` at the peak; `source` is the line that makes the largest."""

    name: str
    nbytes: int
    count: int
    source: Source | None


@dataclass(frozen=True, slots=True)
class Grown:
    """A holding that is larger than it was, by `delta` bytes; `before` is 0 for a new one."""

    holding: Holding
    before: int

    @property
    def delta(self) -> int:
        """By how many bytes."""
        return self.holding.nbytes - self.before


def peak_holdings(contents: Peak) -> tuple[Holding, ...]:
    """All that is live at the peak, the largest first; together they are its bytes."""
    groups: dict[str, list[Contributor]] = defaultdict(list)
    for part in contents.contributors:
        if part.nbytes:
            module, dot, op = part.label.partition(SEPARATOR)
            groups[repeated(module) + dot + op].append(part)
    holdings = [
        Holding(name, sum(part.nbytes for part in parts), len(parts), parts[0].provenance.source)
        for name, parts in groups.items()
    ]
    return tuple(sorted(holdings, key=lambda each: (-each.nbytes, each.name)))


def grown_holdings(before: Mapping[str, int], now: Sequence[Holding]) -> tuple[Grown, ...]:
    """Those of `now` that are larger than `before`, bytes by name, has them: the most grown first."""
    grown = (Grown(each, before.get(each.name, 0)) for each in now)
    return tuple(sorted((each for each in grown if each.delta > 0), key=lambda each: -each.delta))
