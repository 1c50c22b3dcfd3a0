"""Values that a training step asks for while it is traced, and inputs in the order of the call."""

from __future__ import annotations

import json
import logging
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from memplan_engine import make_plan
from memplan_engine.errors import InputError
from memplan_engine.runtime.loading import run_target_of_step
from memplan_engine.runtime.trial.run_in_plan import run_in_plan
from memplan_engine.torch_capture.training.torch_recipe import Recipe
from memplan_engine.torch_capture.training.torch_step import capture_step


class Branches(nn.Module):
    """Takes one of two ways by what `ask` says of its mask."""

    def __init__(self, ask: Any) -> None:
        super().__init__()
        self.linear, self.ask = nn.Linear(4, 3), ask

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        return y.tanh().sum() if self.ask(mask) else y.sigmoid().sum()


def written(mask: torch.Tensor) -> Any:
    other = mask.clone()
    row = other[0]
    row.logical_not_()
    return other.all()


ASKED = {
    "all": (lambda mask: mask.all(), True),
    "item": (lambda mask: mask.sum().item() == 6, True),
    "a row": (lambda mask: bool(mask[1].any()), True),
    "numbers of the model": (lambda mask: bool(mask[:, [0, 1]].all()) and 1 in torch.tensor([0, 1]), True),
    "written through a view": (written, False),
    "a range": (lambda mask: torch.arange(mask.shape[0]).diff().eq(2).any(), False),
}


@pytest.mark.parametrize("name", ASKED)
def test_branches_on_what_follows_from_inputs_and_numbers_are_eagers(name: str) -> None:
    ask, first = ASKED[name]
    model, given = Branches(ask), (torch.rand(2, 4), torch.ones(2, 3, dtype=torch.bool))
    kinds = {op.kind for op in capture_step(model, given).ops}
    assert ("aten.tanh" in kinds, "aten.sigmoid" in kinds) == (first, not first)
    target = run_target_of_step(model, given, {}, Recipe("sgd"))
    assert run_in_plan(target, make_plan(target.program.graph)).run.equality.exact


@pytest.mark.parametrize(
    "ask",
    [
        lambda mask: torch.rand(3).sum() > 1,
        lambda mask: mask.clone().bernoulli_().all(),
        lambda mask: (mask * torch.empty(3)).all(),
    ],
    ids=["random", "written with random numbers", "not initialised"],
)
def test_values_that_do_not_follow_are_refused_with_the_line(ask: Any) -> None:
    with pytest.raises(InputError) as caught:
        capture_step(Branches(ask), (torch.rand(2, 4), torch.ones(2, 3, dtype=torch.bool)))
    assert "test_torch_values.py:" in str(caught.value)
    assert "memplan observe" in str(caught.value)


def test_a_mask_on_meta_has_no_values() -> None:
    with torch.device("meta"):
        given = (torch.rand(2, 4), torch.ones(2, 3, dtype=torch.bool))
    with pytest.raises(InputError, match=r"test_torch_values\.py:"):
        capture_step(Branches(lambda mask: mask.all()), given)


def llama() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=30, use_cache=False,
    )  # fmt: skip
    ids = torch.arange(20).view(2, 10)
    # Not in the order of the signature, which has the mask before the labels.
    inputs = {"input_ids": ids, "labels": ids.flip(1), "attention_mask": torch.ones_like(ids)}
    return transformers.LlamaForCausalLM(config), inputs


def test_transformers_takes_eagers_way_and_inputs_keep_the_order_of_the_call() -> None:
    model, inputs = llama()
    target = run_target_of_step(model, (), inputs, Recipe("sgd"))
    run = run_in_plan(target, make_plan(target.program.graph)).run
    assert run.equality.exact, run.equality
    assert target.program.graph.inputs == ("input_ids", "labels", "attention_mask")
    assert run.difference == 0


def test_masks_without_values_are_said_to_take_another_way(caplog: pytest.LogCaptureFixture) -> None:
    model, inputs = llama()
    meta = {name: tensor.to("meta") for name, tensor in inputs.items()}
    with caplog.at_level(logging.WARNING):
        graph = capture_step(model, (), meta)
    (line,) = [record.getMessage() for record in caplog.records if "transformers" in record.getMessage()]
    assert "asks for values of a tensor of shape (2, 10)" in line
    assert len(graph.ops) > len(capture_step(model, (), inputs).ops)


