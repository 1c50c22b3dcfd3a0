"""CUDA memory snapshots: the pickles of `torch.cuda.memory._dump_snapshot`, from the oldest layout on.

While one is read, events and stacks shrink as they close: an event is a row of numbers in one growing buffer,
a frame and a stack are a number each. In their places stand small objects, so that of a gigabyte little is
ever there at once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from memplan_engine.callers import Frame, Stacks
from memplan_engine.errors import InputError
from memplan_engine.formats.allocator_files.pickle_refusals import brief
from memplan_engine.formats.allocator_files.plain_pickle import Progress, read_pickle
from memplan_engine.formats.read_limits import file_size
from memplan_engine.graph import MAX_BYTES
from memplan_engine.recordings.allocator_recording import (
    BLOCK,
    DEFAULT_POOL,
    EVENT,
    SEGMENT,
    Action,
    Recording,
    Rows,
    Snapshot,
    check_devices,
    checked_events,
    pools_by_address,
)
from memplan_engine.recordings.partial import marked

KIND = "a memory snapshot of PyTorch, with segments and device_traces"
IN_USE = ("active_allocated", "active_pending_free", "active_awaiting_free")
ACTIONS = {action.name.lower(): int(action) for action in Action if action is not Action.OTHER}
MOST_LAYOUTS = 256
MOST_KEY_TEXT = 4096
"""Characters of all keys of an event or a frame; those of torch have 200."""
MOST_EVENTS, MOST_CALLS = 50_000_000, 50_000_000
"""Events, and calls in all different stacks together: what 3 GiB hold."""
LEAST_EVENT, FREE_EVENTS = 32, 100_000
"""Bytes of an event in a file, on average, and how many may be shorter: those of the oldest layout, with five
keys, have 40. So many take 15 CPU seconds in 100 MB."""
MOST_LINES = 1 << 31
_EVENT = struct.Struct("<qqqqiii").pack
Close = Callable[[list[Any]], Any]


def load_snapshot(path: Path | str, progress: Progress | None = None) -> Snapshot:
    """Everything that a snapshot file says: a recording for each device.

    `progress` is told how many bytes have been read, and of how many. Memory: about 50 bytes an event, and
    each different stack once.

    Raises
    ------
    InputError: a pickle of something else, or that holds anything but plain data; one that is cut short.
    """
    path = Path(path)
    value, rows = _read(path, progress)
    events = np.frombuffer(rows.events, dtype=EVENT)
    traces = _traces(value, path.name)
    if rows.failed and not all(type(event) is EventRef for trace in traces for event in trace):
        raise rows.failed
    if rows.failed or 0 < sum(map(len, traces)) < len(events):
        # Dicts inside events look like events: which ones, only numbers tell.
        value, rows = _read(path, progress, numbered=True)
        traces = _traces(value, path.name)
        events = _direct(traces, rows, path.name)
    bounds = _bounds(traces, len(events), path.name)
    devices = _Segments(path.name, rows, path.stat().st_size).read(value["segments"])
    stacks = rows.finished_stacks()
    settings = _settings(value.get("allocator_settings"))
    recordings = []
    recorded = {number for number, (low, high) in enumerate(bounds) if low < high}
    check_devices(len(devices.keys() | recorded), path.name)
    for device in sorted(devices.keys() | recorded):
        low, high = bounds[device] if device < len(bounds) else (0, 0)
        segments, blocks = devices.get(device, (np.zeros(0, SEGMENT), np.zeros(0, BLOCK)))
        own = checked_events(events[low:high], path.name)
        if rows.pools.keys() - {DEFAULT_POOL}:
            own["pool"] = pools_by_address(own, segments)
        recording = Recording(
            *(path.stem, device, own, segments, blocks, stacks, tuple(rows.pools)), settings=settings
        )
        recordings.append(marked(recording, overflowed=_overflowed(value, device, len(own))))
    if len(recordings) > 1:
        recordings = [replace(each, name=f"{path.stem}, device {each.device}") for each in recordings]
    return Snapshot(path.name, tuple(recordings))


def _contents(value: Any) -> str:
    if isinstance(value, dict):
        return f"a dict with {', '.join(brief(key) for key in list(value)[:5]) or 'nothing in it'}"
    return "an event" if type(value) is EventRef else brief(value)


def _settings(found: Any) -> str:
    """The text of the settings that were set last; "" where a file has none."""
    text = found.get("PYTORCH_CUDA_ALLOC_CONF") if isinstance(found, dict) else None
    return text if isinstance(text, str) and len(text) <= MOST_KEY_TEXT else ""


def _overflowed(value: dict[Any, Any], device: int, count: int) -> bool:
    """Return whether the ring of `count` events of `device` has overflowed: as the file says, or, where it
    says only how many it holds, because it is full."""

    def said(key: str) -> Any:
        found = value.get(key)
        if isinstance(found, list | tuple):
            return found[device] if 0 <= device < len(found) else None
        return found

    flag, most = said("trace_alloc_overflowed"), said("trace_alloc_max_entries")
    if isinstance(flag, bool | int):
        return bool(flag)
    return type(most) is int and 0 < most <= count


def _read(
    path: Path, progress: Progress | None, numbered: bool = False
) -> tuple[dict[Any, Any], SnapshotRows]:
    rows = SnapshotRows(path.name, FREE_EVENTS + file_size(path) // LEAST_EVENT, numbered)
    value = read_pickle(path, rows, progress)
    if isinstance(value, list):
        value = {"segments": value}
    if not isinstance(value, dict) or "segments" not in value:
        raise InputError(path.name, "", f"a pickle of {_contents(value)}", KIND)
    return value, rows


def _traces(value: dict[Any, Any], source: str) -> list[list[Any]]:
    traces = value.get("device_traces", [])
    if not isinstance(traces, list) or not all(isinstance(trace, list) for trace in traces):
        raise InputError(source, "device_traces", "something else", "a list of events for each device")
    return traces


def _bounds(traces: list[list[Any]], count: int, source: str) -> list[tuple[int, int]]:
    """Which events are whose: they come device by device, and each was closed once."""
    edges = np.cumsum([0, *map(len, traces)]).tolist()
    if edges[-1] != count or any(type(event) is not EventRef for trace in traces for event in trace):
        raise InputError(source, "device_traces", f"{edges[-1]:,} entries, {count:,} events", "events only")
    return list(pairwise(edges))


def _direct(traces: list[list[Any]], rows: SnapshotRows, source: str) -> Rows:
    """Return the events that stand in `traces` themselves, each of which was closed once and in this order.

    Raises
    ------
    InputError: an entry that is no event, or one that stands there twice.
    """
    entries = [event for trace in traces for event in trace]
    if not all(type(event) is EventRef for event in entries):
        raise InputError(source, "device_traces", "something else", "events only")
    numbers = np.array([event.number for event in entries], dtype=np.int64)
    if (np.diff(numbers) <= 0).any():
        raise InputError(source, "device_traces", "an event twice, or out of order", "each event once")
    return np.frombuffer(rows.events, dtype=EVENT)[numbers]


class _Segments:
    """Reads the list of segments; counts what it looks at, for a small file can share a block endlessly."""

    def __init__(self, source: str, rows: SnapshotRows, most: int) -> None:
        self.source, self.rows, self.left = source, rows, most

    def read(self, found: Any) -> dict[int, tuple[Rows, Rows]]:
        """The segments and the blocks in use of each device."""
        segments: dict[int, list[tuple[Any, ...]]] = {}
        blocks: dict[int, list[tuple[Any, ...]]] = {}
        for number, segment in enumerate(self._list(found, "segments")):
            place = f"segment {number:,}"
            device = self._number(segment, "device", place, 0)
            stream = self._number(segment, "stream", place, 0)
            address = self._number(segment, "address", place)
            pool = self.rows.pool_of(segment.get("segment_pool_id"))
            row = (address, self._number(segment, "total_size", place), stream, pool)
            segments.setdefault(device, []).append((*row, bool(segment.get("is_expandable"))))
            mine = blocks.setdefault(device, [])
            for block in self._list(segment.get("blocks", []), f"{place}, blocks"):
                size = self._number(block, "size", place)
                if block.get("state") in IN_USE:
                    mine.append(self._block(block, (address, size, stream, pool), place))
                address += size
        total = sum(row[1] for rows in segments.values() for row in rows)
        total += sum(row[1] for rows in blocks.values() for row in rows)
        if total > MAX_BYTES // 2:
            raise InputError(self.source, "segments", f"sizes that sum to {total}", "a sum below 2^62")
        return {
            device: (np.array(rows, SEGMENT), np.array(blocks[device], BLOCK))
            for device, rows in segments.items()
        }

    def _block(self, block: dict[Any, Any], at: tuple[int, int, int, int], place: str) -> tuple[Any, ...]:
        address, size, stream, pool = at
        history = block.get("history")
        known = history[0] if isinstance(history, list) and history and isinstance(history[0], dict) else {}
        asked = self._number(block, "requested_size", place, self._number(known, "real_size", place, size))
        stack = self.rows.stack_of(block.get("frames", known.get("frames")))
        pending = block["state"] != IN_USE[0]
        return (self._number(block, "address", place, address), asked, stream, pool, stack, pending)

    def _list(self, found: Any, place: str) -> Iterator[dict[Any, Any]]:
        if not isinstance(found, list):
            raise InputError(self.source, place, brief(found), "a list")
        for item in found:
            self.left -= 1
            if self.left < 0:
                raise InputError(self.source, place, "more entries than the file has bytes", "each once")
            if not isinstance(item, dict):
                raise InputError(self.source, place, brief(item), "dicts only")
            yield item

    def _number(self, item: dict[Any, Any], key: str, place: str, default: int | None = None) -> int:
        value = item.get(key, default)
        if type(value) is not int or not 0 <= value < 1 << 62:
            raise InputError(self.source, f"{place}, {key}", brief(value), "a whole number below 2^62")
        return value


class FrameRef:
    """Stands for a frame: its number."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class EventRef(FrameRef):
    """Stands for an event whose row has been kept: its number, or −1 where events are not numbered."""

    __slots__ = ()


