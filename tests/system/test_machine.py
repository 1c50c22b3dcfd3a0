"""What the machine has, also where it is not Linux."""

from __future__ import annotations

import os
import re
import sys

import pytest

from memplan_engine.strategies.base import SolveLimits
from memplan_engine.system import count_cores, memory_bytes
from tests.test_architecture import MODULES


@pytest.mark.skipif(sys.platform != "linux", reason="compares with what Linux says")
def test_cores_are_those_that_the_process_may_use():
    mine = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(mine)})
        assert (count_cores(), SolveLimits(threads=0).most_threads) == (1, 1)
    finally:
        os.sched_setaffinity(0, mine)
    assert count_cores() == len(mine)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_what_the_system_says():
    with open("/proc/meminfo", encoding="ascii") as lines:
        found = int(next(line for line in lines if line.startswith("MemTotal")).split()[1])
    assert memory_bytes() == pytest.approx(1024 * found, rel=0.01)


def test_systems_that_tell_less_are_asked_for_less(monkeypatch):
    """macOS and Windows know no affinity, Windows no sysconf."""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert count_cores() == os.cpu_count()
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert SolveLimits(threads=0).most_threads == 1
    monkeypatch.delattr(os, "sysconf", raising=False)
    assert sys.platform == "win32" or memory_bytes() is None


def test_nobody_else_asks_the_system():
    alone = re.compile(r"sched_getaffinity|\bcpu_count\b|\bsysconf\b")
    found = [name for name, path in MODULES.items() if alone.search(path.read_text(encoding="utf-8"))]
    assert found == ["memplan_engine.system"]
