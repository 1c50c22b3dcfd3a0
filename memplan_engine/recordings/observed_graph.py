"""An observed run as an ordinary graph, in which storages are held as long as Python held them."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import replace
from math import prod

import numpy as np

from memplan_engine.errors import InputError
from memplan_engine.graph import (
    NO_WORKSPACE,
    Graph,
    Op,
    Phase,
    Storage,
    Tensor,
    Workspace,
    check_graph,
    storage_role,
)
from memplan_engine.recordings.observation import Observation
from memplan_engine.recordings.observed_flow import (
    BEFORE,
    HELD,
    KEPT,
    Flow,
    ObservedStorages,
    Stage,
    devices_of,
    fullest_device,
    host_peak,
)
from memplan_engine.units import format_bytes

AGAIN = "recompute."
"""How the name of an op begins that runs an op of the forward pass again; the rest is that op's name."""
_BITS = re.compile(r"\d{1,4}")


def observation_graph(observation: Observation, device: int | None = None) -> Graph:
    """The graph of an observation that has a flow: an op for each that ran, a tensor for each storage.

    What was there before the run is CONSTANT (weights and what optimizers keep) or INPUT; what is there at
    the end is returned; all else is held by the op after which it went. So the peak of the buffers of this
    graph, in its order, is that of the run. Of a run on accelerators it has the storages of one of them:
    of `device`, or of the one with the most bytes; then its name says which, where there are several.
    Ops of a training step have phases; what a checkpoint runs again belongs to the backward pass, and is
    called "recompute.…" after the op of the forward pass.

    Raises
    ------
    InputError: an observation without a flow; a device that the run did not use.
    """
    flow = observation.flow
    if flow is None:
        expected = "one that says what each op did: memplan observe --fake (version 2)"
        raise InputError(observation.name, "observation", "one of allocations alone", expected)
    devices = devices_of(flow)
    if device is None:
        device = fullest_device(flow)
    elif device not in devices:
        raise InputError(observation.name, "device", str(device), f"one of {', '.join(map(str, devices))}")
    ops = _op_names(observation, flow)
    names = _storage_names(flow.storages, ops)
    storages = flow.storages
    there = [names[number] for number in np.flatnonzero(storages.device == device).tolist()]
    before = [number for number in range(len(names)) if storages.maker[number] == BEFORE]
    constants = {names[number] for number in before if storages.categories[number] in KEPT}
    inputs = {names[number] for number in before} - constants
    outputs = {
        name
        for number, name in enumerate(names)
        if storages.maker[number] != BEFORE and storages.released[number] == HELD
    }
    kept = frozenset(there)
    owned = {"inputs": inputs, "constants": constants, "outputs": outputs}
    released = [int(op) for op in storages.released]
    made = [
        Storage(
            name,
            int(storages.nbytes[number]),
            storage_role(name, **owned),
            held_by="" if released[number] == HELD or number in before else ops[released[number]],
        )
        for number, name in enumerate(names)
        if name in kept
    ]
    in_order = {kind: tuple(name for name in there if name in those) for kind, those in owned.items()}
    graph = Graph(
        observation.name if len(devices) == 1 else f"{observation.name} on cuda:{device}",
        tuple(made),
        tuple(_tensor(name, number, storages) for number, name in enumerate(names) if name in kept),
        tuple(_ops(observation, flow, ops, names, kept)),
        in_order["inputs"],
        in_order["outputs"],
        in_order["constants"],
        scope=flow.scope,
    )
    nbytes, _ = host_peak(flow)
    host = (f"on the host up to {format_bytes(nbytes)} more",) if nbytes else ()
    graph = replace(graph, notes=(*flow.basis.notes, *host), assumed=flow.assumed, doubts=flow.doubts)
    return check_graph(graph, observation.name)


def _ops(
    observation: Observation, flow: Flow, ops: list[str], names: list[str], kept: frozenset[str]
) -> Iterator[Op]:
    """The ops, called `ops`, on those of the tensors called `names` that are `kept`."""

    def tensors(numbers: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(names[number] for number in numbers if names[number] in kept)

    trains = any(stage is not Stage.FORWARD for stage in flow.stages)
    for number, name in enumerate(ops):
        yield Op(
            name,
            observation.ops.kinds[number],
            tensors(flow.reads[number]),
            tensors(flow.makes[number]),
            tensors(flow.writes[number]),
            flow.modules[number],
            flow.source_of(number),
            workspace=NO_WORKSPACE if flow.scratch is None else Workspace(int(flow.scratch[number])),
            phase=_phase(flow.stages[number]) if trains else None,
        )


def _phase(stage: Stage) -> Phase:
    return Phase.BACKWARD if stage is Stage.RECOMPUTE else Phase(stage.value)


def _op_names(observation: Observation, flow: Flow) -> list[str]:
    """The names of the ops; those that a checkpoint runs again are called after the forward pass's."""
    names: list[str] = list(observation.ops.names)
    waiting: dict[object, deque[str]] = defaultdict(deque)
    for number, (stage, kind) in enumerate(zip(flow.stages, observation.ops.kinds, strict=True)):
        # Not by line: of a layer that a checkpoint calls, another call is the innermost one.
        key = (kind, flow.modules[number])
        if stage is Stage.FORWARD:
            waiting[key].append(names[number])
        elif stage is Stage.RECOMPUTE and flow.modules[number] and waiting[key]:
            names[number] = AGAIN + waiting[key].popleft()
    return names


def _storage_names(storages: ObservedStorages, ops: list[str]) -> list[str]:
    """A name for each storage: its own, or that of the op that made it, with a number where it made several;
    all are different."""
    count: dict[int, int] = defaultdict(int)
    for maker in storages.maker.tolist():
        count[maker] += 1
    place: dict[int, int] = defaultdict(int)
    names: dict[str, None] = {}
    copies: dict[str, int] = defaultdict(int)
    for own, category, maker in zip(
        storages.names, storages.categories, storages.maker.tolist(), strict=True
    ):
        if maker == BEFORE:
            name = own or category.value.replace(" ", "_")
        else:
            name = ops[maker] if count[maker] == 1 else f"{ops[maker]}.{place[maker]}"
            place[maker] += 1
        unique = name
        while unique in names:
            copies[name] += 1
            unique = f"{name}_{copies[name]}"
        names[unique] = None
    return list(names)


def _tensor(name: str, number: int, storages: ObservedStorages) -> Tensor:
    """The tensor that first showed the storage; its elements alone where they overlap each other."""
    shape, dtype = storages.shapes[number], storages.dtypes[number]
    bits = _BITS.search(dtype)
    item = max(int(bits[0]) // 8, 1) if bits else 1
    whole = int(storages.nbytes[number])
    if prod(shape) * item > whole:
        shape = (whole // item,)
    return Tensor(name, shape, dtype, prod(shape) * item, name)
