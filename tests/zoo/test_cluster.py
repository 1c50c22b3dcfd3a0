"""A real scheduler of Dask's with real workers: what is recorded, and what becomes of killed ones."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memplan_engine.errors import InputError
from memplan_engine.history.opening import open_history
from memplan_engine.zoo.dask_workers import DaskWorkers

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.slow

MANIFEST = """
project = "shop"
[[models]]
name = "net"
factory = "nets.py:net"
axes = { batch = [1, 2, 3, 4, 5, 6] }
[[models]]
name = "killed"
factory = "nets.py:killed"
axes = { batch = [1] }
"""
SECONDS = 90.0


class Cluster:
    """A scheduler and its workers, each a process."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.processes = folder, []  # type: tuple[Path, list[subprocess.Popen[bytes]]]
        known = folder / "scheduler.json"
        self.scheduler = self.start("scheduler", "--port", "0", "--scheduler-file", str(known))
        self.wait(known.exists)
        self.address = str(json.loads(known.read_text())["address"])

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{len(self.processes)}.log").open("wb") as said:
            line = [sys.executable, "-m", "dask", *words, "--no-dashboard", "--host", "127.0.0.1"]
            process = subprocess.Popen(line, stdout=said, stderr=said, cwd=self.folder)
        self.processes.append(process)
        return process

    def add_worker(self) -> subprocess.Popen[bytes]:
        words = ("--nthreads", "1", "--no-nanny", "--death-timeout", "60")
        return self.start("worker", self.address, *words)

    def wait(self, until: Callable[[], object]) -> None:
        deadline = time.monotonic() + SECONDS
        while not until():
            assert time.monotonic() < deadline, [each.read_text() for each in self.folder.glob("*.log")]
            time.sleep(0.05)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.close()


def points(models: Path) -> int:
    with open_history(models / "history.db", read_only=True) as history:
        return len(history.points())


def test_a_worker_that_is_killed_in_the_middle_costs_no_variant(cluster: Cluster, models: Path) -> None:
    first, _ = cluster.add_worker(), cluster.add_worker()
    (models / "zoo.toml").write_text(MANIFEST)
    line = [sys.executable, "-m", "memplan_engine", "zoo", "zoo.toml", "--cache", "kept", "--json"]
    zoo = subprocess.Popen(
        [*line, "--scheduler", cluster.address], cwd=models, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    # It is in the middle: some points are recorded, some are not.
    cluster.wait(lambda: list(models.glob("kept/points/*/*")))
    first.send_signal(signal.SIGKILL)
    out, err = zoo.communicate(timeout=SECONDS)
    assert zoo.returncode == 1, err
    told = json.loads(out)
    assert told["complete"]
    answered = [(each["model"], point["arena"]) for each in told["variants"] for point in each["points"]]
    assert answered == [("net", 128 * batch) for batch in range(1, 7)]
    assert points(models) == 6
    assert sum("is gone: what it ran is given to another one" in each for each in err.splitlines()) == 1
    # A process that kills itself takes no worker along.
    assert "killed (batch=1): the process was ended by SIGKILL" in err
    assert "Traceback" not in err


def test_a_scheduler_that_is_gone_is_one_line_and_what_is_done_is_recorded(
    cluster: Cluster, models: Path
) -> None:
    cluster.add_worker()
    (models / "zoo.toml").write_text(MANIFEST.partition('[[models]]\nname = "killed"')[0])
    line = [sys.executable, "-m", "memplan_engine", "zoo", "zoo.toml", "--cache", "kept"]
    zoo = subprocess.Popen(
        [*line, "--scheduler", cluster.address], cwd=models, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    cluster.wait(lambda: len(list(models.glob("kept/points/*/*"))) >= 1)
    cluster.scheduler.send_signal(signal.SIGKILL)
    _, err = zoo.communicate(timeout=SECONDS)
    assert zoo.returncode == 2
    assert err.splitlines()[-1].startswith("memplan: ")
    assert "Traceback" not in err
    assert 1 <= points(models) < 6


def test_no_scheduler_is_one_line() -> None:
    for address in ("tcp://127.0.0.1:1", "nonsense://x", "tcp://host:port"):
        with pytest.raises(
            InputError, match=r"--scheduler: found .*expected the address of a Dask scheduler"
        ):
            DaskWorkers(address, seconds=0.5)
