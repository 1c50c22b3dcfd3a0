"""The Dockerfile's steps, run in a clean folder: there is no container engine where the tests run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.dockerfile import Built, context, instructions

STEPS = instructions((ROOT / "Dockerfile").read_text())
IGNORE = (ROOT / ".dockerignore").read_text()
STRANGER = 10001
USERADD = '#!/bin/sh\nmkdir -p "{home}"\nif [ "$(id -u)" = 0 ]; then chown {user} "{home}"; fi\n'


def tracked() -> list[str]:
    line = ["git", "ls-files", "-co", "--exclude-standard"]
    return subprocess.run(line, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()


def test_the_context_is_what_the_last_pattern_that_fits_leaves() -> None:
    files = ["a/b.py", "a/__pycache__/b.pyc", "c.py", "d/e.md", "d/f.md", "ab/x"]
    assert context(files, "# some\n*\n!a\n!d/e.md\n**/__pycache__\n") == ["a/b.py", "d/e.md"]
    assert context(files, "") == files


def test_the_context_has_what_is_built_and_no_more() -> None:
    tops = {path.partition("/")[0] for path in context(tracked(), IGNORE)}
    assert {"memplan_engine", "dashboard", "example_graphs", "pyproject.toml", "LICENSE"} < tops
    assert not tops & {"tests", ".git", "benchmarks", ".github", "typings"}


def test_it_ends_as_a_user_without_rights_and_says_whether_it_works() -> None:
    names = [name for name, _ in STEPS]
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert [rest for name, rest in STEPS if name == "USER"] == [str(STRANGER)]
    assert names.count("HEALTHCHECK") == 1
    assert [rest for name, rest in STEPS if name == "FROM"] == ["python:3.11-slim"]
    extras = re.findall(r'"(.*)"', dict(STEPS)["ARG"])[0].split()
    assert extras == ["dashboard", "onnx", "figures", "history"]


@pytest.fixture
def container() -> Iterator[Built]:
    """An environment in a folder that everybody may enter, with the packages of ours, but for memplan."""
    folder = Path(tempfile.mkdtemp(prefix="memplan-container-"))
    folder.chmod(0o755)
    theirs = folder / "theirs" / "site-packages"  # Elsewhere Streamlit takes itself for being developed.
    theirs.mkdir(parents=True)
    for path in Path(pytest.__file__).parents[1].iterdir():
        if "memplan" not in path.name and path.name != "__pycache__":
            (theirs / path.name).symlink_to(path)
    # One that others may run, too, where there is one of the version: ours may lie in somebody's home.
    system = Path(f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}")
    python = system if system.exists() else Path(sys._base_executable)  # type: ignore[attr-defined]
    subprocess.run([str(python), "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (site / "theirs.pth").write_text(f"{theirs}\n")
    programs = folder / "stand-ins"
    programs.mkdir()
    home = folder / "root" / "home" / "memplan"
    (programs / "useradd").write_text(USERADD.format(home=home, user=STRANGER))
    (programs / "useradd").chmod(0o755)
    (folder / "root").mkdir()
    built = Built(folder / "root", (programs, folder / "venv" / "bin"))
    if os.geteuid() == 0:
        line = [str(folder / "venv" / "bin" / "python"), "-c", "import streamlit"]
        try:
            done = subprocess.run(line, user=STRANGER, group=STRANGER, extra_groups=[], cwd="/", check=False)
            built.user = None if done.returncode else STRANGER
        except PermissionError:
            built.user = None
    yield built
    shutil.rmtree(folder)


def answer(address: str, port: int, host: str) -> int:
    request = urllib.request.Request(f"http://{address}:{port}/_stcore/health", headers={"Host": host})
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=5) as got:
            return int(got.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_its_steps_make_a_dashboard_that_other_machines_reach(container: Built) -> None:
    """127.0.0.2 is this machine under another address than that on which the dashboard listens by itself."""
    files = context(tracked(), IGNORE)
    for name, rest in STEPS:
        container.step(name, rest, ROOT, files)
    assert (container.exposed, container.command) == (["8501"], ["--port", "8501"])
    home = container.below("/home/memplan")
    assert container.below(".") == home
    with container.start([*container.entrypoint, *container.command]) as server:
        assert server.stdout
        try:
            said = ""
            while "the dashboard is at" not in said:
                line = server.stdout.readline()
                assert line, said
                said += line
            port = int(re.findall(r"http://127\.0\.0\.1:(\d+)", said)[0])
            health = [word.replace(":8501/", f":{port}/") for word in container.health]
            assert container.run(health)[0] == 0
            assert answer("127.0.0.2", port, f"127.0.0.1:{port}") == 200
            assert answer("127.0.0.2", port, "plans.example") == 403
            begun = time.monotonic()
        finally:
            server.terminate()
        assert server.wait(10) == 0
        assert time.monotonic() - begun < 10
    assert container.run(health)[0] != 0
