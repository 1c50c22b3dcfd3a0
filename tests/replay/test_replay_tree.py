"""The search tree of `exact` as a replay: every node true by plain Python, and small trees by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine import Gap, InputError, PlanError, agrees, load, make_plan, make_problem, validate_plan
from memplan_engine.replay import recorded
from memplan_engine.replay.columns import replay_summary
from memplan_engine.replay.make import make_replay
from memplan_engine.replay.replay_values import ROOT, Kind, Outcome
from memplan_engine.strategies.exact.exact_search import Exact
from tests import ROOT as REPOSITORY
from tests.support import drawn, reference

FOLDER = REPOSITORY / "example_graphs"
REFUTED = (Outcome.TOO_FULL, Outcome.PAST_LATEST, Outcome.NOTHING_BELOW, Outcome.EXCHANGED)


@given(problem=drawn.problems(gaps=False, most=9, steps=6, largest=6, alignments=st.sampled_from([1, 1, 2])))
def test_every_node_is_true(problem):
    replay = make_replay(problem, "exact")
    optimum = reference.least_arena(problem)
    assert (replay.plan.arena_bytes, replay.plan.bound.nbytes) == (optimum, optimum)
    assert validate_plan(replay.plan).valid
    for step in replay.steps:
        node = step.node
        placed = {b: o for b, o in enumerate(replay.placed_at(node.number).tolist()) if o >= 0}
        assert node.parent == ROOT or node.depth == replay.steps[node.parent].node.depth + 1
        assert node.parent < node.number
        tops = [offset + int(problem.size[b]) for b, offset in placed.items()]
        assert step.arena_after == max(tops, default=0)
        assert step.bytes_left == sum(int(problem.size[b]) for b in range(len(problem)) if b not in placed)
        refuted = node.outcome in (*REFUTED, Outcome.REFUTED_BEFORE)
        # A placed buffer of a refuted node may collide with nothing either: only what is left has no room.
        assert reference.overlaps(_only(problem, placed), list(placed.values())) == {}
        assert (node.bound > node.capacity) >= (node.outcome in REFUTED)
        assert not refuted or step.line in (1, 2, 6)
        if node.kind in (Kind.PLACE, Kind.FORCED):
            assert placed[node.buffer] == node.offset
    _assert_refutations(problem, replay)
    solved = [step for step in replay.steps if step.node.outcome is Outcome.SOLVED]
    if solved:
        last = replay.placed_at(solved[-1].number)
        assert [o for o in last.tolist() if o >= 0] == replay.plan.offsets[last >= 0].tolist()
        assert replay.steps[-1] == solved[-1]


def _only(problem, placed):
    rows = list(placed)
    return make_problem(problem.start[rows], problem.end[rows], problem.size[rows])


def _assert_refutations(problem, replay):
    """A capacity at which the tree ends without a solution is too small, and a buffer lifted by what is
    placed below it really has no room there."""
    solved = {step.node.capacity for step in replay.steps if step.node.outcome is Outcome.SOLVED}
    for capacity in {step.node.capacity for step in replay.steps} - solved:
        assert not reference.fits(problem, capacity)
    for step in replay.steps:
        if step.node.outcome is Outcome.TOO_FULL:
            live = [b for b in range(len(problem)) if problem.start[b] <= step.node.step < problem.end[b]]
            assert live


def test_no_way_out_by_hand():
    # 5 bytes are live at every step, 6 are needed (the file says why): a tree without a solution, then one.
    replay = make_replay(load(FOLDER / "teaching_no_way_out.csv"), "exact")
    assert replay.plan.arena_bytes == replay.plan.bound.nbytes == 6
    roots = [step for step in replay.steps if step.node.kind is Kind.ROOT]
    assert [(root.node.capacity, root.node.parent, root.node.bound) for root in roots] == [
        (5, -1, 5),
        (6, -1, 5),
    ]
    assert roots[0].sentence == "Is there a placement within 5 B? The arena then has at least 5 B."
    first = [step for step in replay.steps if step.node.capacity == 5]
    leaves = {step.number for step in first} - {step.node.parent for step in first}
    assert all(replay.steps[leaf].node.outcome is not Outcome.BRANCHED for leaf in leaves)
    assert replay.steps[-1].node.outcome is Outcome.SOLVED
    assert replay.steps[-1].sentence.endswith("Solved: every buffer has its offset, within 6 B.")
    assert replay.code[replay.steps[-1].line] == "    if every buffer is placed: solved"


def test_a_small_tree_by_hand():
    # a and b are live together, 2 and 3 bytes: a low of 0 for one of them, and the other on top.
    replay = make_replay(make_problem([0, 0], [2, 1], [2, 3], names=["a", "b"]), "exact")
    nodes = [(step.node.kind, step.name, step.node.offset, step.node.outcome) for step in replay.steps]
    assert nodes == [
        (Kind.ROOT, "", 0, Outcome.BRANCHED),
        (Kind.FORCED, "a", 0, Outcome.BRANCHED),
        (Kind.FORCED, "b", 2, Outcome.SOLVED),
    ]
    assert replay.steps[1].sentence == (
        "a at its low, 0 B, and nowhere else need be tried: what is left beside it lives within its lifetime "
        "and lies no lower. The arena then has at least 5 B."
    )
    assert [replay.placed_at(number).tolist() for number in range(3)] == [[-1, -1], [0, -1], [0, 2]]


def test_a_buffer_that_could_only_be_exchanged_by_hand():
    # b lives longer than a. With b at 0 there is only b for a to rest on; a at 0 and b above is as good.
    replay = make_replay(make_problem([0, 0], [1, 2], [2, 2], names=["a", "b"]), "exact")
    exchanged = next(step for step in replay.steps if step.node.outcome is Outcome.EXCHANGED)
    below, above = exchanged.name, replay.problem.names[exchanged.node.blocked]
    assert {below, above} == {"a", "b"}
    assert exchanged.sentence == (
        f"{below} at its low, 0 B. Refuted: {above} could then rest on {below} alone, and all is as good "
        "with the two exchanged."
    )


def test_independent_parts_go_on_from_each_other_s_solution():
    replay = make_replay(make_problem([0, 5], [1, 6], [4, 7]), "exact")
    assert [step.node.parent for step in replay.steps] == [-1, 0, 1, 2]
    assert replay.placed_at(3).tolist() == [0, 0]


def test_tracing_changes_no_decision():
    # The same search without a trace visits as many nodes and finds the same placement.
    from memplan_engine.kernels.exact import branch
    from memplan_engine.strategies.exact.independent_parts import make_columns

    problem = load(FOLDER / "teaching_no_way_out.csv")
    columns = make_columns(problem)
    for capacity in (5, 6):
        _, low, trace = recorded._search(columns, capacity, "")
        counter = np.zeros(8, dtype=np.int64)
        size, length = problem.size[columns.rows], (problem.end - problem.start)[columns.rows]
        priority = length * (1 + size / (1e6 * size.max()))
        rest = (
            recorded.MOST_RAISES[0],
            10**6,
            np.zeros(2**14, dtype=np.uint64),
            counter,
            np.zeros(1, dtype=bool),
        )
        outcome, plain, _ = branch.branch(
            columns.within(capacity), columns.lows, recorded.RULE, priority, *rest
        )
        assert (outcome == branch.FITS) == (capacity == 6)
        assert plain.tolist() == low.tolist()
        rows = trace.rows[: trace.begun[0]]
        failed = np.isin(rows[:, 4], (1, 2, 3)).sum()
        assert len(rows) - failed == counter[0]


def test_what_has_no_tree_to_show_says_so(monkeypatch):
    many = make_problem([0] * 21, [1] * 21, [1] * 21)
    with pytest.raises(PlanError, match="21 buffers, and a replay of exact shows 20 at most"):
        make_replay(many, "exact")
    window = make_problem([0], [3], [4], gaps={0: (Gap(1, 2, 0, 1),)})
    with pytest.raises(PlanError, match="gaps in which some bytes are needed"):
        make_replay(window, "exact")
    problem = load(FOLDER / "teaching_no_way_out.csv")
    monkeypatch.setattr(recorded, "MOST_NODES", 3)
    with pytest.raises(PlanError, match="the search tree at 5 B has more than 3 nodes"):
        make_replay(problem, "exact")


def test_a_capacity_is_where_the_search_begins():
    replay = make_replay(load(FOLDER / "teaching_no_way_out.csv"), Exact(capacity=8))
    assert {step.node.capacity for step in replay.steps} == {8}
    assert replay.plan.arena_bytes <= 8


def test_gaps_without_bytes_and_buffers_without_bytes():
    problem = make_problem([0, 1, 0], [3, 2, 1], [4, 4, 0], gaps={0: (Gap(1, 2),)})
    replay = make_replay(problem, "exact")
    assert replay.plan.arena_bytes == make_plan(problem, "exact").arena_bytes == 4
    empty = make_replay(make_problem([], [], []), "exact")
    assert (len(empty), empty.plan.arena_bytes) == (0, 0)


def test_columns_of_a_tree():
    replay = make_replay(load(FOLDER / "teaching_first_fit.csv"), "exact")
    columns = json.loads(json.dumps(replay_summary(replay)))
    tree = columns["tree"]
    for step in replay.steps:
        assert tree["parent"][step.number] == step.node.parent
        assert tree["outcomes"][tree["outcome"][step.number]] == str(step.node.outcome)
        assert tree["kinds"][tree["kind"][step.number]] == str(step.node.kind)
    assert columns["holes"] is columns["objects"] is None
    with pytest.raises(InputError, match="a search tree"):
        agrees(replay.steps[1], 0)
