"""`memplan devices`: ranks of a script, a folder judged again, and one line for what cannot be done."""

from __future__ import annotations

import json

import pytest

from memplan_engine.runtime.ranks import rank_runs
from tests.devices.test_rank_answers import runs

SCRIPT = """
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

device = torch.device("cuda", 0)
dist.init_process_group("nccl")
model = torch.nn.Linear(64, 64, bias=False).to(device)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
for _ in range(3):
    model(torch.rand(2, 64, device=device)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_ranks_then_another_device_without_a_run(memplan, tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("")
    asked = []

    def observe(script, arguments, **options):
        asked.append((arguments, options["world_size"], options["ranks"]))
        return runs(20, 300)

    monkeypatch.setattr(rank_runs, "observe_ranks", observe)
    code, out, err = memplan(
        "devices", "train.py", "--world", "4", "--json", "-o", "ranks", "--", "--tp", "2"
    )
    assert code == 0, err
    said = json.loads(out)
    assert asked == [(["--tp", "2"], 4, "distinct")]
    assert [(row["rank"], row["ranks"], row["verdict"]) for row in said["ranks"]] == [
        (0, [0, 1], "fits"),
        (2, [2, 3], "fits"),
    ]
    assert said["fullest_rank"] == 2
    code, out, _ = memplan("devices", "ranks", "--json", "--device", "rtx4090", "--headroom", "23GiB")
    again = json.loads(out)
    assert (code, again["device"], len(asked)) == (0, "rtx4090", 1)
    assert again["verdict"] == "does not fit"
    assert [row["live_bytes"] for row in again["ranks"]] == [row["live_bytes"] for row in said["ranks"]]


@pytest.mark.slow
def test_ranks_of_a_script_then_another_device_without_a_run(memplan, tmp_path):
    script, folder = tmp_path / "train.py", tmp_path / "ranks"
    script.write_text(SCRIPT)
    code, out, err = memplan("devices", script, "--world", "16", "--json", "-o", folder)
    assert code == 0, err
    said = json.loads(out)
    (row,) = said["ranks"]
    assert (row["rank"], row["ranks"], said["fullest_rank"]) == (0, list(range(16)), 0)
    assert row["verdict"] == "fits"
    assert row["live_bytes"] > 2 * 4 * 64 * 4
    assert row["device_total_bytes"][0] < row["device_total_bytes"][1]
    script.unlink()
    code, out, _ = memplan("devices", folder, "--json", "--device", "rtx4090", "--headroom", "23GiB")
    again = json.loads(out)
    assert (code, again["device"]) == (0, "rtx4090")
    assert again["verdict"] in ("undecided", "does not fit")
    assert (again["reason"] is None) == (again["verdict"] == "does not fit")
    assert again["ranks"][0]["live_bytes"] == row["live_bytes"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("train.py",), "--world: found none"),
        (("train.py", "--world", "0"), "--world: found 0"),
        (("train.py", "--world", "8", "--device", "h900"), "--device: found 'h900'"),
        (("train.py", "--world", "8", "--ranks", "0,8"), "--ranks: found '8'"),
        (("none.py", "--world", "8"), "no such file"),
        (("train.py", "--world", "8", "-s", "max_split:3"), "--setting"),
        (("train.py", "--world", "8", "-o", "none/ranks"), "a folder that does not exist"),
        ((".", "--world", "8"), "options of a run"),
        ((".",), "no ranks.json"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(memplan, tmp_path, monkeypatch, arguments, says):
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    code, out, err = memplan("devices", *arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


@pytest.mark.slow
def test_values_of_a_fake_tensor_are_refused_with_the_line_and_the_rank(memplan, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import torch\nx = torch.rand(4)\nwhile (x > 0.5).tolist()[0]:\n    x = x / 2\n")
    code, out, err = memplan("devices", script, "--world", "2")
    assert (code, out) == (2, "")
    assert err.startswith("memplan: train.py, rank 0: ")
    assert "train.py:3" in err
    assert err.count("\n") == 1


def test_a_folder_of_ranks_or_of_a_sweep_is_opened_on_the_page_and_no_other(memplan, tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr("os.execv", lambda program, line: started.append(line[-1]))
    for index in ("ranks.json", "sweep.json"):
        folder = tmp_path / index.removesuffix(".json")
        folder.mkdir()
        (folder / index).write_text("{}")
        assert memplan("dashboard", folder)[0] == 0
        assert started.pop() == str(folder)
    code, _, err = memplan("dashboard", tmp_path)
    assert (code, started) == (2, [])
    assert "found a folder of something else" in err


def test_each_rank_takes_the_card_of_its_own_machine(memplan, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import os, torch\n"
        "assert torch.cuda.device_count() == int(os.environ['LOCAL_WORLD_SIZE']) == 8\n"
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n"
        "here = torch.cuda.current_device()\n"
        "assert here == int(os.environ['RANK']) % 8 == 3\n"
        "kept = torch.empty(here << 20, dtype=torch.uint8, device='cuda')\n"
        "assert kept.device == torch.device('cuda', 3)\n"
    )
    code, out, err = memplan("devices", script, "--world", "16", "--ranks", "11", "--json")
    assert code == 0, err
    (row,) = json.loads(out)["ranks"]
    assert (row["rank"], row["live_bytes"], row["reserved_bytes"]["native"]) == (11, 3 << 20, 20 << 20)
