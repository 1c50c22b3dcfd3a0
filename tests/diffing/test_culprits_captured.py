"""Who is to blame, told of models as torch captures them: from configurations, nothing is downloaded."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import nn

from memplan_engine import SolveLimits, make_plan, observe_fake, to_problem
from memplan_engine.diffing.culprits import Explanation, Fate, explain
from memplan_engine.diffing.matching import How
from memplan_engine.diffing.moment import Cause
from memplan_engine.diffing.regression import Diff, diff
from memplan_engine.recordings.observed_graph import observation_graph
from memplan_engine.reporters.diff_culprits import story
from memplan_engine.torch_capture.capture_module import capture

WIDTH, ROWS = 64, 32
STATE = 4 * ROWS * WIDTH
"""Bytes of one hidden state."""


class Stack(nn.Module):
    """Six layers; the states between them are perhaps read again at the end."""

    def __init__(self, *, keeps: bool = False, wide: int = 1, norm: bool = False) -> None:
        super().__init__()
        self.keeps = keeps
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(6))
        self.up, self.down = nn.Linear(WIDTH, wide * WIDTH), nn.Linear(wide * WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH) if norm else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The last state, or the sum of all."""
        states = []
        for layer in self.layers:
            x = layer(x)
            states.append(x)
        x = self.down(torch.relu(self.up(x)))
        if self.norm is not None:
            x = self.norm(x)
        return torch.cat([x, *states], 1) if self.keeps else x


def line_of(code: str) -> int:
    """The line of Stack's source that holds `code`."""
    lines, first = inspect.getsourcelines(Stack)
    return first + next(n for n, line in enumerate(lines) if code in line)


def told(base: Any, head: Any) -> tuple[Diff, Explanation, tuple[str, ...]]:
    problems = (to_problem(graph, alignment=1) for graph in (base, head))
    found = diff(*(make_plan(problem, limits=SolveLimits(nodes=100_000)) for problem in problems))
    explained = explain(found)
    assert sum(each.nbytes for each in explained.culprits) + explained.elsewhere == found.demand_delta
    return found, explained, story(found, explained)


def stack(dtype: torch.dtype = torch.float32, rows: int = ROWS, **how: Any) -> Any:
    return capture(Stack(**how).to(dtype), (torch.zeros(rows, WIDTH, dtype=dtype),))


def test_states_that_are_read_again_at_the_end():
    _, explained, sentences = told(stack(), stack(keeps=True))
    culprit = explained.culprits[0]
    assert (culprit.cause, culprit.nbytes) == (Cause.NEW, 7 * STATE)
    kept = explained.culprits[1]
    assert (kept.cause, kept.fate) == (Cause.LONGER, Fate.LAST_READER)
    assert (kept.source.line, len(kept.buffers)) == (line_of("torch.cat"), 6)
    assert kept.nbytes == 6 * STATE
    assert kept.largest.head_holder.op.kind == "aten.cat"
    assert f":{line_of('torch.cat')}) now reads 6 tensors of " in sentences[1]


def test_a_wider_layer_and_twice_the_rows():
    _, explained, sentences = told(stack(), stack(wide=4))
    assert {each.cause for each in explained.culprits} == {Cause.LARGER}
    assert f"float32 [{ROWS}, {WIDTH}] → float32 [{ROWS}, {4 * WIDTH}]" in sentences[0]
    found, explained, _ = told(stack(), stack(rows=2 * ROWS))
    assert {each.cause for each in explained.culprits} == {Cause.LARGER}
    assert (found.demand_delta, explained.second) == (found.base_load.peak, None)


def test_another_dtype_is_no_other_model():
    found, explained, sentences = told(stack(torch.bfloat16), stack(torch.float32))
    assert found.related
    assert found.share == 1.0
    assert set(found.matching.counts()) == {How.RETYPED}
    assert {each.cause for each in explained.culprits} == {Cause.LARGER}
    assert "bfloat16 [32, 64] → float32 [32, 64]" in " ".join(sentences)


def test_an_op_that_is_new_beneath_the_peak_says_nothing_of_it():
    _, explained, sentences = told(stack(wide=4), stack(wide=4, norm=True))
    assert explained.culprits == ()
    assert sentences[0] == f"peak of the storages unchanged at {2 * 4 * STATE // 1024} KiB"


class Lists(nn.Module):
    """Two products on the way; a list in Python perhaps refers to the first of them until the end."""

    def __init__(self, keeps: bool) -> None:
        super().__init__()
        self.keeps = keeps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        y = x.relu()
        if self.keeps:
            kept.append(y)
        z = y.exp()
        del y
        return torch.cat([z, z, z]).sum()


def test_what_a_list_in_python_keeps_is_no_matter_of_its_reader() -> None:
    def seen(keeps: bool) -> Any:
        return observation_graph(observe_fake(Lists(keeps), (torch.zeros(ROWS, WIDTH),)))

    _, explained, sentences = told(seen(False), seen(True))
    (culprit,) = explained.culprits
    assert (culprit.cause, culprit.fate, culprit.nbytes) == (Cause.LONGER, Fate.KEPT, STATE)
    assert " is now held past the last read, by exp (test_culprits_captured.py:" in sentences[0]
    assert " is no longer held past the last read" in told(seen(True), seen(False))[2][0]


@pytest.mark.slow
def test_hidden_states_that_a_model_is_asked_to_return():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPTNeoXConfig(
        hidden_size=64,
        num_hidden_layers=6,
        num_attention_heads=4,
        intermediate_size=64,
        vocab_size=32,
        use_cache=False,
    )
    ids = {"input_ids": torch.zeros(1, 64, dtype=torch.long)}
    graphs = []
    for returns in (False, True):
        config.output_hidden_states = returns
        graphs.append(capture(transformers.GPTNeoXForCausalLM(config).eval(), (), ids))
    _, explained, sentences = told(*graphs)
    kept = [each for each in explained.culprits if each.fate is Fate.RETURNED]
    assert kept
    assert kept[0] is explained.culprits[0]
    assert kept[0].nbytes == len(kept[0].buffers) * 64 * 64 * 4
    assert " are now returned" in sentences[0]
    assert "modeling_gpt_neox.py:" in sentences[0]
