"""What came of a fit, in sentences."""

from __future__ import annotations

from memplan_engine.advice.source_patch import Recaptured, SourcePatch
from memplan_engine.feasibility.decision import Verdict
from memplan_engine.fitting.fitted import Fitted, Stage, StageName
from memplan_engine.fitting.recompute_stage import StageTime
from memplan_engine.graph import Op
from memplan_engine.rewrites.held_gradients import HeldBy, HeldGradients
from memplan_engine.units import (
    count_of,
    exact,
    format_bytes,
    format_exactly,
    format_percent,
    format_seconds,
)

MOST_REGIONS = 8
"""Lines of regions in pieces."""

TOLD = {
    StageName.CAPTURED: "as captured",
    StageName.IN_PLACE: "in place, zero-copy concat",
    StageName.REORDER: "another order of the ops",
    StageName.GRADIENTS: "gradients freed early",
    StageName.CHUNK: "in pieces, other last digits",
    StageName.RECOMPUTE: "ops run again",
    StageName.OFFLOAD: "copies to the host",
}


def fit_verdict(fitted: Fitted, unfinished: bool = False) -> tuple[str, str]:
    """The verdict, and what it rests on: "Fits in 24 GiB:", "another order of the ops, 18.2 GiB state + 4.1
    GiB arena". `unfinished`: more stages may come."""
    parts = f"{format_bytes(fitted.state_bytes)} state + {format_bytes(fitted.best.plan.arena_bytes)} arena"
    if fitted.best.time is not None:
        parts += f", {time_words(fitted.best.time)}"
    how = TOLD[fitted.best.name]
    if fitted.capacity is None:
        return f"Needs {format_bytes(fitted.needed_bytes)}:", f"{how}, {parts}"
    size = format_exactly(fitted.capacity)
    if fitted.verdict is Verdict.FITS:
        if fitted.needed_bytes + fitted.workspace_bytes > fitted.capacity:
            more = format_bytes(fitted.workspace_bytes)
            return (
                f"Fits in {size} without temporaries:",
                f"{how}, {parts}, and no room for {more} inside ops",
            )
        return f"Fits in {size}:", f"{how}, {parts}"
    if fitted.verdict is Verdict.DOES_NOT_FIT:
        nearest = f"; the nearest found is {how}, {parts}" if fitted.best.time is not None else ""
        return f"Does not fit in {size}, proved:", f"{_least(fitted)} ({fitted.proof}){nearest}"
    if unfinished:
        return f"Does not fit in {size} yet:", f"so far {how}, {parts}"
    return f"Undecided for {size}:", f"the best found is {how}, {parts}"


def time_words(time: StageTime) -> str:
    """ "+2.2 % time (no schedule is quicker than +0.9 %, proved)"."""
    extra = f"+{format_percent(time.extra)} time"
    if not time.bound:
        return extra
    return f"{extra} (no schedule is quicker than +{format_percent(time.bound)}, proved)"


def _least(fitted: Fitted) -> str:
    """The least that is proved to be needed."""
    state = format_bytes(fitted.state_bytes)
    if fitted.capacity is not None and fitted.state_bytes > fitted.capacity:
        return f"{state} state"
    if fitted.stages[-1].time is not None and fitted.curve is not None:
        return f"{state} state + at least {format_bytes(fitted.curve.least_bytes)} arena"
    if fitted.stages[-1].time is not None:
        return f"{state} state + more than is left"
    return f"{state} state + at least {format_bytes(fitted.stages[-1].bound_bytes)} arena"


def fit_proof(stage: Stage) -> str:
    """What the bound of `stage` is of, and what proves it."""
    bound = exact(stage.bound_bytes)
    if stage.order is not None and stage.is_of_all_orders:
        return (
            f"No order of the ops has fewer than {bound} live at its worst step, by {stage.order.proved_by}"
        )
    what = "this graph" if stage.name is StageName.CAPTURED else "this graph after the stage"
    return f"No arena for {what}, in the order it has, is smaller than {bound}"


def pieces_words(fitted: Fitted) -> list[str]:
    """What runs in pieces, a line for each region, the largest first; [] where that was not asked for."""
    pieces = next((stage.pieces for stage in fitted.stages if stage.pieces), None)
    if pieces is None:
        return []
    if not pieces.regions:
        return ["none: no region around the peak whose rows know nothing of one another, or it saves nothing"]
    words = [
        f"{each.pieces} pieces of {each.along} along dimension {each.dim} ({each.size:,} rows), with "
        f"{count_of(len(each.ops), 'op')} from {each.ops[0]} to {each.ops[-1]}"
        for each in pieces.regions
    ]
    more = [f"and {count_of(len(words) - MOST_REGIONS, 'region')} more"] if len(words) > MOST_REGIONS else []
    extra = "nobody knows what pieces take more"
    if pieces.extra_seconds is not None:
        extra = f"{format_seconds(pieces.extra_seconds)} more, without what it takes to launch an op"
    return [*words[:MOST_REGIONS], *more, f"results have other last digits, and nothing is proved; {extra}"]


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


NO_PATCH = "no patch: none of it is one call in place, or whole statements of one function moved"


def patch_words(change: SourcePatch) -> list[str]:
    """What people read of a patch: what it claims, or why it is none, then the lines that stay."""
    left = [*(f"line {line} stays: {why}" for line, why in change.left), *change.notes]
    found = change.recaptured
    lines = f"lines {', '.join(map(str, change.lines))}"
    if found is None:
        return [f"{lines}, not captured again" if change.diff else NO_PATCH, *left]
    if not change.diff:
        return [f"no patch: {found.wrong or _too_little(found)}", *left]
    claim = f"{lines}: results, prints and what is kept are the same, bit for bit"
    saved = f"live bytes of the graph, re-captured: {_change(found.before, found.after)}"
    words = [claim, saved, *_of_eager(found)]
    if found.untrainable:
        words.append(f"not for training: {found.untrainable}")
    return [*words, *left]


def _of_eager(found: Recaptured) -> list[str]:
    if found.eager_before is None or found.eager_after is None:
        return []
    return [f"live bytes of the eager run, predicted: {_change(found.eager_before, found.eager_after)}"]


def _change(before: int | None, after: int | None) -> str:
    return f"{exact(before or 0)} → {exact(after or 0)}"


def _too_little(found: Recaptured) -> str:
    if found.before == found.after:
        return f"re-captured: live bytes of the graph stay at {exact(found.before or 0)}"
    little = f"it saves too little: live bytes of the graph {_change(found.before, found.after)}"
    return "; ".join([little, *_of_eager(found)])
