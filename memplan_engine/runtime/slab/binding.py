"""Which tensor of a graph lies where in the arena of a plan; plans that do not fit the graph are refused."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest

from memplan_engine.control_flow import contract
from memplan_engine.errors import InputError
from memplan_engine.graph import MAX_BYTES, PRODUCED, Graph, Op, Role, Storage, Tensor
from memplan_engine.lifetimes import lifetimes
from memplan_engine.plan import Plan
from memplan_engine.planner import adopt
from memplan_engine.problem import Origin, make_problem
from memplan_engine.rewrites.reuse.breaches import not_the_same
from memplan_engine.rewrites.reuse.check_reuse import check_plan_execution
from memplan_engine.schedule import sequential
from memplan_engine.verify.validate import Rule, Violation, validate_plan

Overwrites = Mapping[str, frozenset[str]]
"""A storage → the storages whose bytes its own op takes over while it reads them for the last time."""


@dataclass(frozen=True, slots=True)
class Region:
    """Where a storage lies: bytes `[low, high)` of the arena, during the steps `[start, end)` of the plan."""

    storage: str
    low: int
    high: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """A graph and its plan. `regions` has the planned storages that an op makes, by name; `tensors` and
    `storages` are the graph's own, by name; `step_of_op` is the step of each op, by name. `spans` are the
    lifetimes that the graph needs, in these steps; the slab needs `arena_bytes`. `overlaps` are those of the
    plan, () unless it was forced. `overwrites` says, of a plan with writes in place or concatenations without
    copies, who takes over bytes that its own op still reads.
    """

    graph: Graph
    plan: Plan
    regions: Mapping[str, Region]
    tensors: Mapping[str, Tensor]
    storages: Mapping[str, Storage]
    step_of_op: Mapping[str, int]
    spans: Mapping[str, tuple[int, int]]
    arena_bytes: int
    overlaps: tuple[Violation, ...] = ()
    overwrites: Overwrites = field(default_factory=dict)

    def offset_of(self, name: str) -> int | None:
        """The byte of the arena at which `name` starts; None when it lies elsewhere."""
        tensor = self.tensors[name]
        region = self.regions.get(tensor.storage)
        return None if region is None else region.low + tensor.offset


def bind(graph: Graph, plan: Plan, *, force: bool = False) -> Binding:
    """`plan` as the places of the storages of `graph`, which run op after op in the graph's order.

    The plan's own graph (`plan.problem.origin`) must have the same fingerprint; a plan without one is taken
    by the names of its buffers, which then must be storages of `graph`. `force` takes a plan in spite of
    buffers that overlap or live too shortly, for the safety mode to catch.

    Raises
    ------
    InputError: a plan for another graph, one that breaks a rule of the validator, a buffer that is no storage
        of the graph or smaller than its storage, is missing, dies too early or lies where its items cannot,
        a schedule in another order.
    """
    plan = of_whole_ops(plan)
    name, origin = graph.name, plan.problem.origin
    reused = _is_reused(graph, plan)
    if origin is not None and not reused and fingerprint(origin.graph) != fingerprint(graph):
        found = f"one for {origin.graph.name!r}: {_first_difference(graph, origin.graph)}"
        raise InputError(name, "plan", found, f"one for this graph ({fingerprint(graph)[:12]})")
    schedule = sequential(graph) if origin is None else origin.schedule
    if list(schedule.step_of_op) != sorted(schedule.step_of_op):
        raise InputError(name, "plan", "a schedule that changes the order of ops", "the graph's own order")
    overlaps = _check_rules(plan, name, force, gaps=reused)
    storages = {storage.name: storage for storage in graph.storages}
    overwrites: Overwrites = {}
    if reused:
        regions, overwrites = _reused_regions(graph, plan, force=force)
    else:
        regions = _regions(plan, storages)
    if not regions and any(storage.nbytes for storage in graph.storages if storage.role is Role.ACTIVATION):
        raise InputError(name, "plan", "no buffer that is a storage of the graph", "a plan of this graph")
    if origin is None:
        _check_known(plan, storages, name)
    tensors = {tensor.name: tensor for tensor in graph.tensors}
    spans = lifetimes(graph, schedule)
    _check_storages(regions, storages, name)
    _check_items(regions, tensors, name)
    if not force:
        _check_lifetimes(regions, spans, name)
        if origin is not None:
            _check_all_there(regions, graph)
    steps = {op.name: step for op, step in zip(graph.ops, schedule.step_of_op, strict=True)}
    arena = plan.arena_bytes
    return Binding(graph, plan, regions, tensors, storages, steps, spans, arena, overlaps, overwrites)


def of_whole_ops(plan: Plan) -> Plan:
    """Return `plan` without what is inside ops that call graphs: torch runs these whole, and allocates it."""
    origin, problem = plan.problem.origin, plan.problem
    if origin is None or not any(op.within for op in origin.graph.ops):
        return plan
    graph = contract(origin.graph, {})
    schedule = sequential(graph)
    spans = lifetimes(graph, schedule)
    rows = [row for row, name in enumerate(problem.names) if name in spans]
    names = [problem.names[row] for row in rows]
    whole = make_problem(
        [spans[name][0] for name in names],
        [spans[name][1] for name in names],
        problem.size[rows],
        names=names,
        alignment=problem.alignment[rows],
        fixed=problem.fixed[rows],
        steps=schedule.steps,
        name=problem.name,
        origin=Origin(graph, schedule),
    )
    return adopt(whole, plan.offsets[rows], plan.strategy)


def _check_known(plan: Plan, storages: Mapping[str, Storage], name: str) -> None:
    """Raise InputError for buffers that are no storages of the graph."""
    unknown = [buffer for buffer in plan.problem.names if buffer not in storages]
    if unknown:
        more = f" and {len(unknown) - 1:,} more" if len(unknown) > 1 else ""
        found = f"buffer {unknown[0]!r}{more}, which the graph does not have"
        raise InputError(name, "plan", found, "its storages only")


def _check_rules(plan: Plan, name: str, force: bool, gaps: bool) -> tuple[Violation, ...]:
    """Raise InputError for the first violation, and unless `gaps` for buffers that have some; the overlaps,
    where these are forced."""
    violations = [v for v in validate_plan(plan, replay=False).violations if v.rule is not Rule.BOUND]
    forced = (Rule.OVERLAP, Rule.OBJECTS) if force else ()
    for violation in violations:
        if violation.rule not in forced:
            raise InputError(name, "plan", violation.message, violation.rule.value)
    if plan.problem.gaps and not gaps:
        raise InputError(name, "plan", "buffers with gaps", "buffers that keep all their bytes")
    return tuple(v for v in violations if v.rule is Rule.OVERLAP)


def _regions(plan: Plan, storages: Mapping[str, Storage]) -> dict[str, Region]:
    problem = plan.problem
    columns = (problem.names, plan.offsets, problem.size, problem.start, problem.end)
    rows = zip(*columns, strict=True)
    return {
        name: Region(name, int(low), int(low) + int(size), int(start), int(end))
        for name, low, size, start, end in rows
        if name in storages and storages[name].role in PRODUCED
    }


def _is_reused(graph: Graph, plan: Plan) -> bool:
    """Whether `plan` is of `graph` with other storages: the same ops, the same tensors in other places."""
    origin = plan.problem.origin
    if origin is None or not_the_same(graph, origin.graph):
        return False
    homes = {tensor.name: tensor.storage for tensor in graph.tensors}
    return any(homes[tensor.name] != tensor.storage for tensor in origin.graph.tensors)


def _reused_regions(graph: Graph, plan: Plan, *, force: bool) -> tuple[dict[str, Region], Overwrites]:
    """The regions of the storages that the ops of `graph` make, live as long as `graph` needs them, and who
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
    spans = lifetimes(graph, origin.schedule)
    columns = (plan.problem.names, plan.offsets.tolist(), plan.problem.size.tolist())
    extents = {name: (low, low + size) for name, low, size in zip(*columns, strict=True)}
    homes = {tensor.name: tensor for tensor in origin.graph.tensors}
    storages = {storage.name: storage for storage in graph.storages}
    regions: dict[str, Region] = {}
    shares: dict[str, str] = {}
    for tensor in graph.tensors:
        storage, home = storages[tensor.storage], homes[tensor.name]
        if storage.role not in PRODUCED or home.storage not in extents:
            continue
        region = _region(tensor, home, storage.nbytes, extents[home.storage], spans[storage.name])
        first = regions.setdefault(storage.name, region)
        if (first.low, first.high) != (region.low, region.high) or region.high > extents[home.storage][1]:
            found = f"buffer {storage.name!r} in pieces at bytes {first.low} and {region.low}"
            raise InputError(graph.name, "plan", found, "each storage in one piece")
        shares[storage.name] = home.storage
    return regions, _overwrites(graph, regions, shares)


