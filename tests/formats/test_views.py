"""Tensors in JSON that say whose view they are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from memplan_engine import Graph, InputError
from memplan_engine.formats.memplan_json.json_file import loads
from memplan_engine.lifetimes import lifetimes
from memplan_engine.schedule import sequential


def load(tensors: list[dict[str, Any]]) -> Graph:
    ops = [
        {
            "name": f"op{place}",
            "inputs": [tensors[place - 1]["name"]] if place else [],
            "outputs": [t["name"]],
        }
        for place, t in enumerate(tensors)
    ]
    document = {"format": "memplan/graph", "version": 1, "tensors": tensors, "ops": ops}
    found = loads(json.dumps(document), "g.json")
    assert isinstance(found, Graph)
    return found


def test_views_of_views_live_in_the_storage_at_the_end_of_the_chain() -> None:
    graph = load(
        [
            {"name": "a", "nbytes": 64},
            {"name": "v", "nbytes": 64, "view_of": "a"},
            {"name": "w", "nbytes": 16, "view_of": "v", "offset": 48},
            {"name": "b", "nbytes": 8},
        ]
    )
    assert {tensor.name: tensor.storage for tensor in graph.tensors} == {
        "a": "a",
        "v": "a",
        "w": "a",
        "b": "b",
    }
    assert {storage.name: storage.nbytes for storage in graph.storages} == {"a": 64, "b": 8}
    assert lifetimes(graph, sequential(graph)) == {"a": (0, 4), "b": (3, 4)}


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (
            [{"name": "a", "view_of": "b"}, {"name": "b", "view_of": "c"}, {"name": "c", "view_of": "b"}],
            "tensor 'a': found views in a loop: b → c → b, expected views that end",
        ),
        (
            [{"name": "a", "view_of": "a"}],
            "tensor 'a': found views in a loop: a → a, expected views that end",
        ),
        (
            [{"name": "a"}, {"name": "b", "view_of": "ghost"}],
            "tensor 'b': found a view of 'ghost', expected a tensor of the graph",
        ),
        (
            [{"name": "a"}, {"name": "b", "view_of": "a", "storage": "b"}],
            "tensor 'b': found storage 'b', expected 'a', that of 'a'",
        ),
        (
            [{"name": "a", "shape": [2, 4], "strides": [4, -1]}],
            "tensor 'a': found stride -1, expected strides of 0 or more elements",
        ),
        (
            [{"name": "a", "shape": [2, 4], "strides": [4]}],
            "tensor 'a': found 1 strides, expected one for each of 2 dimensions",
        ),
        (
            [{"name": "a", "shape": [2, 4], "formulas": ["n"]}],
            "tensor 'a': found 1 formulas, expected one for each of 2 dimensions",
        ),
    ],
)
def test_broken_views_are_named(tensors: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(InputError) as caught:
        load([{"nbytes": 8} | tensor for tensor in tensors])
    assert str(caught.value).startswith(f"g.json: {message}")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"tensors/1/offset": 60},
            "tensor 'v': found bytes 60 to 76, expected within the 64 bytes of storage 'a'",
        ),
        (
            {"tensors/1/strides": [8]},
            "tensor 'v': found bytes 0 to 100, expected within the 64 bytes of storage 'a'",
        ),
        ({"tensors/0/nbytes": 60}, "tensor 'a': found 60 bytes for 16 of float32, expected 64"),
        ({"constants": ["x"]}, "constants, 'x': found a tensor that is also among the inputs"),
        (
            {"storages/1/formula": "65*n"},
            "storage 'a', formula: found 65*n = 520 at n = 8, expected 64, the plain number",
        ),
        (
            {"storages/1/formula": "8*m"},
            "storage 'a', formula: found the symbol 'm' in '8*m', expected",
        ),
        (
            {"storages/1/formula": "8*"},
            "storage 'a', formula: found the formula '8*' with a part",
        ),
        (
            {"tensors/0/formulas": ["n"]},
            "tensor 'a', formulas: found n = 8 at n = 8, expected 16, the plain number",
        ),
    ],
)
def test_what_is_said_twice_has_to_agree(changed: dict[str, Any], message: str) -> None:
    document: Any = {
        "format": "memplan/graph",
        "version": 1,
        "inputs": ["x"],
        "symbols": [{"name": "n", "hint": 8}],
        "tensors": [
            {"name": "a", "nbytes": 64, "shape": [16], "dtype": "float32"},
            {"name": "v", "nbytes": 16, "shape": [4], "dtype": "float32", "view_of": "a"},
            {"name": "x", "nbytes": 4},
        ],
        "storages": [{"name": "x", "nbytes": 4}, {"name": "a", "nbytes": 64, "formula": "8*n"}],
        "ops": [
            {"name": "f", "inputs": ["x"], "outputs": ["a"]},
            {"name": "g", "inputs": ["a"], "outputs": ["v"]},
        ],
    }
    assert loads(json.dumps(document), "g.json")
    for path, value in changed.items():
        *parents, last = path.split("/")
        at = document
        for part in parents:
            at = at[int(part)] if part.isdigit() else at[part]
        at[last] = value
    with pytest.raises(InputError) as caught:
        loads(json.dumps(document), "g.json")
    assert str(caught.value).startswith(f"g.json: {message}")
