"""What an observer saw of one run: the ops that ran, and each change of memory with the op that caused it.

As a recording it is planned, drawn and costed as one of an allocator on a GPU is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from memplan_engine.callers import Frame, Stacks
from memplan_engine.errors import InputError
from memplan_engine.problem import Ints
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
from memplan_engine.recordings.observed_flow import (
    BEFORE,
    HELD,
    HOST,
    Flow,
    ObservedStorages,
    counted,
    fullest_device,
)
from memplan_engine.scope import NO_BASIS, Scope

CPU = HOST
NO_OP, NO_KERNEL = -1, -1
NO_STACKS = Stacks()
FIRST = "before the first op"
_NS = 1000
_UNIT = 512
"""Bytes, of which the places of what was never placed are multiples."""


class Level(StrEnum):
    """Where the observer looked.

    DISPATCH: storages of tensors that operators give back, from the moment an operator returns until torch
    lets go of them. ALLOCATOR: whatever is asked of torch's allocator, with what kernels take for themselves.
    """

    DISPATCH = "dispatch"
    ALLOCATOR = "allocator"


CHANGE = np.dtype(
    [
        ("time", "<i8"),
        ("size", "<i8"),
        ("address", "<i8"),
        ("op", "<i4"),
        ("kernel", "<i4"),
        ("device", "<i4"),
        ("inside", "?"),
    ]
)
"""One allocation (`size` > 0) or free (`size` < 0), bytes; `time` in ns since the run began; `op` is the op
that ran, or, not `inside`, the last one that had run; −1: none yet. `kernel` is the innermost operator that
the profiler knew of, −1 unknown. `device` is −1 for the CPU."""


@dataclass(frozen=True, slots=True, eq=False)
class ObservedOps:
    """The n ops of a run in order, none within another: `begin` and `end` in ns since the run began, `stack`
    their lines of Python, −1 where none was kept. `names` are unique."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    begin: Ints
    end: Ints
    stack: Ints

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """One run. `changes` has rows of dtype CHANGE for each level that was observed, in the order in which
    they came; `kernels` are the names that their column `kernel` counts in. `nanoseconds` is how long the
    run took, with the observer watching."""

    name: str
    ops: ObservedOps
    changes: Mapping[Level, Rows]
    kernels: tuple[str, ...] = ()
    stacks: Stacks = NO_STACKS
    nanoseconds: int = 0
    flow: Flow | None = None

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels observed, the one that knows most first."""
        return tuple(level for level in (Level.ALLOCATOR, Level.DISPATCH) if level in self.changes)

    def at(self, level: Level | str | None = None, device: int | None = None) -> Rows:
        """The changes of one level (the one that knows most unless given) on one device (all unless given).

        Raises
        ------
        InputError: a level that was not observed, a device of which nothing was.
        """
        chosen = next((recorded for recorded in self.levels if level is None or recorded == level), None)
        if chosen is None:
            observed = ", ".join(self.levels) or "none"
            raise InputError(self.name, "level", repr(str(level)), f"one that was observed: {observed}")
        rows = self.changes[chosen]
        if device is None:
            return rows
        if device not in self.devices:
            raise InputError(self.name, "device", str(device), f"one of {', '.join(map(str, self.devices))}")
        chosen_rows: Rows = rows[rows["device"] == device]
        return chosen_rows

    @property
    def devices(self) -> tuple[int, ...]:
        """The devices that changes speak of, ascending; −1 is the CPU."""
        numbers = {int(device) for rows in self.changes.values() for device in np.unique(rows["device"])}
        return tuple(sorted(numbers))


@dataclass(frozen=True, slots=True, eq=False)
class LiveBytes:
    """Bytes made in the run that were there, a value an op: the most `during` it, and at its end (`after`:
    before anything is let go that its caller held for it)."""

    during: Ints
    after: Ints

    @property
    def temporary(self) -> Ints:
        """Bytes that an op held for itself at its fullest moment beside all that is there at its end."""
        return self.during - self.after


def observed_live(
    observation: Observation, level: Level | str | None = None, device: int | None = None
) -> LiveBytes:
    """What was live during and after each op; memory that was there before the run counts nowhere. Without
    a `device` of all that were watched, or, of a predicted run, on the one with the most bytes.

    Raises
    ------
    InputError: as `Observation.at`.
    """
    rows = observation.at(level, one_device(observation, device))
    rows = rows[~older(rows)]
    n = len(observation.ops)
    # In the order of ops: what comes between two of them counts after the first.
    order = np.argsort(2 * rows["op"].astype(np.int64) + ~rows["inside"], kind="stable")
    rows = rows[order]
    running = np.concatenate([[0], np.cumsum(rows["size"], dtype=np.int64)])
    key = 2 * rows["op"].astype(np.int64) + ~rows["inside"]
    first = np.searchsorted(key, 2 * np.arange(n), side="left")
    last = np.searchsorted(key, 2 * np.arange(n), side="right")
    during = running[first]
    inside = rows["inside"]
    np.maximum.at(during, rows["op"][inside], running[1:][inside])
    return LiveBytes(during, running[last])


def one_device(observation: Observation, device: int | None = None) -> int | None:
    """`device`; None is that of a predicted run which has the most bytes, and of others stays all of them."""
    several = observation.flow is not None and len(observation.devices) > 1
    return fullest_device(observation.flow) if device is None and several else device  # type: ignore[arg-type]


def observed_peak(
    observation: Observation, level: Level | str | None = None, device: int | None = None
) -> tuple[int, int]:
    """The most live bytes during an op, and which op that was (the first; −1 when there is none). `device`
    as in `observed_live`."""
    during = observed_live(observation, level, device).during
    return (int(during.max()), int(during.argmax())) if len(during) else (0, NO_OP)


def older(rows: Rows) -> Rows:
    """Which of `rows` free what was not made in them: it was there before the run."""
    order, allocates, follows, _ = _neighbours(rows)
    is_older = np.zeros(len(rows), dtype=bool)
    is_older[order] = ~allocates & ~(follows & np.append(False, allocates[:-1])[: len(rows)])
    return is_older


def freed_beyond(rows: Rows) -> list[tuple[int, int]]:
    """The `rows` that free more than was allocated at their place, each with the bytes that were."""
    order, allocates, follows, _ = _neighbours(rows)
    size = rows["size"][order]
    before = np.append(0, size[:-1])[: len(rows)]
    wrong = np.flatnonzero(~allocates & follows & (before > 0) & (-size > before))
    return sorted(zip(order[wrong].tolist(), before[wrong].tolist(), strict=True))


def passing(rows: Rows) -> Rows:
    """Which of `rows` allocate what is free again before their op ends: temporaries of the op."""
    order, allocates, _, leads = _neighbours(rows)
    is_passing = np.zeros(len(rows), dtype=bool)
    after = np.append(order[1:], 0)[: len(rows)]
    freed = leads & np.append(~allocates[1:], False)[: len(rows)]
    same_op = (rows["op"][order] == rows["op"][after]) & rows["inside"][after] & rows["inside"][order]
    is_passing[order] = allocates & freed & same_op
    return is_passing


def _neighbours(rows: Rows) -> tuple[Ints, Rows, Rows, Rows]:
    """`rows` by place and, there, in order; which of them allocate; which have one of the same place before
    and behind them."""
    order = np.lexsort((np.arange(len(rows)), rows["address"], rows["device"]))
    address, device = rows["address"][order], rows["device"][order]
    same = (address[1:] == address[:-1]) & (device[1:] == device[:-1])
    follows = np.append(False, same)[: len(rows)]
    return order, rows["size"][order] > 0, follows, np.append(same, False)[: len(rows)]


def flow_changes(flow: Flow, ops: ObservedOps) -> Rows:
    """The changes of memory that follow from what became of each storage, at the level DISPATCH. What the
    run made comes while its maker runs, and goes after the op that was the last to have begun, all at places
    of their own."""
    storages = flow.storages
    made = np.flatnonzero((storages.maker != BEFORE) & (storages.nbytes > 0) & counted(storages))
    gone = made[storages.released[made] != HELD]
    place = _places(storages)
    rows = np.zeros(len(made) + len(gone), dtype=CHANGE)
    both = np.concatenate([made, gone])
    rows["op"] = np.concatenate([storages.maker[made], storages.released[gone]])
    rows["size"] = np.concatenate([storages.nbytes[made], -storages.nbytes[gone]])
    rows["inside"] = np.arange(len(both)) < len(made)
    rows["time"] = np.where(rows["inside"], ops.begin[rows["op"]], ops.end[rows["op"]])
    rows["address"], rows["kernel"], rows["device"] = place[both], NO_KERNEL, storages.device[both]
    ordered: Rows = rows[np.lexsort((both, ~rows["inside"], rows["op"]))]
    return ordered


def _places(storages: ObservedStorages) -> Ints:
    """A place of its own for each storage that the run made, 0 for others."""
    made = (storages.maker != BEFORE) & (storages.nbytes > 0) & counted(storages)
    taken = np.where(made, -(-storages.nbytes // _UNIT) * _UNIT, 0)
    places: Ints = np.where(made, np.cumsum(taken) - taken, 0)
    return places


def observation_recording(
    observation: Observation,
    level: Level | str | None = None,
    device: int | None = None,
    late: bool = False,
) -> Recording:
    """One level of an observation (the one that knows most unless given) on one device (all unless given):
    each change is an event, step k is after the k-th. Of who asked for memory the stack has the innermost
    operator, the op, and its lines of Python where they were kept. What another stream had used
    (`Flow.waits`) is free at once, or, where frees come `late`, when the host has waited for that stream.

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
    if observation.flow is not None:
        events["stream"] = _streams(observation.flow, rows)
        if late:
            events = _with_waits(observation.flow, rows, events)
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
        source=Scope.EAGER if observation.flow is None else observation.flow.scope,
        basis=NO_BASIS if observation.flow is None else observation.flow.basis,
    )


