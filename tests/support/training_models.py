"""Small models to train, each with its inputs and, where it has no loss of its own, a loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import transformers as t
from torch import nn
from torch.fx import Graph, GraphModule

from memplan_engine.graph import Graph as PlannedGraph
from memplan_engine.graph import Op
from memplan_engine.problem import Problem
from memplan_engine.torch_capture.training.torch_training import TrainingCapture

SMALL = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
NAMES = ("conv", "gpt2", "bert", "vit", "t5")
Model = tuple[nn.Module, dict[str, Any], Callable[[Any], Any] | None]


class Conv(nn.Module):
    """Batch norm in training, in-place relu, dropout, and no loss of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Dropout(0.1), nn.Linear(16, 5),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


def cross_entropy(output: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(output, torch.tensor([0, 1]))


def build(name: str, layers: int = 1) -> Model:
    """The model called so, in train mode, with a batch of two.

    What a model costs to trace grows with its layers. How layers follow each other, GPT-2 has: it has two.
    """
    torch.manual_seed(0)
    sizes = {**SMALL, "num_hidden_layers": layers}
    ids = torch.arange(24).reshape(2, 12) % 7
    image = torch.rand(2, 3, 32, 32)
    labels = {"input_ids": ids, "labels": ids}
    model: nn.Module
    inputs: dict[str, Any]
    if name == "conv":
        return Conv().train(), {"x": image}, cross_entropy
    if name == "gpt2":
        tokens = {"vocab_size": 50, "n_positions": 16, "bos_token_id": 1, "eos_token_id": 2}
        model = t.GPT2LMHeadModel(t.GPT2Config(n_embd=16, n_layer=2, n_head=2, **tokens))
        inputs = {**labels, "use_cache": False}
    elif name == "bert":
        model = t.BertForMaskedLM(t.BertConfig(vocab_size=50, max_position_embeddings=16, **sizes))
        inputs = labels
    elif name == "vit":
        model = t.ViTForImageClassification(t.ViTConfig(image_size=32, patch_size=8, **sizes))
        inputs = {"pixel_values": image, "labels": torch.tensor([0, 1])}
    else:
        config = t.T5Config(
            vocab_size=50, d_model=16, d_kv=8, d_ff=32, num_layers=layers, num_heads=2,
            decoder_start_token_id=0,
        )  # fmt: skip
        model = t.T5ForConditionalGeneration(config)
        inputs = {"input_ids": ids, "labels": ids[:, :5].contiguous(), "use_cache": False}
    return model.train(), inputs, None


def wide_mlp() -> Model:
    """Linear 100-400-400-10: most of it is one weight, so Adam's temporaries make the peak of a step."""
    torch.manual_seed(0)
    layers = (nn.Linear(100, 400), nn.ReLU(), nn.Linear(400, 400), nn.Tanh(), nn.Linear(400, 10))
    return nn.Sequential(*layers).train(), {"input": torch.rand(32, 100)}, torch.sum


def untied_gpt2() -> Model:
    """GPT-2 whose last parameter, the head, is as large as its largest: 1,000 × 64 numbers."""
    torch.manual_seed(0)
    tokens = {"vocab_size": 1000, "n_positions": 16, "bos_token_id": 1, "eos_token_id": 2}
    config = t.GPT2Config(n_embd=64, n_layer=1, n_head=2, tie_word_embeddings=False, **tokens)
    ids = torch.arange(8).reshape(1, 8)
    return t.GPT2LMHeadModel(config).train(), {"input_ids": ids, "labels": ids, "use_cache": False}, None


def real_like(values: Sequence[Any]) -> list[Any]:
    """Real tensors of zeros in the shapes of fake ones."""
    return [torch.zeros(v.shape, dtype=v.dtype) if isinstance(v, torch.Tensor) else v for v in values]


def real_inputs(module: GraphModule) -> list[Any]:
    """Zeros for each placeholder of `module`."""
    return real_like([node.meta.get("val") for node in module.graph.find_nodes(op="placeholder")])


def stitched(capture: TrainingCapture) -> tuple[GraphModule, dict[str, str]]:
    """Both halves as one module, which returns the model's outputs and the gradients.

    Placeholders of the backward half take the forward nodes of their names; the tangent is `ones_like` of the
    loss. With it, for each call node by name and in order, what it is called where both halves are one graph:
    what the backward half repeats is `recompute.<name>`.
    """
    graph = Graph()
    env: dict[Any, Any] = {}
    names: dict[Any, str] = {}
    made: dict[str, Any] = {}
    results: list[Any] = []
    for node in capture.forward_module.graph.nodes:
        if node.op == "output":
            results = [made.get(getattr(value, "name", None)) for value in node.args[0]]
        else:
            made[node.name] = env[node] = graph.node_copy(node, lambda used: env[used])
            names[env[node]] = node.name
    for node in capture.backward_module.graph.nodes:
        if node.op == "output":
            gradients = [env[value] if value is not None else None for value in node.args[0]]
            graph.output((*results[: capture.outputs], *gradients))
        elif node.op == "placeholder" and node.name in made:
            env[node] = made[node.name]
        elif node.op == "placeholder":
            env[node] = graph.call_function(torch.ones_like, (results[capture.loss],))
            names[env[node]] = node.name
        else:
            env[node] = graph.node_copy(node, lambda used: env[used])
            names[env[node]] = f"recompute.{node.name}" if node.name in made else node.name
    halves = (capture.forward_module, capture.backward_module)
    attributes = {
        str(node.target): getattr(half, str(node.target))
        for half in halves
        for node in half.graph.find_nodes(op="get_attr")
    }
    return GraphModule(attributes, graph), {
        node.name: name for node, name in names.items() if node.op == "call_function"
    }


def by_name(graph: PlannedGraph) -> dict[str, Op]:
    return {op.name: op for op in graph.ops}


def live_bytes(problem: Problem) -> list[int]:
    """Live bytes at each step, by hand."""
    steps = np.arange(problem.steps)[:, None]
    return (((problem.start <= steps) & (steps < problem.end)) @ problem.size).tolist()
