"""Completion of the command line, as a shell asks for it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time

import pytest
import typer.main

from memplan_engine.cli.app import app
from tests import ROOT


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("memplan wh", ["what-if"]),
        ("memplan re", ["report", "replay", "reuse"]),
        ("memplan plan --strat", ["--strategy"]),
        ("memplan plan example_g", []),
    ],
)
def test_bash_completes_verbs_and_options_and_leaves_files_to_itself(tmp_path, typed, completed):
    command = tmp_path / "memplan"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m memplan_engine "$@"\n')
    command.chmod(0o755)
    asked = (
        f'eval "$({command} --show-completion)"\n'
        f"COMP_WORDS=({typed}) COMP_CWORD={len(typed.split()) - 1}\n"
        f"_memplan_completion {command}\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    line = ["bash", "--norc", "-c", asked]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=120, env=environment)
    assert (done.stdout.split(), done.stderr) == (completed, "")


@pytest.mark.quarantine
def test_completion_costs_the_help_less_than_a_fifth_of_a_second():
    assert app._add_completion
    begun = time.perf_counter()
    typer.main.get_install_completion_arguments()
    assert time.perf_counter() - begun < 0.2
