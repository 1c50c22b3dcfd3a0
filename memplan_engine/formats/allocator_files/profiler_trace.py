"""Chrome traces of PyTorch's profiler: `[memory]` events with addresses, and who ran when they came."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from memplan_engine.callers import UNKNOWN_STACK, Frame, Stacks
from memplan_engine.errors import InputError
from memplan_engine.formats.allocator_files.pickle_refusals import brief
from memplan_engine.formats.json_stream import objects
from memplan_engine.graph import MAX_BYTES
from memplan_engine.problem import Ints
from memplan_engine.recordings.allocator_recording import (
    BLOCK,
    EVENT,
    SEGMENT,
    Action,
    Recording,
    Snapshot,
    check_devices,
    checked_events,
)
from memplan_engine.recordings.partial import loses_events, marked, with_lost, with_unnamed
from memplan_engine.recordings.recorded_problem import GRANULE

CPU = -1
"""The number of the device that is no accelerator."""
KEYS = ("Addr", "Bytes", "Total Reserved", "Device Type", "Device Id", "Total Allocated")
NO_ADDRESS = 0
"""The address of an event that has none, as in traces of the first profilers."""
RUNNING = ("cpu_op", "python_function", "user_annotation")
"""Categories of events that say what was running."""
_PYTHON = re.compile(r"(?P<file>.+)\((?P<line>[0-9]{1,9})\): (?P<function>.+)", re.DOTALL)
MOST_CALLS = 20_000_000
"""In the stacks of all memory events together: 2 CPU seconds, and 160 MB where all of them differ."""
_NS = 1000


def load_trace(path: Path | str, progress: Callable[[int, int], None] | None = None) -> Snapshot:
    """A recording for each device that the memory events of a trace speak of; of the CPU it is number −1.

    Written by `prof.export_chrome_trace` after `profile(profile_memory=True)`; with `with_stack=True` buffers
    have lines of code, too. Events are read one by one: memory grows with the events, not with the file.

    Raises
    ------
    InputError: a trace without memory events, or one that is broken.
    """
    path = Path(path)
    read = _Trace(path.name)
    for event in objects(path, "traceEvents", progress):
        if isinstance(event, dict):
            read.take(event)
    if not read.devices:
        expected = "[memory] events: profile with profile_memory=True"
        raise InputError(path.name, "traceEvents", "no memory event", expected)
    devices = sorted(set(read.devices))
    check_devices(len(devices), path.name)
    stacks, stack = read.stacks()
    return Snapshot(path.name, tuple(read.recording(device, path, stacks, stack) for device in devices))


class _Trace:
    """The columns of memory events and of what ran, as they are read."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.devices, self.addresses, self.sizes = (array("q") for _ in range(3))
        self.reserved, self.allocated = array("q"), array("q")
        self.times, self.threads = array("q"), array("q")
        self.began, self.ended, self.ran_in, self.frame = (array("q") for _ in range(4))
        self.frames: dict[Frame, int] = {}
        self.thread_of: dict[Any, int] = {}

    def take(self, event: dict[str, Any]) -> None:
        """Keep what counts of `event`."""
        if event.get("name") == "[memory]":
            self._take_memory(event)
        elif event.get("cat") in RUNNING and event.get("ph") == "X":
            begin = self._time(event, "ts")
            self.began.append(begin)
            self.ended.append(begin + self._time(event, "dur"))
            self.ran_in.append(self._thread(event))
            frame = _frame(str(event.get("name", "")))
            self.frame.append(self.frames.setdefault(frame, len(self.frames)))

    def _take_memory(self, event: dict[str, Any]) -> None:
        said = event.get("args")
        said = said if isinstance(said, dict) else {}
        values = [said.get(key, 0) for key in KEYS]
        values[0] = NO_ADDRESS if values[0] is None else values[0]
        if not all(type(value) is int and abs(value) < 1 << 62 for value in values) or values[0] < 0:
            place = f"memory event {len(self.times):,}"
            raise InputError(
                self.source, place, ", ".join(map(brief, values)), "an address and whole numbers"
            )
        address, nbytes, reserved, kind, device, allocated = values
        self.devices.append(device if kind else CPU)
        self.addresses.append(address)
        self.sizes.append(nbytes)
        self.reserved.append(max(reserved, 0))
        self.allocated.append(allocated)
        self.times.append(self._time(event, "ts"))
        self.threads.append(self._thread(event))

    def _time(self, event: dict[str, Any], key: str) -> int:
        """Nanoseconds, from a number of microseconds."""
        value = event.get(key, 0)
        if not isinstance(value, int | float) or not 0 <= value < 1e15:
            raise InputError(
                self.source, f"event {brief(event.get('name'))}, {key}", brief(value), "microseconds"
            )
        return round(value * _NS)

    def _thread(self, event: dict[str, Any]) -> int:
        return self.thread_of.setdefault(str(event.get("tid")), len(self.thread_of))

    def stacks(self) -> tuple[Stacks, Ints]:
        """What was running when each memory event came, the innermost first."""
        found: dict[tuple[int, ...], int] = {}
        numbers = np.full(len(self.times), UNKNOWN_STACK, dtype=np.int64)
        begin, end, ran = (np.array(column) for column in (self.began, self.ended, self.ran_in))
        at, thread = np.array(self.times), np.array(self.threads)
        # Thread by thread in the order of time; of those that begin together the longest is the outermost.
        rows = np.lexsort((-end, begin, ran))
        wanted = np.lexsort((at, thread))
        running = zip(*(column[rows].tolist() for column in (ran, begin, end)), rows.tolist(), strict=True)
        following = next(running, None)
        open_now: list[tuple[int, int]] = []
        last, calls = -1, 0
        for each, time, row in zip(
            thread[wanted].tolist(), at[wanted].tolist(), wanted.tolist(), strict=True
        ):
            if each != last:
                open_now.clear()
                last = each
            while following is not None and following[:2] <= (each, time):
                if following[0] == each:
                    _close(open_now, following[1])
                    open_now.append((following[2], self.frame[following[3]]))
                following = next(running, None)
            _close(open_now, time)
            if open_now:
                calls += len(open_now)
                if calls > MOST_CALLS:
                    found_calls = f"more than {MOST_CALLS:,} calls that run at memory events"
                    raise InputError(self.source, "traceEvents", found_calls, "a trace without stacks")
                stack = tuple([frame for _, frame in reversed(open_now)])
                numbers[row] = found.setdefault(stack, len(found))
        return Stacks(tuple(self.frames), tuple(found)), numbers

    def recording(self, device: int, path: Path, stacks: Stacks, stack: Ints) -> Recording:
        """The memory events of `device` in the order of time."""
        rows = np.flatnonzero(np.array(self.devices) == device)
        rows = rows[np.argsort(np.array(self.times)[rows], kind="stable")]
        sizes = np.array(self.sizes)[rows]
        events = np.zeros(len(rows), dtype=EVENT)
        address = np.array(self.addresses)[rows]
        nowhere = address == NO_ADDRESS
        address[nowhere] = self._places_by_size(sizes[nowhere], int((address + np.abs(sizes)).max(initial=0)))
        events["address"], events["size"] = address, np.abs(sizes)
        events["time"], events["stack"] = np.array(self.times)[rows] // _NS, stack[rows]
        events["action"] = np.where(sizes > 0, Action.ALLOC, Action.FREE_COMPLETED)
        events["pool"] = -1
        checked_events(events, self.source)
        reserved, allocated = (np.array(column)[rows] for column in (self.reserved, self.allocated))
        name = path.name.split(".")[0] + (f", device {device}" if len(set(self.devices)) > 1 else "")
        recording = Recording(
            name,
            device,
            events,
            np.zeros(0, SEGMENT),
            np.zeros(0, BLOCK),
            stacks,
            held=np.concatenate([reserved[:1], reserved]) if reserved.any() else None,
            allocated=np.concatenate([allocated[:1] - sizes[:1], allocated]) if allocated.any() else None,
        )
        return marked(
            with_unnamed(with_lost(recording)),
            no_addresses=bool(nowhere.any()),
            lost=loses_events(recording),
        )

    def _places_by_size(self, sizes: Ints, top: int) -> list[int]:
        """Return a place above `top` for each event without an address; `sizes` are below 0 for frees. A free
        is of the youngest allocation of as many bytes, or of one from before."""
        live: dict[int, list[int]] = {}
        free: dict[int, list[int]] = {}
        places = []
        for size in sizes.tolist():
            of_size = free if size > 0 else live
            place = of_size[abs(size)].pop() if of_size.get(abs(size)) else None
            if place is None:
                place, top = -(-top // GRANULE) * GRANULE + GRANULE, top + abs(size) + 2 * GRANULE
            (live if size > 0 else free).setdefault(abs(size), []).append(place)
            places.append(place)
        if top > MAX_BYTES:
            raise InputError(self.source, "memory events", "sizes beyond 2^63 in all", "a sum below 2^63")
        return places


def _close(open_now: list[tuple[int, int]], time: int) -> None:
    """Drop what has ended by `time`."""
    while open_now and open_now[-1][0] < time:
        open_now.pop()


def _frame(name: str) -> Frame:
    """ "train.py(12): forward" as a frame; an operation has no file."""
    found = _PYTHON.fullmatch(name)
    return Frame(found["function"], found["file"], int(found["line"])) if found else Frame(name, "", 0)
