"""Every verb that writes, killed on the way or short of space: the old file is there, or the new one is
whole, and the next run works."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest
from PIL import Image

from memplan_engine.cli.app import VERBS, load_verb
from memplan_engine.files import load
from tests.support.buffer_list import BUFFERS
from tests.support.fork_server import ForkServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks, signals and limits of Linux")

OLD = b"what was here before\n"
MODELS = """
import torch

def net():
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU()).eval(), (torch.rand(4, 8),)
"""
SCRATCH = "list.csv", "models.py", "recorded.json", "said", "__pycache__"
FEWEST_CALLS = 1000
"""Every command makes more calls of Python functions."""
MOST_LINES = 200
DISK_BYTES = 32 << 20
PAGE = 4096


class Writing(NamedTuple):
    """A command line, its exit code, and the options that name what it writes."""

    line: str
    options: tuple[str, ...] = ("output",)
    code: int = 0


WRITING = {
    "plan": (
        Writing("plan list.csv -o plan.json"),
        Writing("plan list.csv -o plan.csv --capacity 169 --core core.csv", ("output", "core"), 1),
    ),
    "diff": (
        Writing("diff list.csv list.csv --strategy greedy_by_size -o diff.json"),
        Writing("diff list.csv list.csv --strategy greedy_by_size -o diff.md"),
    ),
    "what-if": (
        Writing("what-if list.csv --pin a=0 -o plan.json --save-edits edits.json", ("output", "save_edits")),
    ),
    "suggest": (
        Writing(
            "suggest list.csv --alignment 64 --apply 1 -o plan.json --save-edits edits.json",
            ("output", "save_edits"),
        ),
    ),
    "fit": (Writing("fit models.py:net -o order.json --save-plan plan.json", ("output", "save_plan")),),
    "report": (
        Writing(
            "report list.csv --compare none -o page.html --svg plan.svg --png plan.png",
            ("output", "png", "svg"),
        ),
    ),
    "snapshot": (Writing("snapshot recorded.json -o plan.json"),),
    "allocator": (Writing("allocator recorded.json -o placed.json"),),
    "replay": (Writing("replay list.csv -o replay.json"),),
    "capture": (Writing("capture models.py:net -o graph.json"),),
    "run": (
        Writing(
            "run models.py:net -o run.json --trace trace.json --observation seen.json",
            ("output", "trace", "observation"),
        ),
    ),
    "observe": (Writing("observe models.py:net -o seen.json --trace trace.json", ("output", "trace")),),
}
READ = {"schedule", "edits", "plan", "folder", "calibration"}
"""Options of a path that is read."""
TOO_LONG = {"calibrate", "devices"}
"""Verbs that work for long before they write, as the others do: minutes, or seconds a rank."""
CAPTURED_AGAIN = {"patch"}
"""Of `fit`: written as the others once two models were captured in another process, which takes seconds."""
COMMANDS = [writing for several in WRITING.values() for writing in several]


def is_whole(path: Path) -> bool:
    """Whether `path` holds something finished, of the kind that its name says."""
    try:
        match path.suffix:
            case ".json":
                json.loads(path.read_text())
            case ".csv":
                load(path)
            case ".svg":
                ElementTree.parse(path)
            case ".png":
                with Image.open(path) as image:
                    image.load()
            case ".html":
                return path.read_text().rstrip().endswith("</html>")
            case ".md":
                return path.read_text().endswith("\n") and path.read_bytes() != OLD
    except Exception:
        return False
    return True


def test_every_option_that_writes_is_in_the_table() -> None:
    for verb in VERBS.keys() - TOO_LONG:
        paths = {
            each.name
            for each in load_verb(verb).params
            if each.param_type_name == "option" and "Path" in type(each.type).__name__
        }
        written = {option for writing in WRITING.get(verb, ()) for option in writing.options}
        assert paths - READ - CAPTURED_AGAIN == written, verb


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    server = ForkServer()
    yield server
    server.close()


class Place(NamedTuple):
    """A folder with the inputs, in which one command runs."""

    run: Callable[..., int]
    folder: Path
    targets: list[Path]
    code: int
    """The exit code of a run that nothing disturbs."""

    def renew(self) -> None:
        """Old files, nothing else."""
        for path in self.folder.iterdir():
            if path.name not in SCRATCH:
                path.unlink()
        for target in self.targets:
            target.write_bytes(OLD)

    def check(self) -> list[bool]:
        """Each target is old or whole, and nothing else but drafts is new; which ones are new."""
        for path in self.folder.iterdir():
            assert path.name in SCRATCH or path in self.targets or path.match(".*.part"), path
        changed = [target.read_bytes() != OLD for target in self.targets]
        assert all(is_whole(path) for path, new in zip(self.targets, changed, strict=True) if new)
        return changed


@pytest.fixture
def place(server: ForkServer, tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    return make_place(server, tmp_path, request.param)


def make_place(server: ForkServer, folder: Path, writing: Writing) -> Place:
    """`folder` with the inputs, in which the command has run once."""
    (folder / "list.csv").write_text(BUFFERS)
    (folder / "models.py").write_text(MODELS)
    words = writing.line.split()
    if "recorded.json" in words:
        assert server("observe", "models.py:net", "-o", "recorded.json", folder=folder, warm=True) == 0
    names = [word for word in words[2:] if "." in word and word not in SCRATCH]
    assert len(names) == len(writing.options)
    targets = [folder / name for name in names]
    place = Place(lambda **how: server(*words, folder=folder, **how), folder, targets, writing.code)
    place.renew()
    assert place.run(warm=True) == writing.code, (folder / "said").read_text()
    assert all(place.check())
    return place


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ForkServer, Path]]:
    """A process that has a small file system to itself, and where that is seen from here."""
    folder = tmp_path_factory.mktemp("disk")
    own = "unshare", "--user", "--map-root-user", "--mount", "sh", "-c"
    mount = f'mount -t tmpfs -o size={DISK_BYTES} disk "{folder}" && exec "$@"'
    try:
        tried = subprocess.run([*own, mount, "sh", "true"], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("no unshare here")
    if tried.returncode:
        pytest.skip(f"no file system of one's own may be mounted here: {tried.stderr.strip()}")
    server = ForkServer(*own, mount, "sh")
    seen = server.seen(folder)
    # The server begins to run before its disk is there.
    wait_until(lambda: os.statvfs(seen).f_blocks * os.statvfs(seen).f_frsize <= DISK_BYTES)
    yield server, seen
    server.close()


@pytest.mark.slow
@pytest.mark.parametrize("writing", COMMANDS, ids=[each.line for each in COMMANDS])
def test_a_disk_without_room_leaves_the_old_file_and_one_line(
    disk: tuple[ForkServer, Path], tmp_path: Path, writing: Writing
) -> None:
    server, mounted = disk
    folder = mounted / "here"
    folder.mkdir()
    # What is said goes to another disk.
    (folder / "said").symlink_to(tmp_path / "said")
    try:
        place = make_place(server, folder, writing)
        for pages in (0, 1, 2):
            place.renew()
            fill(mounted / "rest", pages)
            code, new = place.run(), place.check()
            said = (tmp_path / "said").read_text().splitlines()
            if pages and all(new):
                assert code == writing.code
            else:
                assert code == 2
                assert said[-1].startswith("memplan: ")
                assert "'No space left on device' on writing" in said[-1]
                assert not all(new)
                assert pages or not any(new)
            assert not list(folder.glob(".*.part"))
            (mounted / "rest").unlink()
            assert place.run() == writing.code
            assert all(place.check())
    finally:
        shutil.rmtree(folder)


def fill(path: Path, pages: int) -> None:
    """Leave so many pages of the disk."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(PAGE))
    os.truncate(path, path.stat().st_size - pages * PAGE)


