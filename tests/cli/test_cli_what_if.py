"""`memplan what-if`: edits as options and files, before and after, capacities, what is written, bad input."""

from __future__ import annotations

import json

import pytest

from memplan_engine import Drop, Resize, Split, load
from memplan_engine.formats.memplan_json.edits_format import load_edits


def table(out):
    """The cells of every row of every table."""
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line[:1] == "│"]


def test_the_changed_plan_beside_the_original(memplan):
    code, out, err = memplan("what-if", "list.csv", "--resize", "b=20", "--drop", "a")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[:3] == [
        "1. resize b to 20 B", "2. drop a", "list: 3 buffers before, 2 after; auto",
    ]  # fmt: skip
    assert table(out) == [
        ["arena", "170 B", "140 B", "−30 B"],
        ["demand", "170 B", "140 B", "−30 B"],
        ["packing loss", "0 B", "0 B", "none"],
        ["lower bound", "170 B", "140 B", "−30 B"],
    ]
    assert lines[-2:] == [
        "optimal for the buffers listed: the arena equals the live bytes at step 3 (2 buffers)",
        "counted: the buffers listed",
    ]  # fmt: skip


def test_every_option_in_its_order_and_sizes_as_people_write_them(memplan, tmp_path):
    code, _, err = memplan(
        "what-if", "list.csv", "--drop", "c", "--split", "a=2", "--resize", "a#1=1KiB", "--pin", "b=2KiB",
        "--align", "a#2=64", "--lifetime", "a#2=1:2", "-o", "plan.json", "--save-edits", "edits.json",
    )  # fmt: skip
    assert (code, err) == (0, "")
    problem = load(tmp_path / "plan.json").problem
    assert problem.names == ("a#1", "a#2", "b")
    assert problem.size.tolist() == [1024, 50, 50]
    assert (problem.start.tolist(), problem.end.tolist()) == ([0, 1, 1], [3, 2, 4])
    assert (problem.alignment.tolist(), problem.fixed.tolist()) == ([1, 64, 1], [-1, -1, 2048])
    assert load_edits(tmp_path / "edits.json")[0] == Split("a", 2)
    assert load(tmp_path / "plan.json").arena_bytes == 2098
    again = memplan("what-if", "list.csv", "--edits", "edits.json", "--pin", "b=free", "--json")
    assert json.loads(again[1])["changed"]["arena"] == 1124


@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_what_is_written_is_valid(memplan, suffix):
    assert memplan("what-if", "list.csv", "--split", "c=3", "-o", f"out.{suffix}")[0] == 0
    assert memplan("validate", f"out.{suffix}")[0] == 0


def test_a_capacity_that_is_too_small_and_what_would_make_it_fit(memplan):
    code, out, err = memplan("what-if", "list.csv", "--capacity", "160")
    assert (code, err) == (1, "")
    assert (
        "the arena does not fit in 160 B, proved (peak live bytes); packing alone reaches 170 B, "
        "the minimum" in out
    )
    assert (
        "whatever the packing, live bytes must fall by 10 B at step 3; too much is live at step 3; "
        "2 buffers could make room alone"
    ) in out
    assert ["c", "120 B", "1", "100.0 %"] in table(out)
    changes = table(out)[-3:]
    assert changes == [
        ["shrink c by 10 B, to 110 B", "10 B", "160 B", "proved: no smaller shrink of one buffer is enough"],
        ["drop b, 50 B", "50 B", "120 B", "proved: no smaller buffer is enough"],
        ["end b, 50 B, after step 2 instead of 3", "50 B", "150 B",
         "proved: no smaller buffer is enough; later readers must recompute it"],
    ]  # fmt: skip


def test_the_smallest_change_makes_it_fit_and_one_byte_less_does_not(memplan):
    assert memplan("what-if", "list.csv", "--capacity", "160", "--resize", "c=110")[0] == 0
    assert memplan("what-if", "list.csv", "--capacity", "160", "--resize", "c=111")[0] == 1
    assert memplan("what-if", "list.csv", "--capacity", "160", "--lifetime", "b=1:3")[0] == 0
    assert "the arena fits in 170 B, 0 B to spare" in memplan("what-if", "list.csv", "--capacity", "170")[1]


