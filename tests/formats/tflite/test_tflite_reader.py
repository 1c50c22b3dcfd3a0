"""TensorFlow Lite models as graphs: by hand, with subgraphs that are called, and from bytes that are
damaged."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from memplan_engine import Graph, InputError, MemplanError, load, make_plan
from memplan_engine.graph import Role
from memplan_engine.preparation import Preparation, prepare
from tests.support.tflite_models import (
    ADD,
    CALL_ONCE,
    CONV,
    IF,
    RELU,
    STRING,
    WHILE,
    code,
    model,
    op,
    small,
    subgraph,
    tensor,
)


def read(tmp_path: Path, data: bytes) -> Graph:
    (tmp_path / "net.tflite").write_bytes(data)
    graph = load(tmp_path / "net.tflite")
    assert isinstance(graph, Graph)
    return graph


def test_by_hand(tmp_path: Path) -> None:
    graph = read(tmp_path, small())
    assert [(each.name, each.kind, each.inputs, each.outputs) for each in graph.ops] == [
        ("conv_2d_0", "CONV_2D", ("x", "w"), ("hidden#0.2",)),
        ("relu_1", "RELU", ("hidden#0.2", "state"), ("hidden#0.3",)),
        ("my_op_2", "my_op", ("hidden#0.3", "x"), ("y",)),
    ]
    assert (graph.inputs, graph.outputs, graph.constants) == (("x",), ("y",), ("w", "state"))
    sizes = {each.name: (each.nbytes, each.role) for each in graph.storages}
    assert sizes == {
        "x": (16, Role.INPUT), "w": (32, Role.CONSTANT), "hidden#0.2": (32, Role.ACTIVATION),
        "hidden#0.3": (32, Role.ACTIVATION), "y": (16, Role.OUTPUT), "state": (4, Role.CONSTANT),
    }  # fmt: skip
    assert [(each.dtype, each.shape) for each in graph.tensors[:1]] == [("int8", (1, 16))]
    # x until the end, both hidden ones together.
    plan = make_plan(prepare(graph, Preparation(alignment=16, plan_inputs=True)))
    assert plan.arena_bytes == 80


def called(kind: int, calls: list[int]) -> bytes:
    """a → (kind calls subgraphs 1 and 2) → b, then relu: c. In subgraph 1: p → q → r; in 2: u → v."""
    main = subgraph(
        [tensor("a", 16), tensor("b", 16), tensor("c", 16), tensor("before", 16)],
        [0],
        [2],
        [op(0, [0], [3]), op(1, [3], [1], calls), op(0, [1], [2])],
    )
    one = subgraph(
        [tensor("p", 16), tensor("q", 64), tensor("r", 16)], [0], [2], [op(0, [0], [1]), op(0, [1], [2])]
    )
    two = subgraph([tensor("u", 16), tensor("v", 32)], [0], [1], [op(0, [0], [1])])
    return model([code(RELU), code(kind)], [main, one, two])


@pytest.mark.parametrize(("kind", "calls"), [(IF, [1, 2]), (WHILE, [1, 2])])
def test_what_an_op_calls_stands_behind_it_and_its_tensors_stay_until_then(
    tmp_path: Path, kind: int, calls: list[int]
) -> None:
    graph = read(tmp_path, called(kind, calls))
    name = {IF: "if", WHILE: "while"}[kind]
    assert [each.name for each in graph.ops] == [
        "relu_0", f"{name}_1", f"{name}_1.subgraph_1", "relu_1_0", "relu_1_1",
        f"{name}_1.subgraph_2", "relu_2_0",
        "relu_2",
    ]  # fmt: skip
    problem = prepare(graph, Preparation(alignment=16))
    lives = {each: (int(problem.start[i]), int(problem.end[i])) for i, each in enumerate(problem.names)}
    # As MarkAllocationLifetimes counts scopes: a caller's tensors up to the last scope within it.
    assert lives == {
        "before": (0, 7), "b": (1, 8), "p": (2, 4), "q": (3, 5), "r": (4, 5), "u": (5, 7),
        "v": (6, 7), "c": (7, 8),
    }  # fmt: skip


def test_one_subgraph_that_is_called_once(tmp_path: Path) -> None:
    assert [each.name for each in read(tmp_path, called(CALL_ONCE, [2])).ops][1:4] == [
        "call_once_1", "call_once_1.subgraph_2", "relu_2_0"
    ]  # fmt: skip


def test_scratch_that_nobody_makes_lives_with_its_op(tmp_path: Path) -> None:
    tensors = [tensor("x", 16), tensor("scratch", 100), tensor("y", 16)]
    graph = read(tmp_path, model([code(CONV)], [subgraph(tensors, [0], [2], [op(0, [0, 1], [2])])]))
    assert graph.ops[0].outputs == ("y", "scratch")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (model([code(ADD)], []), "found no subgraph"),
        (model([code(ADD)], [subgraph([tensor("x", 4)], [0], [0], [op(1, [0], [])])]), "found the code 1"),
        (model([code(ADD)], [subgraph([tensor("x", 4)], [7], [0], [])]), "found the tensor 7"),
        (model([code(ADD)], [subgraph([tensor("x", 4, kind=STRING)], [0], [0], [])]), "found the type 5"),
        (model([code(ADD)], [subgraph([tensor("x", -1, 4)], [0], [0], [])]), r"found the shape \[-1, 4\]"),
        (model([code(ADD)], [subgraph([tensor("x", 4, buffer=9)], [], [0], [])]), "found buffer 9"),
        (called(IF, [1, 1]), "found subgraph 1, called twice"),
        (called(IF, [1, 5]), "found a call of 5, expected 1 to 2"),
        (called(IF, [1, 0]), "found a call of 0"),
        (b"\x08\0\0\0TFL3", "found a place at byte"),
        (b"\xff\xff\xff\xffTFL3" + bytes(64), "found a place at byte"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(InputError, match=f"net.tflite: .*{said}"):
        read(tmp_path, data)


def test_damaged_bytes_are_an_error_or_a_graph(tmp_path: Path) -> None:
    """Every byte set to others, and cut everywhere: nothing else is raised, and nothing takes long."""
    rng, good = Random(0), called(WHILE, [1, 2])
    refused = 0
    for place in range(8, len(good)):
        data = bytearray(good)
        data[place] = rng.choice([0, 1, 255, 127, 128])
        for each in (bytes(data), good[:place]):
            try:
                read(tmp_path, each)
            except MemplanError:
                refused += 1
    assert refused > len(good)