@pytest.mark.slow
@pytest.mark.parametrize("place", COMMANDS, ids=[each.line for each in COMMANDS], indirect=True)
def test_a_kill_between_any_two_steps_of_writing_leaves_old_or_new(place: Place) -> None:
    seen = []
    # Where several files are written, every second or third step: the writer is one.
    for line in range(1, MOST_LINES, len(place.targets)):
        place.renew()
        if place.run(at_line=line) != -9:
            break
        seen.append(sum(place.check()))
        # With whatever was left behind.
        if len(seen) % 10 == 0:
            assert place.run() == place.code
            assert all(place.check())
    assert all(place.check())
    # Before anything, after each file, and none of them lost again.
    assert seen == sorted(seen)
    assert set(seen) >= {*range(len(place.targets))}


@pytest.mark.slow
@pytest.mark.parametrize("place", COMMANDS, ids=[each.line for each in COMMANDS], indirect=True)
def test_a_kill_at_any_call_leaves_old_or_new(place: Place) -> None:
    draw = random.Random(16)
    first = 1
    # One kill within each power of two of the calls that the command makes.
    while place.run(at_call=draw.randrange(first, 2 * first)) == -9:
        place.check()
        first *= 2
    assert first > FEWEST_CALLS
    place.renew()
    assert place.run() == place.code
    assert all(place.check())


@pytest.mark.parametrize("place", COMMANDS, ids=[each.line for each in COMMANDS], indirect=True)
@pytest.mark.slow
def test_a_full_disk_leaves_the_old_file_and_one_line(place: Place) -> None:
    place.renew()
    assert place.run(most=60) == 2
    said = (place.folder / "said").read_text().splitlines()
    assert said[-1].startswith("memplan: ")
    assert "'File too large' on writing" in said[-1]
    assert not any(place.check())
    assert not list(place.folder.glob(".*.part"))
