"""Graphs with symbols: chains written down by hand, and a real one with formulas put in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import prod

from memplan_engine import Graph, check_graph
from memplan_engine.files import load
from memplan_engine.graph import Op, Role, Symbol
from memplan_engine.symbolic import parse
from tests import ROOT
from tests.support.graphs import make_graph

EXAMPLE = ROOT / "example_graphs" / "gpt2.json"

N = Symbol("n", 1, 64, 4)
BATCH, SEQ = Symbol("batch", 1, 16, 2), Symbol("seq", 1, 512, 128)


def symbolic(graph: Graph, formulas: Mapping[str, str], symbols: Sequence[Symbol]) -> Graph:
    """`graph` with formulas for some of its storages, whose sizes become what these give at the hints."""
    hints = {symbol.name: symbol.hint or 0 for symbol in symbols}
    sizes = {name: int(parse(text).at(hints)) for name, text in formulas.items()}
    storages = tuple(
        replace(s, formula=formulas[s.name], nbytes=sizes[s.name]) if s.name in formulas else s
        for s in graph.storages
    )
    tensors = tuple(
        replace(
            t,
            shape=(sizes[t.storage],),
            formulas=(formulas[t.storage],),
            nbytes=sizes[t.storage],
            strides=None,
            offset=0,
        )
        if t.storage in formulas
        else t
        for t in graph.tensors
    )
    return check_graph(replace(graph, storages=storages, tensors=tensors, symbols=tuple(symbols)))


def chain(formulas: Sequence[str], symbols: Sequence[Symbol] = (N,)) -> Graph:
    """x → a → b → c …; the last one is the output, and neighbours are live together."""
    names = [chr(ord("a") + place) for place in range(len(formulas))]
    pairs = zip(["x", *names], names, strict=False)
    ops = [Op(f"make_{name}", "op", (before,), (name,)) for before, name in pairs]
    sizes = {"x": 8, **dict.fromkeys(names, 1)}
    graph = make_graph(ops, sizes, inputs=("x",), outputs=names[-1:])
    return symbolic(graph, dict(zip(names, formulas, strict=True)), symbols)


@cache
def gpt2() -> Graph:
    """GPT-2 as captured at one sequence of 1024 tokens; every 1024 in a shape is made the sequence length,
    and all that has one grows with the batch, too."""
    graph = load(str(EXAMPLE))
    assert isinstance(graph, Graph)
    whole = {s.name: s.nbytes for s in graph.storages if s.role in (Role.ACTIVATION, Role.OUTPUT)}
    formulas: dict[str, str] = {}
    for tensor in graph.tensors:
        if whole.get(tensor.storage) == tensor.nbytes and 1024 in tensor.shape:
            words = ["seq" if size == 1024 else str(size) for size in tensor.shape]
            unit = tensor.nbytes // prod(tensor.shape)
            formulas.setdefault(tensor.storage, "*".join(["batch", str(unit), *words]))
    assert len(formulas) > 150
    return symbolic(graph, formulas, (replace(BATCH, hint=1), Symbol("seq", 1, 2048, 1024)))
