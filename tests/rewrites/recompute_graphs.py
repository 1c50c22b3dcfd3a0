"""The least time that is run again within a capacity, by trying all that may be run and let go of."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import count

from memplan_engine.graph import PRODUCED, Graph
from tests.rewrites.order_graphs import needs

OVER = ("aten.relu", "aten.add")
ONCE = ("aten.rand", "print", "aten.add_")


def least_extra(
    graph: Graph,
    nanoseconds: Sequence[int],
    capacity: int,
    *,
    in_place: bool = False,
    redraws: bool = False,
) -> int | None:
    """The cheapest way (Dijkstra's) from nothing to all ops run and all that is returned there, in any order,
    each op as often as it pays; None where none keeps to `capacity` live bytes. `in_place`: an op of a kind
    of OVER may write its result over something of the same size that it reads, which is gone then. `redraws`:
    what draws random numbers may run again, and one after another those that fill a storage which
    `aten.empty_like` has made."""
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    sizes = {s.name: s.nbytes for s in graph.storages if s.role in PRODUCED}
    reads = [{home[n] for n in (*op.inputs, *op.mutates)} & sizes.keys() for op in graph.ops]
    makes = [{home[n] for n in op.outputs} & sizes.keys() - reads[i] for i, op in enumerate(graph.ops)]
    before = needs(graph)
    touched = [{home[n] for n in (*op.inputs, *op.outputs)} for op in graph.ops]
    filled = _filled(graph, home) if redraws else {}
    # Who writes over something that an op touches, behind it: then that may not run again any more.
    spoils = [
        {
            later
            for later in range(i + 1, len(graph.ops))
            if touched[i] & {home[n] for n in graph.ops[later].mutates}
        }
        - set(filled.get(i, ()))
        for i in range(len(graph.ops))
    ]
    once = tuple(kind for kind in ONCE if not (redraws and kind == "aten.rand"))
    kept = frozenset(home[name] for name in graph.outputs) & sizes.keys()
    everything, number = frozenset(range(len(graph.ops))), count()
    # What is there, and of what is being filled how many ops have done so.
    start = (frozenset[int](), frozenset[tuple[str, int]]())
    best = {start: 0}
    queue = [(0, next(number), start)]
    while queue:
        spent, _, state = heappop(queue)
        if spent > best[state]:
            continue
        done, present = state
        there = {name for name, _ in present}
        if done == everything and {(name, _whole(name, home, graph, filled)) for name in kept} <= present:
            return spent - sum(nanoseconds)
        steps: list[tuple[int, tuple[frozenset[int], frozenset[tuple[str, int]]]]] = [
            (spent, (done, present - {each})) for each in present
        ]
        for i, op in enumerate(graph.ops):
            own = filled.get(i, ())
            asked = {
                (name, own.index(i) if i in own[1:] else _whole(name, home, graph, filled))
                for name in reads[i]
            }
            if not (before[i] <= done and asked <= present):
                continue
            if i in done and (op.kind in once or (op.mutates and not own) or spoils[i] & done):
                continue
            new = {(name, 1 if own else 0) for name in makes[i]}
            if i in own[1:]:
                new = {(name, level + 1) for name, level in asked if level == own.index(i)}
                asked = {each for each in asked if each[1] == own.index(i)}
            gone = {each for each in present if each[0] in {name for name, _ in new}}
            now = (present - gone) | new
            if sum(sizes[name] for name, _ in now) <= capacity:
                steps.append((spent + nanoseconds[i], (done | {i}, now)))
            if in_place and op.kind in OVER and len(makes[i]) == 1:
                (result,) = makes[i]
                for name in reads[i]:
                    if sizes[name] == sizes[result]:
                        over = frozenset({e for e in present if e[0] not in (name, result)} | {(result, 0)})
                        if sum(sizes[each] for each in there) <= capacity:
                            steps.append((spent + nanoseconds[i], (done | {i}, over)))
        for cost, following in steps:
            if cost < best.get(following, 2**62):
                best[following] = cost
                heappush(queue, (cost, next(number), following))
    return None


def _filled(graph: Graph, home: dict[str, str]) -> dict[int, tuple[int, ...]]:
    """Each op that fills what `aten.empty_like` has made → all of these, in their order; those alone that no
    op keeps from running one behind the other."""
    found: dict[int, tuple[int, ...]] = {}
    for i, op in enumerate(graph.ops):
        if op.kind != "aten.empty_like":
            continue
        storage = home[op.outputs[0]]
        own = [i]
        for j in range(i + 1, len(graph.ops)):
            other = graph.ops[j]
            if storage in {home[n] for n in (*other.inputs, *other.mutates, *other.outputs)}:
                if other.kind not in ("aten.bernoulli_", "aten.div_"):
                    break
                own.append(j)
        read = {home[n] for n in op.inputs}
        between = [graph.ops[j] for j in range(i, own[-1]) if j not in own]
        if not any(read & {home[n] for n in other.mutates} for other in between):
            found |= dict.fromkeys(own, tuple(own))
    return found


def _whole(name: str, home: dict[str, str], graph: Graph, filled: dict[int, tuple[int, ...]]) -> int:
    """How many ops have filled the storage `name` when others read it; 0 of one that is made at once."""
    return next((len(own) for i, own in filled.items() if home[graph.ops[i].outputs[0]] == name), 0)
