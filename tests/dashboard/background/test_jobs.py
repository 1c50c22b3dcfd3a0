"""Solvers in processes of their own: they start, tell, stop, are held and go on, and never stay behind."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from memplan_dashboard.background import jobs, scheduler
from memplan_dashboard.background.jobs import Job, State
from memplan_dashboard.background.scheduler import JobScheduler
from memplan_dashboard.background.solver_messages import (
    bound_values,
    problem_message,
    read_bound,
    read_message,
    read_problem,
    write_message,
)

from memplan_engine import Gap, SolveLimits, make_plan, make_problem, validate_plan
from memplan_engine.bounds import Bound, BoundKind
from memplan_engine.strategies import get_strategy
from memplan_engine.strategies.base import Placement
from tests import ROOT
from tests.support.processes import is_running
from tests.support.slow_strategies import UNIT, Deaf, LateProof, SlowSearch, write_distribution
from tests.support.waiting import HANG_SECONDS, wait_until

GREEDY_BY_SIZE = get_strategy("greedy_by_size")

posix = pytest.mark.skipif(os.name != "posix", reason="signals")
PROBLEM = make_problem(range(12), range(3, 15), [64] * 12, name="twelve")
"""Greedy by size meets its bound."""
BASE = GREEDY_BY_SIZE.place(PROBLEM, SolveLimits()).offsets


@pytest.fixture(autouse=True)
def _entry_points(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(write_distribution(tmp_path / "site")))


@pytest.fixture
def job_scheduler():
    job_scheduler = JobScheduler(lambda session: True)
    yield job_scheduler
    job_scheduler.close()


def first_plan(kind):
    """What was found while people waited: nothing good, and not proved."""

    class First(kind):
        def place(self, problem, limits):
            limits.cancel()
            return Placement(BASE + 130 * UNIT, "first")

    return make_plan(PROBLEM, First(), limits=SolveLimits())


NO_LIMIT = 1e9
"""Seconds of a search that only the test ends."""


def make_job(kind=SlowSearch, session="a", until=NO_LIMIT):
    return Job(session, first_plan(kind), until)


def until(condition, seconds=HANG_SECONDS, look=str):
    """Wait until `condition()` holds."""
    wait_until(condition, look)


class Clock:
    """A clock that takes the place of `time` in a module."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now


def improved(job):
    return job.best.arena_bytes < job.first.arena_bytes


# Messages.


def test_a_problem_survives_the_way_to_its_solver():
    problem = make_problem(
        [0, 1, 2],
        [4, 5, 6],
        [8, 2**40, 8],
        names=["a", "\ud800", "ü\n"],
        alignment=[1, 64, 4],
        fixed=[-1, 128, -1],
        gaps={0: (Gap(1, 2), Gap(2, 3, 4, 8)), 2: (Gap(3, 4),)},
        steps=9,
        name="p",
    )
    stream = io.BytesIO()
    write_message(stream, *problem_message(problem))
    stream.seek(0)
    found = read_problem(*read_message(stream))
    assert (found, found.name) == (problem, "p")
    with pytest.raises(EOFError):
        read_message(stream)


def test_a_bound_survives_with_its_core():
    bound = Bound(77, BoundKind.CORE, 3, core=(1, 2, 5), until=9)
    assert read_bound(bound_values(bound)) == bound
    assert type(read_bound(bound_values(bound)).kind) is BoundKind
    assert read_bound(bound_values(None)) is None


def test_a_message_cut_short_is_an_end():
    stream = io.BytesIO()
    write_message(stream, {"kind": "progress"}, {"offsets": np.arange(100)})
    for length in (0, 3, 12, len(stream.getvalue()) - 1):
        with pytest.raises(EOFError):
            read_message(io.BytesIO(stream.getvalue()[:length]))


def test_the_solver_process_knows_no_streamlit():
    code = "import sys, memplan_dashboard.background.solver_process; sys.exit('streamlit' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


# A job.


def test_a_job_gets_better_tells_so_and_is_cancelled(job_scheduler):
    job = make_job()
    job_scheduler.submit(job)
    until(lambda: job.snapshot().nodes_per_second and len(job.snapshot().history) > 4)
    seen = job.snapshot()
    arenas = [each.arena_bytes for each in seen.history]
    assert (seen.state, arenas[0]) == (State.RUNNING, job.first.arena_bytes)
    assert arenas == sorted(arenas, reverse=True)
    assert seen.history[0].seconds == job.first.seconds <= seen.history[1].seconds < seen.now.seconds
    pid = job.process_id
    assert is_running(pid)
    job.cancel(HANG_SECONDS)
    assert (job.state, job.process_id, is_running(pid)) == (State.CANCELLED, None, False)
    left = int(dict(job.best.parameters)["found_by"].split()[0])
    assert job.best.offsets.tolist() == (BASE + left * UNIT).tolist()
    assert validate_plan(job.best).valid
    assert (job.best.cut_short, job.best.strategy) == (True, "slow_search")


