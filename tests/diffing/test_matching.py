"""Which buffer stands for which: renumbering, insertions, growth, strangers, and many alike."""

from __future__ import annotations

from dataclasses import replace

import memplan_examples
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine import Problem, load, make_problem, to_problem
from memplan_engine.callers import Callers, Frame, Stacks
from memplan_engine.diffing.matching import RELATED, How, match_buffers
from memplan_engine.graph import Graph
from memplan_engine.kernels.alignment import NOBODY, align_stretches, longest_increasing
from tests.support.graphs import graphs
from tests.support.traced import Node, doubled, right_pairs, traced, transformer

letters = st.lists(st.integers(0, 3), max_size=14)


def whole(base, head, most_edits=100):
    """Both sequences as one stretch."""
    columns = (np.array(base, dtype=np.int64), np.array(head, dtype=np.int64))
    edges = (np.array([0, len(base)]), np.array([0, len(head)]))
    return align_stretches(*columns, *edges, most_edits).tolist()


def common(base, head):
    """The length of a longest common subsequence, by the textbook's table."""
    row = [0] * (len(head) + 1)
    for one in base:
        last = row
        row = [0]
        for place, other in enumerate(head):
            row.append(last[place] + 1 if one == other else max(last[place + 1], row[place]))
    return row[-1]


@given(letters, letters)
def test_alignment_is_a_longest_common_subsequence(base, head):
    place = whole(base, head)
    pairs = [(i, j) for i, j in enumerate(place) if j != NOBODY]
    assert all(base[i] == head[j] for i, j in pairs)
    assert [j for _, j in pairs] == sorted({j for _, j in pairs})
    assert len(pairs) == common(base, head)


def test_alignment_by_hand():
    assert whole([5, 1, 2, 3], [1, 2, 9, 3]) == [NOBODY, 0, 1, 3]
    assert whole([], [1]) == []


def test_stretches_are_aligned_one_by_one():
    base, head = np.array([1, 2, 3, 1]), np.array([3, 1, 2, 3, 1])
    place = align_stretches(base, head, np.array([0, 2, 4]), np.array([0, 1, 5]), 10)
    assert place.tolist() == [NOBODY, NOBODY, 3, 4]


def test_stretches_that_differ_too_much_keep_what_is_equal_at_their_ends():
    base, head = [7, 1, 2, 3, 4, 8], [7, 4, 3, 2, 1, 8]
    assert whole(base, head, most_edits=2) == [0, NOBODY, NOBODY, NOBODY, NOBODY, 5]
    assert sum(place != NOBODY for place in whole(base, head)) == 3


@given(st.lists(st.integers(-5, 5), max_size=14))
def test_longest_increasing_is_as_long_as_it_can_be(values):
    column = np.array(values, dtype=np.int64)
    kept = column[longest_increasing(column)].tolist()
    assert kept == sorted(set(kept))
    best = [1] * len(values)
    for i in range(len(values)):
        best[i] += max((best[j] for j in range(i) if values[j] < values[i]), default=0)
    assert len(kept) == max(best, default=0)


def matched(base, head, modules=True):
    """(right matches, matches, buffers of the base) of two lists of nodes."""
    graphs_, ids = zip(*(traced(nodes, modules) for nodes in (base, head)), strict=True)
    problems = tuple(to_problem(graph) for graph in graphs_)
    return (*right_pairs(problems, ids, match_buffers(*problems).head_of.tolist()), len(problems[0]))


BASE = transformer(4)
FRONT = [Node("new", "add", 64, (), "front"), *BASE]
NO_GELU = [node for node in BASE if node.kind != "gelu"]
NO_LAYER = [node for node in BASE if not node.id.startswith("2.")]
RESIZED = [replace(node, size=999) if node.id == "1.up" else node for node in BASE]
RENAMED = [replace(node, module=node.module.replace("layers", "blocks")) for node in BASE]


@pytest.mark.parametrize("modules", [True, False])
@pytest.mark.parametrize(
    "head",
    [BASE, FRONT, doubled(BASE), doubled(FRONT), NO_GELU, NO_LAYER, RESIZED, RENAMED],
    ids=["same", "front", "doubled", "front and doubled", "no gelu", "no layer", "resized", "renamed"],
)
def test_everything_that_is_still_there_is_matched_and_nothing_else(head, modules):
    there = len({node.id for node in BASE} & {node.id for node in head})
    assert matched(BASE, head, modules) == (there, there, len(BASE))


def test_an_op_at_the_front_renames_what_follows_and_yet_is_the_only_new_one():
    (base, _), (head, ids) = traced(BASE), traced(FRONT)
    first, second = to_problem(base), to_problem(head)
    found = match_buffers(first, second)
    assert [ids[second.names[row]] for row in np.flatnonzero(found.base_of == NOBODY)] == ["new"]
    adds = [first.names.index("add_3"), second.names.index("add_4")]
    assert found.head_of[adds[0]] == adds[1]
    assert found.counts()[How.ALIKE] == 8  # the additions, whose numbers moved on by one
    assert found.counts()[How.NAME] == len(BASE) - 8


def test_ops_that_changed_places_are_matched_by_what_they_are():
    nodes = [Node("a", "sin", 8), Node("b", "cos", 16), Node("c", "add", 4, ("a", "b"))]
    assert matched(nodes, [nodes[1], nodes[0], nodes[2]]) == (3, 3, 3)


