"""Predicted against measured: live bytes of real models, as planned, as dispatched and as allocated.

    python benchmarks/runtime_models.py [model …] [--full] [--markdown]

Models from transformers with random weights, small configurations unless `--full`; raw and functional graphs,
and whole training steps of two of them. "predicted", "dispatched" and "allocated" are peaks of live bytes:
by lifetimes and what operators inside an op make, by the storages that torch's dispatcher saw in a run, by
what was asked of torch's allocator. "equal ops" are those during which predicted and dispatched bytes are the
same. "learnt" is the predicted peak with the temporaries learnt from that run, which is then held
against the allocator's peak of another run. "result" is against the model itself, or, for a step, torch's
interpreter.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

MODELS = ("gpt2", "bert", "vit", "resnet50", "mobilenet_v2", "whisper_tiny", "t5_small")
STEPS = ("gpt2 step", "mobilenet_v2 step")
HEADINGS = (
    "model",
    "graph",
    "ops",
    "predicted",
    "dispatched",
    "difference",
    "equal ops",
    "allocated",
    "learnt",
    "off",
    "kernels' own",
    "result",
)
Model = tuple[Any, dict[str, Any], str]


def build(name: str, full: bool = False, train: bool = False) -> Model:
    """The model called so, inputs for it, and the name that its kind has."""
    import torch

    torch.manual_seed(0)
    model, inputs = BUILDERS[name](full, train)
    return model.train(train), inputs, type(model).__name__


def _ids(rows: int, columns: int) -> Any:
    import torch

    return torch.arange(rows * columns).reshape(rows, columns) % 97


def _gpt2(full: bool, train: bool) -> tuple[Any, dict[str, Any]]:
    import transformers as t

    small = {"n_embd": 128, "n_layer": 3, "n_head": 4, "vocab_size": 500, "n_positions": 128}
    ids = _ids(1, 128 if full else 64)
    labels = {"labels": ids} if train else {}
    config = t.GPT2Config(**({} if full else small))
    return t.GPT2LMHeadModel(config), {"input_ids": ids, "use_cache": False, **labels}


def _bert(full: bool, train: bool) -> tuple[Any, dict[str, Any]]:
    import transformers as t

    small = {
        "hidden_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 256,
        "vocab_size": 500,
    }
    return t.BertModel(t.BertConfig(**({} if full else small))), {"input_ids": _ids(1, 128 if full else 64)}


def _vit(full: bool, train: bool) -> tuple[Any, dict[str, Any]]:
    import torch
    import transformers as t

    small = {
        "hidden_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 256,
        "image_size": 64,
    }
    config = t.ViTConfig(**({} if full else small))
    return t.ViTForImageClassification(config), {"pixel_values": torch.rand(1, 3, *[config.image_size] * 2)}


def _resnet(full: bool, train: bool) -> tuple[Any, dict[str, Any]]:
    import torch
    import transformers as t

    side = 224 if full else 96
    return t.ResNetForImageClassification(t.ResNetConfig()), {"pixel_values": torch.rand(1, 3, side, side)}


def _mobilenet(full: bool, train: bool) -> tuple[Any, dict[str, Any]]:
    import torch
    import transformers as t

    side = 224 if full else 96
    width = {"depth_multiplier": 0.35} if train and not full else {}
    config = t.MobileNetV2Config(image_size=side, **width)
    inputs = {"pixel_values": torch.rand(2 if train else 1, 3, side, side)}
    return t.MobileNetV2ForImageClassification(config), {
        **inputs,
        **({"labels": torch.tensor([1, 0])} if train else {}),
    }


def _whisper(full: bool, train: bool) -> tuple[Any, dict[str, Any]]:
    import torch
    import transformers as t

    small = {
        "d_model": 128,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 256,
        "decoder_ffn_dim": 256,
        "max_source_positions": 200,
        "vocab_size": 500,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
    }
    config = t.WhisperConfig(**({} if full else small))
    features = torch.rand(1, config.num_mel_bins, 2 * config.max_source_positions)
    inputs = {"input_features": features, "decoder_input_ids": _ids(1, 16), "use_cache": False}
    return t.WhisperForConditionalGeneration(config), inputs


def _t5(full: bool, train: bool) -> tuple[Any, dict[str, Any]]:
    import transformers as t

    small = {"d_model": 128, "d_kv": 32, "d_ff": 256, "num_layers": 2, "num_heads": 4, "vocab_size": 500}
    config = t.T5Config(decoder_start_token_id=0, **({} if full else small))
    ids = _ids(1, 128 if full else 64)
    inputs = {"input_ids": ids, "decoder_input_ids": ids[:, :16].contiguous(), "use_cache": False}
    return t.T5ForConditionalGeneration(config), inputs


BUILDERS: dict[str, Callable[[bool, bool], tuple[Any, dict[str, Any]]]] = dict(
    zip(MODELS, (_gpt2, _bert, _vit, _resnet, _mobilenet, _whisper, _t5), strict=True)
)


def programs(name: str, full: bool) -> Iterator[tuple[str, Any, tuple[Any, ...], dict[str, Any], Any]]:
    """The graphs of a model or a step: what kind of graph, the program, how to call it, and the model."""
    import torch

    from memplan_engine.runtime.loading import load_step
    from memplan_engine.runtime.program import load_program

    for functional in (False, True):
        kind = "functional" if functional else "raw"
        if name in STEPS:
            model, inputs, _ = build(name.split()[0], full, train=True)
            step = load_step(model, (), inputs, optimizer="adam", functional=functional)
            tensors = tuple(value for value in inputs.values() if isinstance(value, torch.Tensor))
            yield kind, step, tensors, {}, None
        else:
            model, inputs, _ = build(name, full)
            yield kind, load_program(model, (), inputs, functional=functional), (), inputs, model


def rows(names: list[str], full: bool) -> Iterator[tuple[str, ...]]:
    """A row for each graph, as text."""
    from memplan_engine.analysis.workspaces import predicted_live
    from memplan_engine.runtime.trial.comparison import compare_run, learn_workspaces

    for name in names:
        for kind, program, args, kwargs, model in programs(name, full):
            taught = compare_run(program, args, kwargs, eager=model)
            learnt = int(predicted_live(learn_workspaces(taught, program.graph)).max())
            found = compare_run(program, args, kwargs, eager=model)
            takers = [taker for taker in found.takers if taker.nbytes > taker.inside]
            same = len(found.predicted) - len(found.differing)
            yield (
                name,
                kind,
                str(len(found.predicted)),
                f"{found.predicted_peak:,}",
                f"{found.dispatch_peak:,}",
                f"{found.difference:,}",
                f"{same} of {len(found.predicted)}",
                f"{found.allocator_peak:,}",
                f"{learnt:,}",
                f"{100 * (learnt / found.allocator_peak - 1):+.2f} %",
                f"{len(takers)} ops" + (f", {takers[0].kind} {takers[0].nbytes:,}" if takers else ""),
                str(found.equality),
            )


def main() -> None:
    parser = argparse.ArgumentParser(description="Predicted, dispatched and allocated peaks of real models.")
    known = (*MODELS, *STEPS)
    parser.add_argument("models", nargs="*", metavar="model", help=f"of {', '.join(known)}")
    parser.add_argument("--full", action="store_true", help="the published sizes")
    parser.add_argument("--markdown", action="store_true", help="a Markdown table")
    options = parser.parse_args()
    if unknown := set(options.models) - set(known):
        parser.error(f"no model {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    widths = (17, 10, 5, 13, 13, 10, 14, 13, 13, 8, 36, 0)
    for number, line in enumerate((HEADINGS, *rows(options.models or list(known), options.full))):
        show(line, widths, options.markdown, number == 0)


def show(
    line: tuple[str, ...],
    widths: tuple[int, ...],
    markdown: bool,
    first: bool,
    left: tuple[int, ...] = (0, 1, 10, 11),
) -> None:
    """Print a row; text in the columns `left` to the left, numbers to the right."""
    if markdown:
        print(f"| {' | '.join(line)} |" + ("\n" + "|---" * len(line) + "|" if first else ""), flush=True)
        return
    cells = [
        text.ljust(width) if place in left else text.rjust(width)
        for place, (text, width) in enumerate(zip(line, widths, strict=True))
    ]
    print("  ".join(cells).rstrip(), flush=True)


if __name__ == "__main__":
    main()
