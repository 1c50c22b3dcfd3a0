"""Random small models in pieces: what the whole gives, in float64, whichever tensor a region grows from."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from memplan_engine import load_program
from memplan_engine.rewrites.chunk.check_chunk import check_chunk
from memplan_engine.rewrites.chunk.chunked_graph import chunked_graph
from memplan_engine.rewrites.chunk.region import Region, grow
from memplan_engine.rewrites.chunk.row_reads import rows_of
from memplan_engine.runtime.chunked_program import chunked_program

KINDS = (
    "relu_", "tanh", "linear", "softmax0", "softmax1", "softmax2", "norm", "swap", "merge", "sum0", "sum1",
    "mean2", "cat1", "cat2", "half", "scores", "earlier", "split", "spread",
)  # fmt: skip


class Drawn(nn.Module):
    """Ops on a tensor of three dimensions, as `kinds` name them."""

    def __init__(self, kinds: list[str], width: int) -> None:
        super().__init__()
        self.kinds = kinds
        self.linear = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, earlier, shape = x, x, x.shape
        for kind in self.kinds:
            x, earlier = self.one(kind, x, earlier if earlier.shape == x.shape else x), x
        return x if x.shape == shape else x.flatten() + first.sum()

    def one(self, kind: str, x: torch.Tensor, earlier: torch.Tensor) -> torch.Tensor:
        match kind:
            case "relu_":
                return (x + 1).relu_()
            case "linear":
                return self.linear(x) if x.shape[-1] == self.linear.in_features else x * 2
            case "softmax0" | "softmax1" | "softmax2":
                return x.softmax(int(kind[-1]))
            case "norm":
                return functional.layer_norm(x, x.shape[-1:])
            case "swap":
                return x.transpose(0, 1)
            case "merge":
                return (x.flatten(0, 1) * 3).view(x.shape)
            case "sum0" | "sum1":
                return x * x.sum(int(kind[-1]), keepdim=True)
            case "mean2":
                return x - x.mean(2, keepdim=True)
            case "cat1" | "cat2":
                return torch.cat([x, x.exp()], int(kind[-1]))[:, : x.shape[1], -x.shape[2] :]
            case "half":
                return torch.where(x > 0, x, x * 0.5)
            case "scores":
                return (x @ x.transpose(1, 2)) @ x
            case "earlier":
                return x + earlier
            case "split":
                return torch.cat([part.sigmoid() for part in x.split(2, 2)], 2)
            case "spread":
                return x * x[:1].expand_as(x)
        return x.tanh()


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.sampled_from(KINDS), min_size=2, max_size=6),
    st.tuples(st.integers(2, 4), st.integers(2, 4), st.sampled_from((4, 6))),
    st.integers(2, 4),
    st.integers(0, 1_000),
)
def test_pieces_are_the_whole(kinds: list[str], shape: tuple[int, int, int], count: int, draw: int) -> None:
    torch.manual_seed(draw)
    x = torch.rand(shape, dtype=torch.float64)
    program = load_program(Drawn(kinds, shape[-1]).double().eval(), (x,))
    whole: Any = program.run((x,))
    rows = rows_of(program.graph)
    found: dict[tuple[object, ...], Region] = {}
    for tensor in program.graph.tensors:
        for dim in range(len(tensor.shape)) if tensor.name in rows.maker else ():
            region = grow(rows, tensor.name, dim, (0, len(program.graph.ops)), 2)
            if region is not None:
                found.setdefault((region.ops, *region.split.items()), region)
    regions = list(found.values())
    for region in regions:
        assert check_chunk(program.graph, chunked_graph(rows, region, count)) == []
    # One that runs takes a hundred times as long as one that is checked.
    for region in regions[draw % len(regions) :][:1] if regions else ():
        graph = chunked_graph(rows, region, count)
        pieces = chunked_program(program, graph)
        torch.testing.assert_close(pieces.run((x,)), whole, rtol=1e-11, atol=1e-11)
        ours = {each.name: each.nbytes for each in graph.storages}
        assert {each.name: each.nbytes for each in pieces.graph.storages} == ours
