"""Modules in checkpoints, in words."""

from __future__ import annotations

from memplan_engine.advice.checkpoint_code import WITH_FSDP, Checkpoints
from memplan_engine.fitting.fitted import Fitted
from memplan_engine.units import exact, format_bytes, format_percent


def checkpoint_words(checkpoints: Checkpoints, fitted: Fitted) -> list[str]:
    """What to wrap and what that takes against the best schedule of `fitted`, or that it does not come within
    the capacity; what was captured again, the code."""
    wrapping = checkpoints.wrapping
    several = f"{len(wrapping.modules)} of {wrapping.of} " if wrapping.of > 1 else ""
    kept = f", keeping the results of {', '.join(wrapping.saved)}" if wrapping.saved else ""
    points = 100 * (wrapping.extra - (fitted.best.time.extra if fitted.best.time else 0.0))
    over = f"; {points:.1f} points over the schedule" if points >= 0 else "; the schedule needs fewer bytes"
    if fitted.capacity is not None and wrapping.live_bytes > fitted.capacity - fitted.state_bytes:
        over = "; not within the capacity"
    words = [
        f"wrap {several}{wrapping.pattern} in torch.utils.checkpoint{kept}: "
        f"{format_bytes(wrapping.live_bytes)} live, +{format_percent(wrapping.extra)} time, modelled{over}"
    ]
    found = checkpoints.recaptured
    if found is None:
        words.append("not captured again")
    elif not found.same:
        words.append(f"captured again: {found.wrong}")
    else:
        words.append(
            "captured again: results and gradients are the same, bit for bit; live bytes of the graph "
            f"{exact(found.before or 0)} → {exact(found.after or 0)}"
        )
        if found.eager_before is not None and found.eager_after is not None:
            change = f"{exact(found.eager_before)} → {exact(found.eager_after)}"
            words.append(f"live bytes of the eager run, predicted: {change}")
    return [*words, *checkpoints.code.rstrip().splitlines(), WITH_FSDP]
