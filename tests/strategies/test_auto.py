"""Strategy `auto`: never worse than anything constructive, within limits, and the limits it shares out."""

from __future__ import annotations

import subprocess
import sys
import threading

import memplan_examples
import numpy as np
import pytest
from hypothesis import given

from benchmarks.families import adversarial, perfect
from benchmarks.families import drawn as random_instances
from memplan_engine import bounds, load, planner
from memplan_engine.bounds import Bound, BoundKind, lower_bound
from memplan_engine.planner import as_problem, compare, make_plan, strategies_for
from memplan_engine.problem import make_problem
from memplan_engine.strategies import auto, get_strategy
from memplan_engine.strategies.base import Placement, Progress, SolveLimits, is_anytime
from memplan_engine.strategies.constructive.order_fit import place_by_portfolio
from memplan_engine.strategies.search import local_search
from memplan_engine.verify.validate import validate_plan
from tests import ROOT
from tests.support import drawn, reference, tight
from tests.support.manual_clock import cancelled_at_first_placement, install_clock
from tests.support.waiting import HANG_SECONDS


def constructive(problem):
    return [name for name in strategies_for(problem) if not is_anytime(get_strategy(name))]


@given(problem=drawn.problems(most=10))
def test_it_is_never_worse_than_any_constructive_strategy(problem):
    plan = make_plan(problem, limits=SolveLimits(nodes=500))
    reference.assert_sound(problem, plan.offsets.tolist())
    assert plan.arena_bytes <= min(other.arena_bytes for other in compare(problem, constructive(problem)))


@pytest.mark.parametrize("kind", tight.EXACT, ids=lambda kind: kind.__name__)
def test_what_is_small_is_solved_with_a_proof(kind):
    for problem in tight.many(kind, 15, seed=21):
        plan = make_plan(problem, limits=SolveLimits())
        assert plan.arena_bytes == plan.bound.nbytes == reference.least_arena(problem)


@pytest.mark.parametrize(
    ("name", "arena"),
    [
        ("mobilenet_v2.json", 9_720_192),
        ("gpt2_training_step.json", 579_726_340),
        ("resnet50.json", 9_633_792),
        ("teaching_no_way_out.csv", 6),
    ],
)
def test_examples_are_proved(name, arena):
    plan = make_plan(load(memplan_examples.PATH / name), limits=SolveLimits(nodes=1_000_000))
    assert plan.arena_bytes == plan.bound.nbytes == arena
    assert not plan.cut_short
    assert validate_plan(plan).valid


@pytest.mark.parametrize("path", memplan_examples.examples(), ids=lambda path: path.stem)
def test_no_constructive_strategy_beats_it_on_an_example(path):
    problem = as_problem(load(path))
    others = compare(problem, constructive(problem))
    plan = make_plan(problem, limits=SolveLimits(nodes=1_000))
    assert plan.arena_bytes <= min(other.arena_bytes for other in others)


@pytest.mark.parametrize("threads", [1, 2])
def test_large_parts_are_searched_in_both_ways(threads, monkeypatch):
    """With more buffers than branch and bound gets alone, repair takes turns with it, or runs at the same
    time."""
    made = random_instances.training(120, 3)
    assert len(made.problem) > 400
    for name in ("ALONE_SECONDS", "ALONE_WITHOUT_RULES", "FIRST_SLICE"):
        monkeypatch.setattr(auto, name, 0.1)
    limits = SolveLimits(threads=threads, nodes=6_000)
    plan = make_plan(made.problem, limits=limits)
    reference_arena = place_by_portfolio(made.problem, SolveLimits(), 0).arena_bytes(made.problem)
    assert made.lower_bound <= plan.arena_bytes <= reference_arena
    assert validate_plan(plan, replay=False).valid
    assert limits.best_bytes == plan.arena_bytes


HARD = tight.crowded(np.random.default_rng(1), 150, 200, 50)
HARD_AND_LARGE = perfect.pinwheel(601, 1).problem


@pytest.mark.parametrize("strategy", ["auto", "exact", "search"])
@pytest.mark.parametrize("problem", [HARD, HARD_AND_LARGE], ids=["150", "601"])
def test_a_time_limit_ends_the_search_with_its_best(strategy, problem):
    """The problem takes minutes, so that only the limit can end it."""
    limits = SolveLimits(0.1)
    plan = make_plan(problem, strategy, limits=limits)
    assert plan.cut_short
    assert validate_plan(plan, replay=False).valid
    assert plan.bound.nbytes < plan.arena_bytes == limits.best_bytes


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("problem", [HARD, HARD_AND_LARGE], ids=["150", "601"])
def test_cancelling_from_another_thread_keeps_the_best(problem, threads):
    limits = SolveLimits(threads=threads)
    with cancelled_at_first_placement(limits):
        plan = make_plan(problem, limits=limits)
    assert plan.cut_short
    assert validate_plan(plan, replay=False).valid
    assert plan.arena_bytes == limits.best_bytes


