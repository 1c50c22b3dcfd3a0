"""Regions in pieces: bytes by hand, what ends a region, and what the checker refuses."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest

from memplan_engine import InputError, to_problem
from memplan_engine.graph import Arguments, Graph, Op, Role, Storage, Symbol, Tensor, check_graph
from memplan_engine.profile import load_of
from memplan_engine.rewrites.chunk.check_chunk import check_chunk
from memplan_engine.rewrites.chunk.choose import chunk_graph
from memplan_engine.rewrites.chunk.chunked_graph import chunked_graph
from memplan_engine.rewrites.chunk.known_forms import form_of
from memplan_engine.rewrites.chunk.live import live_bytes
from memplan_engine.rewrites.chunk.region import grow
from memplan_engine.rewrites.chunk.row_reads import rows_of

Row = tuple[str, str, str, tuple[int, ...], Arguments]
"""Output, kind, inputs, shape and arguments of an op."""
LAST: Arguments = (("dim", (1,)),)
FIRST: Arguments = (("dim", (0,)),)


def made(given: dict[str, tuple[int, ...]], rows: list[Row], outputs: tuple[str, ...]) -> Graph:
    """A graph of float32 tensors with inputs `given`, each op with one output in a storage of its own, but
    for `t`, which is a view."""
    shapes = {**given, **{name: shape for name, _, _, shape, _ in rows}}
    views = {name: inputs for name, kind, inputs, _, _ in rows if kind == "t"}

    def home(name: str) -> str:
        return home(views[name]) if name in views else name

    def role(name: str) -> Role:
        return Role.INPUT if name in given else Role.OUTPUT if name in outputs else Role.ACTIVATION

    tensors = tuple(
        Tensor(name, shape, "float32", prod(shape) * 4, home(name), (1, shape[0]) if name in views else None)
        for name, shape in shapes.items()
    )
    storages = tuple(
        Storage(name, prod(shape) * 4, role(name)) for name, shape in shapes.items() if name not in views
    )
    ops = tuple(
        Op(name, f"aten.{kind}", tuple(inputs.split()), (name,), arguments=arguments)
        for name, kind, inputs, _, arguments in rows
    )
    return check_graph(Graph("hand", storages, tensors, ops, tuple(given), outputs))


def wide(softmax: Arguments = LAST) -> Graph:
    """Eight rows: 4 numbers wide, 16 within, 2 at the end."""
    rows: list[Row] = [
        ("up", "mm", "x w", (8, 16), ()),
        ("act", "relu", "up", (8, 16), ()),
        ("soft", "_softmax", "act", (8, 16), softmax),
        ("down", "mm", "soft v", (8, 2), ()),
    ]
    return made({"x": (8, 4), "w": (4, 16), "v": (16, 2)}, rows, ("down",))


def gradient() -> Graph:
    """A product over all rows."""
    rows: list[Row] = [
        ("up", "mm", "x w", (8, 16), ()),
        ("act", "relu", "up", (8, 16), ()),
        ("turned", "t", "act", (16, 8), ()),
        ("grad", "mm", "turned x", (16, 4), ()),
    ]
    return made({"x": (8, 4), "w": (4, 16)}, rows, ("grad",))


def in_pieces(graph: Graph, seed: str, dim: int, count: int) -> Graph:
    rows = rows_of(graph)
    region = grow(rows, seed, dim, (0, len(graph.ops)), 2)
    assert region is not None
    return check_graph(chunked_graph(rows, region, count))


@pytest.mark.parametrize(
    ("count", "nbytes"),
    # The result of 64 bytes, and two tensors of so many rows of 64 bytes.
    [(2, 64 + 2 * 4 * 64), (4, 64 + 2 * 2 * 64), (8, 64 + 2 * 64), (3, 64 + 2 * 3 * 64)],
)
def test_the_bytes_of_pieces(count: int, nbytes: int) -> None:
    assert load_of(to_problem(wide())).peak == 2 * 8 * 64
    pieces = in_pieces(wide(), "act", 0, count)
    assert load_of(to_problem(pieces)).peak == live_bytes(pieces).max() == nbytes
    assert check_chunk(wide(), pieces) == []


def test_a_sum_is_added_to_in_place() -> None:
    """Whole: two tensors of 512 bytes, as the sum of 256 comes after the first has gone. In four pieces: the
    sum, and two of 128."""
    assert live_bytes(gradient()).max() == 2 * 512
    pieces = in_pieces(gradient(), "act", 0, 4)
    assert live_bytes(pieces).max() == 256 + 2 * 128
    assert [op.kind for op in pieces.ops if "grad" in op.name] == ["aten.zeros"] + ["aten.addmm_"] * 4
    assert check_chunk(gradient(), pieces) == []


def test_as_few_pieces_as_fit() -> None:
    found = chunk_graph(wide(), 400)
    assert found is not None
    assert (found.before_bytes, found.peak_bytes, found.regions[0].pieces) == (1024, 320, 4)
    lowest = chunk_graph(wide())
    assert lowest is not None
    assert (lowest.peak_bytes, lowest.regions[0].pieces) == (192, 8)
    assert chunk_graph(wide(), 1024) is None


def test_a_softmax_over_the_rows_ends_a_region() -> None:
    graph = wide(FIRST)
    region = grow(rows_of(graph), "act", 0, (0, 4), 2)
    assert region is not None
    assert [graph.ops[index].name for index in region.ops] == ["up", "act"]


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("batch_norm", (("training", (1,)),)),
        ("cumsum", LAST),
        ("dropout", ()),
        ("_softmax", ()),
        ("embedding_dense_backward", (("scale_grad_by_freq", (1,)),)),
    ],
)
def test_ops_without_a_form(kind: str, arguments: Arguments) -> None:
    """Batch statistics, running sums, random numbers, and what a capture did not keep the dimension of."""
    op = Op("y", f"aten.{kind}", ("x",), ("y",), arguments=arguments)
    tensors = {name: Tensor(name, (4, 3, 2), "float32", 96, name) for name in "xy"}
    assert form_of(op, tensors) is None


def test_symbols_are_refused() -> None:
    with pytest.raises(InputError, match="plain numbers"):
        chunk_graph(replace(wide(), symbols=(Symbol("batch", hint=8),)))


def altered(graph: Graph, name: str, **fields: object) -> Graph:
    """`graph` with other fields of one op."""
    assert any(op.name == name for op in graph.ops)
    ops = tuple(replace(op, **fields) if op.name == name else op for op in graph.ops)  # type: ignore[arg-type]
    return replace(graph, ops=ops)


def without(graph: Graph, name: str) -> Graph:
    return replace(graph, ops=tuple(op for op in graph.ops if op.name != name))


def test_the_checker_refuses_pieces_that_are_left_out_or_come_twice() -> None:
    pieces, sums = in_pieces(wide(), "act", 0, 4), in_pieces(gradient(), "act", 0, 4)
    assert check_chunk(wide(), without(pieces, "down_copy1"))
    assert check_chunk(wide(), without(pieces, "down_copy3"))
    assert check_chunk(gradient(), without(sums, "grad_chunk3"))
    twice = next(op for op in sums.ops if op.name == "grad_chunk0")
    assert check_chunk(gradient(), replace(sums, ops=(*sums.ops, twice)))


def test_the_checker_refuses_other_rows() -> None:
    pieces = in_pieces(wide(), "act", 0, 4)
    start = (("dim", (0,)), ("start", (1,)), ("end", (3,)), ("step", (1,)))
    assert check_chunk(wide(), altered(pieces, "x_rows0", arguments=start))
    assert check_chunk(wide(), altered(pieces, "act_chunk1", inputs=("up_chunk0",)))
    assert check_chunk(wide(), altered(pieces, "up_chunk0", inputs=("x", "w")))
    assert check_chunk(wide(), altered(pieces, "up_chunk0", inputs=("x_rows0", "v")))
    assert check_chunk(wide(), altered(pieces, "act_chunk1", kind="aten.sigmoid"))


def test_the_checker_refuses_sums_that_do_not_begin_at_zero() -> None:
    sums = in_pieces(gradient(), "act", 0, 4)
    assert check_chunk(gradient(), altered(sums, "grad", kind="aten.empty"))


def test_the_checker_refuses_a_softmax_over_what_is_cut() -> None:
    """The very graph of the other dimension."""
    pieces = in_pieces(wide(), "act", 0, 4)
    other = replace(
        pieces,
        ops=tuple(replace(op, arguments=FIRST) if "softmax" in op.kind else op for op in pieces.ops),
    )
    assert check_chunk(wide(FIRST), other)


def loss() -> Graph:
    """A mean loss of eight rows of logits."""
    graph = made({"x": (8, 4), "w": (4, 16), "goal": (8,)}, [("up", "mm", "x w", (8, 16), ())], ("up",))
    told: Arguments = (("reduction", (1,)), ("ignore_index", (-100,)))
    ops = (
        graph.ops[0],
        Op("soft", "aten._log_softmax", ("up",), ("soft",), arguments=LAST),
        Op("nll", "aten.nll_loss_forward", ("soft", "goal"), ("nll.0", "nll.1"), arguments=told),
    )
    extra = [("soft", (8, 16)), ("nll.0", ()), ("nll.1", ())]
    tensors = tuple(Tensor(name, shape, "float32", prod(shape) * 4, name) for name, shape in extra)
    storages = (
        *(replace(each, role=Role.ACTIVATION) if each.name == "up" else each for each in graph.storages),
        Storage("soft", 512, Role.ACTIVATION),
        Storage("nll.0", 4, Role.OUTPUT),
        Storage("nll.1", 4, Role.ACTIVATION),
    )
    own = replace(graph, ops=ops, tensors=(*graph.tensors, *tensors), storages=storages, outputs=("nll.0",))
    return check_graph(own)


def test_targets_are_made_before_the_weights_of_rows_are_counted() -> None:
    """An op that makes the targets, row by row, stays outside."""
    graph = loss()
    goal = Tensor("goals", (8,), "float32", 32, "goals")
    ops = (
        Op("goals", "aten.neg", ("goal",), ("goals",)),
        *(replace(op, inputs=("soft", "goals")) if op.name == "nll" else op for op in graph.ops),
    )
    storages = (*graph.storages, Storage("goals", 32, Role.ACTIVATION))
    graph = check_graph(replace(graph, ops=ops, tensors=(*graph.tensors, goal), storages=storages))
    for seed in ("goals", "up"):
        region = grow(rows_of(graph), seed, 0, (0, 4), 2)
        if region is not None:
            assert check_chunk(graph, check_graph(chunked_graph(rows_of(graph), region, 4))) == []
    region = grow(rows_of(graph), "up", 0, (0, 4), 2)
    assert region is not None
    assert "goals" not in {graph.ops[index].name for index in region.ops}


def test_a_mean_of_pieces_is_no_mean() -> None:
    pieces = in_pieces(loss(), "up", 0, 4)
    assert check_chunk(loss(), pieces) == []
    assert [op.kind for op in pieces.ops if op.name.startswith("nll")][:3] == [
        "aten.ne",
        "aten.sum",
        "aten.zeros",
    ]
    told: Arguments = (("reduction", (1,)), ("ignore_index", (-100,)))
    assert check_chunk(loss(), altered(pieces, "nll_chunk0", arguments=told))
    assert check_chunk(loss(), replace(pieces, outputs=("nll_0_whole",)))
    other: Arguments = (("other", (0,)),)
    assert check_chunk(loss(), altered(pieces, "nll_kept", arguments=other))
