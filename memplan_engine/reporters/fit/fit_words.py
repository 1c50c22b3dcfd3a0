"""What came of a fit, in sentences."""

from __future__ import annotations

from memplan_engine.advice.fit_stages import Fitted, Stage, StageName
from memplan_engine.advice.source_patch import SourcePatch
from memplan_engine.analysis.claims import holds_at_least
from memplan_engine.graph import Op
from memplan_engine.rewrites.held_gradients import HeldBy, HeldGradients
from memplan_engine.units import exact, format_bytes, format_exactly
from memplan_engine.verdict import Verdict, verdict_text

TOLD = {
    StageName.CAPTURED: "as captured",
    StageName.IN_PLACE: "in place, zero-copy concat",
    StageName.REORDER: "another order of the ops",
    StageName.GRADIENTS: "gradients freed early",
}


def fit_verdict(fitted: Fitted, unfinished: bool = False) -> tuple[str, str]:
    """The verdict, and what it rests on: "Fits in 24 GiB:", "another order of the ops, 18.2 GiB state + 4.1
    GiB arena". `unfinished`: more stages may come."""
    parts = f"{format_bytes(fitted.state_bytes)} state + {format_bytes(fitted.best.plan.arena_bytes)} arena"
    how = TOLD[fitted.best.name]
    if fitted.capacity is None:
        least = "at least " * holds_at_least(fitted.best.plan.problem)
        return f"Needs {least}{format_bytes(fitted.needed_bytes)}:", f"{how}, {parts}"
    size = format_exactly(fitted.capacity)
    if unfinished and fitted.verdict is Verdict.UNDECIDED and fitted.reason is None:
        return f"Does not fit in {size} yet:", f"so far {how}, {parts}"
    assert fitted.verdict is not None
    words = verdict_text(fitted.verdict, fitted.reason, capacity=size)
    words = words[:1].upper() + words[1:]
    if fitted.verdict is Verdict.FITS:
        return f"{words}:", f"{how}, {parts}"
    if fitted.verdict is Verdict.DOES_NOT_FIT:
        return f"{words}, proved:", f"{_least(fitted)} ({fitted.proof})"
    return f"{words}:", f"the best found is {how}, {parts}"


def _least(fitted: Fitted) -> str:
    """The least that is proved to be needed."""
    state = format_bytes(fitted.state_bytes)
    if fitted.capacity is not None and fitted.state_bytes > fitted.capacity:
        return f"{state} state"
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


COMPARED = (
    "compared is what is returned: where a value that is written over is kept elsewhere (self.x = …), or a "
    "backward pass follows, leave its line as it is. Eager names hold their tensors: less may be saved"
)
"""What no patch claims, though it is captured and compared."""
NO_PATCH = "no patch: no line of the file is one of these changes alone"


def patch_words(change: SourcePatch) -> list[str]:
    """What people read of a patch: what it claims, or why it is none, then the lines that stay."""
    left = [*(f"line {line} stays: {why}" for line, why in change.left), *change.notes]
    found = change.recaptured
    if found is None:
        lines = ", ".join(map(str, change.lines))
        return [f"lines {lines}, not captured again" if change.diff else NO_PATCH, *left]
    if not change.diff:
        why = found.wrong or f"re-captured: live bytes stay at {exact(found.before or 0)}"
        return [f"no patch: {why}", *left]
    lines = ", ".join(map(str, change.lines))
    saved = f"{exact(found.before or 0)} → {exact(found.after or 0)}"
    claim = f"lines {lines}, same results bit for bit, re-captured: live bytes of the graph {saved}"
    return [claim, COMPARED, *left]
