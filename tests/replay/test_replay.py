"""Replays: the same offsets as the plan, and every reason true by plain Python from the placed rectangles."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine import FREE, Gap, MemplanError, PlanError, load, make_problem
from memplan_engine.kernels.constructive.trace import LISTED
from memplan_engine.replay.columns import replay_summary
from memplan_engine.replay.make import MOST_BUFFERS, make_replay, recorder_of, replayable
from memplan_engine.replay.replay_values import NOBODY, STATES, UNPLACED, CandidateState
from memplan_engine.strategies import get_strategy, known_strategies
from memplan_engine.strategies.base import SolveLimits, obstacle
from memplan_engine.strategies.constructive.linear_scan import LinearScan
from memplan_engine.strategies.constructive.order_fit import OrderFit
from memplan_engine.strategies.constructive.orders import FitRule, Key, Order, Unit
from tests import ROOT
from tests.support import drawn, reference
from tests.support.waiting import HANG_SECONDS

GREEDY_BY_SIZE = get_strategy("greedy_by_size")

FOLDER = ROOT / "example_graphs"
CONSTRUCTIVE = [name for name in replayable() if name != "exact"]
ORDERED = [name for name in CONSTRUCTIVE if isinstance(known_strategies()[name], OrderFit)]
FAMILY = [name for name in CONSTRUCTIVE if name.startswith("shared_objects") or name == "partition"]


def teaching(name):
    return load(FOLDER / f"teaching_{name}.csv")


def aligned(offset, alignment):
    return -(-offset // alignment) * alignment


def test_what_can_be_replayed():
    others = set(known_strategies()) - set(replayable())
    assert others == {"auto", "search", "shared_objects_min_cost_flow"}
    assert len(ORDERED) == 7
    assert len(FAMILY) == 5


@given(problem=drawn.problems())
def test_a_replay_ends_where_the_plan_does_and_counts_right(problem):
    for name in CONSTRUCTIVE:
        strategy = known_strategies()[name]
        if obstacle(strategy, problem):
            continue
        replay = make_replay(problem, name)
        assert replay.plan.offsets.tolist() == strategy.place(problem, SolveLimits()).offsets.tolist(), name
        assert sorted(replay.buffer.tolist()) == list(range(len(problem)))
        assert replay.placed_at(-1).tolist() == [UNPLACED] * len(problem)
        assert replay.placed_at(len(replay) - 1).tolist() == replay.plan.offsets.tolist()
        _assert_counts(problem, replay)
        _assert_order(problem, replay)


def _assert_counts(problem, replay):
    """Arena and bytes left after each step, from what is placed then."""
    offsets = {}
    for step in replay.steps:
        offsets[step.buffer] = step.offset
        if step.moved:
            offsets[step.moved[0]] = step.moved[1]
        if replay.shared is None:
            assert step.arena_after == max(offset + int(problem.size[b]) for b, offset in offsets.items())
        assert step.bytes_left == sum(int(problem.size[b]) for b in range(len(problem)) if b not in offsets)
        assert offsets == {b: o for b, o in enumerate(replay.placed_at(step.number).tolist()) if o >= 0}
        assert step.sentence.startswith(step.name)
        assert replay.code[step.line]
    assert [a.arena_after == b.arena_before for a, b in pairwise(replay.steps)].count(False) == 0
    if len(replay):
        assert replay.steps[-1].arena_after == replay.plan.arena_bytes


def _assert_order(problem, replay):
    """The keys never fall, ties by index; buffers with fixed offsets come before all others."""
    free = [step for step in replay.steps if problem.fixed[step.buffer] == FREE]
    assert [problem.fixed[b] == FREE for b in replay.buffer] == sorted(problem.fixed == FREE)
    signs = [-1 if key.descending else 1 for key in replay.keys]
    ranks = [tuple(s * value for s, (_, value) in zip(signs, step.key, strict=True)) for step in free]
    if replay.plan.strategy == "shared_objects_by_size_improved":
        assert ranks == sorted(ranks)
    else:
        ranks = [(*rank, step.buffer) for rank, step in zip(ranks, free, strict=True)]
        assert ranks == sorted(ranks)


@given(problem=drawn.problems(), name=st.sampled_from(ORDERED), fit=st.sampled_from(list(FitRule)))
def test_holes_are_free_and_their_reasons_true(problem, name, fit):
    replay = make_replay(problem, replace(known_strategies()[name], fit=fit))
    placed = {}
    for step in replay.steps:
        size, alignment = int(problem.size[step.buffer]), int(problem.alignment[step.buffer])
        own = _steps(problem[step.buffer])
        assert sorted(step.live) == sorted(b for b in placed if own & _steps(problem[b]))
        if problem.fixed[step.buffer] == FREE:
            _assert_holes(step, reference.forbidden(problem, placed, step.buffer), size, alignment)
        else:
            assert (step.holes, step.offset) == ((), problem.fixed[step.buffer])
        placed[step.buffer] = step.offset


def _steps(buffer):
    """The steps at which a buffer is live: those of a gap that needs none of its bytes are not."""
    empty = {step for gap in buffer.gaps if gap.low == gap.high for step in range(gap.start, gap.end)}
    return set(range(buffer.start, buffer.end)) - empty


def _assert_holes(step, intervals, size, alignment):
    """`intervals`: the open intervals of offsets that the placed buffers forbid."""
    fitting = set()
    for begin in {0, *(right for _, right in intervals if right > 0)}:
        following = [left for left, _ in intervals if left >= begin]
        if following and not any(left < begin < right for left, right in intervals):
            fitting.add((begin, min(following) + size))
    fitting = {(low, high) for low, high in fitting if aligned(low, alignment) + size <= high}
    holes, above = step.holes[:-1], step.holes[-1]
    assert {(hole.low, hole.high) for hole in holes if not hole.short} == fitting
    assert (above.low, above.high) == (max([0, *(right for _, right in intervals)]), None)
    assert step.possible == len(fitting) + 1
    for hole in step.holes:
        assert hole.offset == aligned(hole.low, alignment)
        if hole.short:
            assert hole.short == hole.offset + size - hole.high
            assert (hole.state, hole.reason) == (CandidateState.TOO_SMALL, f"too small by {hole.short:,} B")
    taken = [hole for hole in step.holes if hole.state is CandidateState.TAKEN]
    assert taken == [step.hole]
    assert step.offset == taken[0].offset
    assert not any(left < step.offset < right for left, right in intervals)
    assert (taken[0].low, taken[0].high) == _by_rule(step.replay.fit, fitting, above)
    _assert_rejections(step, above)


def _by_rule(fit, fitting, above):
    if fit is FitRule.TOP or not fitting:
        return above.low, None
    return min(fitting, key=lambda hole: (hole[1] - hole[0] if fit is FitRule.BEST else 0, hole[0]))


def _assert_rejections(step, above):
    for hole in step.holes:
        if hole.short or hole is step.hole:
            continue
        if hole is above:
            expected = (
                CandidateState.NOT_LOWEST if step.replay.fit is FitRule.FIRST else CandidateState.NOT_NEEDED
            )
        elif step.replay.fit is FitRule.TOP:
            expected = CandidateState.LEFT_EMPTY
        else:
            lower_rule = step.replay.fit is FitRule.FIRST or hole.size == step.hole.size
            expected = CandidateState.NOT_LOWEST if lower_rule else CandidateState.NOT_TIGHTEST
        assert hole.state is expected


@given(problem=drawn.problems(), fit=st.sampled_from([FitRule.BEST, FitRule.FIRST]))
def test_the_free_list_is_what_the_active_buffers_leave(problem, fit):
    replay = make_replay(problem, LinearScan(fit))
    rounded = [aligned(s, a) for s, a in zip(problem.size.tolist(), problem.alignment.tolist(), strict=True)]
    base = max((o + s for o, s in zip(problem.fixed, problem.size, strict=True) if o != FREE), default=0)
    top, offsets = base, {}
    for step in replay.steps:
        buffer = step.buffer
        if problem.fixed[buffer] != FREE:
            assert (step.holes, step.offset) == ((), problem.fixed[buffer])
            continue
        active = [b for b in offsets if problem.end[b] > problem.start[buffer] and rounded[b]]
        assert sorted(step.live) == sorted(active)
        spans = sorted((offsets[b], offsets[b] + rounded[b]) for b in active)
        edges = [(base, base), *spans, (top, top)]
        gaps = [(low, high) for (_, low), (high, _) in pairwise(edges) if low < high]
        if rounded[buffer]:
            assert [(hole.low, hole.high) for hole in step.holes] == gaps
        fitting = [hole for hole in step.holes if not hole.short]
        assert all(hole.offset + rounded[buffer] <= hole.high for hole in fitting)
        if fitting:
            best = min(fitting, key=lambda hole: (hole.size if fit is FitRule.BEST else 0, hole.low))
            assert (step.hole, step.offset, step.moved) == (best, best.offset, None)
        elif step.moved:
            _assert_gives_way(problem, step, active, offsets, rounded)
            offsets[step.moved[0]] = step.moved[1]
        offsets[buffer] = step.offset
        top = max([top, *(offsets[b] + rounded[b] for b in (*active, buffer) if rounded[b])])


def _assert_gives_way(problem, step, active, offsets, rounded):
    mover, to = step.moved
    holders = [b for b in active if problem.end[b] > problem.end[step.buffer]]
    holders = [
        b
        for b in holders
        if aligned(offsets[b], int(problem.alignment[step.buffer])) + rounded[step.buffer]
        <= offsets[b] + rounded[b]
    ]
    assert mover in holders
    assert problem.end[mover] == max(problem.end[b] for b in holders)
    assert offsets[mover] <= step.offset <= offsets[mover] + rounded[mover] - rounded[step.buffer]
    assert to >= max(offsets[b] + rounded[b] for b in active)


@given(problem=drawn.problems(fixed=False, most=16), name=st.sampled_from(FAMILY))
def test_objects_are_free_or_not_and_the_one_taken_is_best_by_the_rule(problem, name):
    replay = make_replay(problem, name)
    members = {}
    for step in replay.steps:
        size = int(problem.size[step.buffer])
        seen = {each.number: each for each in step.objects}
        if name == "shared_objects_in_order":
            free = {n for n, own in members.items() if not _busy(problem, own, step.buffer)}
            assert set(seen) == free
        else:
            assert set(seen) == set(members)
        for number, each in seen.items():
            assert each.size == max(int(problem.size[b]) for b in members[number])
            assert each.value == _value(problem, name, members[number], step.buffer)
            assert (each.state is CandidateState.IN_USE) == _busy(problem, members[number], step.buffer)
        possible = [each for each in step.objects if each.state is not CandidateState.IN_USE]
        assert step.possible == len(possible)
        assert (step.joined is None) == (not possible) == (step.object not in members)
        if step.joined:
            assert step.joined.number == step.object
            assert step.joined == max(possible, key=lambda each: _rank(name, each, size))
        members.setdefault(step.object, []).append(step.buffer)
        _assert_object_arena(problem, step, members)


def _busy(problem, own, buffer):
    return any(problem.start[b] < problem.end[buffer] and problem.start[buffer] < problem.end[b] for b in own)


def _value(problem, name, own, buffer):
    sizes = [int(problem.size[b]) for b in own]
    if name == "partition":
        return sum(sizes)
    if name == "shared_objects_in_order":
        return abs(max(sizes) - int(problem.size[buffer]))
    if name != "shared_objects_by_size_improved":
        return max(sizes)
    if _busy(problem, own, buffer):
        return -1
    return min(
        int(max(problem.start[b] - problem.end[buffer], problem.start[buffer] - problem.end[b])) for b in own
    )


def _rank(name, each, size):
    """The highest is taken. Of equals the first made, but for a pool that has only smaller ones."""
    if name == "partition":
        return each.value, -each.number
    if name == "shared_objects_by_size_improved":
        return -each.value, each.size, -each.number
    enough = each.size >= size
    if name == "shared_objects_in_order":
        return -each.value, enough, -each.number if enough else each.number
    return enough, -each.size if enough else each.size, -each.number


def _assert_object_arena(problem, step, members):
    """The objects that there are, one behind another, each buffer at its alignment."""
    base = 0
    for number in sorted(members):
        ends = [aligned(base, int(problem.alignment[b])) + int(problem.size[b]) for b in members[number]]
        base = max(base, *ends)
    assert step.arena_after == base


def test_more_holes_than_are_listed():
    # 50 fixed pairs of bytes with a byte between: 50 holes of 1 byte, then one of 3, then one without end.
    n = LISTED + 20
    fixed = [*(3 * i + 1 for i in range(n)), 3 * n + 3, FREE]
    problem = make_problem([0] * (n + 2), [1] * (n + 2), [2] * (n + 2), fixed=fixed)
    step = make_replay(problem, "greedy_by_size").steps[-1]
    assert (len(step.holes), step.more, step.possible) == (LISTED, n + 2 - LISTED, 2)
    assert [hole.low for hole in step.holes[:-2]] == [3 * i for i in range(LISTED - 2)]
    assert step.hole == step.holes[-2]
    assert (step.hole.low, step.hole.high, step.offset) == (3 * n, 3 * n + 3, 3 * n)
    assert step.holes[-1].high is None
    # When the last one is taken, it is not listed twice.
    full = make_problem([0] * (n + 2), [1] * (n + 2), [2] * (n + 1) + [9], fixed=fixed)
    last = make_replay(full, "greedy_by_size").steps[-1]
    assert (last.hole, len(last.holes), last.more) == (last.holes[-1], LISTED - 1, n + 3 - LISTED)
    assert len({hole.low for hole in last.holes}) == len(last.holes)


@pytest.mark.parametrize("name", replayable())
def test_limits_end_a_replay(name):
    problem = make_problem([0, 1, 2], [3, 4, 5], [4, 5, 6])
    limits = SolveLimits(HANG_SECONDS)
    assert len(make_replay(problem, name, limits=limits))
    limits.cancel()
    with pytest.raises(PlanError, match=r"not recorded to its end within 240 s|was stopped before"):
        make_replay(problem, name, limits=limits)


def test_what_cannot_be_replayed_says_what_can():
    problem = make_problem([0], [1], [1])
    for name in ("auto", "search", "shared_objects_min_cost_flow"):
        with pytest.raises(MemplanError, match=f"{name} cannot be replayed.*greedy_by_size.*linear_scan"):
            make_replay(problem, name)
    with pytest.raises(MemplanError, match="no strategy 'nonsense'"):
        make_replay(problem, "nonsense")
    many = np.arange(MOST_BUFFERS + 1)
    with pytest.raises(PlanError, match="20,001 buffers, and a replay of naive shows 20,000 at most"):
        make_replay(make_problem(many, many + 1, many), "naive")
    collide = make_problem([0, 0], [1, 1], [4, 4], fixed=[0, 2])
    for name in ("greedy_by_size", "linear_scan", "naive"):
        with pytest.raises(PlanError, match="overlap"):
            make_replay(collide, name)
    with pytest.raises(PlanError, match="is fixed at offset 0"):
        make_replay(make_problem([0], [1], [4], fixed=[0]), "partition")


def test_a_strategy_that_places_in_its_own_way_is_not_replayed_as_order_and_fit():
    class Own(OrderFit):
        def place(self, problem, limits):
            raise NotImplementedError

    assert recorder_of(GREEDY_BY_SIZE)
    assert not recorder_of(Own())


def test_one_value_is_an_order_and_fit_with_its_replay():
    def keys(timeline):
        end = Key("end", Unit.STEP, timeline.problem.end, descending=True, joint=" with ")
        return end, Key("size", Unit.BYTES, timeline.problem.size)

    order = Order("end", "latest end first, of equals the smallest", keys)
    own = OrderFit(name="by_end", description="", source="", by=order, fit=FitRule.FIRST)
    problem = make_problem([0, 0, 1], [2, 3, 3], [4, 8, 2], names=["a", "b", "c"])
    replay = make_replay(problem, own)
    assert (replay.plan.strategy, replay.buffer.tolist()) == ("by_end", [2, 1, 0])
    assert replay.plan.offsets.tolist() == own.place(problem, SolveLimits()).offsets.tolist() == [10, 2, 0]
    assert replay.code[1] == "for b in order (latest end first, of equals the smallest):"
    assert replay.steps[0].sentence.startswith("c comes 1st of 3 by end, step 3 with 2 B.")
    assert replay.steps[1].key == (("end", 3), ("size", 8))
    _assert_order(problem, replay)


def test_a_subclass_that_only_orders_is_replayed_without_keys():
    @dataclass(frozen=True, slots=True)
    class ByEnd(OrderFit):
        fit: FitRule = FitRule.FIRST

        name: ClassVar[str] = "by_end"  # type: ignore[misc]
        description: ClassVar[str] = "earliest end first"  # type: ignore[misc]
        source: ClassVar[str] = "tests"  # type: ignore[misc]

        def order(self, prepared):
            return np.argsort(prepared.problem.end, kind="stable")

    problem = make_problem([0, 0], [2, 1], [4, 8])
    replay = make_replay(problem, ByEnd(FitRule.BEST))
    assert (replay.plan.strategy, replay.plan.offsets.tolist(), replay.keys) == ("by_end", [8, 0], ())
    assert replay.code[1] == "for b in order (its own):"


@pytest.mark.parametrize("name", CONSTRUCTIVE)
def test_the_columns_say_what_the_steps_say(name):
    problem = teaching("first_fit")
    replay = make_replay(problem, name)
    columns = json.loads(json.dumps(replay_summary(replay)))
    steps = columns["steps"]
    assert steps["sentence"] == [step.sentence for step in replay.steps]
    assert [problem.names[b] for b in steps["buffer"]] == [step.name for step in replay.steps]
    assert (columns["arena_bytes"], columns["strategy"]) == (replay.plan.arena_bytes, name)
    rows = columns["holes"] or columns["objects"]
    for step in replay.steps if rows else ():
        own = range(steps["first"][step.number], steps["first"][step.number + 1])
        each = step.holes or step.objects
        assert [STATES[rows["state"][row]] for row in own] == [one.state for one in each]
        assert steps["moved"][step.number] == (step.moved[0] if step.moved else NOBODY)
    assert "sentence" not in replay_summary(replay, sentences=False)["steps"]


def test_two_thousand_buffers_are_a_few_megabytes():
    random = np.random.default_rng(3)
    start, size = random.integers(0, 2000, 2000), random.integers(1, 2**20, 2000)
    length = np.where(random.random(2000) < 0.1, random.integers(1, 500, 2000), random.integers(1, 40, 2000))
    problem = make_problem(start, start + length, size, alignment=64)
    replay = make_replay(problem, "greedy_by_size")
    assert replay.plan.offsets.tolist() == GREEDY_BY_SIZE.place(problem, SolveLimits()).offsets.tolist()
    assert len(json.dumps(replay_summary(replay), separators=(",", ":"))) < 4e6


def test_names_are_only_text():
    problem = make_problem([0, 0], [1, 1], [1, 1], names=["<b>&", "\x1b[31m"])
    assert make_replay(problem, "naive").steps[0].sentence.startswith("<b>& comes 1st")


def test_a_problem_without_buffers_has_no_steps():
    for name in CONSTRUCTIVE:
        replay = make_replay(make_problem([], [], []), name)
        assert (len(replay), list(replay.steps), replay.plan.arena_bytes) == (0, [], 0)
    with pytest.raises(IndexError):
        replay.steps[0]


def test_a_buffer_with_a_gap_counts_its_whole_size():
    gaps = {0: (Gap(1, 2, 0, 1),)}
    problem = make_problem([0, 1], [3, 2], [4, 3], gaps=gaps)
    step = make_replay(problem, "greedy_by_size").steps[1]
    assert [(hole.low, hole.high) for hole in step.holes] == [(1, None)]
    assert step.offset == 1


def holes_of_a_gap(size, gap, since):
    # d lies in [512, 576); e is live with it, and from `since` to 8 needs only the bytes `gap` of its own.
    problem = make_problem([3, 5], [9, 9], [64, size], fixed=[512, FREE], gaps={1: (Gap(since, 8, *gap),)})
    step = make_replay(problem, "greedy_by_size").steps[1]
    return [(hole.low, hole.high, hole.short) for hole in step.holes], step


def test_a_neighbour_that_meets_several_pieces_ends_a_hole_once():
    # As if e filled its size, d would lie at 512 and, for the 200 bytes of the gap, at 512 + 800.
    holes, step = holes_of_a_gap(1000, (0, 200), since=6)
    assert holes == [(0, 512, 488), (576, None, 0)]
    assert (step.offset, step.more, step.possible) == (576, 0, 1)
    assert "The only hole does not hold it (it is too small by 488 B)" in step.sentence
    # The other way round: for the 100 bytes at the top, which come first, d would end at 576 − 500 = 76.
    assert holes_of_a_gap(600, (500, 600), since=5)[0] == [(0, 512, 88), (576, None, 0)]
    # There is room below: one hole that holds it, and none from 576 − 300 to 512.
    holes, step = holes_of_a_gap(500, (300, 500), since=5)
    assert holes == [(0, 512, 0), (576, None, 0)]
    assert "The only hole, of 512 B at 0 B, holds it." in step.sentence
