"""The verbs and options that a graph gives sense to."""

from __future__ import annotations

import json

import pytest

from memplan_engine import Op
from memplan_engine.files import write
from tests import ROOT
from tests.analysis.test_layout import NET
from tests.support.graphs import make_graph
from tests.test_schedule import DIAMOND


@pytest.fixture
def files(memplan, tmp_path):
    write(DIAMOND, tmp_path / "diamond.json")
    write(NET, tmp_path / "net.json")
    head = {"format": "memplan/schedule", "version": 1}
    (tmp_path / "good.json").write_text(json.dumps(head | {"streams": [["a", "c", "d", "e"], ["b", "f"]]}))
    (tmp_path / "cycle.json").write_text(json.dumps(head | {"streams": [["a", "e", "c"], ["b", "f", "d"]]}))
    return tmp_path


def bound(memplan, *arguments) -> int:
    code, out, err = memplan("plan", "diamond.json", "--alignment", 1, "--json", *arguments)
    assert (code, err) == (0, "")
    return json.loads(out)["lower_bound_bytes"]


def test_streams_and_schedules_change_who_is_live_together(memplan, files):
    assert bound(memplan) == 160
    assert bound(memplan, "--streams", 3) == 220
    # a b | c | d f | e: at step 2 B, C, D and F.
    assert bound(memplan, "--schedule", "good.json") == 20 + 30 + 40 + 60


def test_sizes_are_rounded_when_asked_for(memplan, files):
    code, out, _ = memplan("plan", "diamond.json", "--round-sizes", "--json")
    # Step 5: B, C, E and F, 64 bytes each.
    assert (code, json.loads(out)["lower_bound_bytes"]) == (0, 4 * 64)


def test_values_without_readers_are_freed_or_held(memplan, tmp_path):
    ops = [Op("f", "f", ("x",), ("a",)), Op("g", "g", ("x",), ("b",)), Op("h", "h", ("b",), ("c",))]
    net = make_graph(ops, {"x": 1, "a": 10, "b": 20, "c": 30}, inputs=("x",), outputs=("c",))
    write(net, tmp_path / "diamond.json")
    assert bound(memplan) == 50
    assert bound(memplan, "--unread", "freed") == 50
    assert bound(memplan, "--unread", "held") == 60


def test_the_layout_as_tables_and_for_machines(memplan, files):
    code, out, _ = memplan("layout", "net.json")
    assert code == 0
    assert "741 B total" in out
    assert "│ unique workspaces │   384 │" in out
    assert "on the device at most 688 B at one step, of which" in out
    assert out.index("weights and state") < out.index("arena") < out.index("unique") < out.index("shared")
    code, out, _ = memplan("layout", "net.json", "--json")
    told = json.loads(out)
    assert told["bytes"] == 741
    # At conv2: 300 B shared and 57 B unique, b and c of 64 B each, and what the caller brings.
    assert told["on_device"] == {"temporaries": 357, "weights": 193, "activations": 128, "inputs": 10}
    assert [(r["kind"], r["start"], r["bytes"]) for r in told["regions"]][2:] == [
        ("unique workspaces", 384, 57),
        ("shared workspace", 441, 300),
    ]
    assert told["regions"][0]["entries"][1] == {"name": "w2", "offset": 128, "bytes": 128}


def test_a_plan_tells_of_workspaces(memplan, files):
    told = memplan("plan", "net.json")[1]
    assert "workspace              57 B unique, 300 B shared, outside the arena" in told
    assert "total                  485 B, arena and workspace" in told
    assert "workspace" not in memplan("plan", "diamond.json")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["diamond.json", "--streams", "0"], "diamond.json: streams: found 0, expected 1 or more"),
        (
            ["diamond.json", "--schedule", "cycle.json"],
            "cycle.json: streams: found streams that wait for each",
        ),
        (
            ["diamond.json", "--schedule", "good.json", "--streams", "2"],
            "good.json: found a schedule and 2 streams, expected one of them",
        ),
        (["diamond.json", "--schedule", "none.json"], "none.json: no such file, expected the path of a file"),
        (
            ["net.json", "--schedule", "good.json"],
            "good.json: op 'a': no such op, expected an op of net",
        ),
        (["list.csv", "--streams", "2"], "list.csv: streams: found 2, expected a graph: buffers have no ops"),
        (["list.csv", "--round-sizes"], "list.csv: round sizes: found switched on, expected a graph"),
        (["list.csv", "--unread", "held"], "list.csv: unread: found held, expected a graph"),
    ],
)
def test_what_a_graph_cannot_do_is_one_line(memplan, files, arguments, message):
    code, out, err = memplan("plan", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"memplan: {message}")
    assert err.count("\n") == 1


