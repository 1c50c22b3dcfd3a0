"""A model held against what it may need: a value, of which tables, comments and failures are written."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from memplan_engine.analysis.peak import Peak, find_peak
from memplan_engine.analysis.plan_figures import PlanFigures, figures_of
from memplan_engine.checks.ceilings import CEILINGS, NO_CEILINGS, Ceilings
from memplan_engine.checks.peak_holdings import Holding, peak_holdings
from memplan_engine.diffing.regression import Diff, Limit, diff
from memplan_engine.plan import Plan


@dataclass(frozen=True, slots=True)
class Excess:
    """Bytes above a ceiling: `what` is one of CEILINGS."""

    what: str
    nbytes: int
    most: int


@dataclass(frozen=True, eq=False)
class ModelCheck:
    """`plan` is that of the model called `name`. `reserved` is what an eager run of it reserves, bytes, None
    where nobody has asked. `base` is its plan before, with which it is compared; None where there is none,
    and `remark` may say why. `limit` is by how much it may be larger, None for any."""

    name: str
    plan: Plan
    ceilings: Ceilings = NO_CEILINGS
    reserved: int | None = None
    base: Plan | None = None
    limit: Limit | None = None
    remark: str = ""

    @cached_property
    def figures(self) -> PlanFigures:
        """Those of the plan."""
        return figures_of(self.plan)

    @cached_property
    def peak(self) -> Peak:
        """What is live at the peak, temporaries included."""
        return find_peak(self.plan.problem)

    @cached_property
    def holdings(self) -> tuple[Holding, ...]:
        """The same by name, layers taken together."""
        return peak_holdings(self.peak)

    @cached_property
    def diff(self) -> Diff | None:
        """What changed since `base`."""
        return None if self.base is None else diff(self.base, self.plan)

    @property
    def exceeded(self) -> tuple[Excess, ...]:
        """The ceilings that it passes."""
        found = {"arena": self.figures.arena, "peak": self.peak.nbytes, "reserved": self.reserved}
        limits = ((what, found[what], getattr(self.ceilings, what)) for what in CEILINGS)
        return tuple(
            Excess(what, nbytes, most)
            for what, nbytes, most in limits
            if nbytes is not None and most is not None and nbytes > most
        )

    @property
    def grew(self) -> bool:
        """Whether it is larger than `base` by more than `limit`."""
        return self.diff is not None and self.limit is not None and self.limit.exceeded(self.diff)

    @property
    def passed(self) -> bool:
        """Whether nothing is to be said against it."""
        return not self.exceeded and not self.grew
