"""Who applies a suggestion gets exactly what it promises."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from memplan_engine import apply, make_plan, validate_plan
from memplan_engine.advice.advise import advise
from memplan_engine.graph import Graph, Op
from memplan_engine.lifetimes import Unread
from memplan_engine.preparation import Preparation, prepare
from memplan_engine.rewrites.order.check_reorder import check_reorder
from memplan_engine.rewrites.reuse import check_plan_execution
from tests.rewrites.reuse_graphs import random_graph

PREPARATIONS = st.builds(
    Preparation,
    alignment=st.sampled_from([None, 1, 4, 256]),
    streams=st.sampled_from([None, 2]),
    unread=st.sampled_from(list(Unread)),
    round_sizes=st.booleans(),
    in_place=st.booleans(),
    concat=st.booleans(),
)


def in_order(graph: Graph, like: Graph) -> tuple[Op, ...]:
    """The ops of `graph` in the order in which another one has them."""
    place = {op.name: index for index, op in enumerate(like.ops)}
    return tuple(sorted(graph.ops, key=lambda op: place[op.name]))


@given(st.integers(0, 10_000).map(random_graph), PREPARATIONS, st.integers(0, 200))
def test_a_suggestion_applied_gives_the_arena_that_it_promises(
    graph: Graph, how: Preparation, capacity: int
) -> None:
    strategy = "greedy_by_size"
    advice = advise(graph, how, strategy=strategy, capacity=capacity)
    assert advice.complete
    for each in advice.suggestions:
        again = make_plan(apply(prepare(graph, each.how), each.all_edits), strategy)
        assert again.arena_bytes == each.arena_bytes == advice.plan.arena_bytes - each.saved_bytes
        assert each.saved_bytes > 0
        assert each.fits is (each.arena_bytes <= capacity)
        assert each.how == replace(how, **each.options)
        assert validate_plan(each.plan).valid
        if not each.edits:
            ordered = each.plan.problem.origin.graph if "reorder" in each.options else graph
            assert check_reorder(graph, replace(graph, ops=in_order(graph, ordered))) == ()
            assert check_plan_execution(each.plan, replace(graph, ops=in_order(graph, ordered))) == ()
    little = 0.01 * advice.plan.arena_bytes
    behind = [not each.same_bits or each.saved_bytes < little for each in advice.suggestions]
    ranks = list(zip(behind, (-each.saved_bytes for each in advice.suggestions), strict=True))
    assert ranks == sorted(ranks)


@given(st.integers(0, 10_000).map(random_graph))
def test_a_combination_saves_more_than_each_of_its_parts(graph: Graph) -> None:
    suggestions = advise(graph, strategy="greedy_by_size").suggestions
    for whole in suggestions:
        for part in suggestions:
            if set(part.kinds) < set(whole.kinds) and part.options.items() <= whole.options.items():
                assert set(part.edits) - set(whole.edits) or part.saved_bytes < whole.saved_bytes
