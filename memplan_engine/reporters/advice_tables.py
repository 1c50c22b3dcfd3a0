"""Advice, and the stages of a fit, as Rich tables for people and as plain values for machines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from memplan_engine.advice.commands import command_of, writing_command
from memplan_engine.advice.fit_stages import Fitted, Stage, StageName
from memplan_engine.advice.values import Advice, CodeChange, OpChange, Suggestion
from memplan_engine.analysis.claims import claim_summary, over_bound
from memplan_engine.analysis.tied_peaks import tied_peaks
from memplan_engine.feasibility.decision import Core, Verdict, find_core
from memplan_engine.graph import Op
from memplan_engine.preparation import Preparation
from memplan_engine.reporters.plan_tables import counted_lines
from memplan_engine.reporters.rich_tables import label_table, make_table, numbers, plain_text
from memplan_engine.reporters.what_if_tables import core_summary, core_words, edit_entry
from memplan_engine.rewrites.held_gradients import HeldBy, HeldGradients
from memplan_engine.units import exact, format_bytes, format_percent

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
        "optimal": suggestion.plan.optimal,
        "fits": suggestion.fits,
        "same_bits": suggestion.same_bits,
        "numerics": suggestion.numerics,
        "note": suggestion.note,
        "edits": [edit_entry(edit) for edit in suggestion.edits],
        "command": command_of(suggestion, file, asked),
        "code": [
            {
                "file": change.source.file if change.source else None,
                "line": change.source.line if change.source else None,
                "code": change.source.code if change.source else "",
                "module": change.module,
                "op": each.op,
                "ops": each.times,
                "instead": each.instead,
                "expressions": list(each.expressions),
            }
            for change in suggestion.code
            for each in change.ops
        ],
    }


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
        words += f"; {len(peaks)} places reach the same peak"
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
        rows.append([*row, *([] if each.fits is None else ["fits" if each.fits else "does not fit"])])
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
    kind of op; all in one where there is one."""
    ops = [op_words(each) for each in change.ops]
    where = f"{change.source or ''}{f' in {change.module}' if change.module else ''}".strip()
    if len(ops) == 1 or not where:
        return [f"{where}  {each}".strip() for each in ops]
    return [where, *(f"  {each}" for each in ops)]


def op_words(change: OpChange) -> str:
    """ "x.tanh_()  for 12 aten.tanh: torch.tanh(y)"."""
    told = f": {'; '.join(change.expressions)}" if change.expressions else ""
    return f"{change.instead}  for {change.times:,} {change.op}{told}"


TOLD = {
    StageName.CAPTURED: "as captured",
    StageName.IN_PLACE: "in place, zero-copy concat",
    StageName.REORDER: "another order of the ops",
    StageName.GRADIENTS: "gradients freed early",
}


def fit_stages_summary(fitted: Fitted) -> dict[str, Any]:
    """Verdict, state and stages; bytes exact."""
    return {
        **claim_summary(fitted.best.plan.problem),
        "verdict": None if fitted.verdict is None else str(fitted.verdict),
        "proof": fitted.proof,
        "complete": fitted.complete,
        "core": None if (core := core_of(fitted)) is None else core_summary(core),
        "capacity_bytes": fitted.capacity,
        "state_bytes": fitted.state_bytes,
        "needed_bytes": fitted.needed_bytes,
        "stages": [_stage_entry(stage) for stage in fitted.stages],
        "skipped": [{"name": str(name), "reason": why} for name, why in fitted.skipped],
        "gradients": [_held_entry(group) for group in fitted.gradients],
    }


def _held_entry(group: HeldGradients) -> dict[str, Any]:
    return {
        "free": group.free,
        "reason": str(group.why),
        "count": len(group.tensors),
        "bytes": group.nbytes,
        "tensors": list(group.tensors),
        "op": None if group.op is None else _op_entry(group.op),
        "readers": [_op_entry(op) for op in group.readers],
    }


def _op_entry(op: Op) -> dict[str, Any]:
    source = op.source
    return {
        "op": op.name,
        "kind": op.kind,
        "file": source.file if source else None,
        "line": source.line if source else None,
        "code": source.code if source else "",
    }


def _stage_entry(stage: Stage) -> dict[str, Any]:
    return {
        "name": str(stage.name),
        "load_bytes": stage.load_bytes,
        "arena_bytes": stage.plan.arena_bytes,
        "bound_bytes": stage.bound_bytes,
        "proved": stage.proved,
        "bound_of": "every order" if stage.is_of_all_orders else "this order",
        "proved_by": None if stage.order is None else str(stage.order.proved_by),
        "workspace_bytes": stage.plan.total_bytes - stage.plan.arena_bytes,
    }


