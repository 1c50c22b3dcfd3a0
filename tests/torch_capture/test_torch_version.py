"""Another release of torch than the one that memplan was measured on is taken, and one warning says so."""

from __future__ import annotations

import importlib

import pytest
import torch

from memplan_engine import capture, runtime
from memplan_engine.torch_capture import torch_fake
from memplan_engine.torch_capture.torch_fake import MEASURED, require_torch
from tests.test_packaging import PROJECT, pins

MODEL, INPUTS = torch.nn.Linear(4, 4), (torch.zeros(2, 4),)


@pytest.fixture(autouse=True)
def nothing_warned_yet():
    torch_fake._warn_unless_measured.cache_clear()


def warnings_of_release(recorded):
    return [each for each in recorded if "memplan was measured on torch" in str(each.message)]


def test_another_release_is_captured_all_the_same_and_named_once(monkeypatch, recwarn):
    monkeypatch.setattr(torch, "__version__", "2.98.1+cpu")
    first, second = capture(MODEL, INPUTS), capture(MODEL, INPUTS)
    assert len(first.ops) == len(second.ops) > 0
    (warning,) = warnings_of_release(recwarn)
    assert f"measured on torch {MEASURED}, and this is torch 2.98.1+cpu" in str(warning.message)
    assert warning.category is UserWarning


@pytest.mark.parametrize("patch", ["0", "1+cpu", "0a0+git1234"])
def test_the_measured_release_is_not_mentioned(monkeypatch, recwarn, patch):
    monkeypatch.setattr(torch, "__version__", f"{MEASURED}.{patch}")
    require_torch("a test")
    assert not warnings_of_release(recwarn)


def test_what_runs_models_warns_as_well_and_not_twice(monkeypatch, recwarn):
    """It does so when it is imported, which happened long ago here."""
    monkeypatch.setattr(torch, "__version__", "2.1.0")
    importlib.reload(runtime)
    assert len(warnings_of_release(recwarn)) == 1
    capture(MODEL, INPUTS)
    assert len(warnings_of_release(recwarn)) == 1


def test_the_extra_takes_newer_releases_and_the_pin_is_the_measured_one():
    assert PROJECT["project"]["optional-dependencies"]["torch"] == [f"torch>={MEASURED}"]
    assert pins()["torch"].startswith(f"{MEASURED}.")
