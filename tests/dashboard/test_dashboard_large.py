"""The pages on plans too large for the browser, and searching a great many names."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memplan_dashboard.plan_view import windows
from memplan_dashboard.views.inspect import buffer_filter, buffer_tables

from memplan_engine import MemplanError, make_problem
from tests.support.apptest import check, open_app
from tests.support.work import calls_of

ODD = ["layer1.a\nConv\nmod.x", "Äß", "", "9", "a b\n", "block7.x9", "\n", "x\u2028y", "tab\tz", "ss.a9a"]
IN_LINES = [
    "a", ".", "^$", "$", "^", "x$", "9$", "a|9", "[a-c]+", r"\d", r"\w{2,3}", "(?:ab|o)d?", "(a)(b)?",
    r"\S+", r"\.x", "é|ä", "a*", "[ -~]z", "[.]", "x.y", "b z", r"\bx\b", "ß", "SS", "k+?", "a{0}", r"\(|\[",
]  # fmt: skip
BEYOND_LINES = [
    "(?i)a",
    "[^x]",
    r"\s",
    r"x\sy",
    r"\W",
    r"\n",
    "a\\\nb",
    r"\x0a",
    "(?=a)",
    "(?:a){e<=1}",
    "[[:space:]]",
]


def each(pattern, texts):
    """Which texts are missed, one at a time, as `re` sees it where it can."""
    return [re.compile(pattern, re.IGNORECASE | re.MULTILINE).search(text) is None for text in texts]


@pytest.mark.parametrize("pattern", IN_LINES)
def test_all_names_at_once_are_found_as_one_by_one(pattern):
    assert buffer_filter._IN_LINE.fullmatch(pattern)
    missed = buffer_filter._search_as_one(pattern, ODD).tolist()
    assert (
        missed
        == buffer_filter._search_each(
            buffer_filter.regex.compile(pattern, buffer_filter._FLAGS), ODD
        ).tolist()
    )
    if pattern not in ("SS", "ß"):  # whose case `re` folds otherwise
        assert missed == each(pattern, ODD)


@given(
    st.text(alphabet="ab9.|*()[]^$\\wd{2,}?:", max_size=8),
    st.lists(st.text(alphabet="ab9.\n", max_size=6), max_size=6),
)
def test_any_pattern_finds_the_same_both_ways(pattern, texts):
    try:
        compiled = buffer_filter.regex.compile(pattern, buffer_filter._FLAGS)
    except buffer_filter.regex.error:
        return
    if buffer_filter._IN_LINE.fullmatch(pattern):
        expected = buffer_filter._search_each(compiled, texts).tolist()
        assert buffer_filter._search_as_one(pattern, texts).tolist() == expected


@pytest.mark.parametrize("pattern", BEYOND_LINES)
def test_what_may_match_a_line_break_is_looked_for_one_by_one(pattern):
    assert not buffer_filter._IN_LINE.fullmatch(pattern)


def test_many_names_are_searched_as_one():
    """`python -m benchmarks name_search` has the seconds of 100,000."""
    count = 10_000
    names = [f"layer{i % 97}.tensor_{i}" for i in range(count)]
    problem, missed = make_problem([0] * count, [1] * count, [1] * count, names=names), []
    calls = calls_of(lambda: missed.append(buffer_filter.misses(problem, r"layer7\..*99$")))
    # Compiling the pattern takes a thousand; one by one there would be two for each name.
    assert calls < count / 2
    assert [names[i] for i in np.flatnonzero(~missed[0])] == [
        name for name in names if re.search(r"layer7\..*99$", name)
    ]
    assert buffer_filter.misses(problem, r"layer7\..*99$") is missed[0]


@pytest.mark.parametrize(("count", "limit"), [(200, "0.05"), (20_000, "0.07")])
def test_a_search_that_would_run_for_ever_ends(monkeypatch, count, limit):
    monkeypatch.setattr(buffer_filter, "MOST_SECONDS", 0.05)
    monkeypatch.setattr(buffer_filter, "SECONDS_A_MILLION", 1.0)
    names = [f"{'a' * 40}{i}" for i in range(count)]
    problem = make_problem([0] * count, [1] * count, [1] * count, names=names)
    with pytest.raises(MemplanError, match=rf"takes longer than {limit} s"):
        buffer_filter.misses(problem, "^(a|aa)+$")


def test_names_that_are_searched_one_by_one_have_one_limit_together(monkeypatch):
    """Each look at the clock takes 0.3 s here: the third text begins at 0.9 s, a fourth would at 1.2 s."""
    searched = []

    class Pattern:
        def search(self, text, timeout, concurrent):
            searched.append((text, round(timeout, 1)))

    clock = iter(range(100))
    monkeypatch.setattr(buffer_filter, "time", SimpleNamespace(monotonic=lambda: 0.3 * next(clock)))
    monkeypatch.setattr(buffer_filter, "SECONDS_A_MILLION", 0.0)
    with pytest.raises(TimeoutError):
        buffer_filter._search_each(Pattern(), ["a", "b", "c", "d", "e"])
    assert searched == [("a", 0.7), ("b", 0.4), ("c", 0.1)]


def test_the_largest_come_first_and_ties_in_their_order(monkeypatch):
    monkeypatch.setattr(buffer_tables, "MOST_ROWS", 3)
    size = np.array([5, 9, 5, 1, 5, 7])
    assert buffer_tables._largest(size, np.arange(6)) == [1, 5, 0]
    assert buffer_tables._largest(size, np.array([0, 2, 3, 4])) == [0, 2, 4]
    assert buffer_tables._largest(size, np.array([3, 2])) == [2, 3]


def test_a_page_asks_and_answers_and_lists_what_was_found(monkeypatch):
    monkeypatch.setattr(windows, "MOST_VECTORS", 50)
    app = open_app(doc="example:gpt2", tab="All buffers", find=r"^add_1\d$", strategy="greedy_by_size")
    rows = app.dataframe[0].value
    assert sorted(rows["in graph"]) == [f"add_1{digit}" for digit in range(10)]
    app.session_state.choices["selected"] = "add_1"
    check(app.run())
    assert "add_1" in app.dataframe[0].value["in graph"].tolist()
