"""The stages of a capture: lines with seconds on a terminal, nothing elsewhere; then what to type next."""

from __future__ import annotations

import io
import re

import pytest

from memplan_engine.cli.progress import stages

FACTORY = """
import torch

def net():
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()), (torch.zeros(2, 8),)
"""


class Terminal(io.StringIO):
    def isatty(self):
        return True


def told(stream):
    with stages() as begin:
        for stage in ("building the model", "exporting the model", ""):
            begin(stage)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue()).replace("\r", "\n")


@pytest.mark.parametrize(("term", "is_live"), [("xterm", True), ("dumb", False)])
def test_each_stage_stays_with_its_seconds(monkeypatch, term, is_live):
    """The line of the stage that runs needs a terminal that can erase it."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("COLUMNS", "80")
    lines = [line.strip() for line in told(terminal).splitlines()]
    over = [line for line in lines if re.fullmatch(r"[a-z ]+: \d+\.\d s", line)]
    assert [line.partition(":")[0] for line in over] == ["building the model", "exporting the model"]
    assert any(line.startswith("exporting the model … ") for line in lines) == is_live


def test_no_stages_where_nobody_looks(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    assert told(stream) == ""


def test_capture_tells_its_stages_and_the_next_command(memplan, tmp_path, monkeypatch):
    (tmp_path / "models.py").write_text(FACTORY)
    begun = []

    def heard(spec, *, tell, **options):
        return capture(spec, tell=lambda stage: (begun.append(stage), tell(stage)), **options)

    from memplan_engine.torch_capture import torch_factory

    capture = torch_factory.capture_factory
    monkeypatch.setattr(torch_factory, "capture_factory", heard)
    code, out, err = memplan("capture", "models.py:net", "-o", "a model.json")
    assert (code, out) == (0, "")
    assert begun == ["loading torch", "building the model", "exporting the model"]
    assert err.splitlines() == ["a model.json: 2 ops, 2 buffers", "next: memplan peak 'a model.json'"]
