"""Concatenation without copies: offsets, windows, and each reason why not, by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memplan_engine import SolveLimits, make_plan
from memplan_engine.analysis.peak import find_peak
from memplan_engine.errors import InputError
from memplan_engine.graph import Graph
from memplan_engine.lifetimes import to_problem
from memplan_engine.problem import Gap
from memplan_engine.rewrites.reuse import Reason, check_reuse, place_concats, reuse, reused_problem, savings
from tests.rewrites.reuse_graphs import Builder


def places(graph: Graph) -> dict[str, tuple[str, int]]:
    return {tensor.name: (tensor.storage, tensor.offset) for tensor in graph.tensors}


def two_branches() -> Builder:
    net = Builder()
    net.input("x", 1, 4)
    net.op("aten.conv2d", "x", "a", 1, 4)
    net.op("aten.conv2d", "a", "b", 1, 8)
    return net


def test_two_branches_meet_without_copies() -> None:
    """16 and 32 bytes become the blocks 0:16 and 16:48 of 48: at the concatenation 96 bytes were live."""
    net = two_branches()
    net.op("aten.cat.default", "a b", "y", 1, 12)
    graph = net.graph("y")
    reused = place_concats(graph, alignment=4)
    assert places(reused.graph) == {"x": ("x", 0), "a": ("y", 0), "b": ("y", 16), "y": ("y", 0)}
    assert [storage.name for storage in reused.graph.storages] == ["x", "y"]
    assert reused.windows == {"y": (Gap(0, 1, 0, 16),)}
    assert [(r.tensor, r.output, r.at, r.nbytes) for r in reused.concats] == [
        ("a", "y", 0, 16),
        ("b", "y", 16, 32),
    ]
    problem = reused_problem(reused, alignment=4)
    assert [(problem[i].name, problem[i].start, problem[i].end) for i in range(len(problem))] == [("y", 0, 3)]
    assert problem.gaps == {0: (Gap(0, 1, 0, 16),)}
    assert (find_peak(to_problem(graph, alignment=4)).nbytes, find_peak(problem).nbytes) == (96, 48)
    assert [row.arena for row in savings(graph, limits=SolveLimits(nodes=1_000), alignment=4)] == [
        96,
        96,
        48,
        48,
    ]


def test_a_block_that_outlives_the_output_keeps_its_own_bytes_only() -> None:
    net = two_branches()
    net.op("Concat", "a b", "c", 1, 12)
    net.op("Gemm", "c", "d", 1, 4)
    net.op("Gemm", "d b", "y", 1, 4)
    reused = place_concats(net.graph("y"), alignment=4)
    assert reused.windows == {"c": (Gap(0, 1, 0, 16), Gap(4, 5, 16, 48))}


def test_the_bytes_outside_a_window_are_given_to_others() -> None:
    """While only a (16 of 1040 bytes) is there, 1,024 bytes of something else fit beside it."""
    net = Builder()
    net.input("x", 1, 4)
    net.op("aten.conv2d", "x", "a", 1, 4)
    net.op("aten.conv2d", "x", "big", 1, 256)
    net.op("aten.sum", "big", "s", 1, 4)
    net.op("aten.conv2d", "s", "b", 1, 256)
    net.op("aten.cat", "a b", "y", 1, 260)
    graph = net.graph("y")
    plan = make_plan(reused_problem(reuse(graph, alignment=4), alignment=4))
    # At step 2: a 16, big 1024, s 16. At step 3: a and b 1040, s 16.
    assert (plan.bound.nbytes, plan.arena_bytes) == (1056, 1056)


def test_concatenations_nest() -> None:
    net = two_branches()
    net.op("cat", "a b", "c", 1, 12)
    net.op("aten.conv2d", "x", "d", 1, 2)
    net.op("cat", "d c", "y", 1, 14)
    reused = place_concats(net.graph("y"), alignment=4)
    assert places(reused.graph) == {
        "x": ("x", 0), "a": ("y", 8), "b": ("y", 24), "c": ("y", 8), "d": ("y", 0), "y": ("y", 0),
    }  # fmt: skip
    assert reused.windows == {"y": (Gap(0, 1, 8, 24), Gap(1, 3, 8, 56))}


def test_views_move_with_their_block() -> None:
    net = two_branches()
    net.view("b", "tail", 1, 2, at=6)
    net.op("cat", "a b", "y", 1, 12)
    net.op("Gemm", "tail", "z", 1, 4)
    assert places(place_concats(net.graph("y", "z"), alignment=4).graph)["tail"] == ("y", 40)


def test_what_does_not_qualify_is_copied_beside_what_does() -> None:
    net = two_branches()
    net.op("cat", "x b", "y", 1, 12)
    reused = place_concats(net.graph("y", "a"), alignment=4)
    assert places(reused.graph)["b"] == ("y", 16)
    assert [(k.tensor, k.reason) for k in reused.kept] == [("x", Reason.INPUT)]


def test_in_place_first_then_the_whole_chain_lies_in_the_block() -> None:
    net = two_branches()
    net.op("aten.relu", "b", "r", 1, 8)
    net.op("cat", "a r", "y", 1, 12)
    reused = reuse(net.graph("y"), alignment=4)
    assert {places(reused.graph)[name] for name in "br"} == {("y", 16)}
    assert (len(reused.in_place), len(reused.concats)) == (1, 2)


def inner_axis(net: Builder) -> Graph:
    net.op("conv", "x", "p", 2, 2)
    net.op("conv", "x", "q", 2, 2)
    return net.graph(net.op("cat", "p q", "y", 2, 4))


def twice(net: Builder) -> Graph:
    net.view("b", "v", 1, 8)
    return net.graph(net.op("cat", "b v", "y", 1, 16), "a")


def returned(net: Builder) -> Graph:
    return net.graph(net.op("cat", "x b", "y", 1, 12), "b", "a")


def constant(net: Builder) -> Graph:
    net.constant("w", 1, 4)
    return net.graph(net.op("cat", "w", "y", 1, 4), "a", "b")


def misaligned(net: Builder) -> Graph:
    return net.graph(net.op("cat", "x b", "y", 1, 12), "a")


def a_part(net: Builder) -> Graph:
    net.view("b", "v", 1, 4)
    return net.graph(net.op("cat", "x v", "y", 1, 8), "a")


def strided(net: Builder) -> Graph:
    net.op("conv", "x", "p", 2, 4, strides=(1, 2))
    return net.graph(net.op("cat", "p", "y", 2, 4), "a")


def into_two(net: Builder) -> Graph:
    net.op("cat", "a b", "c", 1, 12)
    return net.graph(net.op("cat", "x b", "y", 1, 12), "c")


def output_written(net: Builder) -> Graph:
    net.op("cat", "x b", "c", 1, 12)
    net.op("aten.relu_", "c", "d", 1, 12, storage="c", mutates=("c",))
    return net.graph("d", net.op("Gemm", "b", "z", 1, 4), "a")


def block_written(net: Builder) -> Graph:
    net.op("cat", "x b", "y", 1, 12)
    net.op("aten.relu_", "b", "d", 1, 8, storage="b", mutates=("b",))
    return net.graph("y", net.op("Gemm", "d", "z", 1, 4), "a")


def no_out_variant(net: Builder) -> Graph:
    net.op("conv", "x", "p", 1, 4, out_variant=False)
    return net.graph(net.op("cat", "x p", "y", 1, 8), "a", "b")


def symbolic(net: Builder) -> Graph:
    net.op("conv", "x", "p", 1, 4, formulas=("1", "n"))
    return net.graph(net.op("cat", "p", "y", 1, 4), "a", "b")


def made_in_a_part(net: Builder) -> Graph:
    return net.graph(net.op("cat", "a b", "y", 1, 12, storage_nbytes=64))


@pytest.mark.parametrize(
    ("make", "reason", "tensor", "alignment"),
    [
        (inner_axis, Reason.AXIS, "", 4),
        (twice, Reason.TWICE, "v", 4),
        (returned, Reason.RETURNED, "b", 4),
        (constant, Reason.CONSTANT, "w", 4),
        (misaligned, Reason.ALIGNMENT, "b", 64),
        (a_part, Reason.WHOLE, "v", 4),
        (strided, Reason.STRIDES, "p", 4),
        (into_two, Reason.PLACED, "b", 4),
        (output_written, Reason.WRITTEN_LATER, "b", 4),
        (block_written, Reason.WRITTEN_LATER, "b", 4),
        (no_out_variant, Reason.NO_OUT_VARIANT, "p", 4),
        (symbolic, Reason.SYMBOLIC, "", 4),
        (made_in_a_part, Reason.PART_OF_STORAGE, "", 4),
    ],
)
def test_each_reason(make: Callable[[Builder], Graph], reason: Reason, tensor: str, alignment: int) -> None:
    graph = make(two_branches())
    reused = place_concats(graph, alignment=alignment)
    last = reused.kept[-1]
    assert (last.reason, last.tensor) == (reason, tensor)
    if tensor:
        assert places(reused.graph)[tensor][0] != "y"
    assert check_reuse(graph, reused.graph, alignment=alignment) == ()


def test_nothing_is_placed_where_the_peak_would_rise() -> None:
    """first and last (4 bytes each) are early, the 400 bytes between them come late. At step 3 there are
    4 + 4 + 1200 + 4 = 1212 bytes; with the hull of the two in the output, 408 + 1200 + 4 = 1612."""
    net = Builder()
    net.input("x", 1)
    net.op("conv", "x", "first", 1)
    net.op("conv", "x", "last", 1)
    net.op("conv", "x", "big", 300)
    net.op("sum", "big", "s", 1)
    net.op("conv", "s", "middle", 100)
    net.op("cat", "first middle last", "y", 102)
    graph = net.graph("y")
    assert find_peak(to_problem(graph, alignment=4)).nbytes == 1212
    reused = place_concats(graph, alignment=4)
    assert reused.graph == graph
    assert [(k.tensor, k.reason, k.nbytes) for k in reused.kept] == [
        ("first", Reason.PEAK, 4), ("middle", Reason.PEAK, 400), ("last", Reason.PEAK, 4),
    ]  # fmt: skip


def test_a_larger_alignment_of_a_block_is_passed_on() -> None:
    net = two_branches()
    net.op("conv", "x", "p", 1, 4, alignment=128)
    net.op("cat", "p x", "y", 1, 8)
    reused = place_concats(net.graph("y", "a", "b"))
    assert next(s.alignment for s in reused.graph.storages if s.name == "y") == 128
    problem = reused_problem(reused)
    assert problem[problem.names.index("y")].alignment == 128


def test_the_alignment_must_be_one_or_more() -> None:
    with pytest.raises(InputError, match="alignment: found 0, expected 1 or more"):
        place_concats(two_branches().graph("b"), alignment=0)
