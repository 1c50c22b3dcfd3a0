"""Storages copied to the host while nothing reads them, so that a graph's live bytes keep to a capacity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from memplan_engine.errors import MemplanError
from memplan_engine.graph import Graph, Op, Role, Storage, Tensor
from memplan_engine.kernels.offload.transfers import (
    Transfers,
    better_gaps,
    cover,
    live_without,
    transfers,
)
from memplan_engine.kernels.types import Flags, Ints
from memplan_engine.rewrites.offload.check_offload import check_offload
from memplan_engine.rewrites.offload.offload_problem import OffloadProblem, offload_problem
from memplan_engine.rewrites.offload.offloaded_graph import Away, offloaded_graph
from memplan_engine.strategies.base import SolveLimits

SECONDS = 10.0
"""Of a search where no limit is given."""
TRIED = 4_000_000
"""Steps that changes by chance go over in one go: half a second."""
LEAST_TRIES, MOST_TRIES = 30, 2_000
QUIET = 3
"""Goes that gain nothing, after which it ends."""


@dataclass(frozen=True, slots=True, eq=False)
class Offloaded:
    """`graph` has copies to the host and back of `copied_bytes` each way, and at most `peak_bytes` live. Its
    ops wait `extra_seconds` for them in all, as modelled."""

    graph: Graph
    peak_bytes: int
    copied_bytes: int
    extra_seconds: float


def offload(
    graph: Graph,
    seconds: Sequence[float],
    capacity: int,
    bandwidth: float,
    limits: SolveLimits | None = None,
) -> Offloaded | None:
    """`graph`, in its order, with at most `capacity` bytes live, where `bandwidth` bytes a second can be
    copied to the host and as many back beside the ops, which take `seconds` each; None where too little of
    what is live can wait there. Inputs and weights do not count, and stay.

    Which storages go: at the highest step those of the longest gaps first (AutoSwap, Zhang et al. 2019, and
    SwapAdvisor, Huang et al. 2020, rank by such scores), then changes by chance. How long ops wait is
    simulated, and worked out once more by the checker, which shares no code with that.

    Raises
    ------
    InputError: not a time for each op; no bandwidth above 0. MemplanError: a graph that the check refuses.
    """
    limits = limits or SolveLimits(SECONDS)
    problem = offload_problem(graph, seconds, bandwidth).within(capacity)
    with limits.running():
        found = _best(problem, capacity, limits)
    if found is None:
        return None
    chosen, how = found
    rewritten = offloaded_graph(graph, _away(problem, chosen, how))
    extra = how.total - problem.total
    names = [op.name for op in graph.ops]
    nanoseconds = dict(zip(names, problem.cost.tolist(), strict=True))
    wrong = check_offload(graph, rewritten, nanoseconds, bandwidth, capacity, extra)
    if wrong:
        raise MemplanError(f"{graph.name}: offloading: {wrong[0]}; please report this")
    peak = int(live_without(problem.live, problem.gaps, chosen).max(initial=0))
    return Offloaded(rewritten, peak, int(problem.gaps.size[chosen].sum()), extra / 1e9)


def _best(problem: OffloadProblem, capacity: int, limits: SolveLimits) -> tuple[Flags, Transfers] | None:
    """The gaps of the least time, and their copies; None where no gaps are enough."""
    found: list[tuple[int, Flags]] = []
    for worth in _worths(problem):
        chosen = np.zeros(len(worth), np.bool_)
        cover(problem.live, problem.gaps, worth, capacity, chosen)
        how = transfers(problem.live, problem.cost, problem.gaps, chosen, capacity)
        if how.over:
            return None
        found.append((how.total, chosen))
    total, chosen = min(found, key=lambda each: each[0])
    tries = min(MOST_TRIES, max(LEAST_TRIES, TRIED // max(1, len(problem.cost))))
    seed = quiet = 0
    while quiet < QUIET and total > problem.total and not limits.stopped:
        now = better_gaps(
            problem.live, problem.cost, problem.gaps, chosen, capacity, tries, seed, limits.stop
        )
        quiet, total, seed = (0 if now < total else quiet + 1), now, seed + 1
    return chosen, transfers(problem.live, problem.cost, problem.gaps, chosen, capacity)


def _worths(problem: OffloadProblem) -> list[Ints]:
    """What gaps are worth, in several ways: by how long they are, by that and their bytes, and by how early
    they begin."""
    time = np.concatenate([[0], np.cumsum(problem.cost)])
    idle = time[problem.gaps.end] - time[problem.gaps.begin + 1]
    spare = idle - 2 * problem.gaps.takes
    return [
        spare,
        (spare.astype(np.float64) * problem.gaps.size / 2**20).astype(np.int64),
        -problem.gaps.begin,
    ]


def _away(problem: OffloadProblem, chosen: Flags, how: Transfers) -> list[Away]:
    """The copies of the `chosen` gaps, in the order in which those of one op go."""
    gaps = problem.gaps
    return [
        Away(problem.names[k], *(int(each[k]) for each in (gaps.begin, how.left, how.back, gaps.end)))
        for k in np.flatnonzero(chosen).tolist()
    ]


@cache
def load_offload_kernels() -> None:
    """Look for copies of a graph of four ops for nothing, with every kernel."""
    storages = tuple(Storage(name, 2, Role.OUTPUT if name == "d" else Role.ACTIVATION) for name in "abcd")
    tensors = tuple(Tensor(name, (2,), "uint8", 2, name) for name in "abcd")
    ops = (
        Op("a", "f", (), ("a",)),
        Op("b", "f", (), ("b",)),
        Op("c", "f", ("b",), ("c",)),
        Op("d", "f", ("a", "c"), ("d",)),
    )
    graph = Graph("four", storages, tensors, ops, (), ("d",))
    problem = offload_problem(graph, (1e-9,) * 4, 1e9).within(4)
    chosen = np.ones(len(problem.names), np.bool_)
    better_gaps(problem.live, problem.cost, problem.gaps, chosen, 6, 1, 0, np.zeros(1, np.bool_))
    offload(graph, (1e-9,) * 4, 6, 1e9)
