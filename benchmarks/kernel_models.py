"""The models of `kernel_memory.py`. No model here is among the calls that `memplan calibrate` measures.

`MODELS` were looked at while the formulas were made; `HELD_OUT` only afterwards, as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as t
from torch import nn

Call = tuple[nn.Module, dict[str, Any]]


def image(side: int = 224, batch: int = 1) -> dict[str, Any]:
    return {"pixel_values": torch.rand(batch, 3, side, side)}


def tokens(length: int, batch: int = 2) -> dict[str, Any]:
    ids = torch.arange(batch * length).reshape(batch, length) % 90 + 3
    return {"input_ids": ids, "labels": ids}


TEXT = {"vocab_size": 99, "hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4,
        "intermediate_size": 512, "max_position_embeddings": 512}  # fmt: skip
MODELS: dict[str, Callable[[], Call]] = {
    "resnet50": lambda: (t.ResNetForImageClassification(t.ResNetConfig()), image()),
    "resnet18, batch 4": lambda: (
        t.ResNetForImageClassification(
            t.ResNetConfig(hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic")
        ),
        image(160, 4),
    ),
    "mobilenet_v2": lambda: (t.MobileNetV2ForImageClassification(t.MobileNetV2Config()), image()),
    "mobilenet_v1": lambda: (t.MobileNetV1ForImageClassification(t.MobileNetV1Config()), image()),
    "efficientnet": lambda: (
        t.EfficientNetForImageClassification(t.EfficientNetConfig(image_size=224)), image()
    ),
    "convnext": lambda: (t.ConvNextForImageClassification(t.ConvNextConfig()), image()),
    "segformer": lambda: (
        t.SegformerForSemanticSegmentation(t.SegformerConfig()), image(256)
    ),
    "vit": lambda: (
        t.ViTForImageClassification(t.ViTConfig(num_hidden_layers=3, hidden_size=192, intermediate_size=768,
                                                num_attention_heads=3)), image()
    ),
    "swin": lambda: (t.SwinForImageClassification(t.SwinConfig(depths=[1, 1, 2, 1])), image()),
    "bert": lambda: (t.BertForMaskedLM(t.BertConfig(**TEXT)), tokens(256)),
    "llama": lambda: (t.LlamaForCausalLM(t.LlamaConfig(**TEXT)), tokens(384)),
    "gpt2": lambda: (
        t.GPT2LMHeadModel(t.GPT2Config(vocab_size=99, n_positions=512, n_embd=128, n_layer=3, n_head=4)),
        tokens(512),
    ),
}  # fmt: skip


class UNet(nn.Module):
    """Images halved and doubled again, with transposed convolutions."""

    def __init__(self, widths: tuple[int, ...] = (20, 40, 80)) -> None:
        super().__init__()
        into = (3, *widths[:-1])
        self.down = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1)
            )
            for a, b in zip(into, widths, strict=True)
        )
        pairs = list(zip(widths[::-1], widths[-2::-1], strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in pairs)
        self.mix = nn.ModuleList(nn.Conv2d(2 * b, b, 3, padding=1) for _, b in pairs)
        self.last = nn.Conv2d(widths[0], 2, 1)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        x, kept = pixel_values, []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = kept.pop()
        for up, mix in zip(self.up, self.mix, strict=True):
            x = mix(torch.cat([up(x), kept.pop()], 1)).relu()
        return self.last(x)


class Films(nn.Module):
    """A small network of 3D convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv3d(3, 24, 3, padding=1), nn.BatchNorm3d(24), nn.ReLU(),
            nn.Conv3d(24, 48, 3, 2, 1), nn.ReLU(), nn.Conv3d(48, 64, 3, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(64, 10),
        )  # fmt: skip

    def forward(self, films: torch.Tensor) -> torch.Tensor:
        return self.layers(films)