class Draws(nn.Module):
    """Draws from Python's and torch's generators, and writes its input."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x.mul_(2)) * random.random()
        return (y * torch.rand_like(y)).sum()


def test_each_step_begins_with_the_same_batch_and_the_same_random_numbers() -> None:
    target = run_target_of_step(Draws(), (torch.rand(2, 4),), {}, Recipe("adam"))
    run = run_in_plan(target, make_plan(target.program.graph)).run
    assert run.equality.exact, run.equality


class Keeps(nn.Module):
    """Keeps something from step to step, in one way or another."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.linear, self.way = nn.Linear(4, 3), way
        self.register_buffer("mean", torch.zeros(3))
        self.kept: Any = torch.zeros(3)
        self.generator = torch.Generator().manual_seed(0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        if self.way == "rebound":
            self.mean = self.mean * 0.9 + y.detach().mean(0) * 0.1  # type: ignore[has-type]
        elif self.way == "written elsewhere":
            self.kept.add_(1)
        elif self.way == "made elsewhere":
            y = y + self.kept
            self.kept = y.detach()
        elif self.way == "generator":
            y = y * torch.rand(3, generator=self.generator)
        elif self.way == "rows":
            y = y[y > 0]
        return y.sum()


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("rebound", "tensor 'mean': found one that a step replaces by another, expected one that is written"),
        (
            "written elsewhere",
            "found a tensor kept outside of the model at tests/torch_capture/test_torch_values.py:",
        ),
        (
            "made elsewhere",
            "found a tensor kept outside of the model at tests/torch_capture/test_torch_values.py:",
        ),
        ("generator", "found a torch.Generator at tests/torch_capture/test_torch_values.py:"),
        ("rows", "at tests/torch_capture/test_torch_values.py:"),
    ],
)
def test_what_the_next_step_would_not_begin_with_is_refused(way: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        capture_step(Keeps(way), (torch.rand(2, 4),))
    assert message in str(caught.value)


def test_weights_without_a_size_are_refused() -> None:
    with pytest.raises(InputError, match=r"found one without a size \(a lazy module\)"):
        capture_step(nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 1)), (torch.rand(2, 4),))


def grows(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> torch.Tensor:
    if not hasattr(model, "extra"):
        model.extra = nn.Linear(3, 1)
        optimizer.add_param_group({"params": list(model.extra.parameters())})
    loss = model.extra(model.linear(x)).sum()  # type: ignore[operator]
    loss.backward()
    optimizer.step()
    return loss


def test_weights_that_a_step_makes_are_refused() -> None:
    with pytest.raises(InputError, match="found one that the first step makes"):
        run_target_of_step(Draws(), (torch.rand(2, 4),), {}, Recipe("sgd", step=grows))


def test_a_model_that_returns_a_cache_is_compared_by_its_tensors() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=30)
    ids = torch.arange(20).view(2, 10)
    given = {"input_ids": ids, "labels": ids}
    target = run_target_of_step(transformers.GPT2LMHeadModel(config), (), given, Recipe())
    equality = run_in_plan(target, make_plan(target.program.graph)).run.equality
    assert equality.exact
    assert "4 outputs" in equality.reference


@pytest.mark.slow
def test_a_cache_from_a_process_of_its_own_is_compared_by_its_tensors(memplan: Any, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "m.py").write_text(
        "import torch, transformers\n"
        "def build():\n"
        "    config = transformers.GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=30)\n"
        "    ids = torch.arange(20).view(2, 10)\n"
        "    return transformers.GPT2LMHeadModel(config), {'input_ids': ids, 'labels': ids}\n"
    )
    code, out, err = memplan("run", "m.py:build", "--training", "step", "--seed", "3", "--json")
    assert code == 0, err
    found = json.loads(out)["equality"]
    assert found["exact"]
    assert "4 outputs" in found["reference"]
