"""Which tensor of a graph lies where in the arena of a plan; plans that do not fit the graph are refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from memplan_engine.errors import InputError
from memplan_engine.graph import MAX_BYTES, Graph, Role, Storage, Tensor
from memplan_engine.lifetimes import lifetimes
from memplan_engine.plan import Plan
from memplan_engine.runtime.slab.fingerprint import fingerprint, first_difference
from memplan_engine.runtime.slab.region import Region
from memplan_engine.runtime.slab.reused_binding import Taken, is_reused, reused_regions
from memplan_engine.schedule import sequential
from memplan_engine.verify.validate import Rule, Violation, validate_plan


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """A graph and its plan. `regions` has the planned storages that an op makes, by name; `tensors` and
    `storages` are the graph's own, by name; `step_of_op` is the step of each op, by name. `alive` are the
    lifetimes that the graph needs, in these steps; the slab needs `arena_bytes`. `overlaps` are those of the
    plan, () unless it was forced. `taken` says, of a plan with writes in place or concatenations without
    copies, who takes over bytes that its own op still reads.
    """

    graph: Graph
    plan: Plan
    regions: Mapping[str, Region]
    tensors: Mapping[str, Tensor]
    storages: Mapping[str, Storage]
    step_of_op: Mapping[str, int]
    alive: Mapping[str, tuple[int, int]]
    arena_bytes: int
    overlaps: tuple[Violation, ...] = ()
    taken: Taken = field(default_factory=dict)

    def place(self, tensor: str) -> int | None:
        """The byte of the arena at which `tensor` starts; None when it lies elsewhere."""
        found = self.tensors[tensor]
        region = self.regions.get(found.storage)
        return None if region is None else region.low + found.offset


def bind(graph: Graph, plan: Plan, *, force: bool = False) -> Binding:
    """`plan` as the places of the storages of `graph`, which run op after op in the graph's order.

    The plan's own graph (`plan.problem.origin`) must have the same fingerprint; a plan without one is taken
    by the names of its buffers, which then must be storages of `graph`. Buffers that are none are left
    alone: they hold bytes that nobody uses. `force` takes a plan in spite of buffers that overlap or live too
    shortly, for the safety mode to catch.

    Raises
    ------
    InputError: a plan for another graph, one that breaks a rule of the validator, a buffer that is smaller
        than its storage, is missing, dies too early or lies where its items cannot, a schedule in another
        order.
    """
    name, origin = graph.name, plan.problem.origin
    reused = is_reused(graph, plan)
    if origin is not None and not reused and fingerprint(origin.graph) != fingerprint(graph):
        found = f"one for {origin.graph.name!r}: {first_difference(graph, origin.graph)}"
        raise InputError(name, "plan", found, f"one for this graph ({fingerprint(graph)[:12]})")
    schedule = sequential(graph) if origin is None else origin.schedule
    if list(schedule.step_of_op) != sorted(schedule.step_of_op):
        raise InputError(name, "plan", "a schedule that changes the order of ops", "the graph's own order")
    overlaps = _check_rules(plan, name, force, gaps=reused)
    storages = {storage.name: storage for storage in graph.storages}
    taken: Taken = {}
    if reused:
        regions, taken = reused_regions(graph, plan, force=force)
    else:
        regions = _regions(plan, storages)
    if not regions and any(storage.nbytes for storage in graph.storages if storage.role is Role.ACTIVATION):
        raise InputError(name, "plan", "no buffer that is a storage of the graph", "a plan of this graph")
    tensors = {tensor.name: tensor for tensor in graph.tensors}
    alive = lifetimes(graph, schedule)
    _check_storages(regions, storages, name)
    _check_items(regions, tensors, name)
    if not force:
        _check_lifetimes(regions, alive, name)
        if origin is not None:
            _check_all_there(regions, graph)
    steps = {op.name: step for op, step in zip(graph.ops, schedule.step_of_op, strict=True)}
    arena = plan.arena_bytes
    return Binding(graph, plan, regions, tensors, storages, steps, alive, arena, overlaps, taken)


def _check_rules(plan: Plan, name: str, force: bool, gaps: bool) -> tuple[Violation, ...]:
    """Raise InputError for the first violation, and unless `gaps` for buffers that have some; the overlaps,
    where these are forced."""
    found = [v for v in validate_plan(plan, replay=False).violations if v.rule is not Rule.BOUND]
    forced = (Rule.OVERLAP, Rule.OBJECTS) if force else ()
    for violation in found:
        if violation.rule not in forced:
            raise InputError(name, "plan", violation.message, violation.rule.value)
    if plan.problem.gaps and not gaps:
        raise InputError(name, "plan", "buffers with gaps", "buffers that keep all their bytes")
    return tuple(v for v in found if v.rule is Rule.OVERLAP)


def _regions(plan: Plan, storages: Mapping[str, Storage]) -> dict[str, Region]:
    problem = plan.problem
    columns = (problem.names, plan.offsets, problem.size, problem.start, problem.end)
    rows = zip(*columns, strict=True)
    made = (Role.ACTIVATION, Role.OUTPUT)
    return {
        name: Region(name, int(low), int(low) + int(size), int(start), int(end))
        for name, low, size, start, end in rows
        if name in storages and storages[name].role in made
    }


def _check_storages(regions: Mapping[str, Region], storages: Mapping[str, Storage], name: str) -> None:
    for region in regions.values():
        needed = storages[region.storage].nbytes
        if region.high - region.low < needed or region.high > MAX_BYTES:
            found = f"{region.high - region.low} bytes for buffer {region.storage!r}"
            raise InputError(name, "plan", found, f"{needed} bytes, as its storage has")


def _check_items(regions: Mapping[str, Region], tensors: Mapping[str, Tensor], name: str) -> None:
    for tensor in tensors.values():
        region = regions.get(tensor.storage)
        item = item_size(tensor)
        if region is not None and (region.low + tensor.offset) % item:
            found = f"buffer {tensor.storage!r} at offset {region.low}"
            raise InputError(name, "plan", found, f"a multiple of {item}, the item size of {tensor.dtype}")


def _check_all_there(regions: Mapping[str, Region], graph: Graph) -> None:
    for storage in graph.storages:
        made = storage.role in (Role.ACTIVATION, Role.OUTPUT)
        if made and storage.nbytes and storage.name not in regions:
            found = f"no buffer {storage.name!r}"
            raise InputError(graph.name, "plan", found, "a buffer for each storage that the ops make")


def _check_lifetimes(regions: Mapping[str, Region], alive: Mapping[str, tuple[int, int]], name: str) -> None:
    for region in regions.values():
        start, end = alive[region.storage]
        if region.start > start or region.end < end:
            found = f"buffer {region.storage!r} alive during steps {region.start} to {region.end - 1}"
            needed = f"alive during steps {start} to {end - 1}, as the graph needs"
            raise InputError(name, "plan", found, needed)


def item_size(tensor: Tensor) -> int:
    """Bytes of one item of `tensor`; 1 for one without items."""
    items = 1
    for size in tensor.shape:
        items *= size
    return tensor.nbytes // items if items else 1