def _streams(flow: Flow, rows: Rows) -> Rows:
    """The stream that each of `rows` is of: that of the op which made the storage at its place."""
    makes = (rows["size"] > 0) & (rows["op"] != NO_OP)
    made_on = flow.stream[rows["op"][makes]].tolist()
    of_place = dict(zip(rows["address"][makes].tolist(), made_on, strict=True))
    return np.array([of_place.get(place, 0) for place in rows["address"].tolist()], dtype=np.int64)


def _with_waits(flow: Flow, rows: Rows, events: Rows) -> Rows:
    """`events`, which stand for `rows`, in which the frees of what waits are requested where they were, and
    completed when the host has waited."""
    places = _places(flow.storages)
    until = {int(places[storage]): op for storage, op in flow.waits if flow.storages.nbytes[storage]}
    waiting = np.flatnonzero((rows["size"] < 0) & np.isin(rows["address"], list(until)))
    events["action"][waiting] = Action.FREE_REQUESTED
    ops = [until[place] for place in rows["address"][waiting].tolist()]
    after = [len(rows) if op == HELD else int(np.searchsorted(rows["op"], op, side="right")) for op in ops]
    completed = events[waiting]
    completed["action"] = Action.FREE_COMPLETED
    with_waits: Rows = np.insert(events, np.array(after, dtype=np.int64), completed)
    return with_waits


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
    # The frames of Python keep their numbers; kernels and operators come after them.
    known = observation.stacks.frames
    inner: dict[str, int] = {}
    stacks, labels = [], []
    for op, kernel, passes, inside in distinct.T.tolist():
        calls = [observation.kernels[kernel]] if kernel >= 0 else []
        label = FIRST
        outer: tuple[int, ...] = ()
        if op != NO_OP:
            # As C++ and the profiler have it, which is what callers are found by.
            calls.append(observation.ops.kinds[op].replace("aten.", "aten::", 1))
            stack = int(observation.ops.stack[op])
            outer = observation.stacks.stacks[stack] if stack >= 0 else ()
            name = observation.ops.names[op]
            label = f"{name} temporary" if passes else name if inside else f"after {name}"
        numbered = (len(known) + inner.setdefault(call, len(inner)) for call in calls)
        stacks.append((*numbered, *outer))
        labels.append(label)
    frames = (*known, *(Frame(call, "", 0) for call in inner))
    return Stacks(frames, tuple(stacks)), numbers.reshape(-1), tuple(labels)
