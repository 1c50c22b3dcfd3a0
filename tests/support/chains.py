"""A graph that is a chain: of each step the bytes can be added up by hand."""

from __future__ import annotations

from memplan_engine.graph import Graph, Op, Source
from tests.support.graphs import make_graph


def chain(*sizes: int) -> Graph:
    """Each op reads what the one before it made, of `sizes` bytes, the first the input `x`: two are live at a
    time, the output to the end. Op i is in layer i and on line i of net.py."""
    names = [f"t{place}" for place in range(len(sizes))]
    ops = [
        Op(
            f"mul_{place}",
            "mul",
            (before,),
            (name,),
            module=f"net.layer.{place}",
            source=Source("net.py", place),
        )
        for place, (before, name) in enumerate(zip(["x", *names], names, strict=False))
    ]
    return make_graph(
        ops, {"x": 8, **dict(zip(names, sizes, strict=True))}, inputs=["x"], outputs=[names[-1]]
    )