EVENT_KEPT = EventRef(-1)


class StackRef(FrameRef):
    """Stands for a list of frames: its number."""

    __slots__ = ()


class SnapshotRows:
    """The `Reducer` of memory snapshots; `events` are packed rows, in the order in which they closed. A dict
    inside an event may look like one. If `numbered`, each event is replaced with a number of its own, at 50
    bytes each. `failed` is the error of the first that cannot be kept."""

    def __init__(self, source: str, most_events: int, numbered: bool = False) -> None:
        self.source, self.most_events = source, min(most_events, MOST_EVENTS)
        self.numbered = numbered
        self.failed: InputError | None = None
        self.events = bytearray()
        self.frames: dict[tuple[str, str, int], FrameRef] = {}
        self.stacks: dict[tuple[int, ...], StackRef] = {}
        self.pools: dict[tuple[int, int], int] = {}
        self.layouts: dict[str, Close | None] = {}
        self.calls = 0

    def close_dict(self, items: list[Any]) -> Any | None:
        """An event's or a frame's dict in a few bytes; None for all others."""
        try:
            # Keys are shared, and joined for each dict: long ones would be copied time and again.
            if sum(map(len, items[::2])) > MOST_KEY_TEXT:
                return None
            keys = "\0".join(items[::2])
        except TypeError:
            return None
        try:
            close = self.layouts[keys]
        except KeyError:
            close = self._learn(keys)
        return close(items) if close else None

    def close_list(self, items: list[Any]) -> Any | None:
        """A stack, of a list of frames; None for all others."""
        if type(items[0]) is not FrameRef if items else True:
            return None
        try:
            numbers = tuple([item.number for item in items])
        except AttributeError:
            raise self._error("frames", "something other than a frame", "frames only") from None
        known = self.stacks.get(numbers)
        if known is None:
            self._count_calls(len(numbers))
            known = self.stacks[numbers] = StackRef(len(self.stacks))
        return known

    def _count_calls(self, count: int) -> None:
        self.calls += count
        if self.calls > MOST_CALLS:
            raise self._error("frames", f"more than {MOST_CALLS:,} calls", "stacks that recur")

    def finished_stacks(self) -> Stacks:
        """All frames and stacks, by number."""
        return Stacks(tuple(Frame(*frame) for frame in self.frames), tuple(self.stacks))

    def stack_of(self, value: Any) -> int:
        """The number of the stack that stands under "frames"; −1 for none."""
        if type(value) is StackRef:
            return value.number
        if isinstance(value, list):
            if not value:
                return -1
            # Not reduced when it was closed, it is gone through each time that somebody refers to it.
            self._count_calls(len(value))
            small = self.close_list(value)
            if small is not None:
                return small.number  # type: ignore[no-any-return]
        if value is None:
            return -1
        raise self._error("frames", brief(value), "a list of frames")

    def pool_of(self, value: Any) -> int:
        """The number of a pool (owner, id); −1 for none."""
        if value is None:
            return -1
        pair = tuple(value) if isinstance(value, list | tuple) else ()
        if len(pair) != 2 or not all(type(number) is int for number in pair):
            raise self._error("pool", brief(value), "two numbers")
        return self.pools.setdefault(pair, len(self.pools))

    def _error(self, place: str, found: str, expected: str) -> InputError:
        return InputError(self.source, place, found, expected)

    def _learn(self, keys: str) -> Close | None:
        """How dicts with these keys close."""
        names = keys.split("\0")
        place = {name: 2 * number + 1 for number, name in enumerate(names)}
        close: Close | None = None
        if {"name", "filename", "line"} <= place.keys():
            at = (place["name"], place["filename"], place["line"])
            close = lambda items: self._frame(items, *at)  # noqa: E731
        elif "action" in place:
            close = self._event_closer(place)
        if len(self.layouts) < MOST_LAYOUTS:
            self.layouts[keys] = close
        return close

    def _frame(self, items: list[Any], name: int, file: int, line: int) -> FrameRef:
        key = (items[name], items[file], items[line])
        if not (type(key[0]) is str and type(key[1]) is str and type(key[2]) is int):
            raise self._error("frame", ", ".join(map(brief, key)), "a name, a file name and a line")
        if not 0 <= key[2] < MOST_LINES:
            # What debug information does not know comes as 2^64 - 1.
            key = (key[0], key[1], 0)
        known = self.frames.get(key)
        if known is None:
            known = self.frames[key] = FrameRef(len(self.frames))
        return known

    def _event_closer(self, place: dict[str, int]) -> Close:
        """The function that keeps events whose values are at `place`; what an event lacks is 0 or unknown."""
        action, frames, pool = place["action"], place.get("frames", -1), place.get("pool_id", -1)
        # An event of lack of memory has no address: what the device has free goes there.
        first = "addr" if "addr" in place else "device_free"
        columns = [place.get(name, -1) for name in (first, "size", "stream", "time_us")]
        address, size, stream, time = columns
        lacks, kept, known, most = -1 in columns, self.events, ACTIONS.get, self.most_events * EVENT.itemsize
        numbered = self.numbered

        def close(items: list[Any]) -> Any | None:
            if lacks:
                items = [*items, 0]
            try:
                stack = items[frames] if frames >= 0 else None
                number = stack.number if type(stack) is StackRef else self.stack_of(stack)
                where = self.pool_of(items[pool]) if pool >= 0 else -1
                said = items[action]
                # Nothing else is hashed: a tuple of tuples that are shared never comes to an end.
                code = known(said, 0) if type(said) is str else 0
                row = _EVENT(items[address], items[size], items[stream], items[time], number, where, code)
            except (struct.error, TypeError):
                shown = {key: brief(items[each]) for key, each in place.items() if key != "frames"}
                found = ", ".join(f"{key} {value}" for key, value in shown.items())
                event = f"event {len(kept) // EVENT.itemsize:,}"
                error = self._error(event, found, "an action and whole numbers below 2^63")
                self.failed = self.failed or error
                return None
            except InputError as error:
                self.failed = self.failed or error
                return None
            if len(kept) >= most:
                raise self._error(
                    "device_traces", f"more than {self.most_events:,} events", "at most so many"
                )
            kept.extend(row)
            return EventRef(len(kept) // EVENT.itemsize - 1) if numbered else EVENT_KEPT

        return close
