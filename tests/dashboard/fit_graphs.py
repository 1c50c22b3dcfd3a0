"""Graphs that run ops again, small enough for a page."""

from __future__ import annotations

from memplan_engine.graph import Graph, Op, Phase
from tests.support.graphs import make_graph

MIB = 1 << 20
ARENAS = (21, 17, 13, 12, 10)
"""MiB of the points of the curve of `layers`: all is kept, one or two of five are not, and the least found;
no schedule has fewer than 8, two of the results, of which one is made from the other."""


def layers(count: int = 5) -> Graph:
    """Layers forward and back: each backward op reads what its layer made, 4 MiB, and the gradient behind it,
    1 MiB, as large as what is put in."""
    forward = [
        Op(f"f{i}", "mix", (f"a{i - 1}" if i else "x",), (f"a{i}",), phase=Phase.FORWARD)
        for i in range(count)
    ]
    backward = [
        Op(
            f"b{i}",
            "mix",
            (f"a{i}", *([f"g{i + 1}"] if i < count - 1 else [])),
            (f"g{i}",),
            phase=Phase.BACKWARD,
        )
        for i in reversed(range(count))
    ]
    sizes = {"x": MIB} | {f"a{i}": 4 * MIB for i in range(count)} | {f"g{i}": MIB for i in range(count)}
    return make_graph((*forward, *backward), sizes, inputs=("x",), outputs=("g0",))
