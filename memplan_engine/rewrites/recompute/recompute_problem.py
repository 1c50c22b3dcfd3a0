"""A graph as a question of what to keep and what to make again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memplan_engine.errors import InputError
from memplan_engine.graph import Graph
from memplan_engine.kernels.order.arrays import OrderArrays
from memplan_engine.kernels.types import Flags
from memplan_engine.op_kinds.generators import is_of_own_code
from memplan_engine.op_kinds.ordered import ONCE, draws, has_effect
from memplan_engine.problem import Ints
from memplan_engine.rewrites.order.order_problem import OrderProblem, order_problem
from memplan_engine.rewrites.recompute.fills import Fill, fills, with_fills_whole
from memplan_engine.rewrites.recompute.time_proof import PARTS
from memplan_engine.rewrites.reuse.kinds import is_concat, is_elementwise
from memplan_engine.schedule import dependencies

NEVER = 2**62
"""The step at which nothing is spoiled."""
DEAREST = 1e6
"""ns a byte: the highest price, at which as few bytes are kept as can be. A GPU moves a byte in less than a
thousandth of a nanosecond."""
MOST_PARTS = 2.0**61
"""What all storages may cost together: flows are added up in 64 bits."""


@dataclass(frozen=True, slots=True, eq=False)
class RecomputeProblem:
    """`arrays` has the ops of `graph` in their order, each a unit of its own, and the storages that they
    make. `cost` is what each takes, ns. `again`: it may run again, since it draws no random numbers, writes
    over nothing and is there for no effect. `spoiled` is the step at which something that it reads or makes
    is written over: it may run again before.

    Where random numbers may be drawn again `graph` has what fills a storage with them as one op, `members`
    the ops of the given graph, by index, that each is; these take `cost_of_member`, and wait for `needs`."""

    graph: Graph
    storages: tuple[str, ...]
    arrays: OrderArrays
    cost: Ints
    again: Flags
    spoiled: Ints
    writers: Ints
    sure: Ints
    own: Ints
    members: tuple[Fill, ...]
    cost_of_member: Ints
    needs: tuple[tuple[int, ...], ...]

    @property
    def total(self) -> int:
        """What all ops take once, ns."""
        return int(self.cost.sum())

    @property
    def dearest(self) -> float:
        """ns a byte: the highest price in a cut."""
        return min(DEAREST, MOST_PARTS / (2 * PARTS * max(1, int(self.arrays.size.sum()))))


def recompute_problem(
    graph: Graph, seconds: Sequence[float], *, in_place: bool = False, redraws: bool = False
) -> RecomputeProblem:
    """What can be made again in `graph`, whose ops take `seconds` each, to the nearest ns. `in_place`: what
    is proved shall hold for results of elementwise ops written over what they read, and for what is
    concatenated made where it goes. `redraws`: random numbers may be drawn again, from the generator's state
    of the first time.

    Raises
    ------
    InputError: not a time for each op, or one that is negative or not finite; a graph without ops, or of an
        eager run, in which names hold storages.
    """
    if not graph.ops or any(storage.held_by for storage in graph.storages):
        what = "storages that Python names hold" if graph.ops else "no ops"
        raise InputError(graph.name, "", what, "a captured graph")
    each = nanoseconds_of(graph, seconds)
    needs = tuple(dependencies(graph))
    graph, members = with_fills_whole(graph, fills(graph) if redraws else [])
    cost = np.array([each[list(own)].sum() for own in members], np.int64)
    found = order_problem(graph, merge=False)
    again, writers = _what_may_run_again(graph, redraws)
    spoiled = np.full(len(graph.ops), NEVER, np.int64)
    np.minimum.at(spoiled, writers[0], writers[1])
    sure, own = _surely_held(graph, found) if in_place else (found.arrays.size, found.arrays.out)
    return RecomputeProblem(
        graph,
        found.storages,
        found.arrays,
        cost,
        again,
        spoiled,
        writers,
        sure,
        own,
        tuple(members),
        each,
        needs,
    )


def _surely_held(graph: Graph, found: OrderProblem) -> tuple[Ints, Ints]:
    """The bytes of storages, and of what each op makes itself, that writes in place and concatenations
    without copies do not save."""
    sure, own = found.arrays.size.copy(), found.arrays.out.copy()
    place, home = {name: s for s, name in enumerate(found.storages)}, homes(graph)
    for index, op in enumerate(graph.ops):
        if is_elementwise(op.kind) or is_concat(op.kind):
            own[index] = 0
        if is_concat(op.kind):
            # Whatever it takes, what is concatenated lies in it.
            sure[[place[home[name]] for name in op.outputs if home[name] in place]] = 0
    return sure, own


def nanoseconds_of(graph: Graph, seconds: Sequence[float]) -> Ints:
    """What the ops of `graph` take, in their order, to the nearest ns.

    Raises
    ------
    InputError: not a time for each op, or one that is negative or not finite.
    """
    given = np.asarray(seconds, np.float64)
    if given.shape != (len(graph.ops),) or not np.isfinite(given).all() or (given < 0).any():
        expected = f"a time for each of {len(graph.ops):,} ops, finite and not negative"
        raise InputError("seconds", "", f"{len(given):,} times", expected)
    return np.rint(given * 1e9).astype(np.int64)


def homes(graph: Graph) -> dict[str, str]:
    """The storage of each tensor."""
    return {tensor.name: tensor.storage for tensor in graph.tensors}


def _what_may_run_again(graph: Graph, redraws: bool) -> tuple[Flags, Ints]:
    home = homes(graph)
    again = np.zeros(len(graph.ops), np.bool_)
    writers: set[tuple[int, int]] = set()
    toucher: dict[str, list[int]] = {}
    begun: set[str] = set()
    for index, op in enumerate(graph.ops):
        read = {home[name] for name in (*op.inputs, *op.mutates)}
        made = {home[name] for name in op.outputs} - read
        # An output in a storage that the op does not read, which another op has begun, is a write.
        written = {home[name] for name in op.mutates} | (made & begun)
        writers |= {(earlier, index) for storage in written for earlier in toucher.get(storage, ())}
        once = op.kind == ONCE or is_of_own_code(op.kind) or (draws(op, not made) and not redraws)
        again[index] = not written and not has_effect(op) and not once
        for storage in read | made:
            toucher.setdefault(storage, []).append(index)
        begun |= made
    return again, np.array(sorted(writers), np.int64).reshape(-1, 2).T
