"""The panel of a search that goes on in the background, in each of its states, without a browser."""

from __future__ import annotations

import os
import pickle
import re
import signal
from dataclasses import replace
from types import SimpleNamespace

import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.background import jobs
from memplan_dashboard.background.jobs import Job, State
from memplan_dashboard.charts import arena_over_time, arena_seconds
from memplan_dashboard.session import documents, plan_facts
from memplan_dashboard.session import searches as solving
from memplan_dashboard.session.plan_facts import make_facts, with_best_bound
from memplan_dashboard.widgets import search_panel
from memplan_examples.make_snapshot import SEGMENT, Allocator

from memplan_engine import SolveLimits, Verdict, known_strategies, make_plan, make_problem, write_csv
from memplan_engine.strategies.base import Progress
from tests.dashboard.background.test_jobs import PROBLEM, improved, make_job
from tests.dashboard.conftest import NODES
from tests.support.apptest import address, check, chips_of, figure, open_app, widget
from tests.support.slow_strategies import ALL, FINISH, STEPS, UNIT, write_distribution
from tests.support.waiting import wait_until

LEAST = make_plan(PROBLEM, "greedy_by_size").arena_bytes


@pytest.fixture(autouse=True)
def _slow(tmp_path, monkeypatch):
    """A file that only the slow strategies find hard; their searches go on, on a clock that stands still."""
    # Asked for before the folder is on the path: this process has them from here, the child from there.
    known = known_strategies()
    monkeypatch.syspath_prepend(str(write_distribution(tmp_path / "site")))
    for kind in ALL:
        monkeypatch.setitem(known, kind.name, kind())
    monkeypatch.setattr(plan_facts, "limits_for", limits_for)
    monkeypatch.setattr(jobs, "time", SimpleNamespace(monotonic=lambda: 0.0))
    monkeypatch.setattr(solving, "session_is_alive", lambda session: True)
    write_csv(PROBLEM, tmp_path / "twelve.csv")
    monkeypatch.setattr("sys.argv", ["app.py", str(tmp_path / "twelve.csv")])


def limits_for(document, strategy):
    """`deaf` sleeps through its seconds, and visits no nodes."""
    return SolveLimits(0.1 if strategy == "deaf" else None, nodes=NODES)


def searches(app):
    return app.session_state["searches"]


def job_of(app):
    (search,) = searches(app).values()
    return search.job


def headlines(app):
    found = [re.match(r"\*\*(.+?)\*\* · ", each.value) for each in app.markdown]
    return [each[1].replace("\\", "") for each in found if each]


def headline(app):
    return next(iter(headlines(app)), None)


def buttons(app):
    return [each.label for each in app.button if not each.disabled]


def press(app, label):
    widget(app.button, label).click()
    return check(app.run())


def test_what_is_proved_at_once_shows_the_usual_figures_and_starts_nothing():
    for strategy in ("auto", "greedy_by_size", "naive"):
        app = open_app(strategy=strategy)
        assert (headline(app), buttons(app), searches(app)) == (None, [], {})
        assert not solving.scheduler().jobs


def test_nobody_who_looks_means_no_search(monkeypatch):
    monkeypatch.setattr(solving, "session_is_alive", lambda session: False)
    app = open_app(strategy="slow_search")
    assert (headline(app), searches(app)) == (None, {})
    assert any("stopped after " in each.value.replace("\\", "") for each in app.caption)


def test_a_search_is_shown_improves_and_is_cancelled():
    app = open_app(strategy="slow_search")
    job = job_of(app)
    assert re.fullmatch(r"Searching: \d+ s of 60 s", headline(app))
    assert buttons(app) == ["Cancel"]
    before = figure(app, "Arena")
    wait_until(lambda: improved(job))
    check(app.run())
    assert figure(app, "Arena") == before  # not under the hands of whoever looks
    assert buttons(app) == ["Show the best so far", "Cancel"]
    press(app, "Show the best so far")
    shown = figure(app, "Arena")
    assert shown != before
    best = job.best.arena_bytes
    wait_until(lambda: job.best.arena_bytes < best or job.best.arena_bytes == LEAST + UNIT)
    press(app, "Cancel")
    wait_until(lambda: job.process_id is None)
    assert job.state is State.CANCELLED
    check(app.run())
    assert headline(app).startswith("Cancelled after")
    assert buttons(app) == ["Keep solving"]
    assert figure(app, "Arena") == f"{job.best.arena_bytes / UNIT:.2f}".rstrip("0").rstrip(".") + " MiB"
    press(app, "Keep solving")
    assert headline(app).startswith("Searching:")
    assert job_of(app) is job