def fit_stages_tables(fitted: Fitted) -> list[RenderableType]:
    """The stages below each other, the verdict, and what the figures count."""
    first = fitted.stages[0].plan.arena_bytes
    rows = []
    for stage in fitted.stages:
        arena = stage.plan.arena_bytes
        saved = "" if stage is fitted.stages[0] else format_percent((first - arena) / max(first, 1))
        row = (TOLD[stage.name], format_bytes(stage.load_bytes), format_bytes(arena), saved)
        of_all = "every order" if stage.is_of_all_orders else "this order"
        proved = f"proved, {of_all}" if stage.proved else ""
        rows.append((*row, format_bytes(stage.bound_bytes), proved))
    columns = ("stage", *numbers("live bytes", "arena", "saved", "bound"), "")
    best = fitted.best
    lines = [("state", f"{exact(fitted.state_bytes)}: weights, optimizer state and inputs")]
    if fitted.capacity is not None:
        left = fitted.capacity - fitted.state_bytes
        more = f", {format_bytes(left)} left" if left >= 0 else f", {format_bytes(-left)} more than there is"
        lines.append(("capacity", exact(fitted.capacity) + more))
    lines.append(("arena + state", f"{exact(fitted.needed_bytes)}, {TOLD[best.name]}"))
    if workspace := best.plan.total_bytes - best.plan.arena_bytes:
        lines.append(("temporaries", f"{exact(workspace)} more, outside the arena and not in the verdict"))
    if fitted.verdict is not None:
        lines.append(("verdict", verdict_sentence(fitted)))
    if core := core_of(fitted):
        lines.append(("core", core_words(core)))
    if not fitted.complete:
        lines.append(("ended", "by Ctrl-C: later stages were not tried"))
    lines += [("gradients" * (not row), held_words(group)) for row, group in enumerate(fitted.gradients)]
    lines += [(f"no {TOLD[name]}", why) for name, why in fitted.skipped if why != "not asked for"]
    table = make_table(columns, rows, box=None, pad_edge=False)
    return [table, "", label_table(lines), *counted_lines(best.plan.problem)]


def held_words(group: HeldGradients) -> str:
    """ "3, 18 KiB, wait for one another: aten.stack at train.py:21: clip_grad_norm_(…)"."""
    several = f"{len(group.tensors):,}, {exact(group.nbytes)}"
    words = f"{several}, {HELD_TOLD[group.why]}{_at(group.op)}"
    return words + "".join(f"; read as well by{_at(op).removeprefix(':')}" for op in group.readers)


HELD_TOLD = {
    HeldBy.ORDER: "free as soon as the update of each has run",
    HeldBy.TOGETHER: "held, since one op needs all of them",
    HeldBy.ACCUMULATED: "held through all backward passes, which add to them",
    HeldBy.RETURNED: "held, since the step returns them",
}


def _at(op: Op | None) -> str:
    if op is None:
        return ""
    where = f" at {op.source}: {op.source.code.strip()}" if op.source else ""
    return f": {op.kind}{where}"


def verdict_sentence(fitted: Fitted) -> str:
    """ "the arena does not fit into 30 MiB (…), proved: every order of the ops, one cut; at least … are
    needed". The capacity that is meant is what the state leaves."""
    if fitted.verdict is None or fitted.capacity is None:
        return ""
    if fitted.capacity < fitted.state_bytes:
        return f"does not fit, proved: {fitted.proof}"
    left = exact(fitted.capacity - fitted.state_bytes)
    needed = f"at least {exact(fitted.stages[-1].bound_bytes)} are needed"
    if fitted.verdict is Verdict.FITS:
        return f"fits: the arena takes {exact(fitted.best.plan.arena_bytes)} of {left}"
    if fitted.verdict is Verdict.DOES_NOT_FIT:
        return f"the arena does not fit into {left}, proved: {fitted.proof}; {needed}"
    found = f"the best plan found takes {exact(fitted.best.plan.arena_bytes)}"
    return f"undecided whether the arena fits into {left}: {found}, and no proof over all ways says no"


def core_of(fitted: Fitted) -> Core | None:
    """The buffers that alone cannot fit, where the proof is about one graph and not about all its orders."""
    last = fitted.stages[-1]
    if fitted.verdict is not Verdict.DOES_NOT_FIT or last.is_of_all_orders or fitted.capacity is None:
        return None
    left = fitted.capacity - fitted.state_bytes
    if left < 0 or last.plan.bound.nbytes <= left:
        return None
    return find_core(last.plan.problem, last.plan.bound, left)
