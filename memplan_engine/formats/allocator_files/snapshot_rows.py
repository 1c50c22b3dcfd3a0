"""What becomes of a memory snapshot while it is read: events and stacks shrink as they close.

An event is a row of numbers in one growing buffer, a frame and a stack are a number each. In their places
stand small objects, so that of a gigabyte little is ever there at once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from memplan_engine.callers import Frame, Stacks
from memplan_engine.errors import InputError
from memplan_engine.formats.allocator_files.pickle_refusals import brief
from memplan_engine.recordings.allocator_recording import EVENT, Action

ACTIONS = {action.name.lower(): int(action) for action in Action if action is not Action.OTHER}
MOST_LAYOUTS = 256
MOST_EVENTS, MOST_CALLS = 50_000_000, 50_000_000
"""Events, and calls in all different stacks together: what 3 GiB hold."""
MOST_LINES = 1 << 31
_EVENT = struct.Struct("<qqqqiii").pack


class _Marker:
    """Stands for an event whose row has been kept."""

    __slots__ = ()


EVENT_KEPT = _Marker()


class FrameRef:
    """Stands for a frame: its number."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class StackRef(FrameRef):
    """Stands for a list of frames: its number."""

    __slots__ = ()


Close = Callable[[list[Any]], Any]


class SnapshotRows:
    """The `Reducer` of memory snapshots; `events` are packed rows, in the order in which they closed."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.events = bytearray()
        self.frames: dict[tuple[str, str, int], FrameRef] = {}
        self.stacks: dict[tuple[int, ...], StackRef] = {}
        self.pools: dict[tuple[int, int], int] = {}
        self.layouts: dict[str, Close | None] = {}
        self.calls = 0

    def close_dict(self, items: list[Any]) -> Any | None:
        """An event's or a frame's dict in a few bytes; None for all others."""
        try:
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
            raise self._error("frames", "something that is no frame", "frames alone") from None
        known = self.stacks.get(numbers)
        if known is None:
            self.calls += len(numbers)
            if self.calls > MOST_CALLS:
                raise self._error("frames", f"more than {MOST_CALLS:,} calls", "stacks that recur")
            known = self.stacks[numbers] = StackRef(len(self.stacks))
        return known

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
        if "action" in place:
            close = self._event_closer(place)
        elif {"name", "filename", "line"} <= place.keys():
            at = (place["name"], place["filename"], place["line"])
            close = lambda items: self._frame(items, *at)  # noqa: E731
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
        lacks, kept, known, most = -1 in columns, self.events, ACTIONS.get, MOST_EVENTS * EVENT.itemsize

        def close(items: list[Any]) -> Any:
            if lacks:
                items = [*items, 0]
            stack = items[frames] if frames >= 0 else None
            number = stack.number if type(stack) is StackRef else self.stack_of(stack)
            where = self.pool_of(items[pool]) if pool >= 0 else -1
            try:
                code = known(items[action], 0)
                row = _EVENT(items[address], items[size], items[stream], items[time], number, where, code)
            except (struct.error, TypeError):
                shown = {key: brief(items[each]) for key, each in place.items() if key != "frames"}
                found = ", ".join(f"{key} {value}" for key, value in shown.items())
                event = f"event {len(kept) // EVENT.itemsize:,}"
                raise self._error(event, found, "an action and whole numbers below 2^63") from None
            if len(kept) >= most:
                raise self._error("device_traces", f"more than {MOST_EVENTS:,} events", "at most so many")
            kept.extend(row)
            return EVENT_KEPT

        return close
