"""Llamas to serve, by the sizes of their published `config.json`: what do they leave to the KV cache?

    memplan devices example_graphs/llama_served.py:llama_3_8b --context 8192 --utilization 0.9

They need transformers. Weights are never made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Built = tuple["torch.nn.Module", dict[str, Any]]


def llama_2_7b() -> Built:
    """meta-llama/Llama-2-7b-hf: as many heads for keys and values as for queries."""
    return _llama(vocab_size=32_000, intermediate_size=11_008, num_key_value_heads=32, dtype="float16")


def llama_3_8b() -> Built:
    """meta-llama/Meta-Llama-3-8B: a quarter of them."""
    return _llama(vocab_size=128_256, intermediate_size=14_336, num_key_value_heads=8, dtype="bfloat16")


def _llama(**sizes: Any) -> Built:
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, max_position_embeddings=8192, **sizes
    )
    return transformers.AutoModelForCausalLM.from_config(config), {}
