"""A plan as a panel of the rectangle chart."""

from __future__ import annotations

import numpy as np
from memplan_dashboard.charts.reserved_over_time import Curve
from memplan_dashboard.plan_view import Panel
from memplan_dashboard.session.plan_facts import PlanFacts
from memplan_dashboard.widgets.panes_of import panes_of
from numpy.typing import NDArray

from memplan_engine import Problem
from memplan_engine.analysis.buffer_names import buffer_names
from memplan_engine.analysis.claims import arena_name, over_bound, peak_name, workspace_name
from memplan_engine.analysis.layers import Layer, find_layers
from memplan_engine.analysis.provenance import step_labels
from memplan_engine.plotting.bands import bands_of
from memplan_engine.plotting.colouring import Colouring
from memplan_engine.plotting.strip_lines import RESERVED, StripLine, strip_lines
from memplan_engine.plotting.viewport import MOST_VECTORS
from memplan_engine.problem import cut
from memplan_engine.profile import shared_by_step
from memplan_engine.units import format_bytes

MOST_STEP_LABELS = 50_000
MOST_LINE = 200_000
"""Entries of a line on the strip: of more each stands for several."""


def make_panel(
    facts: PlanFacts,
    colouring: Colouring,
    dimmed: NDArray[np.bool_] | None = None,
    capacity: int | None = None,
    before: int | None = None,
    reserved: Curve | None = None,
    panes: bool = False,
) -> Panel:
    """The panel of a plan; `dimmed` (bool, one a buffer) fades what a search does not want; `before` is an
    arena in bytes to compare with, `reserved` what the allocator of a recording held of the device.
    With `panes` the tree of a step and the details of a buffer stand beside it."""
    plan, profile = facts.plan, facts.profile
    problem, pieces = plan.problem, cut(plan.problem)
    owner = pieces.owner
    over = over_bound(plan)
    if not facts.report.valid:
        over = "not valid"
    lines = strip_lines(plan, profile, MOST_LINE)
    if reserved is not None:
        steps, nbytes = np.array(reserved.steps), np.array(reserved.reserved)
        lines = (*lines, StripLine("reserved", steps, nbytes, RESERVED, dash=(5, 2), exact=False))
    labels = _step_labels(problem) if problem.steps <= MOST_STEP_LABELS else []
    return Panel(
        title=plan.strategy,
        subtitle=f"{format_bytes(plan.arena_bytes)} · {over}",
        start=pieces.start,
        end=pieces.end,
        offset=plan.offsets[owner] + pieces.low,
        size=pieces.high - pieces.low,
        color=colouring.index[owner],
        names=buffer_names(problem),
        arena=plan.arena_bytes,
        bound=plan.bound.nbytes,
        peak_step=profile.peak_step,
        arena_name=arena_name(plan),
        peak_name=peak_name(problem),
        steps=problem.steps,
        profile_start=profile.sections.bounds[:-1],
        profile_live=profile.live,
        profile_high=profile.high_water,
        capacity=capacity,
        dimmed=None if dimmed is None else dimmed[owner],
        owner=owner.astype(np.int32) if problem.gaps else None,
        step_labels=labels or None,
        bands=bands_of(problem),
        before=before,
        lines=lines,
        panes=panes_of(problem) if panes and has_panes(problem) else None,
        layers=problem.once(_layers),
    )


def has_panes(problem: Problem) -> bool:
    """Whether tree and details stand beside a chart of `problem`: where the browser has it whole."""
    return len(cut(problem).start) <= MOST_VECTORS


def _layers(problem: Problem) -> tuple[tuple[Layer, ...], ...]:
    """The modules that run, where a graph knows of them."""
    if problem.origin is None:
        return ()
    return find_layers(problem.origin.graph, problem.origin.schedule)


def _step_labels(problem: Problem) -> list[str]:
    """The ops of each step, with what they hold beside the arena."""
    labels = step_labels(problem)
    for step, nbytes in shared_by_step(problem).items():
        held = f"{format_bytes(nbytes)} of {workspace_name(problem)} outside the arena"
        labels[step] = f"{labels[step]}, {held}"
    return labels