def test_json_has_exact_bytes(memplan):
    code, out, _ = memplan("what-if", "list.csv", "--drop", "b", "--capacity", "119", "--json")
    assert code == 1
    found = json.loads(out)
    assert found["edits"] == [{"kind": "drop", "buffer": "b"}]
    beside = {"workspace": 0, "scope": "buffers"}
    assert found["original"] == {
        "arena": 170, "demand": 170, "loss": 0, "bound": 170, "buffers": 3, "total": 170, **beside,
    }  # fmt: skip
    assert found["changed"] == {
        "arena": 120, "demand": 120, "loss": 0, "bound": 120, "buffers": 2, "total": 120, **beside,
    }  # fmt: skip
    assert set(found["plan"]["offsets"]) == {"a", "c"}
    fit = found["fit"]
    assert (fit["verdict"], fit["capacity_bytes"], fit["complete"]) == ("does not fit", 119, True)
    assert fit["shortage"]["stretches"] == [{"start": 3, "end": 5, "nbytes": 120}]
    assert fit["shortage"]["members"] == [{"name": "c", "bytes": 120, "steps": 2}]
    assert fit["suggestions"][0] == {
        "kind": "shrink", "edits": [{"kind": "resize", "buffer": "c", "nbytes": 119}],
        "bytes_changed": 1, "arena_bytes": 119, "proved": True, "exact": True, "heuristic": False,
    }  # fmt: skip
    assert json.loads(memplan("what-if", "list.csv", "--json")[1])["fit"] is None


def test_edits_of_a_file_come_first(memplan, tmp_path):
    (tmp_path / "e.json").write_text(
        '{"format": "memplan/edits", "version": 1, "edits": [{"kind": "split", "buffer": "b", "parts": 2}]}'
    )
    code, out, _ = memplan(
        "what-if", "list.csv", "--edits", "e.json", "--drop", "b#1", "--save-edits", "f.json"
    )
    assert (code, out.splitlines()[:2]) == (0, ["1. split b into 2", "2. drop b#1"])
    assert load_edits(tmp_path / "f.json") == (Split("b", 2), Drop("b#1"))


def test_names_may_have_equals_signs(memplan, tmp_path):
    (tmp_path / "odd.csv").write_text("id,lower,upper,size\nx=1,0,2,8\ny,0,2,8\n")
    code, _, _ = memplan("what-if", "odd.csv", "--resize", "x=1=4", "--save-edits", "e.json")
    assert (code, load_edits(tmp_path / "e.json")) == (0, (Resize("x=1", 4),))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--drop", "nobody"], "list.csv: edit 1 (drop 'nobody'), field buffer: no such buffer"),
        (["--resize", "b"], "--resize: found 'b', expected NAME=SIZE"),
        (["--resize", "=4"], "--resize: found '=4', expected NAME=SIZE"),
        (["--resize", "b=4XB"], "--resize b: found '4XB'"),
        (["--pin", "b=here"], "--pin b: found 'here'"),
        (["--split", "b=x"], "--split b: found 'x', expected a whole number"),
        (["--lifetime", "b=2"], "--lifetime b: found '2', expected START:END in steps"),
        (["--lifetime", "b=0:9"], "field start: found 0:9, expected steps within the lifetime 1:4"),
        (["--capacity", "much"], "--capacity: found 'much'"),
        (["--edits", "none.json"], "none.json"),
        (["-o", "x.txt"], "x.txt: found the suffix '.txt'"),
        (["-o", "list.csv"], "the input file as the output"),
        (["--pin", "a=0", "--pin", "b=50"], "fixed offsets collide: a and b overlap"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(memplan, options, told):
    code, out, err = memplan("what-if", "list.csv", *options)
    assert (code, out) == (2, "")
    assert told in err
    assert err.count("\n") == 1


def test_the_former_name_of_the_capacity_still_works_and_says_what_it_is_called_now(memplan):
    code, out, err = memplan("what-if", "list.csv", "--budget", "160")
    assert (code, err.count("--capacity")) == (1, 1)
    assert (code, out) == memplan("what-if", "list.csv", "--capacity", "160")[:2]
    assert "--budget" not in memplan("what-if", "--help")[1]
