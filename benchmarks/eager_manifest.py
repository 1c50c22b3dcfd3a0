"""Forty models in small configurations, each with the inputs of a call: what predictions of eager runs are
measured on.

`python benchmarks/eager_prediction.py` predicts and measures them. Nothing of memplan is imported here.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import transformers as t
from torch import nn
from torch.nn import functional

Call = tuple[nn.Module, dict[str, Any]]
BATCH, LENGTH, VOCABULARY = 2, 24, 99
MODELS: dict[str, Callable[[], Call]] = {}
"""By name, what makes the model in eval mode and its inputs."""
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
TOKENS = {"vocab_size": VOCABULARY, "max_position_embeddings": 64}


def model(build: Callable[[], Call]) -> Callable[[], Call]:
    """Register `build` under its name."""
    MODELS[build.__name__] = build
    return build


def ids(length: int = LENGTH) -> torch.Tensor:
    return torch.arange(BATCH * length).reshape(BATCH, length) % (VOCABULARY - 4) + 3


def image(side: int = 64) -> torch.Tensor:
    return torch.rand(BATCH, 3, side, side)


def text(build: Any, **config: Any) -> Call:
    """A language model on tokens, with labels."""
    tokens = ids()
    return build(**config), {"input_ids": tokens, "labels": tokens}


def causal(name: str, **options: Any) -> Call:
    """A decoder of transformers by the name of its configuration."""
    config = getattr(t, f"{name}Config")(**{**SIZES, **TOKENS, **options})
    tokens = ids()
    return getattr(t, f"{name}ForCausalLM")(config), {"input_ids": tokens, "labels": tokens}


def masked(name: str, **options: Any) -> Call:
    """An encoder of transformers by the name of its configuration."""
    config = getattr(t, f"{name}Config")(**{**SIZES, **TOKENS, **options})
    tokens = ids()
    return getattr(t, f"{name}ForMaskedLM")(config), {"input_ids": tokens, "labels": tokens}


@model
def mlp() -> Call:
    layers = (nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Dropout(0.1), nn.Linear(256, 10))
    return nn.Sequential(*layers), {"input": torch.rand(32, 64)}


@model
def conv() -> Call:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Dropout(0.1), nn.Linear(16, 5),
    ), {"input": image(32)}  # fmt: skip


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        sizes = (3, 8, 16, 32)
        self.down = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise(sizes))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in ((16, 32), (8, 16)))
        self.mix = nn.ModuleList(nn.Conv2d(2 * a, a, 3, padding=1) for a in (16, 8))
        self.head = nn.Conv2d(8, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for index, layer in enumerate(self.down):
            x = functional.relu(layer(x if index == 0 else functional.max_pool2d(x, 2)))
            skips.append(x)
        for up, mix, skip in zip(self.up, self.mix, (skips[1], skips[0]), strict=True):
            x = functional.relu(mix(torch.cat([up(x), skip], 1)))
        result: torch.Tensor = self.head(x)
        return result


@model
def unet() -> Call:
    return UNet(), {"x": image(64)}


class Last(nn.Module):
    """The first of what `layers` gives."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, *inputs: Any, **names: Any) -> torch.Tensor:
        result: torch.Tensor = self.layers(*inputs, **names)[0]
        return result


@model
def lstm() -> Call:
    return Last(nn.LSTM(16, 32, num_layers=2, batch_first=True)), {"input": torch.rand(4, 12, 16)}


@model
def lstm_bidirectional() -> Call:
    return Last(nn.LSTM(16, 32, bidirectional=True)), {"input": torch.rand(12, 4, 16)}


@model
def gru() -> Call:
    return Last(nn.GRU(16, 32, num_layers=2, batch_first=True)), {"input": torch.rand(4, 12, 16)}


@model
def rnn() -> Call:
    return Last(nn.RNN(16, 32, batch_first=True)), {"input": torch.rand(4, 12, 16)}


@model
def transformer() -> Call:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    return nn.TransformerEncoder(layer, 2), {"src": torch.rand(2, 12, 32)}


