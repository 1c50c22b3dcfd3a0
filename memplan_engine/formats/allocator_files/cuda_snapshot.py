"""CUDA memory snapshots: the pickles of `torch.cuda.memory._dump_snapshot`, from the oldest layout on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from memplan_engine.errors import InputError
from memplan_engine.formats.allocator_files.pickle_refusals import brief
from memplan_engine.formats.allocator_files.plain_pickle import Progress, read_pickle
from memplan_engine.formats.allocator_files.snapshot_rows import EVENT_KEPT, SnapshotRows
from memplan_engine.graph import MAX_BYTES
from memplan_engine.recordings.allocator_recording import (
    BLOCK,
    DEFAULT_POOL,
    EVENT,
    SEGMENT,
    Recording,
    Rows,
    Snapshot,
    checked_events,
    pools_by_address,
)

KIND = "a memory snapshot of PyTorch, with segments and device_traces"
IN_USE = ("active_allocated", "active_pending_free", "active_awaiting_free")


def load_snapshot(path: Path | str, progress: Progress | None = None) -> Snapshot:
    """Everything that a snapshot file says: a recording for each device.

    `progress` is told how many bytes have been read, and of how many. Memory: about 50 bytes an event, and
    each different stack once.

    Raises
    ------
    InputError: a pickle of something else, or that holds anything but plain data; one that is cut short.
    """
    path = Path(path)
    rows = SnapshotRows(path.name)
    value = read_pickle(path, rows, progress)
    if isinstance(value, list):
        value = {"segments": value}
    if not isinstance(value, dict) or "segments" not in value:
        raise InputError(path.name, "", f"a pickle of {_contents(value)}", KIND)
    events = np.frombuffer(rows.events, dtype=EVENT)
    bounds = _bounds(value.get("device_traces", []), len(events), path.name)
    devices = _Segments(path.name, rows, path.stat().st_size).read(value["segments"])
    stacks = rows.finished_stacks()
    recordings = []
    recorded = {number for number, (low, high) in enumerate(bounds) if low < high}
    for device in sorted(devices.keys() | recorded):
        low, high = bounds[device] if device < len(bounds) else (0, 0)
        segments, blocks = devices.get(device, (np.zeros(0, SEGMENT), np.zeros(0, BLOCK)))
        own = checked_events(events[low:high], path.name)
        if rows.pools.keys() - {DEFAULT_POOL}:
            own["pool"] = pools_by_address(own, segments)
        recordings.append(Recording(path.stem, device, own, segments, blocks, stacks, tuple(rows.pools)))
    if len(recordings) > 1:
        recordings = [replace(each, name=f"{path.stem}, device {each.device}") for each in recordings]
    return Snapshot(path.name, tuple(recordings))


def _contents(value: Any) -> str:
    if isinstance(value, dict):
        return f"a dict with {', '.join(brief(key) for key in list(value)[:5]) or 'nothing in it'}"
    return "an event" if value is EVENT_KEPT else brief(value)


def _bounds(traces: Any, count: int, source: str) -> list[tuple[int, int]]:
    """Which events are whose: they come device by device, and each was closed once."""
    if not isinstance(traces, list) or not all(isinstance(trace, list) for trace in traces):
        raise InputError(source, "device_traces", "something else", "a list of events for each device")
    edges = np.cumsum([0, *map(len, traces)]).tolist()
    if edges[-1] != count or any(event is not EVENT_KEPT for trace in traces for event in trace):
        raise InputError(source, "device_traces", f"{edges[-1]:,} entries, {count:,} events", "events alone")
    return list(pairwise(edges))


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
                raise InputError(self.source, place, brief(item), "dicts alone")
            yield item

    def _number(self, item: dict[Any, Any], key: str, place: str, default: int | None = None) -> int:
        value = item.get(key, default)
        if type(value) is not int or not 0 <= value < 1 << 62:
            raise InputError(self.source, f"{place}, {key}", brief(value), "a whole number below 2^62")
        return value
