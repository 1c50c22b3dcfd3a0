"""Advice as Rich tables for people and as plain values for machines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from memplan_engine.advice.commands import command_of, writing_command
from memplan_engine.advice.values import Advice, CodeChange, OpChange, Suggestion
from memplan_engine.analysis.claims import claim_summary, is_optimal, over_bound, peak_name
from memplan_engine.analysis.tied_peaks import tied_peaks
from memplan_engine.preparation import Preparation
from memplan_engine.reporters.plan_tables import counted_lines
from memplan_engine.reporters.rich_tables import label_table, make_table, numbers, plain_text
from memplan_engine.reporters.what_if_tables import edit_entry
from memplan_engine.units import exact, format_bytes, format_percent
from memplan_engine.verdict import Verdict

MOST_TYPED = 6
"""With more edits than that a command is too long to type: then it is the one that writes them."""


def advice_summary(advice: Advice, file: str, asked: Preparation | None = None) -> dict[str, Any]:
    """The suggestions with their commands and lines of code, and what was tried besides; bytes exact."""
    plan = advice.plan
    return {
        **claim_summary(plan.problem),
        "arena_bytes": plan.arena_bytes,
        "bound_bytes": plan.bound.nbytes,
        "capacity_bytes": advice.capacity,
        "complete": advice.complete,
        "tied_peaks": [
            {"step": peak.step, "bytes": peak.nbytes, "module": peak.module, "steps": peak.steps}
            for peak in tied_peaks(plan.problem)
        ],
        "suggestions": [_entry(each, file, asked) for each in advice.suggestions],
        "rejected": [
            {"kinds": list(each.kinds), "title": each.title, "reason": each.reason}
            for each in advice.rejected
        ],
        "why_none": advice.why_none,
    }


def _entry(suggestion: Suggestion, file: str, asked: Preparation | None) -> dict[str, Any]:
    return {
        **claim_summary(suggestion.plan.problem),
        "kinds": list(suggestion.kinds),
        "title": suggestion.title,
        "saved_bytes": suggestion.saved_bytes,
        "saved_peak_bytes": suggestion.saved_peak_bytes,
        "arena_bytes": suggestion.arena_bytes,
        "bound_bytes": suggestion.plan.bound.nbytes,
        "optimal": is_optimal(suggestion.plan),
        "fits": suggestion.fits,
        "same_bits": suggestion.same_bits,
        "numerics": suggestion.numerics,
        "note": suggestion.note,
        "edits": [edit_entry(edit) for edit in suggestion.edits],
        "command": command_of(suggestion, file, asked),
        "code": code_entries(suggestion.code),
    }


def code_entries(changes: Iterable[CodeChange]) -> list[dict[str, Any]]:
    """An entry for each kind of op that changes in a line."""
    return [
        {
            "file": change.source.file if change.source else None,
            "line": change.source.line if change.source else None,
            "code": change.source.code if change.source else "",
            "module": change.module,
            "op": each.op,
            "ops": each.times,
            "instead": each.instead,
            "edited": change.edited,
            "expressions": list(each.expressions),
        }
        for change in changes
        for each in change.ops
    ]


def advice_tables(
    advice: Advice, file: str, asked: Preparation, all_rows: bool = False
) -> list[RenderableType]:
    """A row a suggestion, then how to get each, then, with `all_rows`, what was tried besides."""
    parts: list[RenderableType] = [plain_text(_headline(advice))]
    if advice.suggestions:
        parts.append(_table(advice))
        for number, suggestion in enumerate(advice.suggestions, 1):
            parts += [plain_text(""), *_details(number, suggestion, file, asked)]
    else:
        parts.append(plain_text(advice.why_none))
    if all_rows and advice.rejected:
        rows = ((each.title, each.reason) for each in advice.rejected)
        parts.append(make_table(("tried", "no suggestion because"), rows))
    if advice.suggestions and not advice.complete:
        parts.append(plain_text("The time was up before everything was tried: --seconds gives more."))
    return [*parts, *counted_lines(advice.plan.problem)]


def _headline(advice: Advice) -> str:
    """What the plan needs, and whether that fits."""
    plan = advice.plan
    words = f"{plan.problem.name}: arena {exact(plan.arena_bytes)}, {over_bound(plan)}"
    peaks = tied_peaks(plan.problem)
    if len(peaks) > 1:
        words += f"; {len(peaks)} steps tie for the {peak_name(plan.problem)}"
    if advice.capacity is None:
        return words
    over = plan.arena_bytes - advice.capacity
    return f"{words}; {format_bytes(abs(over))} {'over' if over > 0 else 'under'} the capacity"


def _table(advice: Advice) -> Table:
    columns = ["", "suggestion", *numbers("saves", "of arena", "arena then"), "", "results"]
    rows = []
    for number, each in enumerate(advice.suggestions, 1):
        row = [
            str(number),
            each.title,
            format_bytes(each.saved_bytes),
            format_percent(each.saved_bytes / advice.plan.arena_bytes),
            format_bytes(each.arena_bytes),
            over_bound(each.plan),
            each.numerics,
        ]
        if advice.capacity is not None:
            words = {True: Verdict.FITS, False: Verdict.DOES_NOT_FIT, None: Verdict.UNDECIDED}
            row.append(words[each.fits])
        rows.append(row)
    if advice.capacity is not None:
        columns.append(format_bytes(advice.capacity))
    return make_table(columns, rows)


def _details(number: int, suggestion: Suggestion, file: str, asked: Preparation) -> Iterator[RenderableType]:
    command = command_of(suggestion, file, asked)
    if len(suggestion.all_edits) > MOST_TYPED:
        command = writing_command(suggestion, number, file, asked)
    rows = [("plan", command)]
    if suggestion.note:
        rows.append(("note", suggestion.note))
    lines = (line for change in suggestion.code for line in code_lines(change))
    rows += [("code" * (not row), line) for row, line in enumerate(lines)]
    yield plain_text(f"{number}. {suggestion.title}", "bold")
    yield label_table(rows)


def code_lines(change: CodeChange) -> list[str]:
    """ "activations.py:66 in h.*.mlp.act", below it "  x.tanh_()  for 12 aten.tanh: torch.tanh(y)" for each
    kind of op, all in one where there is one; or the line with "- " and the edited one with "+ ". Code of
    several lines comes after what it is for."""
    ops = [line for each in change.ops for line in op_words(each).splitlines()]
    where = f"{change.source or ''}{f' in {change.module}' if change.module else ''}".strip()
    if change.diff:
        return [where, *(f"  {line}" for line in change.diff)]
    if not where:
        return ops
    if len(ops) == 1:
        return [f"{where}  {ops[0]}"]
    return [where, *(f"  {each}" for each in ops)]


def op_words(change: OpChange) -> str:
    """ "x.tanh_()  for 12 aten.tanh: torch.tanh(y)"."""
    told = f": {'; '.join(change.expressions)}" if change.expressions else ""
    words = f"for {change.times:,} {change.op}{told}"
    several = "\n" in change.instead
    return f"{words}:\n{change.instead}" if several else f"{change.instead}  {words}"
