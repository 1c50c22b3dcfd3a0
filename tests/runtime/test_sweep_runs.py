"""Configurations of a script: each recorded once, failures kept with their reason."""

from __future__ import annotations

import pytest

from memplan_engine.formats.memplan_json.sweep_folder import load_sweep
from memplan_engine.recordings.configuration import Configuration
from memplan_engine.runtime.ranks import sweep_runs
from memplan_engine.runtime.ranks.sweep_runs import Sweep, digest_of

SCRIPT = """
import sys
import torch
import torch.distributed as dist
from sizes import WIDTH
dist.init_process_group("nccl")
assert sys.argv[1] != "0", "no batch"
model = torch.nn.Linear(WIDTH, WIDTH, device="cuda")
model(torch.rand(int(sys.argv[1]), WIDTH, device="cuda")).sum().backward()
"""


def asked(batch: int) -> Configuration:
    return Configuration({"batch": batch}, (str(batch),), 2, "h100-80")


@pytest.mark.usefixtures("forked_scripts")
def test_a_finished_configuration_is_not_recorded_again(tmp_path, monkeypatch):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    (tmp_path / "sizes.py").write_text("WIDTH = 64\n")
    for again in (False, True):
        if again:
            monkeypatch.setattr(sweep_runs, "observe_ranks", lambda *a, **k: 1 / 0)
        sweep = Sweep(script, tmp_path / "out", lambda device: "sm90")
        sweep.prepare([asked(4)])
        sweep.run([iter([asked(4)])], 1)
        (found,) = load_sweep(tmp_path / "out")
        assert found.values == {"batch": 4}
        assert {run.world_size for run in found.runs} == {2}
    before = digest_of(script, asked(4), "sm90")
    assert before != digest_of(script, asked(8), "sm90")
    (tmp_path / "sizes.py").write_text("WIDTH = 128\n")
    assert before != digest_of(script, asked(4), "sm90")
