"""`--strategy imported`: the plan that a file carries."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from memplan_examples.make_snapshot import Allocator, stack, write_snapshot

from memplan_engine import known_strategies, load
from tests.support.tflite_models import small as tflite

# `a` and `c` of the list share the bytes 0 to 100; `b` lies 30 bytes above what it needs.
PLACED = "id,lower,upper,size,offset\na,0,3,100,0\nb,1,4,50,150\nc,5,6,120,0\n"


def planned(memplan, *arguments: object) -> dict[str, object]:
    code, out, err = memplan("plan", *arguments, "--strategy", "imported", "--json")
    assert (code, err) == (0, "")
    found: dict[str, object] = json.loads(out)
    return found


def test_the_offsets_of_a_list_are_shown_and_written_as_they_are(memplan):
    Path("placed.csv").write_text(PLACED)
    found = planned(memplan, "placed.csv", "-o", "kept.json")
    assert found["offsets"] == {"a": 0, "b": 150, "c": 0}
    assert (found["strategy"], found["arena_bytes"], found["lower_bound_bytes"]) == ("imported", 200, 150)
    assert (found["optimal"], found["parameters"]) == (False, {})
    # Ours is made anew, where nothing fixes the offsets of the file.
    assert load("kept.json").offsets.tolist() == [0, 150, 0]
    assert planned(memplan, "kept.json") == found
    code, out, _ = memplan("plan", "placed.csv", "--strategy", "imported")
    assert code == 0
    assert "imported" in out
    assert "200 B" in out


def test_beside_ours_all_are_of_the_buffers_in_the_file(memplan):
    Path("placed.csv").write_text(PLACED)
    code, out, _ = memplan("compare", "placed.csv", "--strategies", "naive,imported,auto", "--json")
    assert code == 0
    rows = json.loads(out)
    assert [(row["strategy"], row["arena_bytes"]) for row in rows] == [
        ("naive", 270),
        ("imported", 200),
        ("auto", 150),
    ]
    assert {row["lower_bound_bytes"] for row in rows} == {150}
    assert "imported" not in known_strategies()


def test_a_model_and_a_recording_show_their_own_offsets(memplan):
    Path("net.tflite").write_bytes(tflite([0, 1, 6, 96, -1, 0, 32, 0, -1]))
    assert planned(memplan, "net.tflite")["offsets"] == {"x": 96, "hidden#0.2": 0, "hidden#0.3": 32, "y": 0}
    allocator = Allocator()
    first = allocator.alloc(1000, stack(10))
    allocator.alloc(1 << 20, stack(20, "bmm"))
    allocator.free(first)
    allocator.alloc(600, stack(10))
    write_snapshot(Path("small.pickle"), allocator.snapshot())
    kept = planned(memplan, "small.pickle")
    a, b, c = kept["offsets"].values()  # type: ignore[attr-defined]
    assert (b - a, c - a) == (1024, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["net.tflite"], "net.tflite: found no plan, expected offsets for --strategy imported: without it, "),
        (["list.csv"], "list.csv: line 1: found no column offset, expected an offset for every buffer"),
        (["bad.csv"], "bad.csv: found "),
        (["placed.csv", "--alignment", "64"], "placed.csv: alignment: found 64, expected no alignment: the"),
        (["placed.csv", "--in-place"], "placed.csv: in place: found switched on, expected a graph: a fin"),
        (["placed.csv", "--seconds", "3"], "--seconds: found 3.0, expected a strategy that plans: "),
        (["placed.csv", "--capacity", "1KiB"], "--capacity: found 1KiB, expected a strategy that plans: "),
        (["placed.csv", "--bank", "a=1KiB"], "--bank: found "),
        (["placed.csv", "-o", "placed.csv"], "placed.csv: found the input file as the output"),
    ],
)
def test_what_has_no_plan_and_what_no_plan_takes_is_refused(memplan, arguments, message):
    Path("placed.csv").write_text(PLACED)
    Path("bad.csv").write_text(PLACED.replace("150", "99"))
    Path("net.tflite").write_bytes(tflite())
    code, out, err = memplan("plan", *arguments, "--strategy", "imported")
    assert (code, out) == (2, "")
    assert err.startswith(f"memplan: {message}")
    assert err.count("\n") == 1
    if arguments == ["bad.csv"]:
        assert "`memplan validate` lists what is wrong" in err