def _region(
    tensor: Tensor, home: Tensor, nbytes: int, place: tuple[int, int], span: tuple[int, int]
) -> Region:
    low = place[0] + home.offset - tensor.offset
    return Region(tensor.storage, low, low + nbytes, *span)


def _overwrites(graph: Graph, regions: Mapping[str, Region], shares: Mapping[str, str]) -> Overwrites:
    """Who begins on bytes of a storage that the op then reads for the last time, as the graph means it."""
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    overwrites: dict[str, frozenset[str]] = {}
    for op in graph.ops:
        inputs = {home[name] for name in op.inputs} & regions.keys()
        for output in {home[name] for name in op.outputs} & regions.keys() - inputs - overwrites.keys():
            region = regions[output]
            overwritten = {
                name
                for name in inputs
                if shares[name] == shares[output]
                and regions[name].end == region.start + 1
                and regions[name].low < region.high
                and region.low < regions[name].high
            }
            if overwritten:
                overwrites[output] = frozenset(overwritten)
    return overwrites


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
        if storage.role in PRODUCED and storage.nbytes and storage.name not in regions:
            found = f"no buffer {storage.name!r}"
            raise InputError(graph.name, "plan", found, "a buffer for each storage that the ops make")


def _check_lifetimes(regions: Mapping[str, Region], spans: Mapping[str, tuple[int, int]], name: str) -> None:
    for region in regions.values():
        start, end = spans[region.storage]
        if region.start > start or region.end < end:
            found = f"buffer {region.storage!r} live during steps {region.start} to {region.end - 1}"
            needed = f"live during steps {start} to {end - 1}, as the graph needs"
            raise InputError(name, "plan", found, needed)


