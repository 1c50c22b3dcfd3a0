"""The process that is kept ready: one at most, taken once, and gone with those who want it."""

from __future__ import annotations

import os
import sys
import time
import warnings
from types import SimpleNamespace

import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.background import run_process, spare
from memplan_dashboard.background.jobs import State, spawn
from memplan_dashboard.background.run_job import PROCESS, Asked, RunJob
from memplan_dashboard.background.solver_messages import read_message
from memplan_dashboard.background.spare import Spare

from tests.dashboard.background.test_jobs import is_running, until

MODULE = "tests.support.waiting_process"


@pytest.fixture
def here(monkeypatch):
    """The sessions that are there."""
    monkeypatch.setattr(spare, "LOOK_SECONDS", 0.05)
    return {"one"}


@pytest.fixture
def kept(here):
    made = Spare(MODULE, lambda session: session in here)
    yield made
    here.clear()
    until(lambda: made._process is None)


def ready(kept):
    until(lambda: kept._process is not None)
    return kept._process


@pytest.mark.quarantine
def test_there_is_one_and_it_is_taken_once(kept):
    assert kept.take() is None
    for session in ("one", "one", "two"):
        kept.want(session)
    process = ready(kept)
    kept.want("one")
    assert kept.take() is process
    assert kept.take() is None
    time.sleep(0.2)
    assert process.poll() is None
    kept.want("one")
    assert ready(kept) is not process
    process.kill()


@pytest.mark.quarantine
def test_it_ends_with_the_last_session_that_wants_it(kept, here):
    here.add("two")
    kept.want("one")
    kept.want("two")
    process = ready(kept)
    here.remove("one")
    time.sleep(0.2)
    assert process.poll() is None
    here.clear()
    until(lambda: process.poll() is not None)
    assert kept.take() is None


@pytest.mark.quarantine
def test_it_ends_when_nobody_asks_for_it_for_long(kept, monkeypatch):
    monkeypatch.setattr(spare, "IDLE_SECONDS", 0.2)
    kept.want("one")
    process = ready(kept)
    until(lambda: process.poll() is not None and kept._process is None)


@pytest.mark.quarantine
def test_one_that_ends_by_itself_is_not_started_again(kept, monkeypatch):
    monkeypatch.setenv("MEMPLAN_TEST_GIVES_UP", "1")
    kept.want("one")
    until(lambda: kept._failed)
    kept.want("one")
    assert (kept._keeper, kept.take()) == (None, None)


@pytest.mark.quarantine
def test_more_memory_than_it_may_take_ends_it(monkeypatch):
    monkeypatch.setattr(run_process, "MOST_BYTES", 1)
    monkeypatch.setattr(run_process, "get_ready", lambda is_asked: None)
    monkeypatch.setattr(run_process, "open_pipes", lambda: (None, None))
    monkeypatch.setattr(run_process, "write_message", lambda *told: None)
    monkeypatch.setattr(run_process, "_listen", lambda *given: None)
    waits = SimpleNamespace(empty=lambda: True, get=lambda: pytest.fail("it waits"))
    monkeypatch.setattr(run_process, "SimpleQueue", lambda: waits)
    monkeypatch.setattr(run_process.os, "_exit", sys.exit)
    # For good, in a process of its own; here other tests come after it.
    monkeypatch.setattr(run_process.logging, "disable", lambda level: None)
    with pytest.raises(SystemExit), warnings.catch_warnings():
        run_process.main()


@pytest.mark.quarantine
@pytest.mark.parametrize("asked", [False, True])
def test_who_waits_for_a_run_does_not_wait_for_what_only_others_need(monkeypatch, asked):
    loaded = []
    monkeypatch.setattr(run_process, "run_model", lambda asked, tell: loaded.append(asked["model"]))
    monkeypatch.setitem(run_process.MODELS, "gpt2", lambda: loaded.append("gpt2"))
    run_process.get_ready(lambda: asked)
    assert loaded == (["perceptron"] if asked else ["perceptron", "gpt2"])


@pytest.mark.quarantine
@pytest.mark.skipif(not hasattr(os, "getpriority"), reason="priorities of POSIX")
def test_a_run_that_somebody_waits_for_has_the_priority_of_the_server():
    process = spawn(PROCESS)
    try:
        read_message(process.stdout)
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == os.getpriority(os.PRIO_PROCESS, 0)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.quarantine
@pytest.mark.slow
def test_a_run_in_a_process_that_is_ready_takes_a_second_and_keeps_to_its_memory(here):
    pytest.importorskip("torch")
    kept = Spare(PROCESS, lambda session: session in here)
    kept.want("one")
    process = ready(kept)
    until(lambda: b"S (sleeping)" in stat(process.pid) and cpu_stands(process.pid), 60)
    assert resident(process.pid) < run_process.MOST_BYTES / 2
    job = RunJob("one", Asked("perceptron"), spare=kept)
    job.run()
    until(lambda: job.state is not State.RUNNING, 20)
    assert (job.state, job.fault, job.seconds < 2.0) == (State.DONE, "", True)
    until(lambda: not is_running(process.pid))


def stat(pid):
    with open(f"/proc/{pid}/status", "rb") as file:
        return file.read()


def resident(pid):
    (line,) = (line for line in stat(pid).splitlines() if line.startswith(b"VmRSS"))
    return int(line.split()[1]) << 10


def cpu_stands(pid):
    def spent():
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[11:13]

    before = spent()
    time.sleep(1.0)
    return spent() == before
