"""Completion of the command line, as a shell asks for it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys

import pytest

from tests import ROOT
from tests.support.waiting import HANG_SECONDS

TYPED = {
    "memplan wh": ["what-if"],
    "memplan re": ["report", "replay", "reuse"],
    "memplan plan --strat": ["--strategy"],
    "memplan plan example_g": [],
}


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
def test_bash_completes_verbs_and_options_and_leaves_files_to_itself(tmp_path):
    command = tmp_path / "memplan"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m memplan_engine "$@"\n')
    command.chmod(0o755)
    script = [f'eval "$({command} --show-completion)"']
    for typed in TYPED:
        script += [
            f"COMP_WORDS=({typed}) COMP_CWORD={len(typed.split()) - 1}",
            f"_memplan_completion {command}",
            'echo "${COMPREPLY[@]}"',
        ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    line = ["bash", "--norc", "-c", "\n".join(script)]
    done = subprocess.run(
        line, cwd=ROOT, capture_output=True, text=True, timeout=HANG_SECONDS, env=environment
    )
    assert done.stderr == ""
    assert [row.split() for row in done.stdout.splitlines()] == list(TYPED.values())
