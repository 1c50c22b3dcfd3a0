"""Captures the pairs of graphs that `memplan diff` explains: `python example_graphs/make_pairs.py [name …]`
writes `diff_<name>_base.json` and `diff_<name>_head.json` beside this file. Three are real ways in which
memory goes up; in the fourth nothing does. Every model is built from a configuration on the meta device.
Needs the extra `examples`.

The same packages give the same bytes; run it from the folder above this one, which the source lines are
relative to.
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
from torch import nn

from memplan_engine import Graph
from memplan_engine.formats.memplan_json.graph_format import About
from memplan_engine.formats.memplan_json.json_file import write_json
from memplan_engine.torch_capture.capture_module import capture

HERE = Path(__file__).resolve().parent
MAX_BYTES = 300_000
Model = tuple[nn.Module, dict[str, Any]]


def decoder(attention: str) -> Model:
    """GPT-2 at its full width with 2 of its 12 layers, 1,024 tokens, the last one's logits; its attention
    "sdpa" (one fused kernel) or "eager" (a matrix of all pairs of tokens)."""
    config = transformers.GPT2Config(n_layer=2, attn_implementation=attention)
    tokens = torch.zeros(1, 1024, dtype=torch.long)
    return transformers.GPT2LMHeadModel(config), {
        "input_ids": tokens,
        "use_cache": False,
        "logits_to_keep": 1,
    }


def encoder(batch: int) -> Model:
    """BERT-base with 2 of its 12 layers, `batch` sequences of 128 tokens."""
    config = transformers.BertConfig(num_hidden_layers=2)
    return transformers.BertModel(config), {"input_ids": torch.zeros(batch, 128, dtype=torch.long)}


class Segmenter(nn.Module):
    """A convolutional network that also returns a thumbnail of its first layer's result, for a log."""

    def __init__(self, copies: bool) -> None:
        super().__init__()
        self.copies = copies
        self.stem = nn.Conv2d(3, 32, 3, padding=1)
        self.down = nn.ModuleList(
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1) for width in (32, 64, 128)
        )
        self.mix = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for width in (64, 128, 256))
        self.up = nn.ModuleList(nn.Conv2d(2 * width, width, 1) for width in (128, 64, 32))
        self.head = nn.Conv2d(32, 8, 1)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The classes of every pixel, and the thumbnail."""
        x = torch.relu(self.stem(image))
        thumbnail = x[:, :1, ::8, ::8]
        if self.copies:
            thumbnail = thumbnail.clone()
        for down, mix in zip(self.down, self.mix, strict=True):
            x = torch.relu(down(x))
            x = x + torch.relu(mix(x))
        for up in self.up:
            x = nn.functional.interpolate(torch.relu(up(x)), scale_factor=2.0)
        return self.head(x), thumbnail


def segmenter(copies: bool) -> Model:
    """Segmenter on an image of 256 × 256 pixels; its thumbnail a copy, or a view that keeps the whole."""
    return Segmenter(copies), {"image": torch.zeros(1, 3, 256, 256)}


class Normalised(nn.Module):
    """A vision transformer, perhaps behind an addition that moves the pixels' mean to 0."""

    def __init__(self, normalises: bool) -> None:
        super().__init__()
        self.normalises = normalises
        self.vit = transformers.ViTModel(transformers.ViTConfig(num_hidden_layers=3))

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """The class token's features."""
        if self.normalises:
            pixel_values = pixel_values + -0.5
        return self.vit(pixel_values).pooler_output


def vision(normalises: bool) -> Model:
    """Normalised, ViT-B/16 with 3 of its 12 layers, 224 × 224 pixels."""
    return Normalised(normalises), {"pixel_values": torch.zeros(1, 3, 224, 224)}


PAIRS: dict[str, tuple[Callable[[], Model], Callable[[], Model], About]] = {
    "attention": (
        partial(decoder, "sdpa"),
        partial(decoder, "eager"),
        About(
            title="Attention without its fused kernel",
            shows="The same decoder with attn_implementation=eager: the scores of all pairs of tokens become "
            "tensors.",
        ),
    ),
    "batch": (
        partial(encoder, 8),
        partial(encoder, 16),
        About(title="The batch doubled", shows="The same encoder on 16 sequences instead of 8."),
    ),
    "front_op": (
        partial(vision, False),
        partial(vision, True),
        About(
            title="An op added at the front",
            shows="One addition before the first layer: all later additions are numbered anew, and nothing "
            "else changes.",
        ),
    ),
    "kept_view": (
        partial(segmenter, True),
        partial(segmenter, False),
        About(
            title="A residual kept alive by a view",
            shows="A thumbnail that is no longer a copy keeps the whole tensor alive that it shows.",
        ),
    ),
}
SIDES = ("base", "head")


def capture_side(name: str, side: str) -> Graph:
    """The graph of one side of the pair `name`, captured anew."""
    build = PAIRS[name][SIDES.index(side)]
    with torch.device("meta"):
        model, inputs = build()
    return capture(model.eval(), kwargs=inputs, name=f"diff_{name}_{side}")


def write_pair(name: str, folder: Path = HERE) -> list[Path]:
    """Capture both sides of the pair `name` and write them as JSON into `folder`; RuntimeError for a file
    that passes MAX_BYTES."""
    paths = []
    for side in SIDES:
        path = folder / f"diff_{name}_{side}.json"
        about = PAIRS[name][2]
        write_json(capture_side(name, side), path, About(title=f"{about.title}: {side}", shows=about.shows))
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise RuntimeError(f"{path.name} has {size:,} bytes, more than {MAX_BYTES:,}")
        paths.append(path)
    return paths


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(PAIRS)}; all if none is named")
    names = parser.parse_args().names or list(PAIRS)
    if unknown := [name for name in names if name not in PAIRS]:
        parser.error(f"unknown: {', '.join(unknown)} (known: {', '.join(PAIRS)})")
    for name in names:
        for path in write_pair(name):
            print(f"{path.name}: {path.stat().st_size:,} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