@model
def attention() -> Call:
    x = torch.rand(2, 12, 32)
    return Last(nn.MultiheadAttention(32, 4, batch_first=True)), {"query": x, "key": x, "value": x}


@model
def embedding_bag() -> Call:
    return nn.EmbeddingBag(50, 16, mode="mean"), {"input": ids(8) % 50}


@model
def gpt2() -> Call:
    return text(lambda **c: t.GPT2LMHeadModel(t.GPT2Config(**c)), n_embd=32, n_layer=2, n_head=4,
                n_positions=64, vocab_size=VOCABULARY, bos_token_id=1, eos_token_id=2)  # fmt: skip


@model
def bert() -> Call:
    return masked("Bert")


@model
def roberta() -> Call:
    return masked("Roberta")


@model
def distilbert() -> Call:
    config = t.DistilBertConfig(dim=32, n_layers=2, n_heads=4, hidden_dim=64, vocab_size=VOCABULARY)
    return text(lambda: t.DistilBertForMaskedLM(config))


@model
def albert() -> Call:
    return masked("Albert", embedding_size=16)


@model
def electra() -> Call:
    return masked("Electra", embedding_size=16)


@model
def deberta() -> Call:
    return masked("DebertaV2", relative_attention=True, pos_att_type=["p2c", "c2p"])


@model
def t5() -> Call:
    config = t.T5Config(vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
                        decoder_start_token_id=0)  # fmt: skip
    return text(lambda: t.T5ForConditionalGeneration(config))


@model
def bart() -> Call:
    config = t.BartConfig(vocab_size=VOCABULARY, d_model=32, encoder_layers=2, decoder_layers=2,
                          encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64,
                          decoder_ffn_dim=64, max_position_embeddings=64)  # fmt: skip
    return text(lambda: t.BartForConditionalGeneration(config))


@model
def whisper() -> Call:
    config = t.WhisperConfig(vocab_size=VOCABULARY, d_model=32, encoder_layers=2, decoder_layers=2,
                             encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64,
                             decoder_ffn_dim=64, num_mel_bins=20, max_source_positions=32,
                             pad_token_id=0, bos_token_id=1, eos_token_id=2,
                             decoder_start_token_id=1)  # fmt: skip
    features = torch.rand(BATCH, 20, 64)
    return t.WhisperForConditionalGeneration(config), {"input_features": features, "labels": ids(8)}


@model
def vit() -> Call:
    config = t.ViTConfig(image_size=64, patch_size=16, **SIZES)
    return t.ViTForImageClassification(config), {"pixel_values": image(), "labels": torch.tensor([0, 1])}


@model
def dinov2() -> Call:
    config = t.Dinov2Config(image_size=56, patch_size=14, **{**SIZES, "mlp_ratio": 2})
    return t.Dinov2Model(config), {"pixel_values": image(56)}


@model
def beit() -> Call:
    config = t.BeitConfig(image_size=64, patch_size=16, use_relative_position_bias=True, **SIZES)
    return t.BeitForImageClassification(config), {"pixel_values": image()}


@model
def swin() -> Call:
    config = t.SwinConfig(image_size=64, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4],
                          window_size=4)  # fmt: skip
    return t.SwinForImageClassification(config), {"pixel_values": image(), "labels": torch.tensor([0, 1])}


@model
def convnext() -> Call:
    config = t.ConvNextConfig(hidden_sizes=[8, 16, 32, 64], depths=[1, 1, 1, 1])
    return t.ConvNextForImageClassification(config), {"pixel_values": image(), "labels": torch.tensor([0, 1])}


@model
def resnet() -> Call:
    config = t.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16, 32, 64], depths=[1, 1, 1, 1])
    return t.ResNetForImageClassification(config), {"pixel_values": image(), "labels": torch.tensor([0, 1])}


@model
def mobilenet_v2() -> Call:
    config = t.MobileNetV2Config(image_size=64, depth_multiplier=0.35)
    return t.MobileNetV2ForImageClassification(config), {
        "pixel_values": image(), "labels": torch.tensor([0, 1])
    }  # fmt: skip


