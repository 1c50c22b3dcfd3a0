"""The stages of a fit, as Rich tables for people and as plain values for machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType

from memplan_engine.advice.checkpoint_code import Checkpoints
from memplan_engine.advice.source_patch import SourcePatch
from memplan_engine.advice.stage_changes import StageChange
from memplan_engine.analysis.claims import claim_summary
from memplan_engine.analysis.torch_budgets import TorchPoint
from memplan_engine.feasibility.decision import Core, Verdict, find_core
from memplan_engine.fitting.chunk_stage import InPieces
from memplan_engine.fitting.fitted import Fitted, Stage
from memplan_engine.fitting.recompute_stage import CurvePoint, StageTime
from memplan_engine.graph import Op
from memplan_engine.profile import load_of
from memplan_engine.reporters.advice_tables import code_entries, code_lines
from memplan_engine.reporters.fit.checkpoint_words import checkpoint_words
from memplan_engine.reporters.fit.fit_words import TOLD, fit_verdict, held_words, patch_words, pieces_words
from memplan_engine.reporters.plan_tables import counted_lines
from memplan_engine.reporters.rich_tables import label_table, make_table, numbers
from memplan_engine.reporters.what_if_tables import core_summary, core_words
from memplan_engine.rewrites.held_gradients import HeldGradients
from memplan_engine.units import count_of, exact, format_bytes, format_percent, format_seconds


def fit_stages_summary(
    fitted: Fitted, changes: tuple[StageChange, ...] = (), points: Sequence[TorchPoint] = ()
) -> dict[str, Any]:
    """Verdict, state and stages, what to write in the user's code (`changes`), and torch's `points`; bytes
    exact."""
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
        "curve": [_point_entry(point) for point in fitted.curve.points] if fitted.curve else [],
        "least_bytes": fitted.curve.least_bytes if fitted.curve else None,
        "torch_budgets": [each._asdict() for each in points],
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
        "live_proved": stage.live_proved,
        "bound_of": "every order" if stage.is_of_all_orders else "this order",
        "proved_by": None if stage.order is None else str(stage.order.proved_by),
        "workspace_bytes": stage.plan.workspace_bytes,
        **_time_entry(stage.time),
        "copied_bytes": stage.copied_bytes,
        "generator_states": stage.generator_states,
        **_pieces_entry(stage.pieces),
    }


def _pieces_entry(pieces: InPieces | None) -> dict[str, Any]:
    """Along which dimension regions run in pieces, and in how many; nothing of other stages."""
    if pieces is None:
        return {}
    regions = [
        {
            "pieces": each.pieces,
            "along": each.along,
            "dim": each.dim,
            "rows": each.size,
            "ops": list(each.ops),
        }
        for each in pieces.regions
    ]
    told = {"extra_seconds": pieces.extra_seconds, "bound_seconds": None, "times": pieces.of or None}
    return {**told, "exact": False, "chunks": regions}


def _time_entry(time: StageTime | None) -> dict[str, Any]:
    """Stages without a time take none; times are null where nobody knows what ops take."""
    if time is None:
        return {"extra_seconds": 0.0, "bound_seconds": 0.0, "total_seconds": None, "times": None}
    return {
        "extra_seconds": time.extra_seconds,
        "bound_seconds": time.bound_seconds,
        "total_seconds": time.seconds,
        "times": time.of,
    }


def _point_entry(point: CurvePoint) -> dict[str, Any]:
    return {
        "load_bytes": load_of(point.plan.problem).peak,
        "arena_bytes": point.plan.arena_bytes,
        **_time_entry(point.time),
    }


def fit_stages_tables(
    fitted: Fitted,
    changes: tuple[StageChange, ...] = (),
    patch: SourcePatch | None = None,
    checkpoints: Checkpoints | None = None,
    points: Sequence[TorchPoint] = (),
) -> list[RenderableType]:
    """The stages below each other, the verdict, what to write in the user's code (`changes`, the `patch`,
    `checkpoints`), and what the figures count; `points` are torch's, beside the curve."""
    first = fitted.stages[0].plan.arena_bytes
    timed = any(stage.time for stage in fitted.stages)
    rows = []
    for stage in fitted.stages:
        arena = stage.plan.arena_bytes
        saved = "" if stage is fitted.stages[0] else format_percent((first - arena) / max(first, 1))
        row = (TOLD[stage.name], format_bytes(stage.load_bytes), format_bytes(arena), saved)
        extra = f"+{format_percent(stage.time.extra)}" if stage.time else ""
        of_all = "every order" if stage.is_of_all_orders else "this order"
        proved = f"proved, {of_all}" if stage.proved else "live bytes proved" if stage.live_proved else ""
        rows.append((*row, format_bytes(stage.bound_bytes), *([extra] if timed else []), proved))
    times = ("time",) if timed else ()
    columns = ("stage", *numbers("live bytes", "arena", "saved", "bound", *times), "")
    best = fitted.best
    lines = [("state", f"{exact(fitted.state_bytes)}: weights, optimizer state and inputs")]
    if fitted.capacity is not None:
        left = fitted.capacity - fitted.state_bytes
        more = f", {format_bytes(left)} left" if left >= 0 else f", {format_bytes(-left)} more than there is"
        lines.append(("capacity", exact(fitted.capacity) + more))
    lines.append(("arena + state", f"{exact(fitted.needed_bytes)}, {TOLD[best.name]}"))
    if workspace := fitted.workspace_bytes:
        lines.append(("temporaries", f"{exact(workspace)} more, outside the arena and not in the verdict"))
    if fitted.verdict is not None:
        lines.append(("verdict", " ".join(fit_verdict(fitted))))
    if core := core_of(fitted):
        lines.append(("core", core_words(core)))
    lines += [("pieces" * (not row), words) for row, words in enumerate(pieces_words(fitted))]
    if not fitted.complete:
        lines.append(("ended", "by Ctrl-C: later stages were not tried"))
    lines += [("gradients" * (not row), held_words(group)) for row, group in enumerate(fitted.gradients)]
    lines += [(f"no {TOLD[name]}", why) for name, why in fitted.skipped if why != "not asked for"]
    lines += _code_rows(changes)
    if patch is not None:
        lines += [("patch" * (not row), words) for row, words in enumerate(patch_words(patch))]
    if checkpoints is not None:
        words = checkpoint_words(checkpoints, fitted)
        lines += [("checkpoints" * (not row), line) for row, line in enumerate(words)]
    lines += _time_rows(fitted)
    table = make_table(columns, rows, box=None, pad_edge=False)
    return [
        table,
        "",
        *_curve(fitted),
        *_beside_torch(fitted, points),
        label_table(lines),
        *counted_lines(best.plan.problem),
    ]