def test_values_with_the_reasons_of_those_that_cannot_be_planned(memplan, files):
    code, out, _ = memplan("values", "net.json")
    assert code == 0
    assert out.splitlines()[0].strip() == "net: 3 of 7 values can be planned, 192 B"
    assert "│ it belongs to the caller " in out
    assert "│ d           │ the graph returns it │ 10 B │" in out
    assert "│ w1 " not in out
    assert "│ w1 " in memplan("values", "net.json", "--all")[1]
    told = json.loads(memplan("values", "net.json", "--json")[1])
    assert (told["managed"], told["managed_bytes"]) == (3, 192)
    assert {"reason": "constant", "storages": 2, "bytes": 193} in told["outside"]
    assert told["values"][-1]["reason"] == "graph_output"


#  relu may write over a, and b and c may be made inside d.
REUSE = make_graph(
    [
        Op("conv", "conv", ("x",), ("a",)),
        Op("relu", "Relu", ("a",), ("b",)),
        Op("conv2", "conv", ("x",), ("c",)),
        Op("cat", "Concat", ("b", "c"), ("d",)),
    ],
    {"x": 1, "a": 64, "b": 64, "c": 64, "d": 128},
    inputs=("x",),
    outputs=("d",),
)


def test_reuse_says_what_each_way_saves(memplan, tmp_path):
    write(REUSE, tmp_path / "net.json")
    code, out, _ = memplan("reuse", "net.json", "--json")
    assert code == 0
    ways = {row["way"]: row["arena_bytes"] for row in json.loads(out)["ways"]}
    #  As it is cat has b, c and d, also when relu works in place. In one piece b and c lie in d, and as long
    #  as c is not made a can lie where it will be.
    assert ways == {"baseline": 256, "in place": 256, "concat": 128, "both": 128}
    assert [(row["op"], row["way"]) for row in json.loads(out)["rewritten"]] == [
        ("relu", "in place"), ("cat", "concat"), ("cat", "concat"),
    ]  # fmt: skip
    out = memplan("reuse", "net.json")[1]
    assert "│ both     │ 128 B │ 50.0 % │       128 B │ 128 B │   2 │" in out
    planned = [
        json.loads(memplan("plan", "net.json", "--json", *options)[1])["arena_bytes"]
        for options in ([], ["--in-place"], ["--concat"], ["--in-place", "--concat"])
    ]
    assert planned == list(ways.values())


def test_a_list_of_buffers_has_no_graph_to_ask(memplan):
    for verb in ("values", "reuse"):
        message = "memplan: list.csv: found buffers without a graph, expected a graph\n"
        assert memplan(verb, "list.csv") == (2, "", message)


def test_sizes_that_depend_on_the_data_are_left_out_and_said(memplan, tmp_path):
    graph = {
        "format": "memplan/graph",
        "version": 1,
        "inputs": ["x"],
        "outputs": ["b"],
        "symbols": [{"name": "u0", "low": 0}],
        "tensors": [{"name": "x", "nbytes": 8}, {"name": "a", "nbytes": 0}, {"name": "b", "nbytes": 16}],
        "storages": [
            {"name": "x", "nbytes": 8},
            {"name": "a", "nbytes": 0, "formula": "8*u0"},
            {"name": "b", "nbytes": 16},
        ],
        "ops": [
            {"name": "nonzero", "inputs": ["x"], "outputs": ["a"]},
            {"name": "sum", "inputs": ["a"], "outputs": ["b"]},
        ],
    }
    (tmp_path / "g.json").write_text(json.dumps(graph))
    code, out, _ = memplan("plan", "g.json")
    assert code == 0
    assert (
        "not planned            1 storage whose size depends on the data: u0 has no value; set one "
        "(--symbol u0=…), or plan a recorded run (memplan observe)"
    ) in out
    assert "optimal for the graph's storages of known size: the arena equals" in out
    assert out.rstrip().endswith("1 storage of unknown size is not counted")
    compared = memplan("compare", "g.json")[1]
    assert "arena optimal for known sizes" in compared
    assert "not planned: 1 storage whose size depends on the data" in compared
    told = json.loads(memplan("plan", "g.json", "--json", "--symbol", "u0=100")[1])
    assert (told["arena_bytes"], told["unknown_sizes"]) == (64 * 13 + 16, [])
    assert json.loads(memplan("plan", "g.json", "--json")[1])["unknown_sizes"] == ["a"]


def test_the_best_order_is_a_planning_option(memplan):
    example = ROOT / "example_graphs" / "teaching_order.json"
    planned = [
        json.loads(memplan("plan", example, "--json", *options)[1])["arena_bytes"]
        for options in ([], ["--reorder"], ["--reorder", "--in-place"])
    ]
    assert planned == [26_624, 16_384, 16_384]
    code, _, told = memplan("plan", example, "--reorder", "--streams", "2")
    assert code == 2
    assert "found 2 streams, expected neither: the order of the ops is looked for" in told
