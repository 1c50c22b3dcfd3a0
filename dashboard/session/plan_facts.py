"""A plan and what the pages show of it, worked out once."""

from __future__ import annotations

from dataclasses import dataclass, replace

from memplan_dashboard.session.documents import Document

from memplan_engine import Peak, Plan, Profile, Report, find_peak, make_profile, validate_plan
from memplan_engine.analysis.plan_figures import PlanFigures, figures_of
from memplan_engine.bounds import Bound


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """The plan of `document` by `plan.strategy`, with its figures."""

    document: Document
    plan: Plan
    profile: Profile
    report: Report
    peak: Peak
    figures: PlanFigures

    def bounded(self, bound: Bound) -> Facts:
        """The same with another bound."""
        plan = replace(self.plan, bound=bound)
        return replace(self, plan=plan, figures=figures_of(plan, self.profile))


def with_best_bound(several: list[Facts]) -> list[Facts]:
    """The same plans of one problem, each with the best bound that one of them has proved."""
    best = max((facts.plan.bound for facts in several), key=lambda bound: bound.nbytes, default=None)
    return [
        facts if best is None or facts.plan.bound.nbytes == best.nbytes else facts.bounded(best)
        for facts in several
    ]


def make_facts(document: Document, plan: Plan, checked: bool = False) -> Facts:
    """Everything about `plan`: O(n log n). `checked`: it comes from `make_plan`, which has validated it."""
    profile = make_profile(plan.problem, plan.offsets)
    report = Report((), {}) if checked else validate_plan(plan)
    return Facts(document, plan, profile, report, find_peak(plan.problem), figures_of(plan, profile))
