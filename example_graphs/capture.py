"""Captures the example graphs: `python example_graphs/capture.py [name …]` writes `<name>.json` beside this
file. Every model is built from a configuration on the meta device, so no weight is downloaded or allocated.
Needs the extra `examples`.

The same packages give the same bytes; run it from anywhere.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers

from memplan_engine import Graph
from memplan_engine.formats.memplan_json.graph_format import About, BudgetEntry
from memplan_engine.formats.memplan_json.json_file import write_json
from memplan_engine.fx_estimator.fx_estimates import estimate_peaks
from memplan_engine.torch_capture.capture_module import capture
from memplan_engine.torch_capture.training.torch_step import capture_step
from memplan_engine.torch_capture.training.torch_training import (
    TrainingCapture,
    capture_budgets,
    capture_training,
)

HERE = Path(__file__).resolve().parent
MAX_BYTES = 2**20
Build = Callable[[], tuple[torch.nn.Module, dict[str, Any]]]


def tokens(length: int) -> torch.Tensor:
    """A batch of one sequence of `length` token ids."""
    return torch.zeros(1, length, dtype=torch.long)


def image(side: int) -> torch.Tensor:
    """A batch of one square RGB image, `side` pixels wide."""
    return torch.zeros(1, 3, side, side)


def gpt2() -> tuple[torch.nn.Module, dict[str, Any]]:
    """GPT-2, 124 million parameters, 1,024 tokens, the last one's logits: what serving a prompt runs."""
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config())
    return model, {"input_ids": tokens(1024), "use_cache": False, "logits_to_keep": 1}


def gpt2_all_logits() -> tuple[torch.nn.Module, dict[str, Any]]:
    """GPT-2, 512 tokens, the logits of all of them: they alone make the peak."""
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config())
    return model, {"input_ids": tokens(512), "use_cache": False}


def bert_base() -> tuple[torch.nn.Module, dict[str, Any]]:
    """BERT-base, 110 million parameters, 384 tokens."""
    return transformers.BertModel(transformers.BertConfig()), {"input_ids": tokens(384)}


def llama_7b() -> tuple[torch.nn.Module, dict[str, Any]]:
    """A decoder of Llama's default configuration, 6.7 billion parameters, 512 tokens."""
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig())
    return model, {"input_ids": tokens(512), "use_cache": False}


def mobilenet_v2() -> tuple[torch.nn.Module, dict[str, Any]]:
    """MobileNetV2, 224 × 224 pixels."""
    config = transformers.MobileNetV2Config()
    return transformers.MobileNetV2ForImageClassification(config), {"pixel_values": image(224)}


def resnet50() -> tuple[torch.nn.Module, dict[str, Any]]:
    """ResNet-50, 224 × 224 pixels."""
    return transformers.ResNetForImageClassification(transformers.ResNetConfig()), {
        "pixel_values": image(224)
    }


def vit_b16() -> tuple[torch.nn.Module, dict[str, Any]]:
    """ViT-B/16, 224 × 224 pixels."""
    return transformers.ViTForImageClassification(transformers.ViTConfig()), {"pixel_values": image(224)}


def whisper_tiny() -> tuple[torch.nn.Module, dict[str, Any]]:
    """Whisper-tiny: the encoder on 30 s of sound and the decoder on 64 tokens."""
    config = transformers.WhisperConfig(
        d_model=384, encoder_layers=4, decoder_layers=4, encoder_attention_heads=6,
        decoder_attention_heads=6, encoder_ffn_dim=1536, decoder_ffn_dim=1536,
    )  # fmt: skip
    inputs = {"input_features": torch.zeros(1, 80, 3000), "decoder_input_ids": tokens(64), "use_cache": False}
    return transformers.WhisperForConditionalGeneration(config), inputs


def gpt2_for_training() -> tuple[torch.nn.Module, dict[str, Any]]:
    """GPT-2 at its full width with 4 of its 12 layers, two sequences of 256 tokens, with a loss."""
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=4))
    batch = torch.zeros(2, 256, dtype=torch.long)
    return model, {"input_ids": batch, "labels": batch, "use_cache": False}


def bert_for_training() -> tuple[torch.nn.Module, dict[str, Any]]:
    """BERT-base as a classifier with 4 of its 12 layers, 16 sequences of 128 tokens. Its GELU is the tanh
    formula, op by op, so that there is something cheap to compute again; without dropout."""
    config = transformers.BertConfig(
        num_hidden_layers=4,
        hidden_act="gelu_new",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    inputs = {
        "input_ids": torch.zeros(16, 128, dtype=torch.long),
        "labels": torch.zeros(16, dtype=torch.long),
    }
    return transformers.BertForSequenceClassification(config), inputs


def gpt2_of_any_size() -> tuple[torch.nn.Module, dict[str, Any]]:
    """GPT-2 at its full width with 4 of its 12 layers and the last token's logits, shown on two sequences of
    64 tokens."""
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=4))
    return model, {
        "input_ids": torch.zeros(2, 64, dtype=torch.long),
        "use_cache": False,
        "logits_to_keep": 1,
    }


INFERENCE: dict[str, Build] = {
    build.__name__: build
    for build in (gpt2, gpt2_all_logits, bert_base, llama_7b, mobilenet_v2, resnet50, vit_b16, whisper_tiny)
}
TRAINING: dict[str, tuple[Build, Callable[..., Graph | TrainingCapture]]] = {
    "gpt2_training_step": (gpt2_for_training, partial(capture_step, optimizer="adam")),
    "bert_training_default": (bert_for_training, partial(capture_training, partition="default")),
    "bert_training_min_cut": (bert_for_training, partial(capture_training, partition="min_cut")),
}
DYNAMIC: dict[str, tuple[Build, Callable[..., Graph]]] = {
    "gpt2_dynamic": (
        gpt2_of_any_size,
        partial(capture, dynamic_shapes="input_ids:0=batch[1:64],input_ids:1=seq[2:1024]"),
    ),
}
MODELS = [*INFERENCE, *TRAINING, *DYNAMIC]


def capture_example(name: str) -> tuple[Graph, About]:
    """Capture the example `name`: inference in eval mode, training in train mode, dynamic with symbols; of
    forward and backward also what estimators say of them."""
    special = TRAINING | DYNAMIC
    build, how = special[name] if name in special else (INFERENCE[name], capture)
    with torch.device("meta"):
        model, inputs = build()
    made = how(model.train(name in TRAINING), kwargs=inputs, name=name)
    if isinstance(made, TrainingCapture):
        points = capture_budgets(model, kwargs=inputs) if made.partition == "default" else ()
        budgets = tuple(map(BudgetEntry.of, points))
        return made.joint, About(estimates=estimate_peaks(made), budgets=budgets)
    return made, About()


def make_example(name: str) -> Graph:
    """The graph of the example `name`, captured anew."""
    return capture_example(name)[0]


def write_example(name: str, folder: Path = HERE) -> Path:
    """Capture the example `name` and write it as JSON into `folder`; RuntimeError if it passes 1 MiB."""
    path = folder / f"{name}.json"
    graph, about = capture_example(name)
    write_json(graph, path, about if about != About() else None)
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise RuntimeError(f"{path.name} has {size:,} bytes, more than {MAX_BYTES:,}")
    return path


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(MODELS)}; all if none is named")
    names = parser.parse_args().names or MODELS
    if unknown := [name for name in names if name not in MODELS]:
        parser.error(f"unknown: {', '.join(unknown)} (known: {', '.join(MODELS)})")
    for name in names:
        path = write_example(name)
        print(f"{path.name}: {path.stat().st_size:,} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
