"""Values joined into storages: the fewest joins that leave no byte to two of them at a step."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from memplan_engine.formats.xla_dump.hlo_module import Value
from memplan_engine.formats.xla_dump.shared_bytes import Place, places_of

Span = tuple[int, int, int]
SPANS = st.lists(
    st.tuples(st.integers(0, 8), st.integers(0, 6), st.integers(0, 3), st.integers(1, 4)), max_size=9
)


def value(number: int, size: int) -> Value:
    return Value(f"v{number}", (), 0, size, (size,), "uint8")


def collide(one: Place, other: Place) -> bool:
    in_space = max(one.low, other.low) < min(one.high, other.high)
    return in_space and one.begin < other.end and other.begin < one.end


def joined_one_by_one(places: list[Place]) -> set[frozenset[Value]]:
    """What `places_of` finds, by trying all pairs again after each join."""
    while pair := next((each for each in combinations(places, 2) if collide(*each)), None):
        places = [each for each in places if each not in pair]
        one, other = pair
        values = one.values + other.values
        low, high = min(one.low, other.low), max(one.high, other.high)
        places.append(Place(low, high, min(one.begin, other.begin), max(one.end, other.end), values))
    return {frozenset(each.values) for each in places}


@given(SPANS, st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=3))
def test_the_fewest_joins(rows: list[tuple[int, int, int, int]], pairs: list[tuple[int, int]]) -> None:
    spans: dict[Value, Span] = {}
    for number, (offset, size, begin, length) in enumerate(rows):
        spans[value(number, size)] = offset, begin, begin + length
    values = list(spans)
    same = [(values[a], values[b]) for a, b in pairs if max(a, b) < len(values)]
    places = places_of(spans, same, "m")
    assert not any(collide(*each) for each in combinations(places, 2))
    assert sorted((each for place in places for each in place.values), key=str) == sorted(values, key=str)
    for place in places:
        assert place.values == sorted(place.values, key=values.index)
        assert place.low == min(spans[each][0] for each in place.values)
        assert place.high == max(spans[each][0] + each.size for each in place.values)
        assert place.begin == min(spans[each][1] for each in place.values)
        assert place.end == max(spans[each][2] for each in place.values)
    # Those of one place by their pairs, when they have one offset.
    leaders = {each: {each} for each in values}
    for one, other in same:
        if spans[one][0] == spans[other][0]:
            both = leaders[one] | leaders[other]
            leaders |= dict.fromkeys(both, both)
    groups = {frozenset(each) for each in leaders.values()}
    alone = [
        Place(
            min(spans[each][0] for each in group),
            max(spans[each][0] + each.size for each in group),
            min(spans[each][1] for each in group),
            max(spans[each][2] for each in group),
            list(group),
        )
        for group in groups
    ]
    assert {frozenset(each.values) for each in places} == joined_one_by_one(alone)
