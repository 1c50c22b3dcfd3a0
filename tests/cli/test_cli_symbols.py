"""The verbs about symbolic sizes."""

from __future__ import annotations

import json

import pytest

from memplan_engine import Symbol
from memplan_engine.files import write
from tests.support.symbolic_graphs import N, chain


@pytest.fixture
def graph(memplan, tmp_path):
    """a, b and c of 64 n, 128 n and 64 n bytes, one after the other; n from 1 to 64, at 4."""
    write(chain(["64*n", "128*n", "64*n"], (N,)), tmp_path / "g.json")
    write(chain(["64*(n - 3)", "64*n"], (Symbol("n", 1, 8, 4),)), tmp_path / "holes.json")
    return "g.json"


def told(memplan, *arguments):
    code, out, err = memplan(*arguments, "--json")
    assert err == ""
    return code, json.loads(out)


def test_symbols_show_the_peak_as_a_formula_and_the_schema(memplan, graph):
    code, found = told(memplan, "symbols", graph)
    assert code == 0
    assert found["symbols"] == [{"name": "n", "low": 1, "high": 64, "hint": 4}]
    assert (found["peak"], found["memory_size"]) == ("192*n", "192*n")
    assert found["partitions"] == ["128*n", "64*n"]
    assert (found["peak_bytes"], found["memory_bytes"], found["usage"]) == (768, 768, 1.0)
    out = memplan("symbols", graph, "--table", "--names", "--symbol", "n=2")[1]
    assert "step:     1 => |   b   |   a   |" in out
    assert "memory_size: 192*n" in out
    assert "peak: 192*n bytes, 384 B here" in out


def test_a_range_that_fails_is_exit_1_and_names_the_first_value(memplan, graph):
    code, found = told(memplan, "range", graph)
    assert code == 1
    assert found["failure"]["values"] == {"n": 5}
    assert found["limits"] == {"n": 5}
    code, found = told(memplan, "range", graph, "--symbol", "n=64")
    assert (code, found["valid"], found["proof"]) == (0, True, "proved")
    out = memplan("range", graph, "--strategy", "partition")[1]
    assert "fails at n=5" in out
    assert "the partitions hold for every value" in out


def test_buckets_and_what_they_waste(memplan, graph):
    code, found = told(memplan, "buckets", graph, "n", "4,64")
    assert code == 0
    rows = [(b["low"], b["high"], b["arena_bytes"], b["worst_waste_bytes"]) for b in found["buckets"]]
    assert rows == [(1, 4, 768, 576), (5, 64, 12288, 12288 - 960)]
    assert (found["arena_bytes"], found["separate_bytes"]) == (12288, 13056)


def test_a_sweep_over_given_values_and_over_the_range(memplan, graph):
    code, found = told(memplan, "sweep", graph, "n", "--values", "1,4,64")
    assert code == 0
    assert found["bound"] == found["arena"] == found["partition"] == [192, 768, 12288]
    out = memplan("sweep", graph, "n", "--points", "4")[1]
    assert "4 ← hint" in out


def test_values_without_sizes_are_said_to_be_left_out(memplan, graph):
    out = memplan("sweep", "holes.json", "n", "--values", "1,2,3,4")[1]
    assert "skipped, because a size is negative or fractional there: 1, 2" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["symbols", "list.csv"], "list.csv: found buffers, expected a graph with symbols"),
        (["sweep", "g.json", "m"], "g.json: symbol 'm': found an unknown symbol, expected one of n"),
        (["sweep", "g.json", "n", "--values", "1,x"], "--values: found 'x', expected whole numbers"),
        (["sweep", "g.json", "n", "--values", "65"], "g.json: symbol 'n': found 65, expected 1 to 64"),
        (
            ["buckets", "g.json", "n", "4,4"],
            "g.json: buckets of 'n': found 4 twice, expected each value once",
        ),
        (["plan", "g.json", "--symbol", "n=65"], "g.json: symbol 'n': found 65, expected 1 to 64"),
        (["plan", "g.json", "--symbol", "n=1", "--symbol", "n=2"], "--symbol: found n twice, expected one"),
        (["range", "g.json", "--in-place"], "No such option: --in-place"),
    ],
)
def test_what_makes_no_sense_is_one_line(memplan, graph, arguments, message):
    code, out, err = memplan(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"memplan: {message}")
    assert err.count("\n") == 1
