"""An observation as a recording: so it is planned, drawn and costed as one of an allocator on a GPU is."""

from __future__ import annotations

import numpy as np

from memplan_engine.callers import Frame, Stacks
from memplan_engine.problem import Problem
from memplan_engine.recordings.allocator_recording import (
    BLOCK,
    EVENT,
    SEGMENT,
    Action,
    Recording,
    Rows,
    Snapshot,
    checked_events,
)
from memplan_engine.recordings.observation import NO_OP, Level, Observation, passing
from memplan_engine.recordings.recorded_problem import recording_problem

_NS = 1000
FIRST = "before the first op"


def observation_recording(
    observation: Observation, level: Level | str | None = None, device: int | None = None
) -> Recording:
    """One level of an observation (the one that knows most unless given) on one device (all unless given):
    each change is an event, step k is after the k-th. Of who asked for memory the stack has the innermost
    operator, the op, and its lines of Python where they were kept.

    Raises
    ------
    InputError: as `Observation.at`; sizes that sum too high.
    """
    rows = observation.at(level, device)
    stacks, numbers, labels = _stacks(observation, rows)
    events = np.zeros(len(rows), dtype=EVENT)
    events["address"], events["size"] = rows["address"], np.abs(rows["size"])
    events["time"], events["stack"], events["pool"] = rows["time"] // _NS, numbers, -1
    events["action"] = np.where(rows["size"] > 0, Action.ALLOC, Action.FREE_COMPLETED)
    checked_events(events, observation.name)
    devices = np.unique(rows["device"])
    return Recording(
        observation.name,
        int(devices[0]) if len(devices) else -1,
        events,
        np.zeros(0, SEGMENT),
        np.zeros(0, BLOCK),
        stacks,
        labels=labels,
    )


def observed_problem(
    observation: Observation, level: Level | str | None = None, device: int | None = None
) -> Problem:
    """Every allocation that was observed as a buffer, alive from its event to its free; step k is after the
    k-th event, step 0 before the first. What the run freed and had not made is there from step 0 on.

    Names are those of the ops: "conv2d_1", and "conv2d_1 temporary" for what was free again before the op
    ended; a second one has a number. Arguments and errors are those of `observation_recording`.
    """
    return recording_problem(observation_recording(observation, level, device))


def observation_snapshot(observation: Observation) -> Snapshot:
    """A recording for each device, of the level that knows most."""
    devices = sorted({int(number) for number in np.unique(observation.at()["device"])})
    recordings = [observation_recording(observation, None, device) for device in devices]
    return Snapshot(observation.name, tuple(recordings))


def _stacks(observation: Observation, rows: Rows) -> tuple[Stacks, Rows, tuple[str, ...]]:
    """A stack for each op, kernel and fate that `rows` name, the stack of each row, and what a buffer of each
    stack is called."""
    temporary = passing(rows)
    key = np.stack([rows["op"], rows["kernel"], temporary, rows["inside"]]).astype(np.int64)
    distinct, numbers = np.unique(key, axis=1, return_inverse=True)
    frames: dict[Frame, int] = {}
    found, labels = [], []
    for op, kernel, passes, inside in distinct.T.tolist():
        calls = [Frame(observation.kernels[kernel], "", 0)] if kernel >= 0 else []
        label = FIRST
        if op != NO_OP:
            calls += _calls(observation, op)
            name = observation.ops.names[op]
            label = f"{name} temporary" if passes else name if inside else f"after {name}"
        found.append(tuple(frames.setdefault(frame, len(frames)) for frame in calls))
        labels.append(label)
    return Stacks(tuple(frames), tuple(found)), numbers.reshape(-1), tuple(labels)


def _calls(observation: Observation, op: int) -> list[Frame]:
    kind = observation.ops.kinds[op]
    # As C++ and the profiler have it, which is what callers are found by.
    operator = Frame(kind.replace("aten.", "aten::", 1), "", 0)
    stack = int(observation.ops.stack[op])
    return [operator, *(observation.stacks.frames_of(stack) if stack >= 0 else ())]
