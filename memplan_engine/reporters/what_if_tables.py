"""A scenario's plan beside the original, and what would make it fit: for machines and for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from memplan_engine.analysis.claims import fits_words
from memplan_engine.analysis.plan_figures import figures_of
from memplan_engine.feasibility.decision import Verdict
from memplan_engine.plan import Plan
from memplan_engine.reporters.decision_tables import decision_summary
from memplan_engine.reporters.plan_json import offsets, plan_summary
from memplan_engine.reporters.plan_tables import certificate, counted_lines, cut_short
from memplan_engine.reporters.rich_tables import MOST_ROWS, folded, make_table, more, numbers, plain_text
from memplan_engine.reporters.what_if_words import edit_words, proof_words, shortage_words, suggestion_words
from memplan_engine.units import exact, format_bytes, format_percent
from memplan_engine.what_if.edits import Edit
from memplan_engine.what_if.suggestions.cover import Shortage
from memplan_engine.what_if.suggestions.suggest import FitReport

ROWS = {"arena": "arena", "demand": "demand", "packing loss": "loss", "lower bound": "bound"}
"""The figures as people read them → the field that each has."""
BESIDE = {"workspace": "workspace", "total": "total"}
"""The same of what ops hold beside the arena, where they hold anything."""


def what_if_summary(
    original: Plan, changed: Plan, edits: Sequence[Edit], fit: FitReport | None = None
) -> dict[str, Any]:
    """The edits, the figures of both plans in bytes, the changed plan with its offsets, and the answer to the
    capacity; `fit` is null where none was asked for."""
    return {
        "edits": [_entry(edit) for edit in edits],
        "original": _figures(original),
        "changed": _figures(changed),
        "plan": plan_summary(changed) | {"offsets": offsets(changed)},
        "fit": None if fit is None else fit_summary(fit),
    }


def _figures(plan: Plan) -> dict[str, Any]:
    figures = figures_of(plan)
    return {
        field: getattr(figures, field) for field in (*ROWS.values(), "buffers", *BESIDE.values(), "scope")
    }


def fit_summary(fit: FitReport) -> dict[str, Any]:
    """The verdict with its core, the overfull steps with who is alive there, and the suggestions; bytes and
    half-open steps."""
    names = fit.decision.plan.problem.names
    short = fit.shortage
    return {
        **decision_summary(fit.decision),
        "shortage": None if short is None else {
            "must_fall_bytes": short.nbytes,
            "step": short.step,
            "stretches": [asdict(stretch) for stretch in short.stretches],
            "members": [
                {"name": names[each.buffer], "bytes": each.nbytes, "steps": each.steps}
                for each in short.members
            ],
            "single": [names[row] for row in short.single],
        },
        "suggestions": [
            {
                "kind": str(each.kind),
                "edits": [_entry(edit) for edit in each.edits],
                "bytes_changed": each.nbytes,
                "arena_bytes": each.arena_bytes,
                "proved": each.proved,
                "exact": each.exact,
                "heuristic": each.heuristic,
            }
            for each in fit.suggestions
        ],
        "complete": fit.complete,
    }  # fmt: skip


def what_if_tables(
    original: Plan,
    changed: Plan,
    edits: Sequence[Edit],
    fit: FitReport | None = None,
    every_row: bool = False,
) -> list[RenderableType]:
    """The edits, before and after, and the answer to the capacity."""
    parts: list[RenderableType] = [
        plain_text(f"{number}. {edit_words(edit)}") for number, edit in enumerate(edits, 1)
    ]
    parts += [_before_and_after(original, changed), plain_text(certificate(changed))]
    parts += counted_lines(changed.problem)
    if changed.cut_short:
        parts.append(plain_text(cut_short(changed), "yellow"))
    return parts if fit is None else [*parts, *fit_tables(fit, every_row)]


def _before_and_after(original: Plan, changed: Plan) -> Table:
    before, after = figures_of(original), figures_of(changed)
    title = f"{original.problem.name}: {before.buffers} buffers, then {after.buffers}; {changed.strategy}"
    rows = []
    for label, field in {**ROWS, **(BESIDE if before.workspace else {})}.items():
        old, new = getattr(before, field), getattr(after, field)
        rows.append((label, exact(old), exact(new), signed(new - old)))
    return make_table(("", *numbers("original", "what if", "change")), rows, title)


def signed(nbytes: int) -> str:
    """ "+1.5 KiB", "-20 B", "none"."""
    return f"{'+' * (nbytes > 0)}{format_bytes(nbytes)}" if nbytes else "none"


def fit_tables(fit: FitReport, every_row: bool = False) -> list[RenderableType]:
    """Does it fit, why not, who is alive where it does not, and the smallest changes."""
    verdict = fit.decision.verdict
    style = "bold red" if verdict is Verdict.DOES_NOT_FIT else "green" if fit.decision.whole else "yellow"
    parts: list[RenderableType] = [plain_text(verdict_words(fit), style)]
    if fit.shortage is not None:
        parts += [plain_text(shortage_words(fit.shortage)), _members(fit, fit.shortage, every_row)]
    if fit.suggestions:
        parts.append(_suggestions(fit))
    elif verdict is not Verdict.FITS:
        parts.append(plain_text("no change was found that makes it fit", "yellow"))
    if not fit.complete:
        parts.append(plain_text("the time limit ended the search for smaller changes", "yellow"))
    return parts


def verdict_words(fit: FitReport) -> str:
    """The verdict, and what packing alone reaches."""
    decision = fit.decision
    plan, capacity = decision.plan, exact(decision.capacity)
    if decision.verdict is Verdict.FITS:
        return fits_words(plan, decision.capacity)
    best, bound = exact(plan.arena_bytes), exact(decision.bound.nbytes)
    reached = f"packing alone reaches {best}"
    reached += ", the least there is" if plan.optimal else f"; nothing below {bound} is possible"
    if decision.verdict is Verdict.DOES_NOT_FIT:
        return f"the arena does not fit into {capacity}, as is proved ({decision.bound.kind}); {reached}"
    return f"undecided whether the arena fits into {capacity}; {reached}"


def _members(fit: FitReport, shortage: Shortage, every_row: bool) -> Table:
    names, steps = fit.decision.plan.problem.names, shortage.steps
    title = f"alive at the {steps} overfull step{'s' * (steps != 1)}"
    shown = shortage.members if every_row else shortage.members[:MOST_ROWS]
    rows = (
        (
            names[each.buffer],
            format_bytes(each.nbytes),
            f"{each.steps:,}",
            format_percent(each.steps / steps),
        )
        for each in shown
    )
    rest = more(shortage.members, shown)
    if rest:
        rest += (format_bytes(sum(each.nbytes for each in shortage.members[len(shown) :])),)
    return make_table(("buffer", *numbers("size", "overfull steps", "of them")), rows, title, rest)


def _suggestions(fit: FitReport) -> Table:
    columns = (*folded("change"), *numbers("bytes changed", "arena then"), *folded("how sure"))
    rows = (
        (
            suggestion_words(each, fit.decision.plan.problem),
            format_bytes(each.nbytes),
            format_bytes(each.arena_bytes),
            proof_words(each),
        )
        for each in fit.suggestions
    )
    return make_table(columns, rows, "the smallest changes that make it fit")


def _entry(edit: Edit) -> dict[str, Any]:
    return {"kind": edit.kind, **asdict(edit)}
