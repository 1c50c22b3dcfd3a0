"""Kernels give the same in Python as compiled, and are interpreted only while that is quicker."""

from __future__ import annotations

import threading
import warnings
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given

from memplan_engine.bounds import lower_bound
from memplan_engine.files import load
from memplan_engine.kernels import jit
from memplan_engine.kernels.alignment import align_stretches, longest_increasing
from memplan_engine.kernels.constructive.online import place_in_slots
from memplan_engine.kernels.constructive.stack import stack_up
from memplan_engine.kernels.jit import Kernel, kernel
from memplan_engine.kernels.plotting.window import inside, owners_of_cells, paint_cells
from memplan_engine.kernels.search.radix import make_sorter, sort_pairs
from memplan_engine.plan import Plan
from memplan_engine.planner import adopt, as_problem, strategies_for
from memplan_engine.strategies import get_strategy
from memplan_engine.strategies.base import SolveLimits, is_anytime
from memplan_engine.strategies.constructive.order_fit import place_by_portfolio, place_quickly
from memplan_engine.verify.validate import validate_plan
from tests import ROOT
from tests.support import drawn
from tests.support.waiting import HANG_SECONDS

MOST_BUFFERS = 300


@contextmanager
def in_python():
    """Interpret every kernel that may ever be, whatever the process has compiled and spent before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Kernel, "is_loaded", property(lambda self: False, lambda self, value: None), raising=False
        )
        patch.setattr(jit._tiers, "compiled_only", 0)
        patch.setattr(jit._tiers, "spent", 0.0)
        patch.setattr(jit, "LOADING_SECONDS", 1e9)
        patch.setattr(jit, "COMPILING_SECONDS", 1e9)
        yield


def twice(work):
    """Return what `work` gives by compiled kernels and by interpreted ones."""
    compiled = work()
    with in_python(), warnings.catch_warnings():
        warnings.simplefilter("error")
        return compiled, work()


def placements(problem):
    """Return what each constructive strategy and the portfolio of `auto` make of `problem`, and its bound."""
    found = {}
    for name in strategies_for(problem):
        if not is_anytime(get_strategy(name)):
            placed = get_strategy(name).place(problem, SolveLimits())
            found[name] = placed.offsets.tolist(), None if placed.objects is None else placed.objects.tolist()
    bound = lower_bound(problem)
    quick = place_quickly(problem, SolveLimits(), False)
    best = place_by_portfolio(problem, SolveLimits(), bound.nbytes, quick)
    found["portfolio"] = best.offsets.tolist(), best.found_by
    return found, (bound.nbytes, bound.kind, bound.step)


@given(problem=drawn.problems())
def test_strategies_place_and_bounds_hold_alike(problem):
    compiled, interpreted = twice(lambda: placements(problem))
    assert compiled == interpreted


@given(problem=drawn.problems(least=1, fixed=False))
def test_plans_are_judged_alike(problem):
    random = np.random.default_rng(len(problem))
    plan = adopt(problem, random.integers(0, 40, len(problem)))

    def violations():
        return [str(each) for each in validate_plan(plan).violations]

    compiled, interpreted = twice(violations)
    assert compiled == interpreted


def small_examples():
    """Return the example files of at most MOST_BUFFERS buffers."""
    folder = ROOT / "example_graphs"
    files = sorted(folder.glob("*.csv")) + sorted(folder.glob("*.json"))
    return [each for each in files if each.stat().st_size < 2**20]


@pytest.mark.parametrize("file", small_examples(), ids=lambda file: file.stem)
def test_examples_are_placed_alike(file):
    loaded = load(file)
    problem = loaded.problem if isinstance(loaded, Plan) else as_problem(loaded)
    if len(problem) > MOST_BUFFERS:
        pytest.skip("more buffers than are placed in Python")
    compiled, interpreted = twice(lambda: placements(problem))
    assert compiled == interpreted


def test_kernels_of_no_strategy_give_the_same():
    random = np.random.default_rng(7)
    for n in (0, 1, 40, 200):
        base, head = random.integers(0, 9, n), random.integers(0, 9, n)
        edges = np.array([0, n // 3, n])
        start, size = random.integers(0, 50, n), random.integers(1, 50, n)
        end, one = start + random.integers(1, 9, n), np.ones(n, dtype=np.int64)

        def results(base=base, head=head, edges=edges, start=start, end=end, size=size, one=one):
            yield longest_increasing(head)
            yield align_stretches(base, head, edges, edges, 500)
            yield inside(start, end, start, size, 3.0, 30.0, 2.0, 40.0, 20)
            yield place_in_slots(np.argsort(start), start, end, size, one)
            yield owners_of_cells(np.array([[[3, -1], [0, 3]]], dtype=np.int32), 5)

        compiled, interpreted = twice(lambda: [(str(each.dtype), each.tolist()) for each in results()])
        assert compiled == interpreted


def test_numbers_wrap_around_alike_and_in_silence():
    size, one = np.array([2**62, 2**62, 2**62, 5]), np.ones(4, dtype=np.int64)
    compiled, interpreted = twice(lambda: stack_up(size, one, 0).tolist())
    assert compiled == interpreted
    assert compiled[2] < 0


@kernel
def total(numbers, factor):
    """Return a number beside an array."""
    result = 0
    for number in numbers:
        result += number * factor
    return result, numbers


def test_numbers_come_back_as_those_of_python():
    with in_python():
        result, numbers = total(np.arange(4), 3)
    assert (type(result), result, type(numbers)) == (int, 18, np.ndarray)


def watched(lies_compiled=False):
    """Return a kernel that gives the tier it is run by."""
    made = Kernel(lambda argument: "never")
    made.__dict__.update(
        interpreted=lambda argument: "Python", compiled=lambda argument: "code", _lies_compiled=lies_compiled
    )
    return made


def test_what_is_small_is_interpreted_until_that_has_cost_as_much_as_compiling(monkeypatch):
    small, large = np.zeros(jit.SMALL), np.zeros(jit.SMALL + 1)
    monkeypatch.setattr(jit._tiers, "compiled_only", 0)
    monkeypatch.setattr(jit._tiers, "spent", 0.0)
    assert [watched()(each) for each in (small, large, (1, 2), None)] == ["Python", "code", "code", "Python"]
    assert watched()(argument=large) == "code"
    assert jit.interprets(jit.SMALL)
    assert not jit.interprets(jit.SMALL + 1)
    with jit.compiled_only():
        assert watched()(small) == "code"
        assert not jit.interprets()
    # Once it is loaded nothing is quicker.
    loaded = watched()
    assert [loaded(small), loaded(large), loaded(small)] == ["Python", "code", "code"]
    assert jit._tiers.spent > 0
    jit._tiers.spent = jit.LOADING_SECONDS
    assert jit.interprets(jit.SMALL)
    assert [watched(lies_compiled=True)(small), watched()(small)] == ["code", "Python"]
    # So much is left to who is told that kernels are interpreted.
    jit._tiers.spent = jit.COMPILING_SECONDS / 2
    assert not jit.interprets()
    assert watched()(small) == "Python"
    jit._tiers.spent = jit.COMPILING_SECONDS
    assert watched()(small) == "code"


def test_states_of_searches_are_always_compiled(monkeypatch):
    monkeypatch.setitem(sort_pairs.__dict__, "interpreted", lambda *args: pytest.fail("in Python"))
    sorter = make_sorter(4)
    sorter.key[:] = 4, 2, 3, 1
    with in_python():
        sort_pairs(sorter, 4)
        # Cells may be many however few the rectangles.
        monkeypatch.setitem(paint_cells.__dict__, "interpreted", lambda *args: pytest.fail("in Python"))
        one, none = np.ones(1, dtype=np.int64), np.zeros(0, dtype=np.bool_)
        paint_cells(one, one + 1, one, one, none, 0.0, 9.0, 0.0, 9.0, 9, 9, 1, 0, 1)
    assert sorter.key.tolist() == [1, 2, 3, 4]


def test_threads_share_one_compiled_kernel(monkeypatch):
    made = []
    fresh = Kernel(stack_up.function)
    dispatcher = jit._dispatcher
    monkeypatch.setattr(jit, "_dispatcher", lambda each: made.append(each) or dispatcher(each))
    begun = threading.Barrier(4)
    found = []

    def ask():
        begun.wait(HANG_SECONDS)
        found.append(fresh.compiled)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_SECONDS)
    assert made == [fresh]
    assert len(found) == 4
    assert len({id(each) for each in found}) == 1