def item_size(tensor: Tensor) -> int:
    """Bytes of one item of `tensor`; 1 for one without items."""
    items = math.prod(tensor.shape)
    return tensor.nbytes // items if items else 1


def fingerprint(graph: Graph) -> str:
    """SHA-256, in hexadecimal, over the ops in order (name, kind, what they read, make and write), the
    shapes, types, strides and offsets of their tensors, and which share a storage of which size and role.

    Names of inputs and constants, and how large the storages behind them are, are the caller's affair and
    left out, so that the graphs of a real model and of its fake twin have one fingerprint.
    """
    return hashlib.sha256("\n".join(_lines(graph)).encode("utf-8", "surrogatepass")).hexdigest()


def _first_difference(first: Graph, second: Graph) -> str:
    """The first op in which the two graphs differ, "" where there is none."""
    for index, (mine, theirs) in enumerate(zip_longest(_lines(first), _lines(second))):
        if mine != theirs:
            names = [
                graph.ops[index].name if index < len(graph.ops) else "nothing" for graph in (first, second)
            ]
            if names[0] == names[1] and names[0] != "nothing":
                parts = zip(
                    mine.split("|"),
                    theirs.split("|"),
                    ("name", "kind", "reads", "makes", "writes"),
                    strict=True,
                )
                here, there, part = next(part for part in parts if part[0] != part[1])
                return f"op {names[0]!r} {part} {_layout_text(here)} here and {_layout_text(there)} there"
            return f"op {index} is {names[0]!r} here and {names[1]!r} there"
    return ""


def _layout_text(part: str) -> str:
    """Types and shapes alone: the rest seldom differs by itself."""
    return re.sub(r"None\+0|@\d+", "", part) or "nothing"


def _lines(graph: Graph) -> list[str]:
    """One line an op, then one for the outputs."""
    numbers: dict[str, int] = {}
    tensors = {tensor.name: tensor for tensor in graph.tensors}
    storages = {storage.name: storage for storage in graph.storages}
    external = {tensors[name].storage for name in (*graph.inputs, *graph.constants)}

    def text(name: str) -> str:
        tensor = tensors[name]
        number = numbers.setdefault(tensor.storage, len(numbers))
        storage = storages[tensor.storage]
        size = "" if tensor.storage in external else f":{storage.nbytes}:{storage.role is Role.OUTPUT}"
        layout = f"{tensor.dtype}{list(tensor.shape)}{tensor.strides}+{tensor.offset}"
        return f"{layout}@{number}{size}"

    lines = [_op_line(op, text) for op in graph.ops]
    return [*lines, "outputs " + " ".join(map(text, graph.outputs))]


def _op_line(op: Op, text: Callable[[str], str]) -> str:
    parts = (" ".join(map(text, names)) for names in (op.inputs, op.outputs, op.mutates))
    return "|".join((op.name, op.kind, *parts))
