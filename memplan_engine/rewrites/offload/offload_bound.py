"""The least time that must be spent for the live bytes to stay below a capacity, where results may wait on
the host as well as be made again.

When an op first runs, what waits on the host and is needed from there on has been copied there before, and is
copied back behind. A channel copies at most bandwidth · time, so that no more bytes are away than bandwidth ·
(W + e): W is what all ops take once, less those that must run on the other side of that moment, and e is what
is spent beside. With the bytes that are away the schedule keeps to a capacity that much larger without any
copy, and the bound on recomputation there is one on e.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor

from memplan_engine.graph import Graph
from memplan_engine.rewrites.recompute.recomputed import Recomputation
from memplan_engine.schedule import dependencies
from memplan_engine.strategies.base import SolveLimits

HALVINGS = 4
"""Of the time in question: each asks for a bound on recomputation, and tells a sixteenth."""


def window(graph: Graph, seconds: Sequence[float], op: str) -> float:
    """For how long, at the most, copies to the host can run before the first execution of `op` beside ops
    that each run once, or, if that is less, copies back behind it. Seconds."""
    needs = dependencies(graph)
    at = next(index for index, each in enumerate(graph.ops) if each.name == op)
    before, behind = {at}, {at}
    for index in range(at, -1, -1):
        if index in before:
            before |= set(needs[index])
    for index in range(at + 1, len(needs)):
        if behind & set(needs[index]):
            behind.add(index)
    total = sum(seconds)
    return min(total - sum(seconds[i] for i in before - {at}), total - sum(seconds[i] for i in behind))


def offload_bound(again: Recomputation, capacity: int, bandwidth: float, limits: SolveLimits) -> float:
    """What every schedule of `again` within `capacity` live bytes takes at least beside running each op once,
    whether it makes results again or copies them to the host and back at `bandwidth` bytes a second in each
    direction; seconds. By bounds that `again` has checked."""
    seconds = [cost / 1e9 for cost in again.nanoseconds]
    windows: dict[str, float] = {}

    def proved(larger: int) -> float:
        """What the bound on recomputation within `larger` bytes proves."""
        bound = again.bound(larger, limits)
        op = bound.proof.op
        if op not in windows:
            windows[op] = window(again.graph, seconds, op)
        least = sum(seconds) if bound.seconds is None else bound.seconds
        return max(0.0, min(least, (larger - capacity) / bandwidth - windows[op]))

    low, high = capacity, max(capacity, again.peak_bytes)
    best = 0.0
    for _ in range(HALVINGS):
        if limits.stopped:
            break
        middle = floor((low + high) / 2)
        found = proved(middle)
        best = max(best, found)
        # A larger capacity leaves more to the channel, and less to prove.
        spare = (middle - capacity) / bandwidth - max(windows.values())
        if spare > found:
            high = middle
        else:
            low = middle
    return best


def most_of_an_op(again: Recomputation) -> tuple[int, str]:
    """The bytes that one op needs while it runs, of what ops have made, where nothing else is live; and its
    name. No schedule has fewer, wherever results wait."""
    problem = again.problem
    o = problem.arrays
    needed = [
        int(problem.sure[o.used[o.used_of[at] : o.used_of[at + 1]]].sum() + problem.own[at])
        for at in range(len(o.out))
    ]
    most = max(range(len(needed)), key=needed.__getitem__)
    return needed[most], problem.graph.ops[most].name
