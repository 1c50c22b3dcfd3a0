"""Which modules to wrap in torch.utils.checkpoint: the coarser form of a schedule, which people can write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from memplan_engine.analysis.op_costs import OpTimes
from memplan_engine.analysis.tied_peaks import repeated
from memplan_engine.errors import MemplanError
from memplan_engine.graph import Graph, Phase
from memplan_engine.kernels.recompute.lazily import sequence_live
from memplan_engine.kernels.types import Ints
from memplan_engine.rewrites.recompute.check_recompute import check_recompute
from memplan_engine.rewrites.recompute.recompute_problem import RecomputeProblem, recompute_problem
from memplan_engine.rewrites.recompute.recomputed_graph import recomputed_graph

LEAST_OPS = 2
"""Of a module that is worth wrapping."""
MOST_SAVED = 6
"""Kinds of ops whose results a policy keeps, at the most: a line that people can read."""


@dataclass(frozen=True, slots=True, eq=False)
class Wrapping:
    """With `modules`, alike and in the order in which they run, in checkpoints: `graph` is the step then,
    with `live_bytes` at its worst step, and ops run again for `extra_seconds` of `seconds`. Results of the
    kinds `saved` are kept: a selective checkpoint. Random numbers are drawn again, from a state of the
    generator that is kept, as torch does."""

    modules: tuple[str, ...]
    saved: tuple[str, ...]
    of: int
    """So many are alike."""
    graph: Graph
    live_bytes: int
    seconds: float
    extra_seconds: float

    @property
    def pattern(self) -> str:
        """The modules, with * for their numbers."""
        return repeated(self.modules[0])

    @property
    def extra(self) -> float:
        """As a share of what all ops take once."""
        return self.extra_seconds / self.seconds if self.seconds else 0.0


def find_wrapping(graph: Graph, times: OpTimes, live: int) -> Wrapping | None:
    """The cheapest way to at most `live` bytes, inputs and weights not counted, by wrapping modules of one
    kind, the first of them, which keep the results of some kinds of ops or of none; where none comes so low,
    the lowest. None for a graph without a backward pass, or
    in which no module helps.

    Raises
    ------
    InputError: an op without a time, an eager run. MemplanError: a schedule that its checker refuses.
    """
    if not any(op.phase is Phase.BACKWARD for op in graph.ops):
        return None
    problem = recompute_problem(graph, times.of_ops(graph), redraws=True)
    whole = problem.graph
    steps = [index for index, op in enumerate(whole.ops) if op.phase is Phase.BACKWARD]
    before = _weigh(problem, np.arange(len(whole.ops)))
    best: tuple[tuple[int, int], _Region, int, Ints] | None = None
    for names in _alike(whole, steps[0]):
        for saved in _policies(problem, steps[0], names):
            region = _Region(steps[0], names, saved)
            count, (nbytes, extra), sequence = _fewest(problem, region, live)
            rank = max(0, nbytes - live), extra
            if nbytes < before[0] and (best is None or rank < best[0]):
                best = rank, region, count, sequence
    if best is None:
        return None
    _, region, count, sequence = best
    modules = region.names[:count]
    wrapped = recomputed_graph(graph, [op for step in sequence.tolist() for op in problem.members[step]])
    if wrong := check_recompute(graph, wrapped):
        raise MemplanError(f"{graph.name}: checkpoints of {modules[0]}: {wrong[0]}; please report this")
    nbytes, extra = _weigh(problem, sequence)
    seconds, of = problem.total / 1e9, len(region.names)
    return Wrapping(modules, region.saved, of, wrapped, nbytes, seconds, extra / 1e9)


def _alike(graph: Graph, backward: int) -> Iterator[tuple[str, ...]]:
    """The modules of one kind each, those inside others after them, in the order in which they run; without
    those that write over what others made, as batch norm does its statistics: they would do it twice; and
    those that are called more than once."""
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    made: dict[str, set[str]] = {}
    counts: dict[str, int] = {}
    left_out: set[str] = set()
    last: dict[str, int] = {}
    for index, op in enumerate(graph.ops[:backward]):
        for name in enclosing(op.module):
            if last.get(name, index - 1) != index - 1:
                left_out.add(name)
            last[name] = index
            counts[name] = counts.get(name, 0) + 1
            own = made.setdefault(name, set())
            if {home[each] for each in op.mutates} - own:
                left_out.add(name)
            own |= {home[each] for each in op.outputs}
    groups: dict[str, list[str]] = {}
    for name, count in counts.items():
        if LEAST_OPS <= count < backward and name not in left_out:
            groups.setdefault(repeated(name), []).append(name)
    yield from map(tuple, groups.values())


def enclosing(module: str) -> list[str]:
    """`module` and those around it, the outermost first: "h.0.mlp" → ["h", "h.0", "h.0.mlp"]."""
    parts = module.split(".") if module else []
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


class _Region(NamedTuple):
    """The modules called `names`, whose results of the kinds `saved` are kept for the backward pass, which
    begins at the step `backward`."""

    backward: int
    names: tuple[str, ...]
    saved: tuple[str, ...] = ()


def _policies(problem: RecomputeProblem, backward: int, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """No kinds of ops, then more and more of those in the modules `names`, most time for a byte first."""
    yield ()
    known, o = set(names), problem.arrays
    cost: dict[str, int] = {}
    nbytes: dict[str, int] = {}
    for index, op in enumerate(problem.graph.ops[:backward]):
        # torch saves nothing that is written in place.
        drawn = len(problem.members[index]) > 1
        worth = problem.again[index] and not drawn and o.out[index] and problem.cost[index]
        if worth and known & set(enclosing(op.module)):
            cost[op.kind] = cost.get(op.kind, 0) + int(problem.cost[index])
            nbytes[op.kind] = nbytes.get(op.kind, 0) + int(o.out[index])
    kinds = sorted(cost, key=lambda kind: -cost[kind] / nbytes[kind])
    for count in range(1, min(len(kinds), MOST_SAVED + 1)):
        yield tuple(kinds[:count])


def _fewest(problem: RecomputeProblem, region: _Region, live: int) -> tuple[int, tuple[int, int], Ints]:
    """As few modules of `region`, from the first, as bring the live bytes down to `live`, or all: how many,
    their bytes and extra ns, and the ops as they run then."""
    low, high = 0, len(region.names)
    best = _wrapped(problem, region)
    while high - low > 1 and _weigh(problem, best)[0] <= live:
        middle = (low + high) // 2
        found = _wrapped(problem, region._replace(names=region.names[:middle]))
        if _weigh(problem, found)[0] <= live:
            high, best = middle, found
        else:
            low = middle
    return high, _weigh(problem, best), best


def _wrapped(problem: RecomputeProblem, region: _Region) -> Ints:
    """The ops as they run with the modules of `region` in checkpoints: each runs once more, but for what is
    saved, when the backward pass first asks for something that it made inside."""
    o, graph, backward = problem.arrays, problem.graph, region.backward
    inside = {name: number for number, name in enumerate(region.names)}
    runs = problem.again & np.array([op.kind not in region.saved for op in graph.ops])
    module_of = np.full(len(graph.ops), -1)
    for index, op in enumerate(graph.ops[:backward]):
        module_of[index] = next((inside[name] for name in enclosing(op.module) if name in inside), -1)
    gone = np.zeros(len(o.size), np.bool_)
    for s, maker in enumerate(o.maker.tolist()):
        users = o.users[o.users_of[s] : o.users_of[s + 1]]
        forward = users[users < backward]
        own = module_of[maker] >= 0 and runs[maker] and problem.spoiled[maker] > backward
        gone[s] = own and not o.kept[s] and bool((module_of[forward] == module_of[maker]).all())
    ran: set[int] = set()
    sequence: list[int] = []
    for step in range(len(graph.ops)):
        if step >= backward:
            read = o.used[o.used_of[step] : o.used_of[step + 1]]
            for number in dict.fromkeys(module_of[o.maker[read[gone[read]]]].tolist()):
                if number not in ran:
                    ran.add(number)
                    own = np.flatnonzero(module_of == number)
                    sequence += own[runs[own] & (problem.spoiled[own] > step)].tolist()
        sequence.append(step)
    return np.array(sequence, np.int64)


def _weigh(problem: RecomputeProblem, sequence: Ints) -> tuple[int, int]:
    """Live bytes at the worst step, and the ns that ops run again for."""
    live = sequence_live(problem.arrays, sequence)
    return int(live.max(initial=0)), int(problem.cost[sequence].sum()) - problem.total