def test_nodes_per_second_are_those_of_late_while_it_ran(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(jobs, "time", clock)
    job = make_job()

    def at(seconds, nodes):
        clock.now = 100.0 + seconds
        values = {"kind": "progress", "nodes": nodes, "bound": None, "found_by": "", "threads": 1}
        job._hear(values, {})
        return job.snapshot().nodes_per_second

    job._enter(State.RUNNING)
    assert at(0.0, 0) is None
    assert at(1.0, 1_000_000) == pytest.approx(1e6)
    # Of the three seconds the last two count.
    assert at(3.0, 2_000_000) == pytest.approx(5e5)
    job._enter(State.SUSPENDED)
    clock.now += 10
    job._enter(State.RUNNING)
    assert job.snapshot().nodes_per_second is None
    assert at(13.0, 2_000_000) is None
    assert at(14.0, 5_000_000) == pytest.approx(3e6)


def test_a_search_that_comes_to_its_end_is_done(job_scheduler):
    job = make_job(LateProof)
    job_scheduler.submit(job)
    until(lambda: job.state is State.DONE)
    until(lambda: job.process_id is None)
    assert job.best.optimal
    assert not job.best.cut_short
    assert job.best.offsets.tolist() == BASE.tolist()
    until(lambda: not job_scheduler.jobs)


@pytest.mark.parametrize(("capacity", "arena", "bound"), [(7, 7, 5), (6, 6, 5), (5, None, 6)])
def test_a_search_for_a_capacity_ends_as_soon_as_it_is_answered(job_scheduler, capacity, arena, bound):
    """A plan within it, or a proof that there is none; nothing smaller is looked for."""
    columns = [0, 0, 1, 1, 1, 2, 2, 3, 4], [1, 2, 3, 4, 5, 3, 4, 5, 5], [3, 2, 1, 1, 1, 1, 1, 2, 2]
    first = replace(make_plan(make_problem(*columns), "naive"), strategy="exact")
    job = Job("one", first, NO_LIMIT, capacity=capacity)
    job_scheduler.submit(job)
    until(lambda: job.state is State.DONE, look=job.snapshot)
    assert job.best.bound.nbytes >= bound
    assert arena is None or job.best.arena_bytes <= arena


@posix
def test_a_killed_solver_leaves_its_best_and_can_begin_again_with_another_seed(job_scheduler):
    job = make_job()
    job_scheduler.submit(job)
    until(lambda: improved(job))
    os.kill(job.process_id, signal.SIGKILL)
    until(lambda: job.process_id is None)
    assert (job.state, job.fault) == (State.FAILED, "the process of the search has ended (exit code -9)")
    assert improved(job)
    before, nodes = job.best.arena_bytes, job.snapshot().now.nodes
    job.grant(NO_LIMIT)
    job_scheduler.submit(job)
    until(lambda: job.best.arena_bytes < before)
    assert dict(job.best.parameters)["found_by"].endswith("seed 1")
    assert job.snapshot().now.nodes > nodes
    assert job.snapshot().fault == ""


def test_a_solver_that_does_not_hear_is_killed(job_scheduler):
    job = make_job(Deaf)
    job_scheduler.submit(job)
    until(lambda: improved(job))
    pid = job.process_id
    job.cancel(patience=0.2)
    until(lambda: not is_running(pid))
    assert job.state is State.CANCELLED
    assert job.best.offsets.tolist() == BASE.tolist()


def test_an_error_in_the_solver_is_told_on_one_line(job_scheduler, monkeypatch):
    monkeypatch.setattr(SlowSearch, "name", "nobody_knows_this")
    job = make_job()
    job_scheduler.submit(job)
    until(lambda: job.state is State.FAILED)
    assert job.fault.startswith("no strategy 'nobody_knows_this'; there are: auto")
    assert job.best.offsets is job.first.offsets


@posix
def test_at_its_limit_a_search_is_held_and_goes_on_from_there(job_scheduler, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(jobs, "time", clock)
    job = make_job(until=60.0)
    job_scheduler.submit(job)
    until(lambda: improved(job))
    clock.now += 60
    until(lambda: job.state is State.SUSPENDED)
    pid, held = job.process_id, job.snapshot()
    assert held.seconds == pytest.approx(job.first.seconds + 60)
    clock.now += 1000
    assert job.seconds == held.seconds
    until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    best = job.best.arena_bytes
    job.grant(60)
    assert job.snapshot().until == held.seconds + 60
    job_scheduler.submit(job)
    until(lambda: job.best.arena_bytes < best)
    assert (job.state, job.process_id) == (State.RUNNING, pid)
    assert dict(job.best.parameters)["found_by"].endswith("seed 0")
    job.suspend()
    job.cancel()
    assert job.state is State.CANCELLED
    until(lambda: not is_running(pid))


def test_a_search_does_not_go_on_in_a_process_that_is_about_to_end(job_scheduler, monkeypatch):
    monkeypatch.setattr(jobs, "CANCEL_SECONDS", 0.05)
    job = make_job()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as ending:
        job._process = ending
        job_scheduler.submit(job)
        assert job.state is State.WAITING
        ending.kill()
    job._process = None
    until(lambda: improved(job))
    assert job.state is State.RUNNING


def test_the_limit_counts_from_the_last_grant():
    job = make_job(until=60)
    job.allow(10)
    assert job.snapshot().until == 10
    job.grant(60)
    job.allow(600)
    assert job.snapshot().until == job.first.seconds + 600


# The scheduler.


def test_sessions_side_by_side_and_one_job_each(job_scheduler):
    one, other = make_job(session="a"), make_job(session="b")
    job_scheduler.submit(one)
    job_scheduler.submit(other)
    until(lambda: improved(one) and improved(other))
    pids = [one.process_id, other.process_id]
    second = make_job(session="a")
    job_scheduler.submit(second)
    assert (one.state, other.state, second.state) == (State.CANCELLED, State.RUNNING, State.RUNNING)
    job_scheduler.close()
    until(lambda: not any(map(is_running, pids)))
    until(lambda: {job.process_id for job in (one, other, second)} == {None})


def test_a_job_ends_with_its_session(monkeypatch):
    monkeypatch.setattr(scheduler, "GRACE_SECONDS", 0.0)
    sessions = {"gone", "here"}
    job_scheduler = JobScheduler(lambda session: session in sessions)
    gone, here = make_job(session="gone"), make_job(session="here")
    job_scheduler.submit(gone)
    job_scheduler.submit(here)
    until(lambda: gone.process_id)
    pid = gone.process_id
    sessions.remove("gone")
    until(lambda: gone.state is State.CANCELLED and gone.process_id is None)
    assert not is_running(pid)
    assert here.state is State.RUNNING
    job_scheduler.close()


# Nothing stays behind.

SERVER = """
import sys, time
from tests.dashboard.background import test_jobs as t
job_scheduler = t.JobScheduler(lambda session: True)
several = [t.make_job(session=name) for name in "ab"]
for job in several:
    job_scheduler.submit(job)
t.until(lambda: all(map(t.improved, several)))
several[1].suspend()
print(*(job.process_id for job in several), flush=True)
time.sleep(t.HANG_SECONDS)
"""


@posix
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_when_the_server_ends_its_solvers_end_searching_or_held(number, tmp_path):
    paths = os.pathsep.join(map(str, (tmp_path / "site", ROOT)))
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    pids = [int(word) for word in server.stdout.readline().split()]
    assert [is_running(pid) for pid in pids] == [True, True]
    server.send_signal(number)
    server.communicate(timeout=HANG_SECONDS)
    until(lambda: not any(map(is_running, pids)))


def test_the_childs_import_path_is_whole_where_a_page_ends_meanwhile(tmp_path, monkeypatch):
    """Streamlit takes the folder of the script off `sys.path` when a page has run, in another thread."""
    folders = [str(tmp_path / name) for name in "abc"]
    entries = ["page", *folders]

    class AsThePageEnds(type(Path())):
        def resolve(self, strict=False):
            if "page" in entries:
                entries.remove("page")
            return super().resolve(strict)

    monkeypatch.setattr(jobs, "Path", AsThePageEnds)
    assert jobs.import_path(entries).split(os.pathsep) == ["page", *folders]


def test_the_childs_import_path_leaves_out_the_folder_of_the_pages(tmp_path):
    entries = [str(ROOT / "dashboard"), "", str(ROOT), str(tmp_path)]
    assert jobs.import_path(entries).split(os.pathsep) == [str(ROOT), str(tmp_path)]
