"""Values → storages: what has one place, and what XLA lets live in bytes that another value still holds."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from memplan_engine.errors import InputError
from memplan_engine.formats.xla_dump.hlo_module import Value

MOST_ROUNDS = 100
"""Of looking for shared bytes: each makes places wider, and plans of XLA need one or two."""


@dataclass(slots=True)
class Place:
    """Bytes `[low, high)` that `values` occupy from the step `begin` to the step before `end`."""

    low: int
    high: int
    begin: int
    end: int
    values: list[Value] = field(default_factory=list)
    is_taken: bool = False

    def take(self, other: Place) -> None:
        """Become the place of both; the other one is no more."""
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.begin, self.end = min(self.begin, other.begin), max(self.end, other.end)
        if len(self.values) < len(other.values):
            # A long chain of writes in place is not copied at each of them.
            self.values, other.values = other.values, self.values
        self.values += other.values
        other.is_taken = True


def check_kept(
    spans: dict[Value, tuple[int, int, int]], same: Iterable[tuple[Value, Value]], source: str
) -> None:
    """Raise InputError where something is written into bytes of a value that a later op still reads; `spans`
    and `same` as for `places_of`. What loops carry and branches leave takes turns in its bytes and is not
    looked at."""
    carried = {value for pair in same for value in pair}
    plain = [(begin, low, end, value) for value, (low, begin, end) in spans.items() if value not in carried]
    lows: list[int] = []
    live: dict[int, Value] = {}
    ends: list[tuple[int, int]] = []
    for begin, low, end, value in sorted(plain, key=lambda each: each[0]):
        # The op that writes may be the last that reads.
        while ends and ends[0][0] <= begin + 1:
            gone = heappop(ends)[1]
            del live[gone], lows[bisect_left(lows, gone)]
        if end <= begin + 1 or not value.size:
            continue
        at = bisect_left(lows, low)
        at -= at > 0 and lows[at - 1] + live[lows[at - 1]].size > low
        if at < len(lows) and lows[at] < low + value.size:
            found = f"it lies in bytes of {live[lows[at]].name!r}, which an op reads later"
            raise InputError(source, f"value {value.name!r}", found, "bytes that nothing needs any more")
        insort(lows, low)
        live[low] = value
        heappush(ends, (end, low))


def places_of(
    spans: dict[Value, tuple[int, int, int]], same: Iterable[tuple[Value, Value]], source: str
) -> list[Place]:
    """The fewest joins of values under which no two places share a byte at a step: `spans` are for each value
    its offset and its half-open lifetime in steps, `same` those that have to be in one place. The values of a
    place stand in the order of `spans`.

    Two values share bytes where an op writes over what it reads, and where a value lives in bytes that a
    loop carries from one iteration to the next, at a time when these hold nothing.

    Raises
    ------
    InputError: bytes that are shared without an end to it.
    """
    leader = {value: value for value in spans}
    for one, other in same:
        if one in spans and other in spans and spans[one][0] == spans[other][0]:
            leader[_find(leader, one)] = _find(leader, other)
    joined: dict[Value, Place] = {}
    for value, (offset, begin, end) in spans.items():
        alone = Place(offset, offset + value.size, begin, end, [value])
        first = joined.setdefault(_find(leader, value), alone)
        if first is not alone:
            first.take(alone)
    places = list(joined.values())
    for _ in range(MOST_ROUNDS):
        before = len(places)
        places = _without_collisions(places)
        if len(places) == before:
            made = {value: number for number, value in enumerate(spans)}
            for place in places:
                place.values.sort(key=made.__getitem__)
            return places
    raise InputError(source, "", "values that share bytes again and again", "a plan that XLA made")


def _find(leader: dict[Value, Value], value: Value) -> Value:
    while leader[value] is not value:
        leader[value] = leader[leader[value]]
        value = leader[value]
    return value


def _without_collisions(places: list[Place]) -> list[Place]:
    """Sweep over time: what begins in bytes of places that are live takes them in. O(n log n) beside moving
    entries of a list."""
    # Live places by their first byte: none reaches into the next one, and none changes any more.
    lows: list[int] = []
    live: dict[int, Place] = {}
    ends: list[tuple[int, int, int]] = []
    kept: dict[int, Place] = {}
    for number, place in enumerate(sorted(places, key=lambda each: (each.begin, each.low))):
        kept[number] = place
        if place.low == place.high:
            continue
        while ends and ends[0][0] <= place.begin:
            _, low, old = heappop(ends)
            if old in kept and live.get(low) is kept[old]:
                del live[low], lows[bisect_left(lows, low)]
        at = bisect_left(lows, place.low)
        if at and live[lows[at - 1]].high > place.low:
            at -= 1
        while at < len(lows) and lows[at] < place.high:
            place.take(live.pop(lows.pop(at)))
        insort(lows, place.low)
        live[place.low] = place
        heappush(ends, (place.end, place.low, number))
    return [place for place in kept.values() if not place.is_taken]
