"""A plan and what the pages show of it, worked out once."""

from __future__ import annotations

from dataclasses import dataclass

from dashboard.documents import Document
from memplan_engine import Peak, Plan, Profile, Report, find_peak, make_profile, validate_plan


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """The plan of `document` by `plan.strategy`. `cut_short`: the time limit ended its search."""

    document: Document
    plan: Plan
    profile: Profile
    report: Report
    peak: Peak
    cut_short: bool = False

    @property
    def holes_at_peak(self) -> int:
        """Free bytes below the high-water mark at the peak step."""
        section = self.profile.sections.at(self.profile.peak_step)
        return int(self.profile.holes[section]) if len(self.profile.holes) else 0


def make_facts(document: Document, plan: Plan, cut_short: bool = False, checked: bool = False) -> Facts:
    """Everything about `plan`: O(n log n). `checked`: it comes from `make_plan`, which has validated it."""
    profile = make_profile(plan.problem, plan.offsets)
    report = Report((), {}) if checked else validate_plan(plan)
    return Facts(document, plan, profile, report, find_peak(plan.problem), cut_short)