def test_a_search_on_a_part_of_a_run_proves_nothing_of_the_run(tmp_path, monkeypatch):
    allocator = Allocator()
    allocator.free(allocator.alloc(20 * SEGMENT))
    for size in range(1, 13):
        allocator.free(allocator.alloc(size * SEGMENT // 8))
    (tmp_path / "part.pickle").write_bytes(pickle.dumps(allocator.snapshot(30)))
    monkeypatch.setattr("sys.argv", ["app.py", str(tmp_path / "part.pickle")])
    app = open_app(strategy="late_proof")
    wait_until(lambda: job_of(app).state is State.DONE)
    check(app.run())
    assert headline(app).startswith("No arena for what was recorded can be smaller, proved after")
    assert "Part of a run" in chips_of(app)


def test_a_search_held_at_its_limit_shows_its_best_and_goes_on():
    app = open_app(strategy="slow_search")
    job = job_of(app)
    wait_until(lambda: improved(job))
    job.allow(0)
    wait_until(lambda: job.state is State.SUSPENDED)
    check(app.run())
    assert headline(app).startswith("Paused after")
    assert searches(app)[next(iter(searches(app)))].shown.plan is job.best
    pid = job.process_id
    press(app, "Keep solving")
    assert (job.state, job.process_id) == (State.RUNNING, pid)


def test_a_search_that_proves_its_plan_shows_it_and_has_nothing_left_to_press():
    app = open_app(strategy="late_proof")
    wait_until(lambda: job_of(app).state is State.DONE)
    check(app.run())
    assert headline(app).startswith("Proved optimal for the buffers listed after")
    assert (buttons(app), len(app.radio)) == ([], 0)
    assert figure(app, "Arena") == f"{LEAST} B"
    assert "Optimal for the buffers listed" in chips_of(app)


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_search_whose_process_is_killed_says_so_and_keeps_its_best():
    app = open_app(strategy="slow_search")
    job = job_of(app)
    wait_until(lambda: improved(job))
    os.kill(job.process_id, signal.SIGKILL)
    wait_until(lambda: job.process_id is None)
    check(app.run())
    assert headline(app).startswith("Ended early after")
    assert "has ended (exit code -9)" in app.error[0].value.replace("\\", "")
    assert buttons(app) == ["Keep solving"]
    assert searches(app)[next(iter(searches(app)))].shown.plan is job.best


def test_a_search_that_waits_for_others_says_so(monkeypatch):
    monkeypatch.setattr(solving.scheduler(), "most", 1)
    other = make_job(session="another session")
    solving.scheduler().submit(other)
    app = open_app(strategy="slow_search")
    assert headline(app) == "Waiting for its turn: you are next"
    ahead = make_job(session="a third session")
    job_scheduler = solving.scheduler()
    job_scheduler.submit(ahead)
    job_scheduler.submit(job_of(app))
    job_of(app).cancel()
    job_scheduler.submit(job_of(app))
    check(app.run())
    assert headline(app) == "Waiting for its turn: 1 ahead of you"
    ahead.cancel(patience=0)
    other.cancel(patience=0)
    wait_until(lambda: job_of(app).state is State.RUNNING)
    check(app.run())
    assert headline(app).startswith("Searching")


def test_the_limit_is_in_the_address_and_holds_for_the_search():
    app = open_app(strategy="slow_search", limit="10")
    assert (app.radio[0].value, job_of(app).until) == ("10", 10.0)
    app.radio[0].set_value("600")
    check(app.run())
    assert (address(app)["limit"], job_of(app).until) == ("600", 600.0)
    assert headline(app).endswith("of 10 min")


def test_another_search_ends_the_former_and_coming_back_finds_it(tmp_path, monkeypatch):
    monkeypatch.setenv(FINISH, str(tmp_path / "never"))
    app = open_app(strategy="slow_search")
    first = job_of(app)
    wait_until(lambda: improved(first))
    widget(app.selectbox, "Strategy").set_value("naive")
    check(app.run())
    assert (headline(app), first.state) == (None, State.RUNNING)
    widget(app.selectbox, "Strategy").set_value("late_proof")
    check(app.run())
    assert headline(app).startswith("Searching")
    wait_until(lambda: first.process_id is None)
    assert first.state is State.CANCELLED
    widget(app.selectbox, "Strategy").set_value("slow_search")
    check(app.run())
    assert headline(app).startswith("Cancelled after")


def test_compare_takes_what_is_known_and_says_what_was_cut_short():
    app = open_app("compare", compare="slow_search,naive")
    table = app.dataframe[0].value.set_index("strategy")
    notes = [each.value.replace("\\", "") for each in app.caption if "stopped after" in each.value]
    told = (
        r"slow_search: optimality not proved, stopped after [\d.]+ s · late_proof: optimality not "
        r"proved, stopped after [\d.]+ s"
    )
    assert re.fullmatch(rf"{told} · Inspect searches on", notes[0])
    assert table["bytes"]["slow_search"] == LEAST + STEPS * UNIT
    assert not solving.scheduler().jobs
    app.switch_page("views/inspect/inspect_page.py")
    widget(check(app.run()).selectbox, "Strategy").set_value("slow_search")
    job = job_of(check(app.run()))
    wait_until(lambda: improved(job))
    press(app, "Cancel")
    app.switch_page("views/compare_plans.py")
    table = check(app.run()).dataframe[0].value.set_index("strategy")
    assert table["bytes"]["slow_search"] == job.best.arena_bytes


HARD = make_problem(
    [0, 0, 1, 1, 1, 2, 2, 3, 4], [1, 2, 3, 4, 5, 3, 4, 5, 5], [3, 2, 1, 1, 1, 1, 1, 2, 2], name="hard"
)
"""Five bytes are live at most, and six are needed."""


def capacity_of(app):
    """What is said of the capacity, and why."""
    chips = (
        each
        for each in app.markdown
        if re.match(r":(green|orange|red)-badge\[(Fits|This plan|Does)", each.value)
    )
    return next((re.search(r"\[(.*),", chip.value)[1], chip.proto.help) for chip in chips)


def test_a_capacity_between_bound_and_arena_is_looked_for(tmp_path, monkeypatch):
    """The first plan is a poor one, as if the time had not sufficed: the search goes on for the capacity."""
    poor = make_plan(HARD, "naive")
    monkeypatch.setattr(
        plan_facts, "make_plan", lambda *_, **__: replace(poor, strategy="auto", cut_short=True, seconds=0.1)
    )
    write_csv(HARD, tmp_path / "hard.csv")
    monkeypatch.setattr("sys.argv", ["app.py", str(tmp_path / "hard.csv")])
    app = open_app(strategy="auto", capacity=repr(6 / 2**20))
    assert capacity_of(app)[0] == "This plan does not fit"
    assert "a smaller plan may fit" in capacity_of(app)[1]
    job = job_of(app)
    assert job.capacity == 6
    wait_until(lambda: job.state is State.DONE, look=job.snapshot)
    check(app.run())
    assert (capacity_of(app)[0], figure(app, "Arena")) == ("Fits", "6 B")
    assert headline(app).startswith(("Fits in 6 B, found after", "Proved optimal after"))
    widget(app.text_input, "Fits in").set_value("5")
    check(app.run())
    wait_until(lambda: not job.snapshot().state.is_active, look=job.snapshot)
    check(app.run())
    assert capacity_of(app) == ("Does not fit", "No plan fits: the lower bound is above the capacity.")


def test_a_capacity_aims_the_search_and_without_it_the_smallest_arena_is_looked_for(monkeypatch):
    aimed = []
    monkeypatch.setattr(solving, "keep_on", lambda search, beside=(): aimed.append(search.job.capacity))
    job = Job("one", replace(make_plan(HARD, "naive"), strategy="auto"), 60.0)
    document = documents.Document("k", "k", HARD, documents.Options(), HARD)
    search = solving.Search(document, job, make_facts(document, job.best))
    for capacity in (None, 6, 6, 7, None, None, 4, 14, 100, 7):
        solving.aim(search, capacity)
    # Below the bound of 5 and from the arena of 14 bytes on there is nothing to look for.
    assert aimed == [6, 7, 7]
    job.best = replace(make_plan(HARD, "exact"), strategy="auto")
    assert (job.capacity, search.verdict) == (7, Verdict.FITS)
    for capacity in (7, 5, None):
        solving.aim(search, capacity)
    assert (aimed, job.capacity) == ([6, 7, 7], None)


BOTH = {"base": "file:twelve.csv", "head": "file:twelve.csv", "strategy": "slow_search"}


def press_key(app, key):
    app.button(key=key).click()
    return check(app.run())


def test_diff_searches_on_for_one_side_after_the_other():
    app = open_app("diff", **BOTH, head_strategy="late_proof")
    slow, late = (search.job for search in searches(app).values())
    assert [each.partition(": ")[0] for each in headlines(app)] == ["base", "head"]
    assert headlines(app)[1] == "head: Starts when the other side's search ends"
    before = figure(app, "Arena, base → head")
    wait_until(lambda: improved(slow))
    assert (late.state, late.process_id) == (State.WAITING, None)
    press_key(app, "search_cancelbase")
    assert figure(app, "Arena, base → head").endswith(before.partition(" → ")[2])
    wait_until(lambda: late.state is State.DONE, look=late.snapshot)
    check(app.run())
    assert slow.state is State.CANCELLED
    best = f"{slow.best.arena_bytes / UNIT:.2f}".rstrip("0").rstrip(".")
    assert figure(app, "Arena, base → head") == f"{best} MiB → {LEAST} B"
    press_key(app, "search_onbase")
    assert slow.state is State.RUNNING


def test_one_side_of_a_diff_goes_on_while_the_other_is_cancelled_and_resumed(tmp_path, monkeypatch):
    write_csv(replace(PROBLEM, names=tuple(f"b{name}" for name in PROBLEM.names)), tmp_path / "other.csv")
    monkeypatch.setattr("sys.argv", ["app.py", str(tmp_path / "twelve.csv"), str(tmp_path / "other.csv")])
    app = open_app("diff", strategy="slow_search")
    one, other = (search.job for search in searches(app).values())
    wait_until(lambda: improved(one))
    press_key(app, "search_cancelhead")
    assert (one.state, other.state) == (State.RUNNING, State.CANCELLED)
    press_key(app, "search_onhead")
    assert (one.state, other.state) == (State.RUNNING, State.WAITING)
    app.radio(key="limit_widgetbase").set_value("600")
    check(app.run())
    assert (one.until, other.until >= 600, address(app)["limit"]) == (600.0, True, "600")
    widget(app.selectbox, "Head (after)").set_value("file:twelve.csv")
    check(app.run())
    assert one.state is State.RUNNING
    assert [each.partition(":")[0] for each in headlines(app)] == ["base"]  # both sides are one search


def test_a_bound_that_one_plan_proves_holds_for_all_of_them():
    plans = [make_plan(PROBLEM, name) for name in ("greedy_by_size", "naive")]
    weak = replace(plans[0], bound=replace(plans[0].bound, nbytes=LEAST - 1))
    document = documents.Document("k", "k", PROBLEM, documents.Options(), PROBLEM)
    several = [make_facts(document, plan) for plan in (weak, plans[1])]
    found = with_best_bound(several)
    assert [facts.plan.bound.nbytes for facts in found] == [LEAST, LEAST]
    assert [facts.plan.optimal for facts in found] == [True, False]
    assert found[1] is several[1]
    assert arena_seconds.data([weak, plans[1]]).bound_bytes == LEAST
    assert with_best_bound([]) == []


# The course.


def test_the_course_is_thinned_and_ends_where_the_search_is_now():
    history = [Progress(float(i), 1000 - i, 100 + i) for i in range(1001)]
    course = arena_over_time.data(history, 60.0)
    assert len(course.seconds) <= arena_over_time.MOST_POINTS + 1
    assert (course.seconds[0], course.arena[0], course.bound[0]) == (0.0, 1000, 100)
    assert (course.seconds[-1], course.arena[-1], course.bound[-1], course.until) == (1000.0, 0, 1100, 1000.0)
    assert arena_over_time.data([Progress(2.0, 30, 20)], 60.0) == arena_over_time.Course(
        (2.0,), (30,), (20,), 60.0
    )


def test_the_curve_has_two_lines_of_steps():
    course = arena_over_time.data([Progress(1.0, 3 << 20, 1 << 20), Progress(2.0, 2 << 20, 1 << 20)], 10.0)
    bound, arena = arena_over_time.figure(course).data
    assert (bound.name, arena.name, arena.line.shape) == ("lower bound", "best arena", "hv")
    assert list(arena.y) == [3 << 20, 2 << 20]
    assert list(arena.customdata) == ["3 MiB", "2 MiB"]
    assert list(bound.x) == [1.0, 2.0]


@pytest.mark.parametrize(
    ("number", "text"),
    [(950, "950"), (999_700, "1 M"), (12_340, "12.3 k"), (4_560_000, "4.56 M"), (3e9, "3 G")],
)
def test_counts_are_short(number, text):
    assert search_panel.format_count(number) == text


def test_seconds_become_minutes():
    assert [search_panel.format_seconds(each) for each in (9.4, 61, 600, 125)] == [
        "9 s",
        "61 s",
        "10 min",
        "2.08 min",
    ]