def test_threads_and_nodes_are_told():
    made = adversarial.no_way_out(3)
    for threads in (1, 2):
        plan = make_plan(made.problem, limits=SolveLimits(threads=threads))
        assert plan.threads == threads
        assert plan.nodes > 0
        assert plan.bound.kind is BoundKind.CORE
    easy = make_plan(make_problem([0], [1], [1]), limits=SolveLimits(threads=2))
    assert (easy.threads, easy.nodes) == (1, 0)


def test_progress_comes_with_every_better_placement_and_bound():
    made = adversarial.no_way_out(2)
    told: list[Progress] = []
    plan = make_plan(made.problem, limits=SolveLimits(listener=told.append))
    assert told[0].bound_bytes == made.lower_bound
    assert told[-1].bound_bytes == told[-1].arena_bytes == plan.arena_bytes == made.optimum
    assert told[-1].gap == 0.0
    assert [one.nodes for one in told] == sorted(one.nodes for one in told)


def test_who_hears_of_progress_may_say_that_it_is_enough():
    made = adversarial.no_way_out(2)
    told: list[Progress] = []

    def enough(progress: Progress) -> bool:
        told.append(progress)
        return progress.gap is not None

    # The bound is told first, and does not end it; the first placement does, long before the proof.
    plan = make_plan(made.problem, limits=SolveLimits(listener=enough))
    assert told[0].gap is None
    assert told[-1].arena_bytes == plan.arena_bytes > made.optimum
    assert plan.cut_short


def test_what_is_only_as_good_is_no_news():
    # No order × fit gets below 8 here, and the bound is 7: each of them would be tried and told again.
    problem = make_problem([1, 0, 4, 0, 2, 3], [2, 3, 5, 5, 4, 4], [3, 2, 2, 1, 2, 4])
    reports: list[int] = []
    limits = SolveLimits(listener=lambda progress: reports.append(progress.arena_bytes or 99))
    placement = place_by_portfolio(problem, limits, lower_bound(problem).nbytes)
    assert (placement.arena_bytes(problem), lower_bound(problem).nbytes) == (8, 7)
    assert reports == sorted(set(reports), reverse=True)
    # Search finds what no order × fit does.
    assert make_plan(problem, limits=SolveLimits()).arena_bytes == 7 == reference.optimum(problem)


def test_portfolios_in_threads_are_the_same_as_one_by_one():
    random = np.random.default_rng(4)
    start = random.integers(0, 300, 1500)
    problems = [
        make_problem(start, start + random.integers(1, 90, 1500), random.integers(1, 999, 1500))
        for _ in "1234"
    ]

    def offsets(i):
        return place_by_portfolio(problems[i], SolveLimits(), 0).offsets.tolist()

    found: dict[int, list[int]] = {}
    threads = [threading.Thread(target=lambda i=i: found.update({i: offsets(i)})) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_SECONDS)
    assert found == {i: offsets(i) for i in range(4)}


SPARE = make_problem([0, 0], [1, 1], [3, 4])


def test_a_childs_reports_and_proofs_reach_the_parent():
    told: list[Progress] = []
    parent = SolveLimits(seed=4, listener=told.append)
    child = parent.child(seed=2)
    assert child.seed == 6
    child.report(Placement(np.array([0, 3]), "mine"), SPARE)
    child.prove(Bound(5, BoundKind.LOAD, 0))
    assert (parent.best_bytes, parent.bound.nbytes) == (7, 5)
    assert [(one.arena_bytes, one.bound_bytes, one.found_by) for one in told] == [
        (7, None, "mine"), (7, 5, "mine")
    ]  # fmt: skip
    # What is no better there is no news there.
    parent.report(Placement(np.array([4, 0]), "same"), SPARE)
    child.prove(Bound(4, BoundKind.LOAD, 0))
    assert parent.best.found_by == "mine"
    assert len(told) == 2


def test_what_a_parent_has_is_not_taken_back_by_a_child():
    parent = SolveLimits()
    parent.report(Placement(np.array([0, 3]), "mine"), SPARE)
    child = parent.child()
    child.report(Placement(np.array([0, 9]), "worse"), SPARE)
    assert child.best_bytes == 13
    assert (parent.best_bytes, parent.best.found_by) == (7, "mine")


