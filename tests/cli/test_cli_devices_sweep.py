"""`memplan devices --sweep`: a grid, what is kept of it, and one line for what cannot be done."""

from __future__ import annotations

import json
import os
import signal

import pytest

from memplan_engine.errors import InputError
from memplan_engine.runtime.ranks import sweep_runs
from tests.devices.test_rank_answers import runs
from tests.support.waiting import wait_until

GIB = 2**30
STATE = 100 * 2**20
"""What `runs` have beside: weights."""
GRID = """
script = "train.py"
world = 2
device = "rtx4090"
arguments = ["--tp", "{tp}", "--batch", "{batch}"]
[values]
tp = [1, 2]
batch = [1, 2, 4, 8]
"""


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """Batches of 4 GiB each on a rank, half with tp 2; its other rank, 2, holds a quarter of that more."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    asked = []

    def observe(script, arguments, **options):
        _, tp, _, batch = arguments
        asked.append((int(tp), int(batch)))
        if (tp, batch) == ("2", "1"):
            raise InputError("train.py", "", "a batch of one", "two")
        mebibytes = 4 * 1024 * int(batch) // int(tp)
        return runs(mebibytes, mebibytes * 5 // 4 if tp == "2" else mebibytes // 2)

    monkeypatch.setattr(sweep_runs, "observe_ranks", observe)
    return asked


def test_configurations_by_their_fullest_rank_each_recorded_once(memplan, tmp_path, recorded):
    (tmp_path / "grid.toml").write_text(GRID)
    code, out, _ = memplan("devices", "--sweep", "grid.toml", "-o", "out", "--json")
    said = json.loads(out)
    rows = {(row["values"]["tp"], row["values"]["batch"]): row for row in said["configurations"]}
    assert (code, said["complete"], len(recorded)) == (0, True, 8)
    assert said["against"] == {"tp": 1, "batch": 1}
    assert rows[1, 2]["reserved_bytes"] == 8 * GIB + STATE
    assert rows[1, 2]["saved_bytes"] == -4 * GIB
    assert rows[2, 2]["fullest_rank"] == 2
    assert rows[2, 2]["saved_bytes"] == -GIB
    assert (rows[1, 4]["verdict"], rows[1, 8]["verdict"]) == ("fits", "does not fit")
    assert rows[2, 1]["verdict"] == "failed"
    assert "a batch of one" in rows[2, 1]["error"]
    reserved = [row["reserved_bytes"] for row in said["configurations"][:-1]]
    assert reserved == sorted(reserved)
    assert said["configurations"][-1] == rows[2, 1]
    memplan("devices", "--sweep", "grid.toml", "-o", "out")
    assert recorded[8:] == [(2, 1)]
    code, out, _ = memplan("devices", "out", "--device", "h200", "--json")
    again = json.loads(out)["configurations"]
    assert {row["device"] for row in again} == {"h200"}
    assert [row["verdict"] for row in again] == ["fits"] * 7 + ["failed"]


def test_only_as_many_run_as_show_the_largest_that_fits(memplan, tmp_path, recorded, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "grid.toml").write_text(GRID.replace("[values]", 'largest = "batch"\n[values]'))
    code, out, _ = memplan("devices", "--sweep", "grid.toml", "-o", "out", "--json")
    said = json.loads(out)
    assert code == 0
    assert said["largest"] == [
        {"values": {"tp": 1}, "name": "batch", "largest": 4},
        {"values": {"tp": 2}, "name": "batch", "largest": 8},
    ]
    assert sorted(recorded) == [(1, 4), (1, 8), (2, 4), (2, 8)]
    out = memplan("devices", "--sweep", "grid.toml", "-o", "out")[1]
    assert "largest batch that fits" in out
    assert "rank 2 leads, was rank 0" in out


def test_ctrl_c_keeps_what_is_finished(memplan, tmp_path, recorded, monkeypatch):
    (tmp_path / "grid.toml").write_text(GRID)
    observe = sweep_runs.observe_ranks

    def interrupted(script, arguments, *, stop, **options):
        if len(recorded) == 2:
            os.kill(os.getpid(), signal.SIGINT)
            wait_until(stop)
            raise InputError("train.py", "", "an end", "none")
        return observe(script, arguments, **options)

    monkeypatch.setattr(sweep_runs, "observe_ranks", interrupted)
    code, out, _ = memplan("devices", "--sweep", "grid.toml", "-o", "out", "--json")
    said = json.loads(out)
    assert (code, said["complete"], len(said["configurations"])) == (0, False, 2)
    kept = json.loads((tmp_path / "out" / "sweep.json").read_text())
    assert len(kept["configurations"]) == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--sweep", "grid.toml"), "--output: found none"),
        (("--sweep", "none.toml", "-o", "out"), "none.toml"),
        (("--sweep", "grid.toml", "-o", "none/out"), "a folder that does not exist"),
        (("--sweep", "grid.toml", "train.py", "-o", "out"), "a grid alone"),
        (("--sweep", "grid.toml", "-o", "train.py"), "train.py"),
        (("--sweep", "grid.toml", "--device", "h900", "-o", "out"), "'h900'"),
        (("train.py", "--world", "2", "--jobs", "2"), "--jobs"),
        ((), "SCRIPT: found none"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(memplan, tmp_path, recorded, arguments, says):
    (tmp_path / "grid.toml").write_text(GRID)
    code, out, err = memplan("devices", *arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1
    assert recorded == []
    assert not (tmp_path / "out").exists()


def test_nothing_but_failures_is_an_error(memplan, tmp_path, recorded):
    (tmp_path / "grid.toml").write_text(GRID.replace("[1, 2]", "[2]").replace("[1, 2, 4, 8]", "[1]"))
    code, out, err = memplan("devices", "--sweep", "grid.toml", "-o", "out")
    assert (code, out) == (2, "")
    assert "a batch of one" in err
