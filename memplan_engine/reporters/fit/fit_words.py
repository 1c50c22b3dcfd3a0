"""What came of a fit, in sentences."""

from __future__ import annotations

from memplan_engine.advice.fit_stages import Fitted, Stage, StageName
from memplan_engine.feasibility.decision import Verdict
from memplan_engine.reporters.advice_tables import TOLD
from memplan_engine.units import exact, format_bytes


def fit_headline(fitted: Fitted, unfinished: bool = False) -> tuple[str, str]:
    """The verdict, and what it rests on: "Fits in 24 GiB:", "another order of the ops, 18.2 GiB state + 4.1
    GiB arena". `unfinished`: more stages may come."""
    parts = f"{format_bytes(fitted.state_bytes)} state + {format_bytes(fitted.best.plan.arena_bytes)} arena"
    how = TOLD[fitted.best.name]
    if fitted.capacity is None:
        return f"Needs {format_bytes(fitted.needed_bytes)}:", f"{how}, {parts}"
    size = format_bytes(fitted.capacity)
    if fitted.verdict is Verdict.FITS:
        return f"Fits in {size}:", f"{how}, {parts}"
    if fitted.verdict is Verdict.DOES_NOT_FIT:
        return f"Does not fit in {size}, proved:", f"{_least(fitted)} ({fitted.proof})"
    if unfinished:
        return f"Does not fit in {size} yet:", f"so far {how}, {parts}"
    return f"Undecided for {size}:", f"the best found is {how}, {parts}"


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