class Tagger(nn.Module):
    """Words, two layers of LSTM in both directions, tags."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(500, 96)
        self.lstm = nn.LSTM(96, 160, 2, bidirectional=True, batch_first=True)
        self.tags = nn.Linear(320, 17)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.tags(self.lstm(self.words(input_ids))[0])


def speech(length: int) -> dict[str, Any]:
    return {"input_values": torch.rand(2, length)}


WORDS = {"vocab_size": 99, "d_model": 96, "encoder_layers": 2, "decoder_layers": 2,
         "encoder_attention_heads": 4, "decoder_attention_heads": 4,
         "encoder_ffn_dim": 384, "decoder_ffn_dim": 384,
         "decoder_start_token_id": 2, "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 2}  # fmt: skip
SMALL = {"num_hidden_layers": 3, "hidden_size": 144, "intermediate_size": 432, "num_attention_heads": 4}
HELD_OUT: dict[str, Callable[[], Call]] = {
    "regnet": lambda: (
        t.RegNetForImageClassification(t.RegNetConfig(
            embedding_size=24, hidden_sizes=[48, 96, 216, 528], depths=[1, 2, 4, 2], groups_width=24)),
        image(192, 2),
    ),
    "bit": lambda: (
        t.BitForImageClassification(t.BitConfig(
            num_groups=8, embedding_size=48, hidden_sizes=[96, 192, 384, 768], depths=[1, 2, 2, 1])),
        image(160, 2),
    ),
    "poolformer": lambda: (t.PoolFormerForImageClassification(t.PoolFormerConfig()), image(192)),
    "mobilevit": lambda: (t.MobileViTForImageClassification(t.MobileViTConfig(image_size=192)), image(192)),
    "levit": lambda: (t.LevitForImageClassification(t.LevitConfig()), image()),
    "swin v2": lambda: (
        t.Swinv2ForImageClassification(t.Swinv2Config(image_size=192, window_size=6, depths=[1, 1, 2, 1])),
        image(192),
    ),
    "pvt": lambda: (t.PvtForImageClassification(t.PvtConfig(depths=[1, 1, 1, 1])), image()),
    "deit": lambda: (t.DeiTForImageClassification(t.DeiTConfig(**SMALL)), image(224, 2)),
    "dinov2": lambda: (
        t.Dinov2ForImageClassification(t.Dinov2Config(**SMALL, image_size=196)), image(196, 3)
    ),
    "convnext v2": lambda: (
        t.ConvNextV2ForImageClassification(t.ConvNextV2Config(
            hidden_sizes=[40, 80, 160, 320], depths=[1, 1, 3, 1])), image(160, 2)
    ),
    "whisper": lambda: (
        t.WhisperForConditionalGeneration(
            t.WhisperConfig(**WORDS, num_mel_bins=80, max_source_positions=300)
        ),
        {"input_features": torch.rand(2, 80, 600), "labels": torch.arange(40).reshape(2, 20) + 3},
    ),
    "wav2vec2": lambda: (
        t.Wav2Vec2ForSequenceClassification(t.Wav2Vec2Config(
            **SMALL, conv_dim=[96] * 7, num_conv_pos_embedding_groups=12, apply_spec_augment=False)),
        speech(12_000),
    ),
    "t5": lambda: (
        t.T5ForConditionalGeneration(t.T5Config(
            vocab_size=99, d_model=96, d_kv=24, d_ff=320, num_layers=2, num_heads=4,
            decoder_start_token_id=0)),
        tokens(160),
    ),
    "unet": lambda: (UNet(), image(144, 2)),
    "films": lambda: (Films(), {"films": torch.rand(2, 3, 12, 40, 40)}),
    "tagger": lambda: (Tagger(), {"input_ids": tokens(48, 12)["input_ids"]}),
    "unet, float64": lambda: (
        UNet((12, 24, 40)).double(), {"pixel_values": torch.rand(2, 3, 96, 96).double()}
    ),
    "regnet, bfloat16": lambda: halved("regnet", torch.bfloat16),
    "deit, bfloat16": lambda: halved("deit", torch.bfloat16),
    "bit, bfloat16": lambda: halved("bit", torch.bfloat16),
    "swin v2, bfloat16": lambda: halved("swin v2", torch.bfloat16),
    "unet, bfloat16": lambda: halved("unet", torch.bfloat16),
    "unet, float16": lambda: halved("unet", torch.float16),
}  # fmt: skip


def halved(name: str, dtype: torch.dtype) -> Call:
    """A held-out model and its inputs in half precision."""
    model, inputs = HELD_OUT[name]()
    return model.to(dtype), {key: each.to(dtype) for key, each in inputs.items()}


UNTRAINED = ("levit",)
"""Models of which a second step fails: LeViT keeps attention biases over from the first."""
