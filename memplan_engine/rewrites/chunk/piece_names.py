"""Names of what a graph in pieces has beside those of the graph that it was."""

from __future__ import annotations

import re
from collections.abc import Container

from memplan_engine.graph import Graph

_PIECE = re.compile(r"_chunk\d+(_\d+)?$")
_WHOLE = re.compile(r"^(.+)_(\d+)_whole(_\d+)?$")
_LOSS = re.compile(r"^(.+)_(mean|weight)(_\d+)?$")


def whole_op(name: str, names: Container[str]) -> str | None:
    """The op that the op `name` is, or is a piece of, of those called `names`; None where it is there for
    pieces only."""
    if name in names:
        return name
    found = _PIECE.sub("", name)
    return found if found != name and found in names else None


def runs_in_pieces(graph: Graph, names: Container[str]) -> bool:
    """Whether ops of `graph` run on pieces of what those called `names` do."""
    return any(op.name not in names and whole_op(op.name, names) is not None for op in graph.ops)


def whole_tensor(name: str, names: Container[str]) -> str:
    """The tensor, of those called `names`, that the tensor `name` of a graph in pieces stands for: several
    results of one op have other names there. `name` itself where there is none."""
    if name in names:
        return name
    for pattern, place in ((_WHOLE, r"\1.\2"), (_LOSS, r"\1")):
        if match := pattern.match(name):
            found = match.expand(place)
            if pattern is _LOSS:
                found += ".0" if match.group(2) == "mean" else ".1"
            if found in names:
                return found
    return name
