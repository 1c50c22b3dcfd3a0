"""Grids, configurations side by side, and their folder. Worked by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from memplan_engine import InputError
from memplan_engine.devices.grid import read_grid
from memplan_engine.devices.sweep_answers import (
    answer_of,
    bisecting,
    by_fullest,
    change_of,
    largest_fitting,
)
from memplan_engine.formats.memplan_json.ranks_folder import write_ranks
from memplan_engine.formats.memplan_json.sweep_folder import is_sweep, load_sweep, recorded, write_sweep
from memplan_engine.recordings.configuration import Configuration
from tests.devices.test_rank_answers import runs

GRID = """
script = "train.py"
world = 8
arguments = ["--tp", "{tp}", "--mode={mode}", "--batch", "{batch}"]
constraints = ["tp * 2 <= world", "mode == 'full' or batch < 4"]
largest = "batch"
[values]
tp = [1, 4, 8]
mode = ["none", "full"]
batch = [2, 4]
"""


def grid_of(folder: Path, text: str):
    (folder / "grid.toml").write_text(text)
    return read_grid(folder / "grid.toml")


def test_a_grid_is_all_choices_that_meet_the_constraints(tmp_path):
    grid = grid_of(tmp_path, GRID)
    assert grid.script == tmp_path / "train.py"
    assert [each.name for each in grid.configurations] == [
        "tp=1, mode=none, batch=2",
        "tp=1, mode=full, batch=2",
        "tp=1, mode=full, batch=4",
        "tp=4, mode=none, batch=2",
        "tp=4, mode=full, batch=2",
        "tp=4, mode=full, batch=4",
    ]
    last = grid.configurations[-1]
    assert last.arguments == ("--tp", "4", "--mode=full", "--batch", "4")
    assert (last.world_size, last.device, last.runs) == (8, "h100-80", ())


def test_worlds_and_devices_may_be_values(tmp_path):
    text = 'script = "a.py"\nworld = [2, 4]\n[values]\ndevice = ["h200"]\ntp = [1, 4]\n'
    found = grid_of(tmp_path, text).configurations
    assert [(each.world_size, each.device, each.name) for each in found] == [
        (2, "h200", "world=2, device=h200, tp=1"),
        (2, "h200", "world=2, device=h200, tp=4"),
        (4, "h200", "world=4, device=h200, tp=1"),
        (4, "h200", "world=4, device=h200, tp=4"),
    ]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (('"train.py"', "3"), "script: found 3"),
        (("world = 8", ""), "world: found"),
        (("world = 8", "world = 0"), "world: found 0"),
        (("world = 8", 'world = 8\ndevice = "h9"'), "found 'h9'"),
        (("world = 8", "world = 8\nwidth = 8"), "width: found an unknown key"),
        (("{tp}", "{pp}"), "arguments: found {pp}"),
        (("tp * 2", "pp * 2"), "constraints: found 'pp'"),
        (("tp * 2", "().__class__"), "constraints: found"),
        (("tp * 2", "tp *"), "constraints: found"),
        (("tp * 2", "mode * 2"), "constraints: found"),
        (("tp * 2", "tp // 0"), "constraints: found"),
        (("<= world", "> 99"), "no configuration that meets all"),
        (('largest = "batch"', 'largest = "mode"'), "largest: found 'mode'"),
        (("[2, 4]", "[]"), "batch: found []"),
        (("[2, 4]", "[[2]]"), "batch: found [[2]]"),
        (("[2, 4]", f"{list(range(1000))}"), "6,000 configurations"),
        (("[values]", "[values"), "grid.toml"),
    ],
)
def test_what_is_no_grid_is_said_with_its_key(tmp_path, change, says):
    with pytest.raises(InputError) as raised:
        grid_of(tmp_path, GRID.replace(*change))
    assert says in str(raised.value)


def configuration(**values) -> Configuration:
    sizes = values.pop("sizes")
    return Configuration(values, (), 4, "h100-80", tuple(runs(*sizes)))


def test_less_on_other_ranks_is_no_saving_and_the_new_leader_is_named():
    before = answer_of(configuration(sizes=(20, 300))).answers
    after = answer_of(configuration(sizes=(280, 40))).answers
    assert before is not None
    assert after is not None
    change = change_of(before, after)
    # 260 MiB less on one rank; the maximum goes from 300 to 280.
    assert change.saved_bytes == 20 << 20
    assert (change.before.run.rank, change.after.run.rank) == (2, 0)
    assert change_of(after, before).saved_bytes == -(20 << 20)


def test_side_by_side_and_the_largest_that_fits():
    sizes = {1: 100, 2: 70_000, 4: 90_000}
    some = [
        answer_of(Configuration({"tp": tp, "batch": batch}, (), 4, "h100-80", tuple(runs(size // tp))))
        for tp in (1, 2)
        for batch, size in sizes.items()
    ]
    failed = answer_of(Configuration({"tp": 3, "batch": 1}, (), 4, "h100-80", error="no such mesh"))
    assert [each.configuration.name for each in by_fullest([failed, *some])] == [
        "tp=2, batch=1",
        "tp=1, batch=1",
        "tp=2, batch=2",
        "tp=2, batch=4",
        "tp=1, batch=2",
        "tp=1, batch=4",
        "tp=3, batch=1",
    ]
    assert largest_fitting([failed, *some], "batch") == [({"tp": 3}, None), ({"tp": 1}, 2), ({"tp": 2}, 4)]


def test_a_value_with_which_nothing_is_trained_is_not_the_largest_that_fits():
    """A batch that is larger than the data."""

    def with_steps(batch, steps):
        made = tuple(
            replace(
                run, observation=replace(run.observation, flow=replace(run.observation.flow, steps=steps))
            )
            for run in runs(20)
        )
        return answer_of(Configuration({"batch": batch}, (), 2, "h200", made))

    several = [with_steps(1, 3), with_steps(2, 3), with_steps(99, 0)]
    assert largest_fitting(several, "batch") == [({}, 2)]
    assert largest_fitting(several[2:], "batch") == [({}, 99)]


@pytest.mark.parametrize("largest", range(18))
def test_bisection_asks_few_and_always_both_sides_of_the_limit(largest):
    asked = {}

    def fits(one):
        value = one.values["batch"]
        asked[value] = value <= largest
        return asked[value]

    several = [Configuration({"batch": value}, (), 2, "h200") for value in range(16, 0, -1)]
    for given in bisecting(several, "batch", fits):
        assert given.values["batch"] not in asked
    assert len(asked) <= 5
    fitting = [value for value, fit in asked.items() if fit]
    assert max(fitting, default=0) == min(largest, 16)
    assert largest >= 16 or largest + 1 in asked


def test_a_folder_of_configurations_comes_back(tmp_path):
    first = configuration(sizes=(20, 30), tp=1)
    failed = Configuration({"tp": 2}, ("--tp", "2"), 4, "h200", error="why")
    write_ranks(first.runs, tmp_path / "ab12")
    write_sweep(tmp_path, "train.py", [("ab12", first), ("cd34", failed)])
    assert is_sweep(tmp_path)
    assert not is_sweep(tmp_path / "ab12")
    one, two = load_sweep(tmp_path)
    assert [run.rank for run in one.runs] == [0, 2]
    assert (two.values, two.arguments, two.world_size, two.device, two.error, two.runs) == (
        *({"tp": 2}, ("--tp", "2"), 4, "h200", "why", ()),
    )
    assert recorded(tmp_path, "cd34") is None
    again = recorded(tmp_path, "ab12")
    assert again is not None
    assert len(again) == 2


@pytest.mark.parametrize("name", ["../ab12", "", "."])
def test_a_folder_names_only_folders_in_it(tmp_path, name):
    first = configuration(sizes=(20,))
    write_sweep(tmp_path, "train.py", [(name, first)])
    with pytest.raises(InputError, match="the name of a folder in this one"):
        load_sweep(tmp_path)


@pytest.mark.parametrize("change", [{"version": 9}, {"configurations": []}, {"configurations": [{}]}])
def test_another_index_is_refused(tmp_path, change):
    write_sweep(tmp_path, "train.py", [])
    said = json.loads((tmp_path / "sweep.json").read_text())
    (tmp_path / "sweep.json").write_text(json.dumps({**said, **change}))
    with pytest.raises(InputError, match=r"sweep\.json"):
        load_sweep(tmp_path)
