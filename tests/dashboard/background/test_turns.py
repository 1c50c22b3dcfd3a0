"""People take turns: whose job begins when more wait than there are places, and who makes way for whom."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from memplan_dashboard.background import scheduler
from memplan_dashboard.background.jobs import ProcessJob, State
from memplan_dashboard.background.scheduler import JobScheduler

from tests.dashboard.background.test_jobs import improved, make_job, posix, until
from tests.support.processes import is_running


@dataclass(eq=False)
class Turn(ProcessJob):
    """A job without a process, which runs until `done` is called."""

    until: float = math.inf
    can_be_held: bool = True

    def line_up(self):
        self._enter(State.WAITING)

    def run(self):
        self._enter(State.RUNNING)

    def make_way(self):
        if self.can_be_held:
            self._enter(State.WAITING)
        return self.can_be_held

    def cancel(self, patience=0.0):
        self._enter(State.CANCELLED)

    def done(self):
        self._enter(State.DONE)


@pytest.fixture
def make_scheduler():
    made = []

    def make(most):
        made.append(JobScheduler(lambda session: True, most=most))
        return made[-1]

    yield make
    for each in made:
        each.close()


def submit(job_scheduler, names, **options):
    """A job a name, "A2" is person A's in its second session."""
    several = {name: Turn(name, person=name[0], **options) for name in names.split()}
    for job in several.values():
        job_scheduler.submit(job)
    return several


def running(several):
    return " ".join(name for name, job in several.items() if job.state is State.RUNNING)


def course(job_scheduler, several):
    """Who has each turn, where the job that began first is always the first to be done."""
    order = running(several).split()
    for name in order:
        several[name].done()
        job_scheduler.tick()
        order += [each for each in running(several).split() if each not in order]
    return " ".join(order)


def test_what_is_to_wait_for_the_picture_waits_and_holds_up_nobody(make_scheduler):
    job_scheduler = make_scheduler(1)
    later = submit(job_scheduler, "A1", not_before=math.inf)
    several = later | submit(job_scheduler, "B1")
    assert running(several) == "B1"
    several["B1"].done()
    job_scheduler.tick()
    assert running(several) == ""
    several["A1"].not_before = 0.0
    job_scheduler.tick()
    assert running(several) == "A1"


def test_when_all_places_are_taken_a_job_waits_for_its_turn(make_scheduler):
    job_scheduler = make_scheduler(1)
    several = submit(job_scheduler, "A1 B1")
    assert (running(several), job_scheduler.before(several["B1"])) == ("A1", 0)
    several["A1"].cancel()
    job_scheduler.tick()
    assert running(several) == "B1"


def test_two_jobs_of_a_session_run_one_after_the_other_and_leave_room(make_scheduler):
    job_scheduler = make_scheduler(2)
    first, second, other = Turn("a"), Turn("a"), Turn("b")
    job_scheduler.submit(first)
    job_scheduler.submit(second, [first])
    job_scheduler.submit(other)
    assert (first.state, second.state, other.state) == (State.RUNNING, State.WAITING, State.RUNNING)
    assert job_scheduler.waits_for_its_own(second)
    assert not job_scheduler.waits_for_its_own(other)
    first.cancel()
    job_scheduler.tick()
    assert second.state is State.RUNNING
    assert not job_scheduler.waits_for_its_own(second)


def test_a_person_who_comes_back_takes_over_what_their_last_session_ran(monkeypatch):
    monkeypatch.setattr(scheduler, "GRACE_SECONDS", math.inf)
    here = {"other"}
    job_scheduler = JobScheduler(lambda session: session in here)
    job, shown = Turn("before", person="P"), Turn("other", person="P")
    for each in (job, shown):
        job_scheduler.submit(each)
    here.add("after")
    assert job_scheduler.take_over("after", "another", lambda each: each is job) is None
    assert job_scheduler.take_over("after", "P", lambda each: each is shown) is None
    assert job_scheduler.take_over("after", "P", lambda each: each is job) is job
    assert (job.session, job.state) == ("after", State.RUNNING)
    job_scheduler.close()


def test_twenty_of_one_person_do_not_hold_up_anothers_first(make_scheduler):
    job_scheduler = make_scheduler(1)
    twenty = " ".join(f"A{number}" for number in range(1, 21))
    several = submit(job_scheduler, f"{twenty} B1 C1 C2")
    assert [job_scheduler.before(several[name]) for name in ("B1", "C1", "A2", "C2", "A3", "A20")] == [
        0, 1, 2, 3, 4, 21
    ]  # fmt: skip
    rest = " ".join(f"A{number}" for number in range(3, 21))
    assert course(job_scheduler, several) == f"A1 B1 C1 A2 C2 {rest}"


def test_turns_go_round_and_ones_own_come_as_they_came(make_scheduler):
    job_scheduler = make_scheduler(2)
    several = submit(job_scheduler, "A1 B1 A2 A3 B2 C1 C2 D1")
    assert running(several) == "A1 B1"
    assert course(job_scheduler, several) == "A1 B1 C1 D1 A2 B2 C2 A3"


def test_whoever_comes_again_stands_behind(make_scheduler):
    job_scheduler = make_scheduler(1)
    several = submit(job_scheduler, "A1 A2 A3")
    several["A1"].done()
    job_scheduler.submit(several["A1"])
    assert course(job_scheduler, several) == "A2 A3 A1"


def test_who_has_two_places_leaves_the_later_one_to_who_has_none(make_scheduler):
    job_scheduler = make_scheduler(2)
    several = submit(job_scheduler, "A1 A2")
    assert running(several) == "A1 A2"
    several |= submit(job_scheduler, "B1 C1")
    assert running(several) == "A1 B1"
    assert [job_scheduler.before(several[name]) for name in ("C1", "A2")] == [0, 1]
    several["B1"].done()
    job_scheduler.tick()
    assert running(several) == "A1 C1"
    several["C1"].done()
    job_scheduler.tick()
    assert running(several) == "A1 A2"


def test_what_cannot_be_held_keeps_its_place(make_scheduler):
    job_scheduler = make_scheduler(2)
    several = submit(job_scheduler, "A1 A2", can_be_held=False) | submit(job_scheduler, "B1")
    assert running(several) == "A1 A2"
    several["A1"].done()
    job_scheduler.tick()
    assert running(several) == "A2 B1"


def test_without_a_person_each_session_is_one(make_scheduler):
    job_scheduler = make_scheduler(1)
    several = {name: Turn(name) for name in ("one", "other")}
    for job in several.values():
        job_scheduler.submit(job)
    assert [job.person for job in several.values()] == ["one", "other"]


@posix
def test_a_search_that_makes_way_goes_on_where_it_was(make_scheduler, tmp_path, monkeypatch):
    from tests.support.slow_strategies import write_distribution

    monkeypatch.syspath_prepend(str(write_distribution(tmp_path / "site")))
    job_scheduler = make_scheduler(2)
    first, second, other = (make_job(session=name) for name in ("a", "b", "c"))
    first.person = second.person = "A"
    job_scheduler.submit(first)
    job_scheduler.submit(second)
    until(lambda: improved(first) and improved(second))
    pid = second.process_id
    job_scheduler.submit(other)
    assert (first.state, second.state, other.state) == (State.RUNNING, State.WAITING, State.RUNNING)
    held = second.snapshot()
    other.cancel()
    until(lambda: second.best.arena_bytes < held.now.arena_bytes)
    assert (second.state, second.process_id) == (State.RUNNING, pid)
    third = make_job(session="d")
    job_scheduler.submit(third)
    assert second.state is State.WAITING
    second.cancel()
    until(lambda: not is_running(pid))
