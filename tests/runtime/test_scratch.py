"""Temporary folders: gone when they are not needed any more, those of killed processes with the next one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from memplan_engine.runtime.scratch import scratch_folder
from tests import ROOT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="folders that are held")
HOLDER = """
import sys, time
from memplan_engine.runtime.scratch import scratch_folder
with scratch_folder() as folder:
    (folder / "state.pt").write_bytes(b"weights")
    print(folder, flush=True)
    time.sleep(600)
"""
MODELS = """
import sys, time, torch

def net():
    if "eager_step" in sys.argv[0]:
        time.sleep(600)
    return torch.nn.Linear(4, 4), (torch.rand(2, 4),)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def make_old(*folders: Path) -> None:
    for folder in folders:
        os.utime(folder, (time.time() - 3600,) * 2)


def test_a_folder_is_there_and_gone(temporary: Path) -> None:
    with scratch_folder() as folder:
        assert folder.parent == temporary
        (folder / "a").touch()
    assert list(temporary.iterdir()) == []


@pytest.mark.quarantine
def test_what_a_killed_process_left_goes_and_what_is_held_or_strange_stays(temporary: Path) -> None:
    holders = [
        subprocess.Popen([sys.executable, "-c", HOLDER], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    killed, held = (Path(holder.stdout.readline().strip()) for holder in holders if holder.stdout)
    holders[0].kill()
    holders[0].wait()
    (temporary / "else").mkdir()
    (temporary / "else" / "kept").touch()
    (temporary / "memplan-link").symlink_to(temporary / "else")
    (temporary / "memplan-file").touch()
    with scratch_folder():
        assert killed.exists(), "too new to be judged"
    make_old(killed, held, temporary / "else", temporary / "memplan-file")
    with scratch_folder():
        pass
    left = {path.name for path in temporary.iterdir()}
    assert left == {held.name, "else", "memplan-link", "memplan-file"}
    assert (temporary / "else" / "kept").exists()
    assert (held / "state.pt").exists()
    holders[1].kill()
    holders[1].wait()


@pytest.mark.quarantine
@pytest.mark.slow
def test_an_eager_step_ends_with_the_run_that_asked_for_it(temporary: Path) -> None:
    (temporary / "models.py").write_text(MODELS)
    line = [sys.executable, "-m", "memplan_engine", "run", "models.py:net", "--training", "step"]
    run = subprocess.Popen(
        line, cwd=temporary, env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    steps: list[str] = []
    deadline = time.monotonic() + 200
    while not steps and time.monotonic() < deadline and run.poll() is None:
        time.sleep(0.2)
        steps = _eager_steps(temporary)
    assert steps
    # It may have asked to end with its parent by now, or finds later that there is none.
    time.sleep(4)
    run.kill()
    run.wait()
    while _eager_steps(temporary) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert _eager_steps(temporary) == []
    left = list(temporary.glob("memplan-*"))
    assert left
    make_old(*left)
    with scratch_folder():
        pass
    assert not list(temporary.glob("memplan-*"))


def _eager_steps(temporary: Path) -> list[str]:
    """Processes that take a step for a run whose temporary folders are in `temporary`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode().split("\0")
        except OSError:
            continue
        if "memplan_engine.runtime.eager_step" in words and any(str(temporary) in word for word in words):
            found.append(path.parent.name)
    return found
