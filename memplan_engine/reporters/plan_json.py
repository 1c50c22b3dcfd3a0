"""Plans as plain values for machines: what `--json` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memplan_engine.analysis.claims import claim_summary
from memplan_engine.graph import Role, storage_bytes, unknown_sizes
from memplan_engine.plan import Plan
from memplan_engine.problem import Problem
from memplan_engine.profile import make_profile, workspace_of
from memplan_engine.scope import scope_summary

if TYPE_CHECKING:
    from memplan_engine.analysis.layout import Layout
    from memplan_engine.analysis.peak import Contributor, Peak
    from memplan_engine.verify.validate import Report


def plan_summary(plan: Plan, cut_by: str = "") -> dict[str, Any]:
    """The figures of a plan; byte counts are exact integers. `cut_by` says what cut it short, if that is
    known."""
    problem = plan.problem
    profile = make_profile(problem, plan.offsets)
    origin = problem.origin
    return {
        "graph": problem.name,
        **claim_summary(problem),
        "strategy": plan.strategy,
        "parameters": dict(plan.parameters),
        "buffers": len(problem),
        "steps": problem.steps,
        "arena_bytes": plan.arena_bytes,
        "workspace_bytes": plan.workspace_bytes,
        "total_bytes": plan.total_bytes,
        "lower_bound_bytes": plan.bound.nbytes,
        "bound_kind": str(plan.bound.kind),
        "bound_step": plan.bound.step,
        "optimal": plan.optimal,
        "gap": plan.gap,
        "naive_bytes": plan.naive_bytes,
        "constants_bytes": storage_bytes(origin.graph, Role.CONSTANT) if origin else 0,
        "peak_step": profile.peak_step,
        "peak_bytes": profile.peak_bytes,
        "holes_at_peak_bytes": profile.holes_at_peak,
        "symbols": {symbol.name: symbol.hint for symbol in origin.graph.symbols} if origin else {},
        **_workspaces(problem),
        "unknown_sizes": sorted(unknown_sizes(origin.graph)) if origin else [],
        "seconds": plan.seconds,
        "nodes": plan.nodes,
        "threads": plan.threads,
        "cut_short": plan.cut_short,
        **({"cut_by": cut_by} if plan.cut_short and cut_by else {}),
        **_objects(plan),
    }


def _workspaces(problem: Problem) -> dict[str, int]:
    """Bytes of the ops' workspaces, 0 without a graph."""
    scratch = workspace_of(problem)
    return {"unique_workspaces_bytes": scratch.unique, "shared_workspace_bytes": scratch.shared}


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
        "contributors": [_contributor(contributor) for contributor in peak.contributors],
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


def _contributor(contributor: Contributor) -> dict[str, Any]:
    known = contributor.provenance
    return {
        "name": contributor.name,
        "bytes": contributor.nbytes,
        "kind": known.kind,
        "producer": known.producer,
        "readers": list(known.readers),
        "shape": list(known.shape),
        "dtype": known.dtype,
        "module": known.module,
        "source": str(known.source) if known.source else "",
        "code": known.source.code if known.source else "",
    }
