"""The structural checks of a graph: each error, with the op or tensor it names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memplan_engine.errors import InputError
from memplan_engine.graph import (
    MAX_BYTES,
    Graph,
    Op,
    Role,
    Source,
    Storage,
    Tensor,
    check_graph,
    find_cycle,
    storage_bytes,
)


def tensor(name, storage=None, nbytes=16):
    return Tensor(name, (4,), "float32", nbytes, storage or name)


#  x ─┐
#     ├─ mul ─ y ─ relu ─ z          x: input, w: constant, z: output
#  w ─┘
NET = Graph(
    "net",
    storages=(
        Storage("x", 16, Role.INPUT),
        Storage("w", 32, Role.CONSTANT),
        Storage("y", 16, Role.ACTIVATION),
        Storage("z", 16, Role.OUTPUT),
    ),
    tensors=(tensor("x"), tensor("w"), tensor("y"), tensor("z")),
    ops=(Op("mul", "mul", ("x", "w"), ("y",)), Op("relu", "relu", ("y",), ("z",))),
    inputs=("x",),
    outputs=("z",),
    constants=("w",),
)


def changed(field, index, value):
    items = list(getattr(NET, field))
    items[index : index + 1] = [value]
    return replace(NET, **{field: tuple(items)})


def test_a_sound_graph_comes_back():
    assert check_graph(NET) is NET


def test_bytes_by_role():
    assert [storage_bytes(NET, role) for role in Role] == [16, 32, 16, 16]


def test_an_empty_graph_is_sound():
    empty = Graph("empty", (), (), (), (), ())
    assert check_graph(empty) is empty


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (changed("storages", 2, NET.storages[0]), "storage 'x': found the name twice"),
        (changed("tensors", 2, NET.tensors[0]), "tensor 'x': found the name twice"),
        (changed("ops", 1, NET.ops[0]), "op 'mul': found the name twice"),
        (changed("storages", 2, Storage("y", -1, Role.ACTIVATION)), "storage 'y': found -1 bytes"),
        (
            changed("storages", 2, Storage("y", 2**63, Role.ACTIVATION)),
            "storage 'y': found 9223372036854775808 bytes",
        ),
        (changed("tensors", 2, tensor("y", nbytes=-4)), "tensor 'y': found -4 bytes"),
        (
            changed("tensors", 2, tensor("y", "nowhere")),
            "tensor 'y': found storage 'nowhere', expected a storage of the graph",
        ),
        (replace(NET, inputs=("x", "q")), "inputs: found tensor 'q', expected a tensor of the graph"),
        (replace(NET, constants=("w", "q")), "constants: found tensor 'q'"),
        (replace(NET, outputs=("q",)), "outputs: found tensor 'q'"),
        (
            changed("ops", 1, Op("relu", "relu", ("q",), ("z",))),
            "op 'relu': found tensor 'q', expected a tensor of the graph",
        ),
        (changed("ops", 1, Op("relu", "relu", ("y",), ("z", "q"))), "op 'relu': found tensor 'q'"),
        (
            changed("ops", 1, Op("relu", "relu", ("y",), ("z",), mutates=("q",))),
            "op 'relu': found tensor 'q'",
        ),
        (
            changed("ops", 1, Op("relu", "relu", ("y",), ("z", "y"))),
            "op 'relu': found 'y', already made by op 'mul', expected one producer for each tensor",
        ),
        (
            changed("ops", 1, Op("relu", "relu", ("y",), ("z", "x"))),
            "op 'relu': found 'x', already made by graph input",
        ),
        (
            changed("ops", 1, Op("relu", "relu", ("y",), ("z", "w"))),
            "op 'relu': found 'w', already made by graph constant",
        ),
        (
            changed("ops", 0, Op("mul", "mul", ("x",), ())),
            "op 'relu': found input 'y', which nothing makes, expected a tensor with a producer",
        ),
        (
            replace(NET, ops=NET.ops[::-1]),
            "op 'relu': found 'y' read before op 'mul' makes it, expected ops in an order in which",
        ),
        (
            replace(NET, tensors=(*NET.tensors, tensor("q", "y"))),
            "tensor 'q': found no producer, expected an op that makes it",
        ),
        (
            changed("storages", 0, Storage("x", 16, Role.ACTIVATION)),
            "storage 'x': found role activation, expected role input",
        ),
        (
            changed("storages", 3, Storage("z", 16, Role.ACTIVATION)),
            "storage 'z': found role activation, expected role output",
        ),
        (
            changed("storages", 1, Storage("w", MAX_BYTES, Role.CONSTANT)),
            "storages: found sizes whose sum passes",
        ),
    ],
)
def test_each_error_names_its_place(graph, message):
    with pytest.raises(InputError) as caught:
        check_graph(graph, "net.json")
    assert str(caught.value).startswith(f"net.json: {message}")
    assert "\n" not in str(caught.value)


def test_an_output_that_aliases_an_input_keeps_the_role_input():
    view = replace(
        NET,
        tensors=(*NET.tensors, tensor("v", "x")),
        ops=(*NET.ops, Op("view", "view", ("x",), ("v",))),
        outputs=("z", "v"),
    )
    assert check_graph(view) is view


@pytest.mark.parametrize("link", ["inputs", "mutates"])
def test_a_cycle_is_named_op_by_op(link):
    first = Op("mul", "mul", ("x", "w"), ("y",))
    closed = replace(first, **{link: (*getattr(first, link), "z")})
    with pytest.raises(
        InputError, match="ops: found a cycle: mul → relu → mul, expected a graph without cycles"
    ):
        check_graph(replace(NET, ops=(closed, NET.ops[1])))


@pytest.mark.parametrize(
    ("reads", "cycle"),
    [
        ({"a": (), "b": ("ta",), "c": ("tb", "ta")}, []),
        ({"a": ("ta",)}, ["a", "a"]),
        ({"a": ("tc",), "b": ("ta",), "c": ("tb",)}, ["a", "b", "c", "a"]),
        ({"a": (), "b": ("ta", "tc"), "c": ("tb",), "d": ("tc",)}, ["b", "c", "b"]),
        ({"a": ("outside",), "b": ("ta", "ta")}, []),
    ],
)
def test_find_cycle(reads, cycle):
    found = find_cycle(reads, {f"t{op}": op for op in reads})
    assert len(found) == len(cycle)
    if cycle:
        assert found[0] == found[-1]
        turn = cycle.index(found[0])
        assert found[:-1] == cycle[turn:-1] + cycle[:turn]


def test_find_cycle_follows_a_chain_of_100_000_ops():
    n = 100_000
    reads = {str(i): (f"t{i + 1}",) for i in range(n)}
    maker = {f"t{i}": str(i) for i in range(n)}
    assert find_cycle(reads, maker) == []
    reads[str(n - 1)] = (f"t{n - 2}",)
    assert sorted(set(find_cycle(reads, maker))) == [str(n - 2), str(n - 1)]


def test_a_source_reads_as_file_and_line():
    assert str(Source("model.py", 12, "x = self.fc(x)")) == "model.py:12"
