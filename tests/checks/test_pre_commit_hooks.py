"""The hooks that others' pre-commit finds, run as it runs them: entry, args, then the files that match."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import yaml

from memplan_engine.files import write
from tests import ROOT
from tests.support.chains import chain

HOOKS = {each["id"]: each for each in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
NET = """
import torch
def net():
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU()), (torch.zeros(4, 8),)
"""


def test_graph_files_and_factories_are_held_against_ceilings(
    memplan: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    write(chain(1024, 3072, 2048), tmp_path / "a.memplan.json")
    write(chain(1024, 1024), tmp_path / "test_models.memory.json")
    (tmp_path / "net.py").write_text(NET)
    files, factories = HOOKS["memplan-check"], HOOKS["memplan-check-factories"]
    staged = [path.name for path in sorted(tmp_path.iterdir()) if re.search(files["files"], path.name)]
    assert staged == ["a.memplan.json"]
    for size, code in (("5KiB", 0), ("4KiB", 1)):
        program, *entry = shlex.split(files["entry"])
        assert program == "memplan"
        assert memplan(*entry, "--max-arena", size, *staged)[0] == code
    assert factories["pass_filenames"] is False
    # 4 × 16 floats for the layer and as many for its activation.
    for size, code in (("512", 0), ("511", 1)):
        _, *entry = shlex.split(factories["entry"])
        assert memplan(*entry, "net.py:net", "--max-arena", size)[0] == code
