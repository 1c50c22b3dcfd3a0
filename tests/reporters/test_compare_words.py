"""Strategies side by side in sentences: who wins, by how much, proved or not, and what is the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memplan_engine import Op, Plan, adopt, compare, make_problem
from memplan_engine.graph import Workspace
from memplan_engine.reporters.compare_words import comparison_words
from tests.support.graphs import make_graph

#   a (10) 0–2, b (20) 1–3, c (5) 2–4: 30 bytes at step 1; 35 without reuse.
PROBLEM = make_problem([0, 1, 2], [2, 3, 4], [10, 20, 5], names=["a", "b", "c"])


def plan(name: str, *offsets: int, seconds: float = 0.001) -> Plan:
    return replace(adopt(PROBLEM, np.array(offsets), name), seconds=seconds)


TIGHT, LOOSE, NAIVE = plan("tight", 0, 10, 0), plan("loose", 0, 12, 0), plan("naive", 0, 10, 30)
SAVED = "reuse saves {} (35 B without reuse)"


def test_one_winner_with_its_margin():
    assert comparison_words([LOOSE, NAIVE, TIGHT]) == (
        "smallest arena 30 B, by tight; proved, no arena can be smaller",
        "next: loose +2 B (+6.7 %); last: naive +5 B (+16.7 %)",
        SAVED.format("14.3 %"),
    )


def test_without_a_proof_the_distance_to_the_bound_is_said():
    assert comparison_words([LOOSE, NAIVE]) == (
        "smallest arena 32 B, by loose; not proved: 6.7 % over the lower bound of 30 B",
        "next: naive +3 B (+9.4 %)",
        SAVED.format("8.6 %"),
    )


@pytest.mark.parametrize(("seconds", "is_said"), [(0.02, True), (0.019, False)])
def test_ties_name_the_fastest_where_it_is_so_each_time(seconds, is_said):
    slow, quick = replace(TIGHT, seconds=seconds), replace(TIGHT, strategy="quick", seconds=0.01)
    words = comparison_words([slow, quick, LOOSE])
    assert words[0] == "smallest arena 30 B, by tight and quick; proved, no arena can be smaller"
    assert words[1] == ("fastest of these: quick, 10.00 ms" if is_said else "next: loose +2 B (+6.7 %)")
    # Of a millisecond a busy machine makes what it likes.
    assert "fastest" not in " ".join(comparison_words([TIGHT, replace(quick, seconds=0.0001)]))


def test_ties_are_named_or_counted():
    quick = replace(TIGHT, strategy="quick")
    assert comparison_words([TIGHT, quick])[0].startswith("all 2 strategies need the same, 30 B; proved")
    several = [replace(TIGHT, strategy=f"s{n}") for n in range(4)]
    assert comparison_words([*several, LOOSE])[0].startswith("smallest arena 30 B, by 4 of 5 strategies; ")


def test_one_plan_wins_nothing():
    assert comparison_words([LOOSE]) == (
        "arena 32 B, by loose; not proved: 6.7 % over the lower bound of 30 B",
        SAVED.format("8.6 %"),
    )


def test_what_ops_hold_is_said_once():
    held = Op("a", "mul", ("x",), ("a",), workspace=Workspace(shared=7))
    graph = make_graph([held, Op("b", "add", ("a",), ("b",))], {"x": 1, "a": 10, "b": 20}, inputs=("x",))
    assert comparison_words(compare(graph, ["auto", "naive"]))[-1] == "7 B of workspaces outside the arena"
