"""The answer to "does it fit?": as plain values for machines, as Rich renderables for people."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.table import Table

from memplan_engine.analysis.claims import fits_words
from memplan_engine.feasibility.decision import Core, Decision, Verdict, find_core
from memplan_engine.problem import FREE, Problem
from memplan_engine.reporters.plan_json import plan_summary
from memplan_engine.reporters.plan_tables import effort, plan_table
from memplan_engine.reporters.rich_tables import MOST_ROWS, make_table, more, numbers, plain_text
from memplan_engine.units import exact, format_bytes, format_percent, format_seconds, format_span


def decision_summary(decision: Decision, cut_by: str = "") -> dict[str, Any]:
    """The verdict, the figures of the best plan found, and the core where there is one; bytes and half-open
    steps. `core` is null unless it is proved that nothing fits."""
    plan, bound = decision.plan, decision.bound
    proved = decision.verdict is Verdict.DOES_NOT_FIT
    return {
        "verdict": str(decision.verdict),
        "capacity_bytes": decision.capacity,
        **plan_summary(plan, cut_by),
        "core": _core(find_core(plan.problem, bound, decision.capacity)) if proved else None,
    }


def _core(core: Core) -> dict[str, Any]:
    return {
        "needs_bytes": core.nbytes,
        "start": core.start,
        "end": core.end,
        "buffers": [
            {
                "name": buffer.name,
                "bytes": buffer.size,
                "start": buffer.start,
                "end": buffer.end,
                "alignment": buffer.alignment,
                "offset": buffer.fixed,
            }
            for buffer in (core.problem[row] for row in range(len(core.problem)))
        ],
    }


def decision_tables(decision: Decision, cut_by: str = "") -> list[RenderableType]:
    """The verdict, and what it rests on: the plan, the core, or how far the search came."""
    plan = decision.plan
    capacity = exact(decision.capacity)
    if decision.verdict is Verdict.DOES_NOT_FIT:
        return _refusal(decision, capacity)
    if decision.verdict is Verdict.FITS:
        style = "green" if decision.whole else "yellow"
        found = plain_text(fits_words(plan, decision.capacity), style)
    else:
        needed = f"at least {exact(decision.bound.nbytes)} are needed"
        found = plain_text(
            f"undecided in {format_seconds(plan.seconds)} whether the arena fits into {capacity}: {needed}",
            "yellow",
        )
    return [plan_table(plan, cut_by), found]


def _refusal(decision: Decision, capacity: str) -> list[RenderableType]:
    plan, bound = decision.plan, decision.bound
    core = find_core(plan.problem, bound, decision.capacity)
    over = f", {format_percent(plan.gap)} over that" if plan.packing_loss else ""
    return [
        plain_text(f"the arena does not fit into {capacity}, as was proved in {effort(plan)}", "bold red"),
        plain_text(f"at least {exact(bound.nbytes)} are needed ({bound.kind})"),
        plain_text(f"the best plan found takes {exact(plan.arena_bytes)}{over}"),
        plain_text(_why(core)),
        _core_table(core.problem),
    ]


def _why(core: Core) -> str:
    count = len(core.problem)
    who = "1 buffer cannot fit on its own" if count == 1 else f"{count:,} buffers cannot fit on their own"
    where = f"{'at' if core.end == core.start + 1 else 'within'} {format_span(core.start, core.end)}"
    return f"{who}: {exact(core.nbytes)} {where}"


def _core_table(core: Problem) -> Table:
    """Largest first; MOST_ROWS rows."""
    aligned, fixed = bool((core.alignment != 1).any()), bool((core.fixed != FREE).any())
    constraints = numbers(*["alignment"] * aligned, *["fixed at"] * fixed)
    buffers = sorted((core[row] for row in range(len(core))), key=lambda buffer: -buffer.size)
    shown = buffers[:MOST_ROWS]
    rows = (
        (
            buffer.name,
            f"{buffer.size:,}",
            format_bytes(buffer.size),
            format_span(buffer.start, buffer.end),
            *[f"{buffer.alignment:,}"] * aligned,
            *["" if buffer.fixed is None else f"{buffer.fixed:,}"] * fixed,
        )
        for buffer in shown
    )
    rest = more(buffers, shown)
    if rest:
        size = sum(buffer.size for buffer in buffers[MOST_ROWS:])
        rest += (f"{size:,}", format_bytes(size))
    return make_table(("buffer", *numbers("bytes", "size"), "alive", *constraints), rows, rest=rest)
