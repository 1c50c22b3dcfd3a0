"""Small graphs, written down by hand or drawn at random."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hypothesis import strategies as st

from memplan_engine.graph import Graph, Op, Storage, Tensor, check_graph, storage_role


def make_graph(
    ops: Iterable[Op],
    sizes: Mapping[str, int],
    *,
    views: Mapping[str, str] | None = None,
    inputs: Iterable[str] = (),
    outputs: Iterable[str] = (),
    constants: Iterable[str] = (),
    **more: Any,
) -> Graph:
    """A checked graph: a storage and a tensor of `sizes` bytes each, and for each of `views` (name →
    storage) a further tensor."""
    home = {name: name for name in sizes} | dict(views or {})
    lists = {"inputs": tuple(inputs), "outputs": tuple(outputs), "constants": tuple(constants)}
    owned = {kind: {home[name] for name in names} for kind, names in lists.items()}
    return check_graph(
        Graph(
            name="net",
            storages=tuple(Storage(s, n, storage_role(s, **owned)) for s, n in sizes.items()),
            tensors=tuple(Tensor(t, (sizes[s],), "uint8", sizes[s], s) for t, s in home.items()),
            ops=tuple(ops),
            **lists,
            **more,
        )
    )


@st.composite
def graphs(draw: st.DrawFn, most_ops: int = 12, in_place: bool = True) -> Graph:
    """Random graphs: several inputs and constants, ops with one or two outputs, views of views (of inputs,
    too), ops that write in place, outputs that are anything."""
    sizes = {"x": 8, "y": 100, "w": draw(st.integers(1, 300))}
    views: dict[str, str] = {}
    ready, fresh = ["x", "y", "w"], ["x", "y"]
    ops = []
    for index in range(draw(st.integers(1, most_ops))):
        reads = tuple(draw(st.lists(st.sampled_from(ready), min_size=1, max_size=3, unique=True)))
        kind = draw(st.sampled_from(["op", "op", "op", "pair", "view", "in_place"]))
        mutates: tuple[str, ...] = ()
        made = [f"t{index}"]
        if kind == "pair":
            made.append(f"u{index}")
        home = {**{name: name for name in sizes}, **views}
        if kind == "view" or (kind == "in_place" and in_place):
            reads = reads[:1]
            views[made[0]] = home[reads[0]]
            mutates = reads if kind == "in_place" and home[reads[0]] != "w" else ()
        else:
            sizes |= {name: draw(st.integers(0, 400)) for name in made}
        ops.append(Op(f"op{index}", kind, reads, tuple(made), mutates))
        ready += made
        fresh += made
    outputs = draw(st.lists(st.sampled_from(fresh), min_size=1, max_size=3, unique=True))
    return make_graph(ops, sizes, views=views, inputs=("x", "y"), constants=("w",), outputs=outputs)
