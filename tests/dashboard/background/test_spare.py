"""The process that is kept ready: one at most, taken once, and ended with the sessions that want it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from types import SimpleNamespace

import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.background import run_process, spare
from memplan_dashboard.background.jobs import State, spawn
from memplan_dashboard.background.run_job import PROCESS, Asked, RunJob
from memplan_dashboard.background.spare import Spare

from tests.dashboard.background.test_jobs import Clock, until
from tests.support.processes import is_running
from tests.support.waiting import HANG_SECONDS

MODULE = "tests.support.waiting_process"


class Process:
    """A stand-in for a process: its end is looked for as often as the test lets it be."""

    def __init__(self, module):
        self.returncode = None
        self.may_look, self.has_looked = threading.Semaphore(0), threading.Semaphore(0)

    def poll(self):
        return self.returncode

    def kill(self):
        self.returncode = -9

    def wait(self, seconds):
        self.has_looked.release()
        assert self.may_look.acquire(timeout=HANG_SECONDS)
        raise subprocess.TimeoutExpired("stand-in", seconds)

    def look(self):
        """Let its keeper look once, and wait until it has."""
        assert self.has_looked.acquire(timeout=HANG_SECONDS)
        self.may_look.release()
        until(lambda: self.returncode is not None or self.has_looked._value)


@pytest.fixture
def here():
    """The sessions that are open."""
    return {"one"}


@pytest.fixture
def kept(here, monkeypatch):
    several = []

    def spawn_one(module):
        several.append(Process(module))
        return several[-1]

    monkeypatch.setattr(spare, "spawn", spawn_one)
    yield Spare(MODULE, lambda session: session in here)
    for process in several:
        process.kill()
        process.may_look.release()


def ready(kept):
    until(lambda: kept._process is not None)
    return kept._process


def test_there_is_one_and_it_is_taken_once(kept):
    assert kept.take() is None
    for session in ("one", "one", "two"):
        kept.want(session)
    process = ready(kept)
    kept.want("one")
    assert kept.take() is process
    assert kept.take() is None
    process.look()
    assert process.poll() is None
    kept.want("one")
    assert ready(kept) is not process


def test_it_ends_with_the_last_session_that_wants_it(kept, here):
    here.add("two")
    kept.want("one")
    kept.want("two")
    process = ready(kept)
    here.remove("one")
    process.look()
    assert process.poll() is None
    here.clear()
    process.look()
    assert process.poll() is not None
    assert kept.take() is None


def test_it_ends_when_nobody_asks_for_it_for_long(kept, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(spare, "time", clock)
    kept.want("one")
    process = ready(kept)
    process.look()
    assert process.poll() is None
    clock.now += spare.IDLE_SECONDS
    process.look()
    until(lambda: process.poll() is not None and kept._process is None)


def test_a_real_one_waits_and_one_that_ends_by_itself_is_not_started_again(here, monkeypatch):
    monkeypatch.setattr(spare, "LOOK_SECONDS", 0.05)
    kept = Spare(MODULE, lambda session: session in here)
    kept.want("one")
    process = ready(kept)
    assert kept.take() is process
    process.kill()
    process.communicate()
    monkeypatch.setenv("MEMPLAN_TEST_GIVES_UP", "1")
    kept.want("one")
    until(lambda: kept._failed)
    kept.want("one")
    assert (kept._keeper, kept.take()) == (None, None)


def test_more_memory_than_it_may_take_ends_it(monkeypatch):
    monkeypatch.setattr(run_process, "MOST_BYTES", 1)
    monkeypatch.setattr(run_process, "_resident_bytes", lambda: 2)
    monkeypatch.setattr(run_process, "get_ready", lambda is_asked: None)
    monkeypatch.setattr(run_process, "open_pipes", lambda: (None, None))
    monkeypatch.setattr(run_process, "write_message", lambda *told: None)
    monkeypatch.setattr(run_process, "_listen", lambda *given: None)
    waits = SimpleNamespace(empty=lambda: True, get=lambda: pytest.fail("it waits"))
    monkeypatch.setattr(run_process, "SimpleQueue", lambda: waits)
    monkeypatch.setattr(run_process.os, "_exit", sys.exit)
    # It holds for the whole process, in which other tests come after this one.
    monkeypatch.setattr(run_process.logging, "disable", lambda level: None)
    with pytest.raises(SystemExit), warnings.catch_warnings():
        run_process.main()


@pytest.mark.parametrize("asked", [False, True])
def test_who_waits_for_a_run_does_not_wait_for_what_only_others_need(monkeypatch, asked):
    loaded = []
    monkeypatch.setattr(run_process, "run_model", lambda asked, tell: loaded.append(asked["model"]))
    monkeypatch.setitem(run_process.MODELS, "gpt2", lambda: loaded.append("gpt2"))
    run_process.get_ready(lambda: asked)
    assert loaded == (["perceptron"] if asked else ["perceptron", "gpt2"])


@pytest.mark.skipif(not hasattr(os, "getpriority"), reason="priorities of POSIX")
def test_a_process_that_is_ready_has_the_priority_of_the_server():
    process = spawn(MODULE)
    try:
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == os.getpriority(os.PRIO_PROCESS, 0)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_run_takes_the_process_that_is_ready(here):
    pytest.importorskip("torch")
    kept = Spare(PROCESS, lambda session: session in here)
    kept.want("one")
    process = ready(kept)
    job = RunJob("one", Asked("perceptron"), spare=kept)
    job.run()
    until(lambda: not job.state.is_active)
    assert (job.state, job.fault) == (State.DONE, "")
    assert kept._process is None
    until(lambda: not is_running(process.pid))