def _time_rows(fitted: Fitted) -> list[tuple[str, str]]:
    """What becomes of random numbers, what is copied, and whose times these are."""
    best, lines = fitted.best, []
    if states := best.generator_states:
        kept = f"{count_of(states, 'state')} kept, {exact(best.generator_bytes)} of the arena"
        lines.append(("generator", f"{kept}: random numbers are drawn again from them"))
    if best.copied_bytes:
        lines.append(("copies", f"{exact(best.copied_bytes)} to the host, and as many back"))
    if taken := best.time or (fitted.curve.points[0].time if fitted.curve else None):
        lines.append(("times", f"{taken.of}; all ops once: {format_seconds(taken.seconds)}"))
    return lines


def _beside_torch(fitted: Fitted, points: Sequence[TorchPoint]) -> list[RenderableType]:
    """What torch's own partitioner runs again, of the same passes by the same times."""
    if not points or fitted.curve is None:
        return []
    seconds = fitted.curve.points[0].time.seconds or 1.0
    rows = [
        (f"{each.budget:g}", format_bytes(each.live_bytes), f"{each.extra_seconds / seconds:+.1%}")
        for each in points
    ]
    table = make_table(numbers("budget", "live bytes", "time"), rows, box=None, pad_edge=False)
    told = "torch's activation_memory_budget on the same passes, by the same times"
    if any(each.extra_seconds < 0 for each in points):
        told += "; below 0, as its partition leaves out ops that nothing reads"
    return [told, table, ""]


def _curve(fitted: Fitted) -> list[RenderableType]:
    """Bytes against time, and the least time that is proved for as many."""
    if fitted.curve is None or len(fitted.curve.points) < 2:
        return []
    first = fitted.stages[0].plan.arena_bytes
    rows = []
    for point in fitted.curve.points:
        arena, time = point.plan.arena_bytes, point.time
        saved = format_percent((first - arena) / max(first, 1))
        least = "" if time.bound is None else f"+{format_percent(time.bound)}"
        rows.append((format_bytes(arena), saved, f"+{format_percent(time.extra)}", least))
    table = make_table(
        numbers("arena", "saved", "time", "no schedule is quicker than"), rows, box=None, pad_edge=False
    )
    least = format_bytes(fitted.curve.least_bytes)
    below = f"No schedule has an arena of fewer than {least}, however often its ops run again: proved."
    return ["Fewer bytes for time, by running ops again", table, below, ""]


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
