"""Another release of torch than the one that memplan was measured on is taken, and one warning says so."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from memplan_engine import capture
from memplan_engine.torch_capture.torch_fake import MEASURED, require_torch
from tests import ROOT
from tests.test_packaging import PROJECT, pins

MODEL, INPUTS = torch.nn.Linear(4, 4), (torch.zeros(2, 4),)


def test_another_release_is_captured_all_the_same_and_named_once(monkeypatch, recwarn):
    monkeypatch.setattr(torch, "__version__", "2.98.1+cpu")
    first, second = capture(MODEL, INPUTS), capture(MODEL, INPUTS)
    assert len(first.ops) == len(second.ops) > 0
    (warning,) = [each for each in recwarn if "memplan" in str(each.message)]
    assert f"measured on torch {MEASURED}, and this is torch 2.98.1+cpu" in str(warning.message)
    assert warning.category is UserWarning


@pytest.mark.parametrize("patch", ["0", "1+cpu", "0a0+git1234"])
def test_the_measured_release_is_not_mentioned(monkeypatch, recwarn, patch):
    monkeypatch.setattr(torch, "__version__", f"{MEASURED}.{patch}")
    require_torch("a test")
    assert not recwarn.list


def test_what_runs_models_warns_as_well_and_not_twice():
    script = (
        "import torch; torch.__version__ = '2.1.0'; from memplan_engine import capture, load_program; "
        "given = torch.nn.Linear(4, 4), (torch.zeros(2, 4),); load_program(*given); capture(*given)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("and this is torch 2.1.0") == 1


def test_the_extra_takes_newer_releases_and_the_pin_is_the_measured_one():
    assert PROJECT["project"]["optional-dependencies"]["torch"] == [f"torch>={MEASURED}"]
    assert pins()["torch"].startswith(f"{MEASURED}.")
