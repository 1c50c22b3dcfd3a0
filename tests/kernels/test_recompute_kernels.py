"""Kernels of recomputation against plain Python."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan_engine.kernels.recompute.lazily import MOST_RUNS, improve, lazy_sequence, sequence_live, weigh
from memplan_engine.rewrites.recompute.recompute_problem import RecomputeProblem, recompute_problem
from tests.rewrites.order_graphs import random_graph

NOBODY = np.zeros(1, np.bool_)


def drawn(seed: int, ops: int) -> tuple[RecomputeProblem, int, np.ndarray]:
    """A problem, a step, and storages that are let go of there."""
    graph, draw = random_graph(seed, ops), Random(seed)
    problem = recompute_problem(graph, [draw.randint(0, 9) * 1e-9 for _ in graph.ops])
    gone = np.array([draw.random() < 0.5 for _ in problem.storages], np.bool_)
    return problem, draw.randrange(ops), gone


def live_of(problem: RecomputeProblem, sequence: list[int]) -> list[int]:
    """By looking, at each place and for each storage, for who makes it last and who uses that."""
    o = problem.arrays
    live = [0] * len(sequence)
    for s, size in enumerate(o.size.tolist()):
        users = set(o.users[o.users_of[s] : o.users_of[s + 1]].tolist())
        made = [i for i, op in enumerate(sequence) if o.maker[s] == op]
        for begin, end in zip(made, [*made[1:], len(sequence)], strict=True):
            last = max([begin, *(i for i in range(begin, end) if sequence[i] in users)])
            if o.kept[s] and end == len(sequence):
                last = len(sequence) - 1
            for i in range(begin, last + 1):
                live[i] += size
    return live


HOLDS = st.sampled_from([0, 1, 3, 99])


@given(st.integers(0, 2**32), st.integers(1, 12), HOLDS)
@settings(deadline=None)
def test_what_runs_again_runs_where_it_is_needed(seed: int, ops: int, hold: int) -> None:
    problem, at, gone = drawn(seed, ops)
    o = problem.arrays
    found = np.zeros(MOST_RUNS * ops + 1, np.int64)
    count = lazy_sequence(o, at, gone, hold, problem.again, problem.spoiled, found)
    sequence = found[:count].tolist() if count >= 0 else []
    if count < 0:
        return
    assert [op for i, op in enumerate(sequence) if op not in sequence[:i]] == list(range(ops))
    there: set[int] = set()
    for i, op in enumerate(sequence):
        assert set(o.used[o.used_of[op] : o.used_of[op + 1]].tolist()) <= there
        if op in sequence[:i]:
            assert problem.again[op]
            assert not any(step in sequence[:i] for step in range(problem.spoiled[op], ops))
        there |= set(o.made[o.made_of[op] : o.made_of[op + 1]].tolist())
        if op >= at and op not in sequence[:i]:
            # Since the last step for the first time: what nobody reads soon is gone once more.
            begun = max((j + 1 for j in range(i) if sequence[j] not in sequence[:j]), default=0)
            for ran in sequence[begun : i + 1]:
                touched = {*o.used[o.used_of[ran] : o.used_of[ran + 1]].tolist()}
                touched |= {*o.made[o.made_of[ran] : o.made_of[ran + 1]].tolist()}
                for s in touched:
                    later = [u for u in o.users[o.users_of[s] : o.users_of[s + 1]].tolist() if u > op]
                    if gone[s] and o.maker[s] < at and later and min(later) > op + hold:
                        there.discard(s)
        if op == at - 1 and op not in sequence[:i]:
            there -= {s for s in there if gone[s]}
    assert {s for s in range(len(o.size)) if o.kept[s]} <= there
    assert sequence_live(o, np.array(sequence)).tolist() == live_of(problem, sequence)
    nbytes, total = weigh(o, at, gone, hold, problem.again, problem.spoiled, problem.cost, found)
    assert (nbytes, total) == (max(live_of(problem, sequence)), sum(problem.cost[op] for op in sequence))


@given(st.integers(0, 2**32), st.integers(1, 12), st.floats(0, 1), HOLDS)
@settings(deadline=None)
def test_changes_by_chance_make_it_no_worse(seed: int, ops: int, share: float, hold: int) -> None:
    problem, at, gone = drawn(seed, ops)
    choice = (problem.arrays, at, gone, hold, problem.again, problem.spoiled, problem.cost)
    scratch = np.zeros(MOST_RUNS * ops + 1, np.int64)
    before, spent = weigh(*choice, scratch)
    if before < 0:
        return
    capacity = int(share * before)
    nbytes, total = improve(*choice, capacity, 50, seed, NOBODY)
    assert (nbytes, total) == weigh(*choice, scratch)
    assert nbytes <= before or nbytes <= capacity
    assert before > capacity or (nbytes <= capacity and total <= spent)
