"""Programs whose regions run in pieces: what the whole gives but for last digits, in the bytes that were
predicted, by a recorder that knows nothing of the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from memplan_engine import InputError, load_program
from memplan_engine.rewrites.chunk.choose import Chunked, chunk_graph
from memplan_engine.rewrites.chunk.live import live_bytes
from memplan_engine.runtime.chunked_program import chunked_program
from memplan_engine.runtime.loading import load_step
from memplan_engine.runtime.program import Program
from memplan_engine.runtime.trial.comparison import compare_run
from memplan_engine.runtime.trial.equality import restoring, written_tensors
from tests.support.measured import measure_graph_module

Built = tuple[Program, list[Any]]


class Language(nn.Module):
    """A tied head over many words, with a loss that leaves some targets out."""

    def __init__(self, reduction: str = "mean", tied: bool = True) -> None:
        super().__init__()
        self.embed = nn.Embedding(400, 16)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 400, bias=not tied)
        self.reduction = reduction
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, words: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.norm(self.embed(words)))
        return functional.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=3, reduction=self.reduction
        )


class Layers(nn.Module):
    """Attention and a wide layer between residual sums."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.wide = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 256), nn.GELU(), nn.Linear(256, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 4, 4).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.wide(x)


class Pictures(nn.Module):
    """Convolutions with batch norms that know their statistics, written over in place, and two branches."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.second = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        x = torch.cat([functional.max_pool2d(x, 2), functional.avg_pool2d(self.second(x).sigmoid(), 2)], 1)
        return x.mean((2, 3)).softmax(1)


def language(reduction: str = "mean", tied: bool = True) -> Built:
    words, targets = torch.randint(0, 400, (4, 33)), torch.randint(0, 6, (4, 33))
    model = Language(reduction, tied).double()
    return load_step(model, (words, targets), optimizer="adamw"), [words, targets]


def inference(model: nn.Module, *shape: int) -> Built:
    x = torch.rand(*shape, dtype=torch.float64)
    return load_program(model.double().eval(), (x,)), [x]


CASES: dict[str, Callable[[], Built]] = {
    "mean": language,
    "sum": lambda: language("sum"),
    "untied": lambda: language(tied=False),
    "attention": lambda: inference(Layers(causal=False), 2, 64, 16),
    "causal": lambda: inference(Layers(causal=True), 4, 32, 16),
    "pictures": lambda: inference(Pictures(), 8, 3, 16, 16),
}


def chunked(program: Program, live: int | None = None) -> Chunked:
    """`program`'s graph in pieces; that there are none is a failure."""
    found = chunk_graph(program.graph, live)
    assert found is not None
    return found


def flat(program: Program, args: list[Any]) -> list[torch.Tensor]:
    """What a run returns and leaves in what it writes, which is then as before."""
    with restoring(written_tensors(program, program.inputs(args)), 0) as restore:
        restore()
        result = program.run(args)
        leaves = result if isinstance(result, (list, tuple)) else [result]
        return [each.detach().clone() for each in (*leaves, *program.state) if isinstance(each, torch.Tensor)]


@pytest.mark.parametrize("name", CASES)
def test_pieces_give_what_the_whole_gives(name: str) -> None:
    torch.manual_seed(0)
    program, args = CASES[name]()
    found = chunked(program)
    assert found.peak_bytes < 0.6 * found.before_bytes
    pieces = chunked_program(program, found.graph)
    for ours, theirs in zip(flat(pieces, args), flat(program, args), strict=True):
        if ours.dtype == torch.float64:
            torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)
        else:
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", CASES)
def test_the_measured_peak_is_the_predicted_one(name: str) -> None:
    torch.manual_seed(0)
    program, args = CASES[name]()
    found = chunked(program)
    pieces = chunked_program(program, found.graph)
    assert {each.name: each.nbytes for each in pieces.graph.storages} == {
        each.name: each.nbytes for each in found.graph.storages
    }
    assert live_bytes(pieces.graph).max() == found.peak_bytes
    measured = compare_run(pieces, args)
    assert measured.dispatch_peak == measured.predicted_peak
    assert not measured.differing


def test_a_recorder_of_its_own_sees_the_same_bytes() -> None:
    program, args = language()
    pieces = chunked_program(program, chunked(program).graph)
    with restoring(written_tensors(pieces, pieces.inputs(args)), 0), torch.no_grad():
        seen = measure_graph_module(pieces.module, pieces.inputs(args))
    assert max(seen.values()) == live_bytes(pieces.graph).max()


def test_a_graph_of_something_else_is_refused() -> None:
    program, _ = language()
    other, _ = language("sum")
    with pytest.raises(InputError):
        chunked_program(other, chunked(program).graph)