def renumbered(graph: Graph, shift: int) -> Graph:
    """The same graph, the numbers at the end of its tensors' names raised by `shift`."""

    def new(name: str) -> str:
        return f"{name[0]}{int(name[1:]) + shift}" if name[1:] else name

    return replace(
        graph,
        storages=tuple(replace(each, name=new(each.name)) for each in graph.storages),
        tensors=tuple(replace(t, name=new(t.name), storage=new(t.storage)) for t in graph.tensors),
        ops=tuple(
            replace(
                op, **{key: tuple(map(new, getattr(op, key))) for key in ("inputs", "outputs", "mutates")}
            )
            for op in graph.ops
        ),
        outputs=tuple(map(new, graph.outputs)),
    )


@given(graphs(), st.integers(1, 30))
def test_a_graph_whose_tensors_are_numbered_anew_is_the_same_graph(graph, shift):
    base, head = to_problem(graph), to_problem(renumbered(graph, shift))
    assert match_buffers(base, head).head_of.tolist() == list(range(len(base)))


@given(graphs())
def test_a_graph_beside_itself_is_matched_by_name(graph):
    problem = to_problem(graph)
    found = match_buffers(problem, problem)
    assert found.head_of.tolist() == found.base_of.tolist() == list(range(len(problem)))
    assert set(found.counts()) <= {How.NAME}
    assert found.share == 1.0


@given(graphs(), graphs())
def test_nothing_is_matched_twice_whatever_the_graphs(one, other):
    base, head = to_problem(one), to_problem(other)
    found = match_buffers(base, head)
    rows, mates = found.pairs
    assert found.base_of[mates].tolist() == rows.tolist()
    assert len(set(mates.tolist())) == len(mates) == int((found.base_of != NOBODY).sum())
    assert ((found.how != NOBODY) == (found.head_of != NOBODY)).all()
    assert sum(found.counts().values()) == len(rows)


def buffers(*rows: tuple[str, int, int, int]) -> Problem:
    """Buffers as (name, start, end, size)."""
    names, *columns = zip(*rows, strict=True)
    return make_problem(*columns, names=names)


def test_without_graphs_names_that_say_something_hold_whatever_else_changed():
    base = buffers(("encoder.out", 0, 4, 10), ("decoder.out", 2, 6, 20), ("mask", 1, 2, 3), ("loss", 4, 6, 4))
    head = buffers(("decoder.out", 0, 6, 99), ("encoder.out", 0, 9, 11), ("mask", 1, 3, 5), ("kl", 1, 2, 3))
    assert match_buffers(base, head).head_of.tolist() == [1, 0, 2, NOBODY]


def test_without_graphs_numbers_are_no_names():
    base = buffers(("0", 0, 4, 10), ("1", 2, 6, 20), ("2", 1, 2, 30))
    head = buffers(("0", 0, 9, 77), ("1", 2, 6, 99), ("2", 3, 8, 44))
    found = match_buffers(base, head)
    # "1" lives as long as before, whatever its size; "0" has nothing but its number.
    assert found.head_of.tolist() == [NOBODY, 1, NOBODY]


def test_without_graphs_the_numbers_may_shift():
    rows = [(size, size % 5 + 1) for size in (10, 30, 20, 50, 40, 70, 60, 90)]
    base = buffers(*((f"t{i}", i, i + span, size) for i, (size, span) in enumerate(rows)))
    later = [(f"t{i}", i, i + span, size) for i, (size, span) in enumerate(rows, 1)]
    head = buffers(("t0", 0, 2, 5), *later)
    assert match_buffers(base, head).head_of.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_where_one_side_has_no_graph_names_and_sizes_decide():
    problem = to_problem(traced(BASE)[0])
    bare = make_problem(problem.start, problem.end, problem.size, names=problem.names)
    for pair in ((problem, bare), (bare, problem)):
        assert match_buffers(*pair).head_of.tolist() == list(range(len(problem)))


@pytest.mark.parametrize("pair", [("gpt2", "resnet50"), ("vit_b16", "mobilenet_v2"), ("bert_base", "gpt2")])
def test_two_different_models_have_next_to_nothing_in_common(pair):
    base, head = (to_problem(load(memplan_examples.PATH / f"{name}.json")) for name in pair)
    assert match_buffers(base, head).share < 0.05 < RELATED


def test_many_names_that_differ_in_nothing_but_their_numbers():
    count = 20_000
    start = np.arange(count)

    def many(first: int, number: int) -> Problem:
        steps = start[first : first + number]
        names = [f"t_{i}" for i in range(number)]
        return make_problem(steps, steps + 1 + steps * 7919 % 13, np.full(number, 64), names=names)

    base, head = many(0, count), many(3, count - 3)
    found = match_buffers(base, head)
    assert int((found.head_of != NOBODY).sum()) == count - 3
    # Numbers that shifted by three are seen through: lifetimes say so.
    assert found.head_of[3:103].tolist() == list(range(100))


def recorded(line: int, rows: list[tuple[int, int, int]]) -> Problem:
    """Buffers (start, end, size) that a recording names by the line that asked for them."""
    frames = (Frame("at::_ops::linear::call", "", 0), Frame("forward", "train.py", line))
    start, end, size = zip(*rows, strict=True)
    names = [f"train.py:{line} forward #{number}" for number in range(1, len(rows) + 1)]
    callers = Callers(np.zeros(len(rows), dtype=np.int64), Stacks(frames, ((0, 1),)))
    return replace(make_problem(start, end, size, names=names), callers=callers)


def test_recorded_buffers_are_matched_though_their_lines_moved_and_one_came_before_them():
    rows = [(i, i + 2 + i % 3, 512 * (i % 4 + 1)) for i in range(20)]
    base = recorded(12, rows)
    head = recorded(17, [(0, 1, 4096), *((start + 1, end + 1, size) for start, end, size in rows)])
    assert match_buffers(base, head).head_of.tolist() == list(range(1, 21))
