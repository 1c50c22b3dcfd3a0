"""One rank over the ops of a training step: bytes of each category, what is reserved, where it runs out."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memplan_engine.allocator.simulation import AllocatorRun
from memplan_engine.recordings.allocator_recording import Recording
from memplan_engine.recordings.observation import Observation
from memplan_engine.recordings.observed_flow import (
    BEFORE,
    HELD,
    Flow,
    Stage,
    counted,
    flow_peak,
    fullest_device,
)
from memplan_engine.recordings.rank_run import RankRun

Bytes = NDArray[np.int64]
OTHER_MODULE = "outside of modules"


@dataclass(frozen=True, slots=True, eq=False)
class RankTimeline:
    """The ops `first` to `end` (exclusive) of a run: `live` has bytes of each category during each of them,
    `reserved` the most that is held of the device up to the end of each."""

    first: int
    end: int
    live: dict[str, Bytes]
    reserved: Bytes


def step_ranges(flow: Flow) -> tuple[tuple[int, int], ...]:
    """The ops, first and end, of each training step: a step ends with the last op of its optimizers."""
    stages = np.array([stage is Stage.OPTIMIZER for stage in flow.stages], dtype=bool)
    ends = [*(np.flatnonzero(stages[:-1] & ~stages[1:]) + 1).tolist()]
    if len(ends) != max(flow.steps - 1, 0):
        # Optimizers of several parts, or a script that computes between them: all of the run at once.
        ends = _merged(ends, flow)
    edges = [0, *ends, len(flow.stages)]
    return tuple((low, high) for low, high in itertools.pairwise(edges) if high > low)


def _merged(ends: Sequence[int], flow: Flow) -> list[int]:
    """Of `ends` those after which a forward pass comes before another optimizer does."""
    kept = []
    for end, following in zip(ends, [*ends[1:], len(flow.stages)], strict=True):
        if Stage.FORWARD in flow.stages[end:following] and Stage.BACKWARD in flow.stages[end:following]:
            kept.append(end)
    return kept


def timeline(run: RankRun, simulated: AllocatorRun, first: int, end: int) -> RankTimeline:
    """The ops from `first` to `end` of `run`, and what `simulated` reserves for them."""
    flow = run.observation.flow
    assert flow is not None
    n = len(flow.stages)
    storages = flow.storages
    names = np.array([str(each) for each in storages.categories])
    lies = storages.device == fullest_device(flow)
    live: dict[str, Bytes] = {}
    for name in dict.fromkeys(names[lies].tolist()):
        mine = lies & (names == name)
        change = np.zeros(n + 1, dtype=np.int64)
        np.add.at(change, np.maximum(storages.maker[mine], 0), storages.nbytes[mine])
        gone = mine & (storages.released != HELD)
        np.add.at(change, np.maximum(storages.released[gone], -1) + 1, -storages.nbytes[gone])
        live[name] = np.cumsum(change)[first:end]
    reserved = np.zeros(n + 1, dtype=np.int64)
    ops = ops_of_events(simulated.recording, run.observation) + 1
    np.maximum.at(reserved, ops, simulated.reserved[1:])
    # An op that asks for nothing has what there was at the end of the one before.
    last = np.full(n + 1, -1, dtype=np.int64)
    last[ops] = np.arange(len(ops))
    held = np.maximum.accumulate(last)
    before = np.where(held >= 0, simulated.reserved[np.maximum(held, -1) + 1], simulated.reserved[0])
    reserved = np.maximum(reserved, before)
    return RankTimeline(first, end, live, reserved[1:][first:end])


def ops_of_events(recording: Recording, observation: Observation) -> Bytes:
    """Of each event the op that asked, -1 for what was there before the first one."""
    place = {name: number for number, name in enumerate(observation.ops.names)}
    labels = np.array(
        [
            place.get(each.removeprefix("after ").removesuffix(" temporary"), BEFORE)
            for each in recording.labels
        ]
        or [BEFORE],
        dtype=np.int64,
    )
    stack = recording.events["stack"].astype(np.int64)
    ops = np.where(stack >= 0, labels[np.maximum(stack, 0)], BEFORE)
    ordered: Bytes = np.maximum.accumulate(ops) if len(ops) else ops
    return ordered


def place_of(observation: Observation, op: int) -> str:
    """Where `op` is, for people: its module, else its name, and the line of the user's code."""
    flow = observation.flow
    if flow is None or not 0 <= op < len(observation.ops):
        return ""
    module = flow.modules[op]
    name = f"{module} ({observation.ops.names[op]})" if module else observation.ops.names[op]
    source = flow.source_of(op)
    if source is None:
        return f"{name}, {flow.stages[op]}"
    file = source.file.replace("\\", "/").rpartition("/")[2]
    return f"{name}, {flow.stages[op]}, {file}:{source.line}"


def held_at_peak(flow: Flow) -> list[int]:
    """The storages that lie on the fullest device at the op where most is live."""
    _, op = flow_peak(flow)
    storages = flow.storages
    gone = (storages.released != HELD) & (storages.released < op)
    there = counted(storages) & (storages.device == fullest_device(flow)) & (storages.maker <= op) & ~gone
    return [*map(int, np.flatnonzero(there))]


def module_bytes(flow: Flow) -> dict[str, int]:
    """The bytes of each module on the fullest device at the op where most is live, the most first."""
    storages = flow.storages
    found: dict[str, int] = {}
    for number in held_at_peak(flow):
        maker = int(storages.maker[number])
        path = flow.modules[maker] if maker != BEFORE else storages.names[number].rpartition(".")[0]
        name = path or OTHER_MODULE
        found[name] = found.get(name, 0) + int(storages.nbytes[number])
    return dict(sorted(found.items(), key=lambda each: (-each[1], each[0])))


def curve_digest(run: RankRun) -> tuple[object, ...]:
    """The same for two ranks that hold the same bytes at every op."""
    rows = run.observation.at()
    flow = run.observation.flow
    there = b"" if flow is None else flow.storages.nbytes[flow.storages.maker == BEFORE].tobytes()
    return run.stages, len(run.observation.ops), rows["size"].tobytes(), rows["op"].tobytes(), there
