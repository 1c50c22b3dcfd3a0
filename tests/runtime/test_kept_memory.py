"""Memory that a process keeps while ops are timed."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from memplan_engine.runtime.trial import kept_memory as module
from memplan_engine.runtime.trial.kept_memory import kept_memory

MAKINGS = """
import resource, torch
from memplan_engine.runtime.trial.kept_memory import kept_memory

def faults_of_making(floats=16 << 20):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(floats)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

with kept_memory():
    print(min(faults_of_making((16 << 20) - (each << 15)) for each in range(8)))
faults_of_making()
print(max(faults_of_making() for _ in range(8)))
"""
"""Page faults of 64 MiB, which are 16,384 pages, kept and not; of what is kept, a block with its alignment
may be a little too small for the next of the same size, hence ever smaller ones."""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of glibc")
def test_pages_are_handed_out_once_and_go_back_in_the_end() -> None:
    """In a process of its own: once an allocation has failed in a thread, glibc has it in another arena,
    which takes a mapping for each large block, whatever is set."""
    run = subprocess.run([sys.executable, "-c", MAKINGS], capture_output=True, text=True, check=True)
    kept, anew = map(int, run.stdout.split())
    assert kept < 1_638
    assert anew > 0  # Huge pages come in one fault each.


def test_another_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_mallopt", lambda: None)
    with kept_memory():
        torch.ones(4)
