"""Mutants written down by hand, each a mistake that somebody could make: the tests of its room find it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests import ROOT
from tests.mutation.modules import BY_HAND


@pytest.mark.slow
@pytest.mark.parametrize("module", BY_HAND)
def test_every_mutant_is_killed(module: str) -> None:
    command = [sys.executable, "-m", "tests.mutation", module, "--by-hand"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    count = len(BY_HAND[module])
    assert done.stdout == f"{module}: {count} of {count} killed\n", done.stdout + done.stderr
