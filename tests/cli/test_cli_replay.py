"""`memplan replay`: tables, one decision, columns as JSON, and its errors."""

from __future__ import annotations

import json

import pytest

from memplan_engine import load, make_replay, replay_summary
from tests import ROOT

FOLDER = ROOT / "example_graphs"
BEST_FIT = FOLDER / "teaching_best_fit.csv"


def test_the_table_has_a_row_a_decision(memplan):
    code, out, _ = memplan("replay", BEST_FIT)
    assert code == 0
    assert out.startswith("teaching_best_fit: greedy_by_size, 8 decisions, 12 B, gap 20.0 %")
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.startswith("│")
    ]
    assert [row[1] for row in rows] == list("bdhacfge")
    assert rows[5] == ["6", "f", "2 B", "6 B", "hole of 2 B at 6 B", "10 B"]
    assert rows[6] == ["7", "g", "2 B", "10 B", "top of stack", "12 B"]


def test_one_decision_in_detail(memplan):
    code, out, _ = memplan("replay", BEST_FIT, "--step", 6)
    assert code == 0
    step = make_replay(load(BEST_FIT), "greedy_by_size").steps[5]
    assert step.sentence in out
    assert "│ 0 B     │          3 B │ fits, but is not the tightest │" in out
    live = [line for line in out.splitlines() if line.startswith("▸")]
    assert live == [f"▸ {step.replay.code[step.line]}"]


def test_a_buffer_with_a_gap_is_said_to_have_pieces(memplan, tmp_path):
    path = tmp_path / "gapped.csv"
    path.write_text("id,lower,upper,size,gaps\na,0,4,64,\nb,0,9,32,2-5\n")
    assert "b, 32 B, live in steps 0–8, in 2 pieces" in memplan("replay", path, "--step", 2)[1]
    assert "a, 64 B, live in steps 0–3\n" in memplan("replay", path, "--step", 1)[1]


def test_other_families_have_their_tables(memplan):
    scan = memplan("replay", FOLDER / "teaching_linear_scan.csv", "--strategy", "linear_scan")[1]
    assert "behind everything" in scan
    shared = memplan("replay", BEST_FIT, "--strategy", "partition", "--step", 3)[1]
    assert "│ 1      │  3 B │ in use  │" in shared
    assert "joins object 0" in memplan("replay", BEST_FIT, "--strategy", "partition")[1]
    fixed = memplan("replay", FOLDER / "teaching_gaps.csv")[1]
    assert "fixed offset" in fixed
    tree = memplan("replay", BEST_FIT, "--strategy", "exact", "--step", 2)[1]
    assert "capacity  10 B" in tree
    nodes = memplan("replay", FOLDER / "teaching_no_way_out.csv", "--strategy", "exact")[1]
    assert "a column is too full" in nodes
    assert "more (--all shows them)" in nodes
    every = memplan("replay", FOLDER / "teaching_no_way_out.csv", "--strategy", "exact", "--all")[1]
    assert "│ solved" in every


def test_json_and_a_file_are_the_columns(memplan, tmp_path):
    expected = json.loads(json.dumps(replay_summary(make_replay(load(BEST_FIT), "greedy_by_area"))))
    code, out, _ = memplan("replay", BEST_FIT, "--strategy", "greedy_by_area", "--json", "-o", "all.json")
    assert code == 0
    assert json.loads(out) == expected == json.loads((tmp_path / "all.json").read_text())
    one = json.loads(memplan("replay", BEST_FIT, "--step", 6, "--json")[1])
    assert (one["buffer"], one["offset"], one["arena_after"]) == ("f", 6, 10)
    assert [hole["taken"] for hole in one["holes"]] == [False, True, False]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--strategy", "auto"), "auto cannot be replayed step by step; these can: exact, greedy_by_size"),
        (("--strategy", "nonsense"), "no strategy 'nonsense'"),
        (("--step", "0"), "--step: found 0, expected 1 to 8"),
        (("--step", "9"), "--step: found 9, expected 1 to 8"),
        (("-o", "all.csv"), "found the suffix '.csv', expected .json"),
        (("-o", "nowhere/all.json"), "a folder that does not exist"),
    ],
)
def test_errors_are_one_line(memplan, arguments, message):
    code, out, err = memplan("replay", BEST_FIT, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
