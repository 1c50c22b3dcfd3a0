"""Plans as plain values for machines: what `--json` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memplan_engine.analysis.claims import claim_summary
from memplan_engine.analysis.plan_figures import figures_of
from memplan_engine.graph import unknown_sizes
from memplan_engine.plan import Plan
from memplan_engine.reporters.figure_list import figure_facts
from memplan_engine.reporters.peak_columns import contributor_facts
from memplan_engine.scope import scope_summary

if TYPE_CHECKING:
    from memplan_engine.analysis.layout import Layout
    from memplan_engine.analysis.peak import Peak
    from memplan_engine.verify.validate import Report


def plan_summary(plan: Plan, cut_by: str = "") -> dict[str, Any]:
    """The figures of a plan; byte counts are exact integers. `cut_by` says what cut it short, if that is
    known."""
    problem = plan.problem
    figures, origin = figures_of(plan), problem.origin
    return {
        "graph": problem.name,
        **claim_summary(problem),
        "strategy": plan.strategy,
        "parameters": dict(plan.parameters),
        "buffers": len(problem),
        "steps": problem.steps,
        **figure_facts(figures),
        "symbols": {symbol.name: symbol.hint for symbol in origin.graph.symbols} if origin else {},
        "unique_workspaces_bytes": figures.scratch.unique,
        "shared_workspace_bytes": figures.scratch.shared,
        "unknown_sizes": sorted(unknown_sizes(origin.graph)) if origin else [],
        "seconds": plan.seconds,
        "nodes": plan.nodes,
        "threads": plan.threads,
        "cut_short": plan.cut_short,
        **({"cut_by": cut_by} if plan.cut_short and cut_by else {}),
        **_objects(plan),
    }


def _objects(plan: Plan) -> dict[str, Any]:
    """Of a plan with shared objects: how many, how large, and their own bound; bytes."""
    if plan.objects is None:
        return {}
    # Here, not above: most plans need not wait for what few of them have.
    from memplan_engine.reporters.shared_object_tables import object_summary

    found = object_summary(plan)
    return {
        "objects": found.objects,
        "objects_bytes": found.objects_bytes,
        "objects_bound_bytes": found.objects_bound,
    }


def peak_summary(peak: Peak) -> dict[str, Any]:
    """What the peak is made of."""
    return {
        "peak_step": peak.step,
        "peak_bytes": peak.nbytes,
        **scope_summary(peak.scope, peak.counted),
        "workspace_bytes": peak.workspace_bytes,
        "ops": [op.name for op in peak.ops],
        "contributors": [contributor_facts(each, peak) for each in peak.contributors],
    }


def offsets(plan: Plan) -> dict[str, int]:
    """The offset in bytes of every buffer, by name."""
    return dict(zip(plan.problem.names, plan.offsets.tolist(), strict=True))


def layout_summary(layout: Layout) -> dict[str, Any]:
    """The regions with their entries; offsets count from the start of each region, bytes."""
    return {
        "bytes": layout.nbytes,
        **scope_summary(layout.scope),
        "regions": [
            {
                "kind": str(region.kind),
                "start": region.start,
                "bytes": region.nbytes,
                "entries": [
                    {"name": entry.name, "offset": entry.offset, "bytes": entry.nbytes}
                    for entry in region.entries
                ],
            }
            for region in layout.regions
        ],
    }


def report_summary(plan: Plan, report: Report) -> dict[str, Any]:
    """The validator's findings on `plan`."""
    return {
        "valid": report.valid,
        "arena_bytes": plan.arena_bytes,
        "workspace_bytes": plan.workspace_bytes,
        "total_bytes": plan.total_bytes,
        "lower_bound_bytes": plan.bound.nbytes,
        "optimal": report.valid and plan.optimal,
        **claim_summary(plan.problem),
        "replayed": report.replayed,
        "unchecked": list(report.unchecked),
        "counts": {rule.name.lower(): count for rule, count in report.counts.items()},
        "violations": [
            {
                "rule": violation.rule.name.lower(),
                "buffers": list(violation.buffers),
                "steps": violation.steps,
                "bytes": violation.byte_range,
                "message": violation.message,
            }
            for violation in report.violations
        ],
    }
