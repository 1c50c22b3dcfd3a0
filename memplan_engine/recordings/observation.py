"""What an observer saw of one run: the ops that ran, and each change of memory with the op that caused it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from memplan_engine.callers import Stacks
from memplan_engine.errors import InputError
from memplan_engine.problem import Ints
from memplan_engine.recordings.allocator_recording import Rows

CPU = -1
"""The number of the device that is no accelerator."""
NO_OP, NO_KERNEL = -1, -1
NO_STACKS = Stacks()


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
        chosen = next((one for one in self.levels if level is None or one == level), None)
        if chosen is None:
            known = ", ".join(self.levels) or "none"
            raise InputError(self.name, "level", repr(str(level)), f"one that was observed: {known}")
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
        found = {int(device) for rows in self.changes.values() for device in np.unique(rows["device"])}
        return tuple(sorted(found))


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
    """What was alive during and after each op; memory that was there before the run counts nowhere.

    Raises
    ------
    InputError: as `Observation.at`.
    """
    rows = observation.at(level, device)
    rows = rows[~older(rows)]
    n = len(observation.ops)
    # In the order of ops: what comes between two of them counts after the first.
    order = np.argsort(2 * rows["op"].astype(np.int64) + ~rows["inside"], kind="stable")
    rows = rows[order]
    running = np.concatenate([[0], np.cumsum(rows["size"], dtype=np.int64)])
    place = 2 * rows["op"].astype(np.int64) + ~rows["inside"]
    first = np.searchsorted(place, 2 * np.arange(n), side="left")
    last = np.searchsorted(place, 2 * np.arange(n), side="right")
    during = running[first]
    inside = rows["inside"]
    np.maximum.at(during, rows["op"][inside], running[1:][inside])
    return LiveBytes(during, running[last])


def observed_peak(
    observation: Observation, level: Level | str | None = None, device: int | None = None
) -> tuple[int, int]:
    """The most bytes alive during an op, and which op that was (the first; −1 when there is none)."""
    during = observed_live(observation, level, device).during
    return (int(during.max()), int(during.argmax())) if len(during) else (0, NO_OP)


def older(rows: Rows) -> Rows:
    """Which of `rows` free what was not made in them: it was there before the run."""
    order, made, follows, _ = _neighbours(rows)
    found = np.zeros(len(rows), dtype=bool)
    found[order] = ~made & ~(follows & np.append(False, made[:-1])[: len(rows)])
    return found


def passing(rows: Rows) -> Rows:
    """Which of `rows` allocate what is free again before their op ends: temporaries of the op."""
    order, made, _, leads = _neighbours(rows)
    found = np.zeros(len(rows), dtype=bool)
    after = np.append(order[1:], 0)[: len(rows)]
    freed = leads & np.append(~made[1:], False)[: len(rows)]
    same_op = (rows["op"][order] == rows["op"][after]) & rows["inside"][after] & rows["inside"][order]
    found[order] = made & freed & same_op
    return found


def _neighbours(rows: Rows) -> tuple[Ints, Rows, Rows, Rows]:
    """`rows` by place and, there, in order; which of them allocate; which have one of the same place before
    and behind them."""
    order = np.lexsort((np.arange(len(rows)), rows["address"], rows["device"]))
    address, device = rows["address"][order], rows["device"][order]
    same = (address[1:] == address[:-1]) & (device[1:] == device[:-1])
    follows = np.append(False, same)[: len(rows)]
    return order, rows["size"][order] > 0, follows, np.append(same, False)[: len(rows)]