def test_a_parent_ends_its_children_and_not_the_other_way_round():
    parent = SolveLimits()
    one, other = parent.child(), parent.child()
    grandchild = one.child()
    one.cancel()
    assert (one.stopped, grandchild.stopped, other.stopped, parent.stopped) == (True, True, False, False)
    parent.cancel()
    assert other.stopped
    assert parent.child().stopped


def test_a_childs_time_is_up_without_its_parents(monkeypatch):
    clock = install_clock(monkeypatch)
    parent = SolveLimits(60.0)
    child = parent.child(2.0)
    with parent.running(), child.running():
        clock.advance(1.5)
        assert (child.left, child.elapsed, child.stopped) == (0.5, 1.5, False)
        clock.advance(0.5)
        assert (child.left, child.stopped) == (0.0, True)
        assert (parent.left, parent.stopped) == (58.0, False)
        clock.advance(58.0)
        assert parent.stopped
    assert parent.child().left == np.inf


def test_children_count_nodes_together():
    parent = SolveLimits()
    parent.child().counter[0] += 5
    parent.child().counter[0] += 2
    assert parent.progress().nodes == 7


def test_limits_that_ended_in_time_stop_nothing_later(monkeypatch):
    clock = install_clock(monkeypatch)
    limits = SolveLimits(0.1)
    with limits.running():
        assert len(clock.timers) == 1
    clock.advance(0.2)
    assert not clock.timers
    assert not limits.stopped
    # Without a time limit there is no timer.
    with SolveLimits(nodes=5).running():
        assert not clock.timers


def test_bounds_and_arrays_of_a_large_part_are_worked_out_once(monkeypatch):
    """A million buffers paid for the bound three times, within a limit that was to be searched."""
    calls = []
    for module, name in ((bounds, "_lower_bound"), (auto, "make_timeline"), (local_search, "place_quickly")):
        known = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *a, _name=name, _known=known: calls.append(_name) or _known(*a)
        )
    monkeypatch.setattr(auto, "MOST_BUFFERS", 3)
    problem = make_problem(*np.array([(i % 7, i % 7 + 3, 1 + i % 5) for i in range(40)]).T)
    plan = make_plan(problem, "auto", limits=SolveLimits(nodes=500))
    assert (plan.bound, calls.count("_lower_bound")) == (bounds.lower_bound(problem), 1)
    assert calls.count("make_timeline") == 1
    assert "place_quickly" not in calls


def test_checking_many_buffers_is_within_the_limit(monkeypatch):
    clock = install_clock(monkeypatch)
    monkeypatch.setattr(planner, "CHECKING_SECONDS", 0.01)
    n = 60
    problem = make_problem(range(n), range(3, n + 3), [64] * n)
    for seconds, kept in ((4.0, 0.6), (1.0, 0.25)):
        limits = SolveLimits(seconds)
        make_plan(problem, "greedy_by_size", limits=limits)
        assert limits.reserve == pytest.approx(kept)
    ends = SolveLimits(3.0, reserve=2.0)
    with ends.running():
        assert ends.left == 1.0
        clock.advance(1.0)
        assert ends.stopped


def long_and_short(n):
    """Return `n` buffers, four made at each step, of which one in a thousand lives long."""
    random = np.random.default_rng(1)
    start = np.arange(n) // 4
    length = random.geometric(1 / 8, n)
    length[random.random(n) < 0.001] *= 1000
    return make_problem(start, start + length, 64 * np.exp2(random.uniform(0, 14, n)).astype(np.int64))


def test_however_many_buffers_there_are_the_first_plan_is_not_far_off():
    """The limit ends everything behind the first placement."""
    problem = long_and_short(50_000)
    plan = make_plan(problem, limits=SolveLimits(listener=lambda progress: progress.arena_bytes is not None))
    assert plan.cut_short
    assert plan.bound.nbytes <= plan.arena_bytes < plan.naive_bytes // 100


MILLION = """
import tracemalloc
from tests.strategies.test_auto import long_and_short
from memplan_engine import SolveLimits, make_plan

problem = long_and_short(1_000_000)
tracemalloc.start()
plan = make_plan(problem, limits=SolveLimits(2.0))
assert plan.bound.nbytes <= plan.arena_bytes < plan.naive_bytes // 100, plan.arena_bytes
print(tracemalloc.get_traced_memory()[1])
"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_million_buffers_in_little_memory():
    """In its own process, so that no other test's arrays count; `make_plan` has validated the plan."""
    # Tracing every allocation takes minutes.
    done = subprocess.run(
        [sys.executable, "-c", MILLION], cwd=ROOT, capture_output=True, text=True, timeout=4 * HANG_SECONDS
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 2**31
