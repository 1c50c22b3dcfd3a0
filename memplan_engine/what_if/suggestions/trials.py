"""Tried edits: does the problem fit then? Each is decided once, all of them within one limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from memplan_engine.feasibility.decision import Decision, decide
from memplan_engine.plan import Plan
from memplan_engine.problem import Problem
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.verdict import Verdict
from memplan_engine.what_if.apply import apply
from memplan_engine.what_if.edits import Edit

TRIAL_NODES = 10
"""Nodes that a trial counts for, in addition to those of its search."""


@dataclass(slots=True)
class Trials:
    """Decisions on `problem` after edits, for `capacity` bytes, within `limits`; each gets at most `seconds`
    of their work."""

    problem: Problem
    capacity: int
    limits: SolveLimits
    seconds: float
    decisions: dict[tuple[Edit, ...], Decision | None] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """True if the limits leave nothing for another trial."""
        return self.limits.stopped or not self.limits.remaining

    def decision(self, edits: Sequence[Edit]) -> Decision | None:
        """What is decided on the problem after `edits`; None when there was no time for it."""
        key = tuple(edits)
        if key not in self.decisions:
            if self.over:
                return None
            limits = self.limits.part(min(self.limits.remaining, self.seconds), self.limits.threads)
            self.limits.count(TRIAL_NODES)
            self.decisions[key] = decide(apply(self.problem, key), self.capacity, limits=limits)
        return self.decisions[key]

    def verdict(self, *edits: Edit) -> Verdict:
        """UNDECIDED when there was no time."""
        decision = self.decision(edits)
        return Verdict.UNDECIDED if decision is None else decision.placed

    def fits(self, *edits: Edit) -> bool:
        """Whether a placement was found."""
        return self.verdict(*edits) is Verdict.FITS

    def refused(self, *edits: Edit) -> bool:
        """Whether it is proved that there is none."""
        return self.verdict(*edits) is Verdict.DOES_NOT_FIT

    def arena(self, *edits: Edit) -> int:
        """The arena of the best plan found after `edits`, bytes; wants a decision."""
        decision = self.decision(edits)
        assert decision is not None
        return decision.plan.arena_bytes


def decide_from(plan: Plan, capacity: int, limits: SolveLimits) -> Decision:
    """Whether the problem of `plan` fits into `capacity` bytes; searched for only where neither the plan nor
    its bound says so already. Raises InputError for a capacity below 0."""
    of_plan = Decision(capacity, plan)
    if capacity >= 0 and of_plan.placed is not Verdict.UNDECIDED:
        return of_plan
    decision = decide(plan.problem, capacity, limits=limits)
    better = decision.plan.arena_bytes <= plan.arena_bytes or decision.placed is not Verdict.UNDECIDED
    return decision if better else of_plan
