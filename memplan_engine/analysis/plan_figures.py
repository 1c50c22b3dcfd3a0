"""What a plan comes to, worked out once for whoever shows it."""

from __future__ import annotations

from dataclasses import dataclass

from memplan_engine.analysis.claims import holds_at_least, is_optimal, workspace_name
from memplan_engine.analysis.provenance import ops_at
from memplan_engine.graph import Role, Workspace, storage_bytes
from memplan_engine.plan import Plan
from memplan_engine.profile import Profile, load_of, make_profile, workspace_of
from memplan_engine.scope import Scope


@dataclass(frozen=True, slots=True)
class PlanFigures:
    """The figures of one plan, in bytes unless they say otherwise.

    The `arena` is `demand`, the most bytes of buffers live at one step, and `loss` to packing; no arena can
    be smaller than `bound`, and `gap` is the share by which it is larger, none if it `meets_bound`; `optimal`
    (`claims.is_optimal`) claims more, for the run. `naive` is the arena without any
    reuse, `saved` the share of it that the plan saves. `total` is the arena and the `workspace` of its ops,
    which is kept for single ops or shared between them (`scratch`) and goes by `workspace_name`. At the peak,
    scratch included, `peak_bytes` are live, `live_at_peak` of them in the arena, with `holes_at_peak` free
    bytes below the topmost buffer; `peak_op` is the first op that runs at `peak_step`, "" without a graph.
    `at_least`: a run may hold more than these figures count (`claims.holds_at_least`).
    """

    arena: int
    demand: int
    loss: int
    bound: int
    bound_kind: str
    bound_step: int
    optimal: bool
    meets_bound: bool
    gap: float
    naive: int
    saved: float
    constants: int
    workspace: int
    workspace_name: str
    scratch: Workspace
    total: int
    peak_step: int
    peak_bytes: int
    live_at_peak: int
    holes_at_peak: int
    peak_op: str
    buffers: int
    scope: Scope
    at_least: bool


def figures_of(plan: Plan, profile: Profile | None = None) -> PlanFigures:
    """The figures of `plan`: O(n log n); `profile` is its profile where that is known."""
    problem, origin = plan.problem, plan.problem.origin
    profile = make_profile(problem, plan.offsets) if profile is None else profile
    demand = load_of(problem).peak
    return PlanFigures(
        arena=plan.arena_bytes,
        demand=demand,
        loss=plan.arena_bytes - demand,
        bound=plan.bound.nbytes,
        bound_kind=str(plan.bound.kind),
        bound_step=plan.bound.step,
        optimal=is_optimal(plan),
        meets_bound=plan.optimal,
        gap=plan.gap,
        naive=plan.naive_bytes,
        saved=plan.saved,
        constants=storage_bytes(origin.graph, Role.CONSTANT) if origin else 0,
        workspace=plan.workspace_bytes,
        workspace_name=workspace_name(problem),
        scratch=workspace_of(problem),
        total=plan.total_bytes,
        peak_step=profile.peak_step,
        peak_bytes=profile.peak_bytes,
        live_at_peak=profile.live_at_peak,
        holes_at_peak=profile.holes_at_peak,
        peak_op=next((op.name for op in ops_at(problem, profile.peak_step)), ""),
        buffers=len(problem),
        scope=problem.scope,
        at_least=holds_at_least(problem),
    )
