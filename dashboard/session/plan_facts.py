"""A plan and what the pages show of it, worked out once."""

from __future__ import annotations

from dataclasses import dataclass, replace

from memplan_dashboard.session.documents import Document

from memplan_engine import Peak, Plan, Profile, Report, find_peak, make_profile, validate_plan


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """The plan of `document` by `plan.strategy`; `naive_bytes` is the arena without any reuse."""

    document: Document
    plan: Plan
    profile: Profile
    report: Report
    peak: Peak
    naive_bytes: int

    @property
    def saved(self) -> float:
        """The share of the naive arena that the plan saves."""
        return 1 - self.plan.arena_bytes / self.naive_bytes if self.naive_bytes else 0.0

    @property
    def holes_at_peak(self) -> int:
        """Free bytes below the high-water mark at the peak step."""
        return self.profile.holes_at_peak


def with_best_bound(several: list[Facts]) -> list[Facts]:
    """The same plans of one problem, each with the best bound that one of them has proved."""
    best = max((facts.plan.bound for facts in several), key=lambda bound: bound.nbytes, default=None)
    return [
        facts
        if best is None or facts.plan.bound.nbytes == best.nbytes
        else replace(facts, plan=replace(facts.plan, bound=best))
        for facts in several
    ]


def make_facts(document: Document, plan: Plan, checked: bool = False) -> Facts:
    """Everything about `plan`: O(n log n). `checked`: it comes from `make_plan`, which has validated it."""
    profile = make_profile(plan.problem, plan.offsets)
    report = Report((), {}) if checked else validate_plan(plan)
    return Facts(document, plan, profile, report, find_peak(plan.problem), plan.naive_bytes)