@model
def segformer() -> Call:
    config = t.SegformerConfig(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], decoder_hidden_size=16,
                               num_attention_heads=[1, 2, 3, 4])  # fmt: skip
    return t.SegformerForSemanticSegmentation(config), {"pixel_values": image()}


@model
def detr() -> Call:
    backbone = t.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16, 32, 64], depths=[1, 1, 1, 1],
                              out_features=["stage4"])  # fmt: skip
    config = t.DetrConfig(use_timm_backbone=False, use_pretrained_backbone=False, backbone=None,
                          backbone_config=backbone, d_model=32, encoder_layers=1, decoder_layers=1,
                          encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64,
                          decoder_ffn_dim=64, num_queries=10)  # fmt: skip
    return t.DetrForObjectDetection(config), {"pixel_values": image()}


@model
def clip() -> Call:
    layers = {**SIZES, "projection_dim": 16}
    config = t.CLIPConfig(text_config={**layers, **TOKENS}, projection_dim=16,
                          vision_config={**layers, "image_size": 64, "patch_size": 16})  # fmt: skip
    return t.CLIPModel(config), {"input_ids": ids(), "pixel_values": image(), "return_loss": True}


@model
def llama() -> Call:
    return causal("Llama", num_key_value_heads=2)


@model
def qwen2() -> Call:
    return causal("Qwen2", num_key_value_heads=2)


@model
def qwen3_moe() -> Call:
    return causal("Qwen3Moe", num_key_value_heads=2, num_experts=4, num_experts_per_tok=2,
                  moe_intermediate_size=32, head_dim=8)  # fmt: skip


@model
def mixtral() -> Call:
    return causal("Mixtral", num_key_value_heads=2, num_local_experts=4)


@model
def mistral() -> Call:
    return causal("Mistral", num_key_value_heads=2, sliding_window=8)


@model
def gemma() -> Call:
    return causal("Gemma", num_key_value_heads=2, head_dim=8)


@model
def phi() -> Call:
    return causal("Phi")


@model
def falcon() -> Call:
    return causal("Falcon")


@model
def bloom() -> Call:
    config = t.BloomConfig(hidden_size=32, n_layer=2, n_head=4, vocab_size=VOCABULARY)
    return text(lambda: t.BloomForCausalLM(config))


@model
def opt() -> Call:
    return causal("OPT", ffn_dim=64, word_embed_proj_dim=32)


@model
def gpt_neox() -> Call:
    return causal("GPTNeoX")


@model
def mamba() -> Call:
    config = t.MambaConfig(hidden_size=32, num_hidden_layers=2, vocab_size=VOCABULARY, state_size=8)
    return text(lambda: t.MambaForCausalLM(config))


@model
def longformer() -> Call:
    config = t.LongformerConfig(attention_window=8, **SIZES, **TOKENS)
    return t.LongformerModel(config), {"input_ids": ids()}


@model
def big_bird() -> Call:
    return masked("BigBird", attention_type="original_full")


@model
def perceiver() -> Call:
    config = t.PerceiverConfig(num_latents=8, d_latents=32, d_model=32, num_blocks=1,
                               num_self_attends_per_block=2, num_self_attention_heads=4,
                               num_cross_attention_heads=4, vocab_size=VOCABULARY,
                               max_position_embeddings=LENGTH, qk_channels=32, v_channels=32)  # fmt: skip
    return t.PerceiverForMaskedLM(config), {"inputs": ids()}


@model
def wav2vec2() -> Call:
    config = t.Wav2Vec2Config(conv_dim=[16, 16], conv_stride=[5, 2], conv_kernel=[10, 3],
                              num_feat_extract_layers=2, num_conv_pos_embeddings=16,
                              num_conv_pos_embedding_groups=4, **SIZES)  # fmt: skip
    return t.Wav2Vec2Model(config), {"input_values": torch.rand(BATCH, 800)}
