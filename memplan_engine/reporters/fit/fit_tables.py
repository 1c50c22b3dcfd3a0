"""The stages of a fit, as Rich tables for people and as plain values for machines."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType

from memplan_engine.advice.fit_stages import Fitted, Stage
from memplan_engine.advice.source_patch import SourcePatch
from memplan_engine.advice.stage_changes import StageChange
from memplan_engine.analysis.claims import claim_summary
from memplan_engine.feasibility.decision import Core, find_core
from memplan_engine.graph import Op
from memplan_engine.reporters.advice_tables import code_entries, code_lines
from memplan_engine.reporters.fit.fit_words import TOLD, fit_verdict, held_words, patch_words
from memplan_engine.reporters.plan_tables import counted_lines
from memplan_engine.reporters.rich_tables import label_table, make_table, numbers
from memplan_engine.reporters.what_if_tables import core_summary, core_words
from memplan_engine.rewrites.held_gradients import HeldGradients
from memplan_engine.units import exact, format_bytes, format_percent
from memplan_engine.verdict import Verdict


def fit_stages_summary(fitted: Fitted, changes: tuple[StageChange, ...] = ()) -> dict[str, Any]:
    """Verdict, state and stages, and what to write in the user's code (`changes`); bytes exact."""
    return {
        **claim_summary(fitted.best.plan.problem),
        "verdict": fitted.verdict,
        "reason": fitted.reason,
        "proof": fitted.proof,
        "complete": fitted.complete,
        "core": None if (core := core_of(fitted)) is None else core_summary(core),
        "capacity_bytes": fitted.capacity,
        "state_bytes": fitted.state_bytes,
        "needed_bytes": fitted.needed_bytes,
        "stages": [_stage_entry(stage) for stage in fitted.stages],
        "skipped": [{"name": str(name), "reason": why} for name, why in fitted.skipped],
        "gradients": [_held_entry(group) for group in fitted.gradients],
        "code": [
            {"stage": str(change.stage.name), **entry}
            for change in changes
            for entry in code_entries(change.change.code)
        ],
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


def fit_stages_tables(
    fitted: Fitted, changes: tuple[StageChange, ...] = (), patch: SourcePatch | None = None
) -> list[RenderableType]:
    """The stages below each other, the verdict, what to write in the user's code (`changes`, the `patch`),
    and what the figures count."""
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
        lines.append(("verdict", " ".join(fit_verdict(fitted))))
    if core := core_of(fitted):
        lines.append(("core", core_words(core)))
    if not fitted.complete:
        lines.append(("ended", "by Ctrl-C: later stages were not tried"))
    lines += [("gradients" * (not row), held_words(group)) for row, group in enumerate(fitted.gradients)]
    lines += [(f"no {TOLD[name]}", why) for name, why in fitted.skipped if why != "not asked for"]
    lines += _code_rows(changes)
    if patch is not None:
        lines += [("patch" * (not row), words) for row, words in enumerate(patch_words(patch))]
    table = make_table(columns, rows, box=None, pad_edge=False)
    return [table, "", label_table(lines), *counted_lines(best.plan.problem)]


def _code_rows(changes: tuple[StageChange, ...]) -> list[tuple[str, str]]:
    """What to write for each stage that changes something: its title, then the lines of code."""
    rows: list[tuple[str, str]] = []
    for change in changes:
        code = [line for each in change.change.code for line in code_lines(each)]
        title = f"{TOLD[change.stage.name]}: {change.change.title}"
        rows += [("code" * (not rows), title), *(("", f"  {line}") for line in code)]
    return rows


def core_of(fitted: Fitted) -> Core | None:
    """The buffers that alone cannot fit, where the proof is about one graph and not about all its orders."""
    last = fitted.stages[-1]
    if fitted.verdict is not Verdict.DOES_NOT_FIT or last.is_of_all_orders or fitted.capacity is None:
        return None
    left = fitted.capacity - fitted.state_bytes
    if left < 0 or last.plan.bound.nbytes <= left:
        return None
    return find_core(last.plan.problem, last.plan.bound, left)
