"""Models of transformers at their published sizes, without contents (meta device): nothing is downloaded,
for the sizes stand here or are the defaults of their configurations.

`build(name, batch)` gives the model in eval mode and the inputs of a call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers as t
from torch import nn

Inputs = dict[str, torch.Tensor]


def tokens(batch: int, length: int) -> torch.Tensor:
    return torch.zeros(batch, length, dtype=torch.int64)


def text(length: int) -> Callable[[int], Inputs]:
    """Token ids, which are also the labels."""
    return lambda batch: {"input_ids": tokens(batch, length), "labels": tokens(batch, length)}


def only_text(length: int) -> Callable[[int], Inputs]:
    return lambda batch: {"input_ids": tokens(batch, length)}


def image(side: int = 224) -> Callable[[int], Inputs]:
    def inputs(batch: int) -> Inputs:
        labels = torch.zeros(batch, dtype=torch.int64)
        return {"pixel_values": torch.empty(batch, 3, side, side), "labels": labels}

    return inputs


def only_image(side: int = 224) -> Callable[[int], Inputs]:
    return lambda batch: {"pixel_values": torch.empty(batch, 3, side, side)}


def pair_of_texts(length: int, answer: int) -> Callable[[int], Inputs]:
    return lambda batch: {"input_ids": tokens(batch, length), "labels": tokens(batch, answer)}


def clip_inputs(batch: int) -> Inputs:
    return {"input_ids": tokens(batch, 77), **only_image()(batch)}


def speech(batch: int) -> Inputs:
    return {"input_features": torch.empty(batch, 80, 3000), "labels": tokens(batch, 128)}


@dataclass(frozen=True)
class Published:
    """`model` and `config` are names in transformers; `sizes` replace defaults of the configuration."""

    model: str
    config: str
    inputs: Callable[[int], Inputs]
    sizes: dict[str, Any] = field(default_factory=dict)


BASE = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
PUBLISHED = {
    "gpt2": Published("GPT2LMHeadModel", "GPT2Config", text(1024)),
    "bert base": Published("BertForMaskedLM", "BertConfig", text(512)),
    "roberta base": Published(
        "RobertaForMaskedLM",
        "RobertaConfig",
        text(512),
        {"vocab_size": 50265, "max_position_embeddings": 514},
    ),
    "distilbert": Published("DistilBertForMaskedLM", "DistilBertConfig", text(512)),
    "albert base v2": Published(
        "AlbertModel", "AlbertConfig", only_text(512), {**BASE, "embedding_size": 128}
    ),
    "gpt2 without head": Published("GPT2Model", "GPT2Config", only_text(1024)),
    "big bird without head": Published(
        "BigBirdModel", "BigBirdConfig", only_text(512), {"attention_type": "original_full"}
    ),
    "electra small": Published("ElectraForMaskedLM", "ElectraConfig", text(512)),
    "deberta v3 base": Published(
        "DebertaV2Model",
        "DebertaV2Config",
        only_text(512),
        {
            **BASE, "vocab_size": 128100, "num_hidden_layers": 12, "relative_attention": True,
            "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True,
            "pos_att_type": ["p2c", "c2p"], "type_vocab_size": 0, "max_relative_positions": -1,
            "position_biased_input": False,
        },
    ),
    "mpnet base": Published("MPNetForMaskedLM", "MPNetConfig", text(512)),
    "t5 small": Published("T5ForConditionalGeneration", "T5Config", pair_of_texts(512, 128),
                          {"decoder_start_token_id": 0}),
    "bart base": Published(
        "BartForConditionalGeneration", "BartConfig", pair_of_texts(512, 128),
        {
            "d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 12,
            "decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072,
        },
    ),
    "whisper tiny": Published("WhisperForConditionalGeneration", "WhisperConfig", speech),
    "llama 3.2 1b": Published(
        "LlamaForCausalLM", "LlamaConfig", text(1024),
        {
            "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
            "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 128256,
        },
    ),
    "qwen2.5 0.5b": Published(
        "Qwen2ForCausalLM", "Qwen2Config", text(1024),
        {
            "hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14,
            "num_key_value_heads": 2, "intermediate_size": 4864, "vocab_size": 151936,
        },
    ),
    "mistral 7b": Published("MistralForCausalLM", "MistralConfig", text(1024)),
    "gemma 2b": Published(
        "GemmaForCausalLM", "GemmaConfig", text(1024),
        {
            "hidden_size": 2048, "num_hidden_layers": 18, "num_attention_heads": 8,
            "num_key_value_heads": 1, "intermediate_size": 16384,
        },
    ),
    "phi 2": Published(
        "PhiForCausalLM", "PhiConfig", text(1024),
        {
            "hidden_size": 2560, "num_hidden_layers": 32, "num_attention_heads": 32,
            "intermediate_size": 10240,
        },
    ),
    "falcon 7b": Published("FalconForCausalLM", "FalconConfig", text(1024),
                           {"num_attention_heads": 71, "hidden_size": 4544}),
    "bloom 560m": Published("BloomForCausalLM", "BloomConfig", text(1024),
                            {"hidden_size": 1024, "n_layer": 24, "n_head": 16}),
    "opt 125m": Published("OPTForCausalLM", "OPTConfig", text(1024)),
    "pythia 160m": Published(
        "GPTNeoXForCausalLM", "GPTNeoXConfig", text(1024),
        {**BASE, "num_hidden_layers": 12, "vocab_size": 50304},
    ),
    "gpt-j 6b": Published("GPTJForCausalLM", "GPTJConfig", text(1024)),
    "mamba 130m": Published("MambaForCausalLM", "MambaConfig", text(16), {"num_hidden_layers": 24}),
    "big bird base": Published("BigBirdForMaskedLM", "BigBirdConfig", text(512),
                               {"attention_type": "original_full"}),
    "vit b16": Published("ViTForImageClassification", "ViTConfig", image()),
    "deit b16": Published("DeiTForImageClassification", "DeiTConfig", image()),
    "dinov2 base": Published("Dinov2Model", "Dinov2Config", only_image()),
    "beit base": Published("BeitForImageClassification", "BeitConfig", image(),
                           {"use_relative_position_bias": True}),
    "swin tiny": Published("SwinForImageClassification", "SwinConfig", image()),
    "convnext tiny": Published("ConvNextForImageClassification", "ConvNextConfig", image()),
    "resnet 50": Published("ResNetForImageClassification", "ResNetConfig", image()),
    "mobilenet v2": Published("MobileNetV2ForImageClassification", "MobileNetV2Config", image()),
    "segformer b0": Published("SegformerForSemanticSegmentation", "SegformerConfig", only_image(512)),
    "regnet": Published("RegNetForImageClassification", "RegNetConfig", image()),
    "poolformer": Published("PoolFormerForImageClassification", "PoolFormerConfig", image()),
    "mobilevit": Published("MobileViTForImageClassification", "MobileViTConfig", image(256)),
    "levit": Published("LevitForImageClassification", "LevitConfig", only_image()),
    "cvt": Published("CvtForImageClassification", "CvtConfig", image()),
    "pvt": Published("PvtForImageClassification", "PvtConfig", image()),
    "efficientnet b7": Published("EfficientNetForImageClassification", "EfficientNetConfig", image(600)),
    "dpt large": Published("DPTForDepthEstimation", "DPTConfig", only_image(384)),
    "upernet convnext": Published("UperNetForSemanticSegmentation", "UperNetConfig", only_image(512)),
    "clip b32": Published("CLIPModel", "CLIPConfig", clip_inputs),
    "wav2vec2 base": Published("Wav2Vec2Model", "Wav2Vec2Config",
                               lambda batch: {"input_values": torch.empty(batch, 160_000)}),
}  # fmt: skip

STEPS = (
    *("gpt2", "bert base", "distilbert", "t5 small", "whisper tiny", "opt 125m", "vit b16", "swin tiny"),
    *("convnext tiny", "resnet 50", "mobilenet v2", "poolformer"),
)
"""Those that are taken as training steps, too."""


def build(name: str, batch: int = 1) -> tuple[nn.Module, Inputs]:
    """The model called so, in eval mode, with the inputs of a call."""
    entry = PUBLISHED[name]
    with torch.device("meta"):
        model = getattr(t, entry.model)(getattr(t, entry.config)(**entry.sizes))
        return model.eval(), entry.inputs(batch)
