"""Where the checker of reuse sees tensors lie, and what concatenations write there, by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine.graph import Graph, Tensor
from memplan_engine.rewrites.reuse import Rule, check_reuse
from memplan_engine.rewrites.reuse.breaches import (
    Breach,
    Place,
    block_offsets,
    misplaced,
    not_the_same,
    places_in,
)
from memplan_engine.rewrites.reuse.check_reuse import Contents, Piece, first_difference
from tests.rewrites.reuse_graphs import Builder, found, moved, net_of_four


def joined() -> Graph:
    net = Builder()
    net.input("x", 4)
    net.op("conv", "x", "a", 2)
    net.op("conv", "x", "b", 2)
    net.op("cat", "a b", "y", 4)
    return net.graph("y")


def with_op(graph: Graph, **changes: Any) -> Graph:
    """`graph` with another last op."""
    return replace(graph, ops=(*graph.ops[:-1], replace(graph.ops[-1], **changes)))


@pytest.mark.parametrize(
    ("change", "op", "tensor"),
    [
        (lambda graph: replace(graph, tensors=graph.tensors[:-1]), "", "y"),
        (lambda graph: replace(graph, tensors=(*graph.tensors, Tensor("t", (), "f", 4, "x"))), "", "t"),
        (
            lambda graph: replace(
                graph, tensors=(*graph.tensors[:-1], replace(graph.tensors[-1], shape=(2, 2)))
            ),
            "",
            "y",
        ),
        (lambda graph: replace(graph, ops=graph.ops[:-1]), "", ""),
        (lambda graph: with_op(graph, kind="aten.sum"), "y!", ""),
        (lambda graph: with_op(graph, name="z!"), "z!", ""),
        (lambda graph: with_op(graph, mutates=()), "y!", ""),
        (lambda graph: with_op(graph, mutates=("x", "a")), "y!", ""),
        (lambda graph: with_op(graph, mutates=("x", "y")), "y!", ""),
        (lambda graph: replace(graph, outputs=("y", "a")), "", ""),
        (lambda graph: replace(graph, constants=("a",)), "", ""),
    ],
)
def test_another_graph_is_named_by_what_is_different(
    change: Callable[[Graph], Graph], op: str, tensor: str
) -> None:
    net = Builder()
    net.input("x", 4)
    net.op("conv", "x", "a", 4)
    net.op("conv", "x", "b", 4)
    net.op("conv", "b", "y", 4, mutates=("x",))
    graph = net.graph("y")
    assert not_the_same(graph, graph) == []
    assert not_the_same(graph, with_op(graph, mutates=("b", "x"))) == []
    assert not_the_same(graph, change(graph)) == [Breach(Rule.SAME_GRAPH, 0, op, tensor)]


def test_tensors_outside_of_their_storage_or_of_their_alignment_are_named_exactly() -> None:
    net = net_of_four()
    net.op("conv", "b", "wide", 8, alignment=16)
    graph = net.graph("wide")
    assert not_the_same(graph, moved(graph, b=("gone", 0))) == [Breach(Rule.RANGE, 0, "", "b")]

    def wrong(at: int, alignment: int) -> list[Breach]:
        reused = moved(graph, b=("wide", at))
        places = places_in(graph, reused, {s.name: (s.name, 0) for s in reused.storages})
        return misplaced(graph, reused, places, alignment)

    assert wrong(16, 16) == []
    assert wrong(20, 4) == [Breach(Rule.RANGE, 0, "", "b", "wide")]
    assert wrong(8, 16) == [Breach(Rule.ALIGNMENT, 0, "", "b", "wide")]
    # A multiple of 32 in a storage that itself begins at multiples of 16 only.
    assert wrong(0, 32) == [Breach(Rule.ALIGNMENT, 0, "", "b", "wide")]


@pytest.mark.parametrize(
    ("whole", "parts", "offsets"),
    [
        ((4, 2), [((2, 2), {}), ((2, 2), {})], [0, 16]),
        ((1, 3, 2), [((1, 1, 2), {}), ((1, 2, 2), {})], [0, 8]),
        ((1, 3), [((1, 3), {})], [0]),
        # Its strides say row by row, too; the dimension of one element may have any.
        ((4, 2), [((1, 2), {"strides": (9, 1)}), ((3, 2), {"strides": (2, 1)})], [0, 8]),
        # Interleaved; another shape; one dimension less; another type; too many bytes.
        ((2, 2), [((2, 1), {}), ((2, 1), {})], None),
        ((4, 2), [((2, 2), {}), ((4, 1), {})], None),
        ((4, 2), [((2, 2), {}), ((4,), {})], None),
        ((4, 2), [((2, 2), {}), ((2, 2), {"dtype": "int32"})], None),
        ((4, 2), [((2, 2), {}), ((3, 2), {})], None),
    ],
)
def test_where_the_inputs_of_a_concatenation_go(
    whole: tuple[int, ...],
    parts: list[tuple[tuple[int, ...], dict[str, Any]]],
    offsets: list[int] | None,
) -> None:
    net = Builder()
    names = [net.tensor(f"p{place}", *shape, **options) for place, (shape, options) in enumerate(parts)]
    net.op("aten.cat", " ".join(names), "out", *whole)
    assert block_offsets(net.ops[0], net.tensors) == offsets
    net.tensors["out"] = replace(net.tensors["out"], strides=tuple(range(1, len(whole) + 1)))
    assert block_offsets(net.ops[0], net.tensors) is None


def test_places_seen_from_one_another() -> None:
    one, other = Place("a", 4, 6), Place("a", 9, 12)
    assert (other.as_seen_from(one), one.as_seen_from(other)) == ((True, 5), (True, -5))
    assert Place("b", 9, 12).as_seen_from(one) == (False, 0)


def transposed_and_plain() -> Builder:
    """`out` is made of `p`, whose elements do not lie row by row, and of `q`; `r` is before it, `z` after."""
    net = Builder()
    net.input("x", 4)
    net.op("conv", "x", "r", 2, 2)
    net.op("conv", "x", "p", 2, 2, strides=(1, 2))
    net.op("conv", "x", "q", 2, 2)
    net.op("aten.cat", "p q", "out", 4, 2)
    net.op("conv", "x", "z", 2, 2)
    net.op("aten.linear", "r out z", "y", 4)
    return net


@pytest.mark.parametrize("at", [0, 4, 16, 28])
def test_each_block_of_a_concatenation_is_a_value_that_may_be_overwritten(at: int) -> None:
    graph = transposed_and_plain().graph("y")
    assert check_reuse(graph, graph) == ()
    wider = replace(
        graph, storages=tuple(replace(s, nbytes=64) if s.name == "out" else s for s in graph.storages)
    )
    (breach,) = check_reuse(graph, moved(wider, z=("out", at)))
    assert (breach.rule, breach.op, breach.tensor, breach.overwritten_by) == (Rule.READ, "y!", "out", "z!")
    assert breach.byte == at


def test_a_concatenation_overwrites_what_lay_where_it_puts_elements_in_another_order() -> None:
    graph = transposed_and_plain().graph("y")
    assert found(graph, moved(graph, r=("out", 0))) == [(Rule.READ, "y!", "r", "out!")]


def test_blocks_of_a_concatenation_must_be_the_right_ones() -> None:
    graph = joined()
    assert found(graph, moved(graph, a=("y", 0), b=("y", 8))) == []
    wrong = found(graph, moved(graph, a=("y", 8), b=("y", 0)))
    assert {(rule, op) for rule, op, *_ in wrong} == {(Rule.OVERWRITES, "y!")}


def test_an_interleaved_concatenation_may_not_be_built_in_place() -> None:
    net = Builder()
    net.input("x", 4)
    net.op("conv", "x", "a", 2, 1)
    net.op("conv", "x", "b", 2, 1)
    net.op("cat", "a b", "y", 2, 2)
    graph = net.graph("y")
    wrong = moved(graph, a=("y", 0), b=("y", 8))
    assert {rule for rule, *_ in found(graph, wrong)} == {Rule.OVERWRITES}


def test_contents_by_hand() -> None:
    memory = Contents()
    memory.write(0, 8, 1)
    memory.write(4, 6, 2)
    assert memory.read(2, 10) == [Piece(0, 2, 1, 2), Piece(2, 4, 2, 0), Piece(4, 6, 1, 6), Piece(6, 8, -1, 0)]
    memory.write(4, 6, 1, 4)
    assert memory.read(0, 8) == [Piece(0, 8, 1, 0)]
    assert memory.read(2, 7) == [Piece(0, 5, 1, 2)]


writes = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 6), st.integers(0, 3), st.integers(0, 8)), max_size=8
)
"""Address, length, who writes, and which of his bytes comes first."""


def runs(memory: list[tuple[int, int]]) -> list[Piece]:
    """Bytes, each as (write, which byte of it), in as few pieces as possible."""
    pieces: list[Piece] = []
    for place, (write, at) in enumerate(memory):
        last = pieces[-1] if pieces else None
        if last and last.write == write and (write < 0 or last.at + last.high - last.low == at):
            pieces[-1] = replace(last, high=place + 1)
        else:
            pieces.append(Piece(place, place + 1, write, at))
    return pieces


@given(writes)
def test_contents_are_those_of_a_memory_byte_by_byte(drawn: list[tuple[int, int, int, int]]) -> None:
    contents, memory = Contents(), [(-1, 0)] * 20
    for low, length, write, at in drawn:
        contents.write(low, low + length, write, at)
        memory[low : low + length] = [(write, at + byte) for byte in range(length)]
    for low in range(20):
        for high in range(low, 21):
            assert contents.read(low, high) == runs(memory[low:high])


@given(writes, writes)
def test_the_first_difference_is_that_of_two_memories_byte_by_byte(
    one: list[tuple[int, int, int, int]], other: list[tuple[int, int, int, int]]
) -> None:
    memories = []
    for drawn in (one, one + other[:2]):
        memory = [(-1, 0)] * 20
        for low, length, write, at in drawn:
            memory[low : low + length] = [(write, at + byte) for byte in range(length)]
        memories.append(memory)
    meant, found = memories
    wrong = [place for place in range(20) if meant[place][0] >= 0 and meant[place] != found[place]]
    expected = (wrong[0], found[wrong[0]][0]) if wrong else None
    assert first_difference(runs(meant), runs(found)) == expected


def test_the_first_difference_is_looked_for_piece_by_piece() -> None:
    meant = [Piece(at, at + 1, at, 0) for at in range(4)]
    for byte in range(4):
        other = [replace(piece, write=9) if piece.low == byte else piece for piece in meant]
        assert first_difference(meant, other) == (byte, 9)
    assert first_difference(meant, meant) is None
