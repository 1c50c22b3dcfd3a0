"""The largest value that fits, against trying all of them, and what names it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine import InputError, fit_graph
from memplan_engine.fitting.largest import MOST, Tried, largest_that_fits, parse_largest
from memplan_engine.reporters.fit.largest_tables import largest_summary, largest_tables
from memplan_engine.torch_capture.factory_spec import parse_factory
from tests.dashboard.fit_graphs import MIB, layers

GRAPH = layers()
FITS, NOT = fit_graph(GRAPH, 30 * MIB), fit_graph(GRAPH, 1)


@given(st.integers(1, 50), st.integers(0, 60), st.integers(0, 70))
def test_it_is_what_trying_all_finds(low: int, more: int, most: int) -> None:
    asked: list[int] = []

    def fit(value: int) -> Tried:
        asked.append(value)
        return Tried(value, FITS if value <= most else NOT, 1.0)

    high = low + more
    found = largest_that_fits(fit, "batch", low, high)
    expected = [value for value in range(low, high + 1) if value <= most]
    assert found.best.fits == bool(expected)
    if expected:
        assert found.best.value == expected[-1]
        above = found.next
        assert (None if above is None else above.value) == (expected[-1] + 1 if expected[-1] < high else None)
    assert len(asked) == len(set(asked))
    assert all(low <= value <= high for value in asked)
    # Doubling, and halving in between.
    assert len(asked) <= 2 * high.bit_length() + 2


def test_who_stops_has_what_is_known() -> None:
    asked: list[int] = []

    def fit(value: int) -> Tried:
        asked.append(value)
        return Tried(value, FITS, 1.0)

    found = largest_that_fits(fit, "batch", stopped=lambda: len(asked) == 3)
    assert (asked, found.best.value, found.next) == ([1, 2, 4], 4, None)
    assert "more was not tried to the end" in str(largest_tables(found)[0])


def test_sentences() -> None:
    def told(most: int, low: int = 1, high: int = 8) -> str:
        found = largest_that_fits(
            lambda value: Tried(value, FITS if value <= most else NOT, float(value)), "batch", low, high
        )
        return str(largest_tables(found)[0])

    assert told(5) == "Largest batch that fits in 30 MiB: 5; 6 does not fit, proved"
    assert told(9) == "Largest batch that fits in 30 MiB: 8, the largest that was asked for"
    assert told(2, low=4) == "No batch from 4 to 8 fits in 1 B: 4 does not fit, proved"
    assert largest_tables(None) == []
    assert largest_summary(None) == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("batch", ("batch", 1, MOST)),
        ("batch=2:64", ("batch", 2, 64)),
        ("batch=:64", ("batch", 1, 64)),
        ("batch=8:", ("batch", 8, MOST)),
    ],
)
def test_ranges(text: str, expected: tuple[str, int, int]) -> None:
    assert parse_largest(text) == expected


@pytest.mark.parametrize(
    "text", ["", "batch=8", "batch=a:b", "batch:8", "1=1:2", "batch=-1:4", "batch=1:4:8"]
)
def test_what_is_no_range(text: str) -> None:
    with pytest.raises(InputError, match="--largest"):
        parse_largest(text)


@pytest.mark.parametrize(("low", "high"), [(0, 5), (6, 5)])
def test_an_empty_range(low: int, high: int) -> None:
    with pytest.raises(InputError, match="a range from 1"):
        largest_that_fits(lambda value: Tried(value, FITS, 1.0), "batch", low, high)


def test_arguments_of_a_factory() -> None:
    spec = parse_factory("a/net.py:build(batch=8, name='x:y', sizes=(1, 2), deep=None)")
    assert spec == ("a/net.py", "build", {"batch": 8, "name": "x:y", "sizes": (1, 2), "deep": None})
    assert parse_factory(str(spec)) == spec
    assert str(spec.replaced(batch=2, more=1)).endswith(
        "build(batch=2, name='x:y', sizes=(1, 2), deep=None, more=1)"
    )
    assert parse_factory("pkg.mod:make") == ("pkg.mod", "make", {})
    assert str(parse_factory("pkg.mod:make")) == "pkg.mod:make"


@pytest.mark.parametrize(
    "spec",
    [
        *("net.py:build(8)", "net.py:build(batch=n)", "net.py:build(batch=8", "net.py:build(**{})"),
        *("net.py:build(batch=__import__('os'))", "net.py:build(batch=8)(1)", "net.py:build(batch=8) or 1"),
        *("build(batch=8)", ":build", "net.py:", ".rel:build"),
    ],
)
def test_what_is_no_factory(spec: str) -> None:
    with pytest.raises(InputError, match="factory"):
        parse_factory(spec)
