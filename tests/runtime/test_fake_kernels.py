"""What the CPU runs as one operator, or holds for itself, where fake tensors say something else: each entry
of the tables against a real run, op by op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

from memplan_engine import observe_fake, observe_model, observed_live, observed_peak
from memplan_engine.recordings.observation import Observation
from memplan_engine.recordings.observed_flow import Stage
from memplan_engine.runtime.recorder.eager_kernels import KERNELS
from memplan_engine.torch_capture.training.torch_recipe import Recipe

HIDDEN = ("_record_function", "_is_mkldnn")


class First(nn.Module):
    """The first of what `layer` gives."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(*inputs)[0]
        return result


class Attends(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.project, self.options = nn.Linear(16, 48), options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            part.unflatten(-1, (2, 8)).transpose(1, 2) for part in self.project(x).chunk(3, -1)
        )
        options = dict(self.options)
        if options.pop("masked", False):
            options["attn_mask"] = torch.zeros(x.shape[1], x.shape[1])
        return functional.scaled_dot_product_attention(query, key, value, **options)


class Turned(nn.Module):
    """A layer norm whose input lies column by column."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.norm, self.last = nn.Linear(12, 12), nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.last(self.norm(self.mix(x.transpose(1, 2)).transpose(1, 2)).flatten(1, 1))
        return result


X = (3, 12, 16)
CASES: dict[str, Callable[[], nn.Module]] = {
    "lstm": lambda: First(nn.LSTM(16, 8, num_layers=3, batch_first=True)),
    "lstm, both ways": lambda: First(nn.LSTM(16, 8, num_layers=2, bidirectional=True)),
    "lstm without biases": lambda: First(nn.LSTM(16, 8, bias=False)),
    "lstm, projected": lambda: First(nn.LSTM(16, 8, proj_size=4)),
    "gru": lambda: First(nn.GRU(16, 8, num_layers=2)),
    "rnn": lambda: First(nn.RNN(16, 8, bidirectional=True)),
    "lstm cell": lambda: First(nn.LSTMCell(16, 8)),
    "attention": lambda: Attends(),
    "causal attention": lambda: Attends(is_causal=True),
    "masked attention": lambda: Attends(masked=True),
    "attention with dropout": lambda: Attends(dropout_p=0.1),
    "encoder layer": lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True),
    "multi-head attention": lambda: Triple(),
    "layer norm": Turned,
    "lstm in bfloat16": lambda: First(nn.LSTM(16, 8, batch_first=True)).bfloat16(),
    "lstm in float16": lambda: First(nn.LSTM(16, 8, batch_first=True)).half(),
    "group norm, autocast": lambda: Cast(nn.Linear(16, 12), nn.GroupNorm(3, 12)),
    "weight norm, float16": lambda: weight_norm(nn.Linear(16, 4)).half(),
    "bf16": lambda: nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)).bfloat16(),
}


class Cast(nn.Sequential):
    """Layers whose operators run in bfloat16 on weights in float32."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            for layer in self:
                x = layer(x)
            return x


class Triple(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.attention(x, x, x)[0]
        return result


def during(observation: Observation) -> list[tuple[str, int]]:
    """Of each op its kind and the live bytes during it; what only asks or marks is left out."""
    live = observed_live(observation, "dispatch").during.tolist()
    rows = zip(observation.ops.kinds, live, strict=True)
    return [row for row in rows if not any(part in row[0] for part in HIDDEN)]


@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", CASES)
def test_every_op_holds_what_it_holds_in_a_real_run(name: str, trains: bool) -> None:
    torch.manual_seed(0)
    model = CASES[name]().train(trains)
    x = torch.rand(*(X if "cell" not in name else X[1:]), dtype=next(model.parameters()).dtype)
    recipe = Recipe("sgd") if trains else None
    fake, real = observe_fake(model, (x,), recipe=recipe), observe_model(model, (x,), recipe=recipe)
    assert during(fake) == during(real)


def test_the_table_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its entry the layer has no workspace for its gradient."""
    model, x = CASES["lstm"](), torch.rand(*X)
    peaks = [observed_peak(observe_fake(model, (x,), recipe=Recipe("sgd")))[0]]
    monkeypatch.setitem(KERNELS, "cpu", {})
    peaks.append(observed_peak(observe_fake(model, (x,), recipe=Recipe("sgd")))[0])
    assert peaks[1] < peaks[0]


@pytest.mark.parametrize("cast", [False, True])
def test_autocast_and_hooks_are_as_in_a_real_run(cast: bool) -> None:
    class Casts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
            self.kept: list[torch.Tensor] = []
            self.body[0].register_forward_hook(lambda module, args, output: output * 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16, enabled=cast):
                result: torch.Tensor = self.body(x).float()
            return result

    for recipe in (None, Recipe("adamw")):
        model, x = Casts(), (torch.rand(8, 16),)
        assert during(observe_fake(model, x, recipe=recipe)) == during(observe_model(model, x, recipe=recipe))


def test_tokens_are_generated_as_in_a_real_run() -> None:
    import transformers

    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "num_hidden_layers": 2}
    config = transformers.LlamaConfig(vocab_size=50, max_position_embeddings=32, **sizes)
    model = transformers.LlamaForCausalLM(config).eval()

    class Generates(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            cache = None
            for _ in range(4):
                output = self.model(
                    ids if cache is None else ids[:, -1:], past_key_values=cache, use_cache=True
                )
                cache = output.past_key_values
                ids = torch.cat([ids, output.logits[:, -1:].argmax(-1)], 1)
            return ids

    ids = (torch.arange(12).reshape(2, 6),)
    assert during(observe_fake(Generates(), ids)) == during(observe_model(Generates(), ids))


def test_a_scaler_of_gradients_takes_its_step() -> None:
    """It asks whether a gradient is infinite, and would leave the step out."""
    scaler = torch.amp.GradScaler("cpu")

    def step(model: nn.Module, optimizer: Any, x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = model(x).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    torch.manual_seed(0)
    model, x = nn.Linear(16, 8), (torch.rand(4, 16),)
    fake = observe_fake(model, x, recipe=Recipe("adamw", step=step))
    assert fake.flow is not None
    assert Stage.OPTIMIZER in fake.flow.stages
    assert "aten.addcdiv_" in fake.ops.kinds
    scaler = torch.amp.GradScaler("cpu")
    real = observe_model(model, x, recipe=Recipe("adamw", step=step))
    assert observed_peak(fake)[0] == observed_peak(real, "dispatch")[0]
