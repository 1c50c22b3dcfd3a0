"""Does it fit, and what if: for machines, as Rich renderables for people, and in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from memplan_engine.analysis.buffer_names import buffer_names, labels_of
from memplan_engine.analysis.claims import fits_words, is_optimal
from memplan_engine.analysis.plan_figures import figures_of
from memplan_engine.feasibility.decision import Core, Decision, find_core
from memplan_engine.plan import Plan
from memplan_engine.problem import FREE, Problem
from memplan_engine.reporters.plan_tables import (
    certificate,
    counted_lines,
    cut_short,
    effort,
    offsets,
    plan_summary,
    plan_table,
)
from memplan_engine.reporters.rich_tables import (
    MOST_ROWS,
    folded,
    in_graph,
    make_table,
    more,
    named,
    numbers,
    plain_text,
)
from memplan_engine.units import (
    exact,
    format_bytes,
    format_percent,
    format_seconds,
    format_signed,
    format_span,
)
from memplan_engine.verdict import Reason, Verdict
from memplan_engine.what_if.edits import Align, Drop, Edit, Pin, Resize, Shorten, Split
from memplan_engine.what_if.suggestions.cover import Shortage
from memplan_engine.what_if.suggestions.suggest import FitReport, Kind, Suggestion

ROWS = {"arena": "arena", "demand": "demand", "packing loss": "loss", "lower bound": "bound"}
"""The figures as people read them → the field that each has."""
BESIDE = {"workspace": "workspace", "total": "total"}
"""The same of what ops hold beside the arena, where they hold anything."""
MOST_NAMES = 4


def what_if_summary(
    original: Plan, changed: Plan, edits: Sequence[Edit], fit: FitReport | None = None
) -> dict[str, Any]:
    """The edits, the figures of both plans in bytes, the changed plan with its offsets, and the answer to the
    capacity; `fit` is null where none was asked for."""
    return {
        "edits": [edit_entry(edit) for edit in edits],
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
    """The verdict with its core, the overfull steps with who is live there, and the suggestions; bytes and
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
                {"name": names[member.buffer], "bytes": member.nbytes, "steps": member.steps}
                for member in short.members
            ],
            "single": [names[row] for row in short.single],
        },
        "suggestions": [
            {
                "kind": str(suggestion.kind),
                "edits": [edit_entry(edit) for edit in suggestion.edits],
                "bytes_changed": suggestion.nbytes,
                "arena_bytes": suggestion.arena_bytes,
                "proved": suggestion.proved,
                "exact": suggestion.exact,
                "heuristic": suggestion.heuristic,
            }
            for suggestion in fit.suggestions
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
    counts = f"{before.buffers} buffers before, {after.buffers} after"
    title = f"{original.problem.name}: {counts}; {changed.strategy}"
    rows = []
    for label, field in {**ROWS, **(BESIDE if before.workspace else {})}.items():
        old, new = getattr(before, field), getattr(after, field)
        rows.append((label, exact(old), exact(new), format_signed(new - old) if new != old else "none"))
    return make_table(("", *numbers("original", "what if", "change")), rows, title)


def fit_tables(fit: FitReport, every_row: bool = False) -> list[RenderableType]:
    """Does it fit, why not, who is live where it does not, and the smallest changes."""
    verdict = fit.decision.verdict
    style = "bold red" if verdict is Verdict.DOES_NOT_FIT else "green" if fit.decision.whole else "yellow"
    parts: list[RenderableType] = [plain_text(verdict_words(fit), style)]
    if fit.shortage is not None:
        parts += [plain_text(shortage_words(fit.shortage)), _members(fit, fit.shortage, every_row)]
    if fit.suggestions:
        parts.append(_suggestions(fit))
    elif fit.decision.placed is not Verdict.FITS:
        parts.append(plain_text("no change was found that makes it fit", "yellow"))
    if not fit.complete:
        parts.append(plain_text("the time limit ended the search for smaller changes", "yellow"))
    return parts


def verdict_words(fit: FitReport) -> str:
    """The verdict, and what packing alone reaches."""
    decision = fit.decision
    plan = decision.plan
    if decision.verdict is Verdict.FITS:
        return fits_words(plan, decision.capacity)
    best, bound = exact(plan.arena_bytes), exact(decision.bound.nbytes)
    reached = f"packing alone reaches {best}"
    reached += ", the minimum" if is_optimal(plan) else f"; nothing below {bound} is possible"
    if decision.verdict is Verdict.DOES_NOT_FIT:
        return f"{decision.words}, proved ({decision.bound.kind.words}); {reached}"
    return f"{decision.words}; {reached}"


def _members(fit: FitReport, shortage: Shortage, every_row: bool) -> Table:
    problem, steps = fit.decision.plan.problem, shortage.steps
    names, labels = problem.names, buffer_names(problem)
    title = f"live at the {steps} overfull step{'s' * (steps != 1)}"
    shown = shortage.members if every_row else shortage.members[:MOST_ROWS]
    rows = (
        (
            *named(labels[member.buffer], names[member.buffer]),
            format_bytes(member.nbytes),
            f"{member.steps:,}",
            format_percent(member.steps / steps),
        )
        for member in shown
    )
    rest = more(shortage.members, shown)
    if rest:
        rest += (
            "",
            format_bytes(sum(member.nbytes for member in shortage.members[len(shown) :])),
        )
    return make_table(("buffer", *in_graph(), *numbers("size", "overfull steps", "share")), rows, title, rest)


def _suggestions(fit: FitReport) -> Table:
    columns = (*folded("change"), *numbers("bytes changed", "arena after"), *folded("certainty"))
    rows = (
        (
            suggestion_words(suggestion, fit.decision.plan.problem),
            format_bytes(suggestion.nbytes),
            format_bytes(suggestion.arena_bytes),
            proof_words(suggestion),
        )
        for suggestion in fit.suggestions
    )
    return make_table(columns, rows, "the smallest changes that make it fit")


def edit_entry(edit: Edit) -> dict[str, Any]:
    """`edit` as plain values, its kind first."""
    return {"kind": edit.kind, **asdict(edit)}


def decision_summary(decision: Decision, cut_by: str = "") -> dict[str, Any]:
    """The verdict, the figures of the best plan found, and the core where there is one; bytes and half-open
    steps. `core` is null unless it is proved that nothing fits."""
    plan, bound = decision.plan, decision.bound
    proved = decision.verdict is Verdict.DOES_NOT_FIT
    return {
        "verdict": decision.verdict,
        "reason": decision.reason,
        "capacity_bytes": decision.capacity,
        **plan_summary(plan, cut_by),
        "core": core_summary(find_core(plan.problem, bound, decision.capacity)) if proved else None,
    }


def core_summary(core: Core) -> dict[str, Any]:
    """What the core needs, where, and its buffers; bytes and half-open steps."""
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
    if decision.verdict is Verdict.DOES_NOT_FIT:
        return _refusal(decision)
    if decision.verdict is Verdict.FITS:
        style = "green" if decision.whole else "yellow"
        verdict = plain_text(fits_words(plan, decision.capacity), style)
    elif decision.placed is Verdict.FITS or decision.reason is Reason.COMPILED:
        verdict = plain_text(f"{decision.words}: what is planned takes {exact(plan.arena_bytes)}", "yellow")
    else:
        needed = f"at least {exact(decision.bound.nbytes)} are needed"
        verdict = plain_text(
            f"{decision.words}: {needed}, searched for {format_seconds(plan.seconds)}", "yellow"
        )
    return [plan_table(plan, cut_by), verdict]


def _refusal(decision: Decision) -> list[RenderableType]:
    plan, bound = decision.plan, decision.bound
    core = find_core(plan.problem, bound, decision.capacity)
    over = f", {format_percent(plan.gap)} over that" if plan.packing_loss else ""
    return [
        plain_text(f"{decision.words}, proved in {effort(plan)}", "bold red"),
        plain_text(f"at least {exact(bound.nbytes)} are needed ({bound.kind.words})"),
        plain_text(f"the best plan found takes {exact(plan.arena_bytes)}{over}"),
        plain_text(core_words(core)),
        _core_table(core.problem, labels_of(plan.problem)),
    ]


def core_words(core: Core) -> str:
    """ "3 buffers alone cannot fit: 12 KiB (12,288 B) at step 7"."""
    count = len(core.problem)
    who = "1 buffer alone cannot fit" if count == 1 else f"{count:,} buffers alone cannot fit"
    where = f"{'at' if core.end == core.start + 1 else 'within'} {format_span(core.start, core.end)}"
    return f"{who}: {exact(core.nbytes)} {where}"


def _core_table(core: Problem, labels: Mapping[str, str]) -> Table:
    """Largest first; MOST_ROWS rows. `labels` are what people call the buffers."""
    aligned, fixed = bool((core.alignment != 1).any()), bool((core.fixed != FREE).any())
    constraints = numbers(*["alignment"] * aligned, *["fixed at"] * fixed)
    buffers = sorted((core[row] for row in range(len(core))), key=lambda buffer: -buffer.size)
    shown = buffers[:MOST_ROWS]
    rows = (
        (
            *named(labels[buffer.name], buffer.name),
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
        rest += ("", f"{size:,}", format_bytes(size))
    columns = ("buffer", *in_graph(), *numbers("bytes", "size"), "lifetime", *constraints)
    return make_table(columns, rows, rest=rest)


def edit_words(edit: Edit) -> str:
    """ "resize conv1 to 64 KiB (65,536 B)"."""
    match edit:
        case Pin(name, None):
            return f"unpin {name}"
        case Pin(name, offset):
            return f"pin {name} at byte {offset:,}"
        case Resize(name, nbytes):
            return f"resize {name} to {exact(nbytes)}"
        case Split(name, parts):
            return f"split {name} into {parts}"
        case Drop(name):
            return f"drop {name}"
        case Shorten(name, start, end):
            return f"limit {name} to {format_span(start, end)}"
        case Align(name, alignment):
            return f"align {name} to {exact(alignment)}"


def suggestion_words(suggestion: Suggestion, problem: Problem) -> str:
    """What to do, of the buffers of `problem`: one clause."""
    edit, labels = suggestion.edits[0], labels_of(problem)

    def told(name: str) -> str:
        label = labels.get(name, name)
        return name if label == name else f"{label} ({name})"

    if suggestion.kind in (Kind.DROP_SEVERAL, Kind.SHRINK_SEVERAL):
        verb = "drop" if suggestion.kind is Kind.DROP_SEVERAL else "shrink"
        by = "," if suggestion.kind is Kind.DROP_SEVERAL else " by"
        names = _names([told(change.buffer) for change in suggestion.edits])
        return f"{verb} {len(suggestion.edits)} buffers{by} {exact(suggestion.nbytes)} in total: {names}"
    row = problem.names.index(edit.buffer)
    match edit:
        case Drop(name):
            return f"drop {told(name)}, {exact(suggestion.nbytes)}"
        case Resize(name, nbytes):
            return f"shrink {told(name)} by {exact(suggestion.nbytes)}, to {exact(nbytes)}"
        case Shorten(name, _, end):
            last = int(problem.end[row]) - 1
            return (
                f"end {told(name)}, {format_bytes(suggestion.nbytes)}, after step {end - 1} instead of {last}"
            )
        case Pin(name, None):
            return f"free the offset of {told(name)}"
        case _:
            return edit_words(edit)


def proof_words(suggestion: Suggestion) -> str:
    """How sure it is that nothing smaller of the kind will do."""
    if suggestion.kind is Kind.RELAX:
        return "changes no bytes"
    if suggestion.heuristic:
        return "not proved: a quick heuristic with a packing found; much less may be enough"
    if suggestion.kind is Kind.SHRINK_SEVERAL:
        return "found; these buffers, shrunk no further than needed"
    if suggestion.kind is Kind.DROP_SEVERAL and not suggestion.exact:
        return "chosen greedily; fewer may be enough"
    if suggestion.short_of_all:
        return "proved: no smaller shrink of one buffer is enough, short of all its bytes"
    if not suggestion.proved:
        return "found; something smaller may be enough"
    says = {
        Kind.SHRINK: "proved: no smaller shrink of one buffer is enough",
        Kind.DROP: "proved: no smaller buffer is enough",
        Kind.CUT: "proved: no smaller buffer is enough; later readers must recompute it",
        Kind.DROP_SEVERAL: "proved: no fewer buffers will do, nor as many smaller",
    }
    return says[suggestion.kind]


def shortage_words(shortage: Shortage) -> str:
    """Why no packing will do, and whether one buffer could be enough."""
    first = shortage.stretches[0]
    steps, where = shortage.steps, f"at {format_span(first.start, first.end)}"
    if len(shortage.stretches) > 1:
        where = f"in {len(shortage.stretches)} stretches of steps, {steps} steps in total"
    sentence = (
        f"whatever the packing, live bytes must fall by {exact(shortage.nbytes)} at step {shortage.step:,}; "
        f"too much is live {where}"
    )
    able = len(shortage.single)
    if able:
        return f"{sentence}; {able} buffer{'s' * (able != 1)} could make room alone"
    return f"{sentence}; no single buffer is live at all of them with enough bytes"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more
