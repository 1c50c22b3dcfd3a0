"""Small real models with a loss, and their forward and backward graphs by AOTAutograd, with real inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch import nn
from torch._functorch.aot_autograd import aot_function
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition
from torch.fx import GraphModule

PARTITIONS = {"default": default_partition, "min-cut": min_cut_rematerialization_partition}
SMALL = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}


@dataclass
class Pair:
    """A forward graph, the backward graph to it, and real tensors for the forward's placeholders."""

    forward: GraphModule
    backward: GraphModule
    inputs: Sequence[Any]


def trace_pair(model: nn.Module, args: Sequence[Any], kwargs: dict[str, Any], partition: str) -> Pair:
    """Export `model` with gradients, and let AOTAutograd make the two graphs of one training step."""
    seen: dict[str, Any] = {}

    def recorder(name: str) -> Callable[..., Any]:
        def compiler(module: GraphModule, example_inputs: Any) -> Any:
            seen[name] = module

            def run(*values: Any) -> Any:
                seen.setdefault(f"{name} inputs", [value.detach() for value in values])
                return module(*values)

            return make_boxed_func(run)

        return compiler

    plain = torch.export.export(model, tuple(args), kwargs, strict=False).module()
    # Tied weights are one parameter here, which `aot_module` does not allow.
    state = {**dict(plain.named_parameters()), **dict(plain.named_buffers())}
    compiled = aot_function(
        lambda state, args, kwargs: torch.func.functional_call(plain, state, args, kwargs),
        fw_compiler=recorder("forward"),
        bw_compiler=recorder("backward"),
        partition_fn=PARTITIONS[partition],
    )
    output = compiled(state, tuple(args), kwargs)
    loss = output["loss"] if "loss" in output else output[0]
    loss.backward()
    return Pair(seen["forward"], seen["backward"], seen["forward inputs"])


def small(name: str, layers: int = 2) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """A small model in training mode, with so many layers if it is a transformer, and a batch with labels."""
    import transformers as t

    ids, labels = torch.arange(64).reshape(2, 32) % 50, torch.tensor([1, 0])
    image = torch.rand(2, 3, 32, 32)
    text = {"input_ids": ids, "labels": ids}
    if name == "gpt2":
        config = t.GPT2Config(
            n_embd=32, n_layer=layers, n_head=2, vocab_size=50, n_positions=32, use_cache=False
        )
        return t.GPT2LMHeadModel(config).train(), (), text
    if name == "bert":
        config = t.BertConfig(vocab_size=50, max_position_embeddings=32, num_hidden_layers=layers, **SMALL)
        return t.BertForSequenceClassification(config).train(), (), text | {"labels": labels}
    if name == "t5":
        config = t.T5Config(
            vocab_size=50, d_model=32, d_kv=16, d_ff=64, num_layers=layers, num_heads=2,
            decoder_start_token_id=0, use_cache=False,
        )  # fmt: skip
        return t.T5ForConditionalGeneration(config).train(), (), text
    pixels = {"pixel_values": image, "labels": labels}
    if name == "vit":
        config = t.ViTConfig(image_size=32, patch_size=8, num_hidden_layers=layers, **SMALL)
        return t.ViTForImageClassification(config).train(), (), pixels
    if name == "resnet":
        config = t.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16, 32, 64], depths=[2, 2, 2, 2])
        return t.ResNetForImageClassification(config).train(), (), pixels
    config = t.MobileNetV2Config(image_size=32, depth_multiplier=0.35)
    return t.MobileNetV2ForImageClassification(config).train(), (), pixels


MODELS = ("gpt2", "bert", "t5", "vit", "resnet", "mobilenet")
