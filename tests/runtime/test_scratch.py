"""Temporary folders: gone when they are not needed any more, those of killed processes with the next one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from memplan_engine.runtime import eager_step, scratch
from memplan_engine.runtime.scratch import scratch_folder
from tests import ROOT
from tests.support.processes import is_running
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="folders that are held")
HOLDER = """
import runpy, sys
with runpy.run_path(sys.argv[1])["scratch_folder"]() as folder:
    (folder / "state.pt").write_bytes(b"weights")
    print(folder, flush=True)
    sys.stdin.read()
"""
MODELS = """
import os, pathlib, time

def net():
    started = pathlib.Path(__file__).with_name("started")
    started.with_suffix(".half").write_text(str(os.getpid()))
    started.with_suffix(".half").rename(started)
    while True:
        time.sleep(1)
"""
RUN = """
import sys
from memplan_engine.runtime.eager_step import take_in_process
take_in_process(sys.argv[1], {})(False)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def make_older(hours: float, *folders: Path) -> None:
    """Have `folders` last changed so many hours ago."""
    for folder in folders:
        os.utime(folder, (time.time() - 3600 * hours,) * 2)


def test_a_folder_is_there_and_gone(temporary: Path) -> None:
    with scratch_folder() as folder:
        assert folder.parent == temporary
        (folder / "a").touch()
    assert list(temporary.iterdir()) == []


def test_what_a_killed_process_left_goes_and_what_is_held_or_strange_stays(temporary: Path) -> None:
    holders = [
        subprocess.Popen(
            [sys.executable, "-c", HOLDER, scratch.__file__],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    killed, held = (Path(holder.stdout.readline().strip()) for holder in holders if holder.stdout)
    holders[0].kill()
    holders[0].wait()
    (temporary / "else").mkdir()
    (temporary / "else" / "kept").touch()
    (temporary / "memplan-link").symlink_to(temporary / "else")
    (temporary / "memplan-file").touch()
    # Changed after any time at which this test may look.
    make_older(-1, killed)
    with scratch_folder():
        assert killed.exists(), "too new to be judged"
    make_older(1, killed, held, temporary / "else", temporary / "memplan-file")
    with scratch_folder():
        pass
    left = {path.name for path in temporary.iterdir()}
    assert left == {held.name, "else", "memplan-link", "memplan-file"}
    assert (temporary / "else" / "kept").exists()
    assert (held / "state.pt").exists()
    holders[1].communicate()


@pytest.mark.slow
def test_an_eager_step_ends_with_the_run_that_asked_for_it(temporary: Path) -> None:
    """It has asked to end with its parent before it makes the model."""
    (temporary / "models.py").write_text(MODELS)
    line = [sys.executable, "-c", RUN, f"{temporary / 'models.py'}:net"]
    run = subprocess.Popen(line, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    started = temporary / "started"
    wait_until(lambda: started.exists() or run.poll() is not None)
    step = int(started.read_text())
    assert is_running(step)
    run.kill()
    run.wait()
    wait_until(lambda: not is_running(step))
    left = list(temporary.glob("memplan-*"))
    assert left
    make_older(1, *left)
    with scratch_folder():
        pass
    assert not list(temporary.glob("memplan-*"))


def test_an_eager_step_is_not_taken_for_a_run_that_has_ended(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have ended before the step could ask to end with it."""
    monkeypatch.setattr(eager_step, "end_with_parent", lambda: None)
    (temporary / "request.json").write_text(json.dumps({"factory": "models.py:net", "parent": os.getpid()}))
    eager_step.main(temporary)
    assert [path.name for path in temporary.iterdir()] == ["request.json"]
