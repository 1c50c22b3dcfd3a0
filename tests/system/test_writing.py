"""Files written whole: killed at any step, short of space, where nothing may be written."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from memplan_engine.errors import InputError
from memplan_engine.files import check_target
from memplan_engine.system import write_atomically
from tests import ROOT
from tests.support.buffer_list import BUFFERS
from tests.support.fork_server import WRITING, die_at
from tests.support.waiting import HANG_SECONDS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals, limits and capabilities of Linux")

OLD, NEW = b"old", b"new" * 100_000
OVERRIDES = (1, 2)
"""The capabilities by which root reads and writes whatever the permissions say."""


def in_child(act: Callable[[], object]) -> int:
    """What became of a child that does `act`: 0, or the signal that ended it, negative."""
    child = os.fork()
    if not child:
        try:
            act()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_kill_between_any_two_steps_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    target, seen = tmp_path / "plan.json", []

    def write(line: int) -> None:
        die_at(line, *WRITING)
        write_atomically(target, NEW)

    for line in range(1, 100):
        target.write_bytes(OLD)
        if in_child(partial(write, line)) == 0:
            break
        seen.append(target.read_bytes())
        assert all(path == target or path.match(".plan.json.*.part") for path in tmp_path.iterdir())
    assert target.read_bytes() == NEW
    assert len(seen) > 10
    assert set(seen) <= {OLD, NEW}


def test_the_content_is_on_the_disk_before_it_has_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[object] = []
    replace = os.replace

    def note(draft: Path, target: Path) -> None:
        steps.append("replace")
        replace(draft, target)

    monkeypatch.setattr(os, "fsync", lambda number: steps.append(os.fstat(number).st_size))
    monkeypatch.setattr(os, "replace", note)
    write_atomically(tmp_path / "plan.json", NEW)
    assert steps == [len(NEW), "replace"]


def test_a_full_disk_leaves_the_old_file_alone(tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    target.write_bytes(OLD)

    def write() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        with pytest.raises(InputError, match=r"plan\.json: found 'File too large' on writing"):
            write_atomically(target, NEW)
        os.kill(os.getpid(), signal.SIGUSR1)

    assert in_child(write) == -signal.SIGUSR1
    assert target.read_bytes() == OLD
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_keeps_its_permissions_and_links_lead_to_it(tmp_path: Path) -> None:
    target, link = tmp_path / "mine.json", tmp_path / "link.json"
    target.write_bytes(OLD)
    target.chmod(0o600)
    link.symlink_to(target.name)
    write_atomically(link, NEW)
    assert link.is_symlink()
    assert (target.read_bytes(), target.stat().st_mode & 0o777) == (NEW, 0o600)


def test_every_name_that_the_system_takes_will_do(tmp_path: Path) -> None:
    target = tmp_path / ("計" * 83 + ".json")
    write_atomically(target, NEW)
    assert target.read_bytes() == NEW


def test_a_folder_as_the_target_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "x.json").mkdir()
    with pytest.raises(InputError, match=r"x\.json: found a folder or a device"):
        check_target(tmp_path / "x.json", (".json",))


def bound_by_permissions() -> None:
    """Have what this process becomes heed permissions, were it root."""
    for each in OVERRIDES:
        ctypes.CDLL(None).prctl(24, each, 0, 0, 0)


MEMPLAN = "import time; time.perf_counter = float; from memplan_engine.cli.main import main; main()"
"""`memplan` by a clock that stands: it says nothing of kernels, which it compiles after some seconds."""


def say(shell: str, folder: Path, **environment: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a line for the shell, in which `memplan` is the command."""
    line = f"memplan() {{ '{sys.executable}' -c '{MEMPLAN}' \"$@\"; }}\n{shell}"
    inherited = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), *sys.path])),
    }
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, env=inherited | environment, capture_output=True, text=True,
        preexec_fn=bound_by_permissions, timeout=HANG_SECONDS,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "list.csv").write_text(BUFFERS)
    return tmp_path


@pytest.mark.parametrize(
    ("harm", "target"),
    [
        ("mkdir f; chmod 555 f", "f/x.json"),
        ("mkdir f; chmod 000 f", "f/x.json"),
        ("mkdir f; chmod 000 f", "f/g/x.json"),
        ("echo old > x.json; chmod 444 x.json", "x.json"),
    ],
)
def test_what_may_not_be_written_is_refused_by_name(folder: Path, harm: str, target: str) -> None:
    code, out, err = say(
        f"{harm}; memplan plan list.csv -o {target}; code=$?; chmod 755 f; exit $code", folder
    )
    expected = (
        f"memplan: {target}: found 'Permission denied' on writing, expected a file that may be written\n"
    )
    assert (code, out) == (2, "")
    assert err.startswith(expected)
    assert not list(folder.rglob(".*.part"))


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("memplan plan list.csv --json >&-", 0),
        ("memplan plan list.csv >&-", 0),
        ("memplan plan list.csv -o x.json >&- 2>&- <&- && memplan validate x.json > /dev/null", 0),
        ("memplan nonsense 2>&-", 2),
        ("memplan nonsense 2>/dev/full", 2),
        ("memplan plan missing.csv 2>/dev/full", 2),
        ("memplan plan list.csv --json | head -1 > /dev/null; exit ${PIPESTATUS[0]}", 0),
    ],
)
def test_streams_that_are_closed_full_or_broken(folder: Path, line: str, code: int) -> None:
    assert say(line, folder) == (code, "", "")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("memplan plan ../list.csv -o x.json", "x.json: found a folder that does not exist"),
        ("memplan dashboard --no-browser", "the current folder has been removed"),
    ],
)
def test_in_a_folder_that_was_removed(folder: Path, line: str, message: str) -> None:
    code, out, err = say(f"mkdir gone; cd gone; rmdir ../gone; {line}", folder)
    assert (code, out) == (2, "")
    assert err.startswith(f"memplan: {message}")


def test_a_home_that_is_nowhere_is_not_needed(folder: Path) -> None:
    nonsense = {
        "HOME": "/nowhere",
        "TMPDIR": "/nowhere",
        "XDG_CACHE_HOME": "no/sense",
        "XDG_CONFIG_HOME": "\1",
    }
    line = "memplan plan list.csv -o x.json && memplan report x.json --compare none -o x.html"
    for environment in ({}, nonsense):
        assert say(f"({line}) > /dev/null", folder, **environment) == (0, "", "")
    assert sorted(path.name for path in folder.iterdir()) == ["list.csv", "x.html", "x.json"]
