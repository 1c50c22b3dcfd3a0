"""The pages on plans too large for the browser, and searching a great many names."""

import re
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memplan_dashboard.plan_view import windows
from memplan_dashboard.views.inspect import buffer_filter, buffer_tables

from memplan_engine import MemplanError, make_problem
from tests.support.apptest import check, open_app

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


@pytest.mark.quarantine
def test_a_hundred_thousand_names_take_a_moment():
    count = 100_000
    names = [f"layer{i % 97}.tensor_{i}" for i in range(count)]
    problem = make_problem([0] * count, [1] * count, [1] * count, names=names)
    began = time.thread_time()
    missed = buffer_filter.misses(problem, r"layer7\..*99$")
    assert time.thread_time() - began < 0.5
    assert [names[i] for i in np.flatnonzero(~missed)] == [n for n in names if re.search(r"layer7\..*99$", n)]
    assert buffer_filter.misses(problem, r"layer7\..*99$") is missed


def test_a_search_of_all_names_has_its_limit_too(monkeypatch):
    monkeypatch.setattr(buffer_filter, "MOST_SECONDS", 0.05)
    names = [f"{'a' * 40}{i}" for i in range(200)]
    with pytest.raises(MemplanError, match=r"takes longer than 0\.05"):
        buffer_filter.misses(make_problem([0] * 200, [1] * 200, [1] * 200, names=names), "^(a|aa)+$")


@pytest.mark.quarantine
def test_a_hundred_thousand_names_take_no_longer_than_the_limit_says():
    count = 100_000
    names = [f"{'a' * 60}!{i}" for i in range(count)]
    problem = make_problem([0] * count, [1] * count, [1] * count, names=names)
    began = time.process_time()
    with pytest.raises(MemplanError, match=r"takes longer than 1\.5 s"):
        buffer_filter.misses(problem, "(a+)+$")
    assert time.process_time() - began < 4


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
