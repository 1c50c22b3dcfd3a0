"""Plans of graphs in which storages take over each other's bytes (`rewrites.reuse`): where the storages of
the graph itself lie then, and who writes over whom."""

from __future__ import annotations

from collections.abc import Mapping

from memplan_engine.errors import InputError
from memplan_engine.graph import Graph, Role, Tensor
from memplan_engine.lifetimes import lifetimes
from memplan_engine.plan import Plan
from memplan_engine.rewrites.reuse.breaches import not_the_same
from memplan_engine.rewrites.reuse.check_reuse import check_plan_execution
from memplan_engine.runtime.slab.region import Region

Taken = Mapping[str, frozenset[str]]
"""A storage → the storages whose bytes its own op takes over while it reads them for the last time."""


def is_reused(graph: Graph, plan: Plan) -> bool:
    """Whether `plan` is of `graph` with other storages: the same ops, the same tensors in other places."""
    origin = plan.problem.origin
    if origin is None or not_the_same(graph, origin.graph):
        return False
    before, after = (sum(1 for s in each.storages if s.nbytes) for each in (graph, origin.graph))
    return after < before


def reused_regions(graph: Graph, plan: Plan, *, force: bool) -> tuple[dict[str, Region], Taken]:
    """The regions of the storages that the ops of `graph` make, alive as long as `graph` needs them, and who
    takes over from whom.

    Raises
    ------
    InputError: a plan in which something is written over that is still needed (unless `force`), or in which a
        storage does not lie in one piece.
    """
    origin = plan.problem.origin
    assert origin is not None
    if not force and (breaches := check_plan_execution(plan, graph)):
        raise InputError(graph.name, "plan", str(breaches[0]), "a plan in which every op finds what it reads")
    alive = lifetimes(graph, origin.schedule)
    columns = (plan.problem.names, plan.offsets.tolist(), plan.problem.size.tolist())
    places = {name: (low, low + size) for name, low, size in zip(*columns, strict=True)}
    homes = {tensor.name: tensor for tensor in origin.graph.tensors}
    roles = {storage.name: storage for storage in graph.storages}
    regions: dict[str, Region] = {}
    shares: dict[str, str] = {}
    for tensor in graph.tensors:
        storage, home = roles[tensor.storage], homes[tensor.name]
        if storage.role not in (Role.ACTIVATION, Role.OUTPUT) or home.storage not in places:
            continue
        region = _region(tensor, home, storage.nbytes, places[home.storage], alive[storage.name])
        known = regions.setdefault(storage.name, region)
        if (known.low, known.high) != (region.low, region.high) or region.high > places[home.storage][1]:
            found = f"buffer {storage.name!r} in pieces at bytes {known.low} and {region.low}"
            raise InputError(graph.name, "plan", found, "each storage in one piece")
        shares[storage.name] = home.storage
    return regions, _taken(graph, regions, shares)


def _region(
    tensor: Tensor, home: Tensor, nbytes: int, place: tuple[int, int], alive: tuple[int, int]
) -> Region:
    low = place[0] + home.offset - tensor.offset
    return Region(tensor.storage, low, low + nbytes, *alive)


def _taken(graph: Graph, regions: Mapping[str, Region], shares: Mapping[str, str]) -> Taken:
    """Who begins on bytes of a storage that the op then reads for the last time, as the graph means it."""
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    found: dict[str, frozenset[str]] = {}
    for op in graph.ops:
        read = {home[name] for name in op.inputs} & regions.keys()
        for made in {home[name] for name in op.outputs} & regions.keys() - read - found.keys():
            region = regions[made]
            over = {
                name
                for name in read
                if shares[name] == shares[made]
                and regions[name].end == region.start + 1
                and regions[name].low < region.high
                and region.low < regions[name].high
            }
            if over:
                found[made] = frozenset(over)
    return found
