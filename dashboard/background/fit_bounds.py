"""What is proved of every schedule in any number of bytes: more of it than at the points of a curve."""

from __future__ import annotations

import time

from memplan_engine.analysis.op_costs import OpTimes
from memplan_engine.fitting.recompute_stage import Curve, TimeLine
from memplan_engine.rewrites.recompute.recomputed import Recomputation
from memplan_engine.strategies.base import SolveLimits

PLACES = 24
"""Evenly spaced, beside the points themselves."""
LEAST_SECONDS = 5.0
"""For all of them together: one takes a twentieth of a second for BERT's step."""


def time_lines(curve: Curve, times: OpTimes, *, in_place: bool, limits: SolveLimits) -> tuple[TimeLine, ...]:
    """Lines that touch the border of what is proved, below the first of the points of `curve`, as many as
    there is time for in one search, or in LEAST_SECONDS. The order of its ops does not matter to them."""
    graph, first = curve.points[0].graph, curve.points[0].plan.arena_bytes
    places = {curve.least_bytes + (first - curve.least_bytes) * part // PLACES for part in range(PLACES)}
    places |= {point.plan.arena_bytes for point in curve.points}
    again = Recomputation(graph, times.of_ops(graph), in_place=in_place)
    end = time.monotonic() + max(LEAST_SECONDS, limits.seconds or float("inf"))
    lines = []
    for nbytes in sorted(places, reverse=True):
        if limits.stopped or time.monotonic() > end:
            break
        bound = again.bound(nbytes, limits.child(limits.seconds, limits.threads))
        if bound.seconds:
            lines.append(TimeLine(nbytes, bound.seconds, float(bound.proof.price) * 1e-9))
    return tuple(lines)


def envelope(lines: tuple[TimeLine, ...], low: int, high: int) -> list[tuple[float, float]]:
    """Seconds and bytes from corner to corner of what `lines` prove together, from `high` bytes down to
    `low`; straight in between."""

    def most(nbytes: float) -> float:
        return max([0.0, *(line.at(nbytes) for line in lines)])

    zero = TimeLine(0, 0.0, 0.0)
    crossings = {
        (one.at(0) - other.at(0)) / (one.price - other.price)
        for place, one in enumerate((zero, *lines))
        for other in lines[place:]
        if one.price != other.price
    }
    inside = {each for each in crossings if low < each < high}
    # Of where two cross only what no third one is above.
    corners = {each for each in inside if most(each) <= _second(lines, each) * (1 + 1e-9)}
    return [(most(each), each) for each in sorted({float(low), float(high), *corners}, reverse=True)]


def _second(lines: tuple[TimeLine, ...], nbytes: float) -> float:
    """The second most that is proved there."""
    return sorted([0.0, 0.0, *(line.at(nbytes) for line in lines)])[-2]
