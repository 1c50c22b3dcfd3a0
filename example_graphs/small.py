"""Models that run in a moment: factories of small configurations with random weights, for `memplan run` and
the dashboard's page Run (`memplan run example_graphs/small.py:gpt2`).

All but the first two need transformers, which is imported when one of them is built.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Built = tuple["torch.nn.Module", dict[str, Any]]

TRANSFORMER = {"num_hidden_layers": 3, "num_attention_heads": 4, "hidden_size": 128, "intermediate_size": 256}


def perceptron() -> Built:
    """Linear layers with a layer norm: all but the norm and what is returned is written in place."""
    import torch
    from torch import nn

    layers = (nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 64), nn.Softmax(-1))
    return nn.Sequential(*layers).eval(), {"input": torch.rand(32, 64)}


def convolutions() -> Built:
    """Convolutions, whose kernels take memory for themselves, with batch norm and pooling."""
    import torch
    from torch import nn

    def block(inward: int, outward: int) -> list[nn.Module]:
        return [nn.Conv2d(inward, outward, 3, padding=1), nn.BatchNorm2d(outward), nn.ReLU()]

    layers = [*block(3, 32), *block(32, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    return nn.Sequential(*layers).eval(), {"input": torch.rand(4, 3, 48, 48)}


def gpt2() -> Built:
    """GPT-2 with 3 layers 128 wide, 64 tokens."""
    import transformers

    sizes = {"n_embd": 128, "n_layer": 3, "n_head": 4, "vocab_size": 500, "n_positions": 128}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **ends))
    return model.eval(), {"input_ids": tokens(64), "use_cache": False}


def bert() -> Built:
    """BERT with 3 layers 128 wide, 64 tokens."""
    import transformers

    model = transformers.BertModel(transformers.BertConfig(**TRANSFORMER, vocab_size=500))
    return model.eval(), {"input_ids": tokens(64)}


def vit_b16() -> Built:
    """ViT with patches of 16 pixels, 3 layers 128 wide, 64 × 64 pixels."""
    import transformers

    config = transformers.ViTConfig(**TRANSFORMER, image_size=64)
    return transformers.ViTForImageClassification(config).eval(), {"pixel_values": image(64)}


def resnet50() -> Built:
    """ResNet-50, 96 × 96 pixels."""
    import transformers

    model = transformers.ResNetForImageClassification(transformers.ResNetConfig())
    return model.eval(), {"pixel_values": image(96)}


def mobilenet_v2() -> Built:
    """MobileNetV2, 96 × 96 pixels."""
    import transformers

    model = transformers.MobileNetV2ForImageClassification(transformers.MobileNetV2Config(image_size=96))
    return model.eval(), {"pixel_values": image(96)}


def whisper_tiny() -> Built:
    """Whisper with 2 + 2 layers 128 wide, 4 s of sound and 16 tokens."""
    import torch
    import transformers

    widths = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in LAYERS.items()}
    config = transformers.WhisperConfig(
        d_model=128, max_source_positions=200, vocab_size=500, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, decoder_start_token_id=1, **widths,
    )  # fmt: skip
    sound = torch.rand(1, config.num_mel_bins, 400)
    inputs = {"input_features": sound, "decoder_input_ids": tokens(16), "use_cache": False}
    return transformers.WhisperForConditionalGeneration(config).eval(), inputs


def t5_small() -> Built:
    """T5 with 2 layers 128 wide, 64 tokens in and 16 out."""
    import transformers

    sizes = {"d_model": 128, "d_kv": 32, "d_ff": 256, "num_layers": 2, "num_heads": 4, "vocab_size": 500}
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(decoder_start_token_id=0, **sizes))
    inputs = {"input_ids": tokens(64), "decoder_input_ids": tokens(16), "use_cache": False}
    return model.eval(), inputs


LAYERS = {"layers": 2, "attention_heads": 4, "ffn_dim": 256}
PLAIN: tuple[Callable[[], Built], ...] = (perceptron, convolutions)
NEED_TRANSFORMERS: tuple[Callable[[], Built], ...] = (
    gpt2, bert, vit_b16, resnet50, mobilenet_v2, whisper_tiny, t5_small,
)  # fmt: skip
MODELS: dict[str, Callable[[], Built]] = {build.__name__: build for build in (*PLAIN, *NEED_TRANSFORMERS)}


def tokens(length: int) -> torch.Tensor:
    """A batch of one sequence of token ids below 97."""
    import torch

    return (torch.arange(length) % 97)[None]


def image(side: int) -> torch.Tensor:
    """A batch of one square RGB image, `side` pixels wide."""
    import torch

    return torch.rand(1, 3, side, side)
