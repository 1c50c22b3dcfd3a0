"""The models of `eager_manifest` as they are run: in train mode, with checkpoints, in half precision.

A variant is called by the model and what is done to it: `gpt2`, `gpt2 checkpointed`, `gpt2 bfloat16`,
`gpt2 checkpointed autocast`. Nothing of memplan is imported here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.eager_manifest import MODELS, Call

TRAINED = (
    *("mlp", "conv", "unet", "lstm", "gru", "transformer", "attention", "embedding_bag", "resnet"),
    *("gpt2", "bert", "roberta", "t5", "bart", "vit", "swin", "llama", "qwen2", "opt", "convnext"),
    *("mobilenet_v2", "segformer", "distilbert", "clip"),
)
CHECKPOINTED = [f"{name} checkpointed" for name in ("gpt2", "bert", "llama", "t5", "vit", "qwen2")]
HALF = ("mlp", "conv", "unet", "attention", "resnet", "gpt2", "bert", "t5", "vit", "llama")
HALVED = [
    *(f"{name} {how}" for how in ("bfloat16", "float16", "autocast") for name in HALF),
    *(f"{name} checkpointed {how}" for how in ("bfloat16", "autocast") for name in ("gpt2", "llama")),
]
"""Models in half precision: weights and inputs, or in float32 with their operators cast to bfloat16."""


class Autocast(nn.Module):
    """`inner`, called under autocast."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, **inputs: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return self.inner(**inputs)


def halved(call: Call, dtype: torch.dtype) -> Call:
    """The model and its inputs in half precision."""
    made, inputs = call
    return made.to(dtype), {key: x.to(dtype) if x.is_floating_point() else x for key, x in inputs.items()}


def build(name: str, trains: bool = False) -> Call:
    """The model called so, with its inputs, in eval or in train mode; weights and inputs by one seed."""
    torch.manual_seed(0)
    base, *done = name.split()
    made, inputs = MODELS[base]()
    for word in done:
        if word == "checkpointed":
            made.gradient_checkpointing_enable()  # type: ignore[operator]
            made.config.use_cache = False  # type: ignore[union-attr]
        elif word == "autocast":
            made = Autocast(made)
        else:
            made, inputs = halved((made, inputs), getattr(torch, word))
    return made.train(trains), inputs


def loss_of(output: Any) -> torch.Tensor:
    """What is differentiated: the model's own loss, or the sum of the first tensor that it returns."""
    loss = None if isinstance(output, torch.Tensor) else getattr(output, "loss", None)
    if loss is not None:
        return loss  # type: ignore[no-any-return]
    first: torch.Tensor = output if isinstance(output, torch.Tensor) else output[0]
    return first.sum()
