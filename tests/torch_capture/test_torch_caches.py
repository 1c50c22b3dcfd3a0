"""Prefill and decoding with the caches of Hugging Face's models: captured, planned and run like any call."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from tests.support.runtime import same_bits

os.environ["HF_HUB_OFFLINE"] = "1"

from transformers import (
    DynamicCache,
    EncoderDecoderCache,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    StaticCache,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.modeling_outputs import BaseModelOutput

from memplan_engine import (
    StaticRuntime,
    capture,
    compare_run,
    insert_slab,
    load_program,
    make_plan,
    observe,
    observed_peak,
    run_safely,
)
from memplan_engine.torch_capture.capture_module import as_given, register_caches
from memplan_engine.torch_capture.training.torch_step import capture_step

PROMPT = torch.arange(8).reshape(1, 8)
TOKEN = torch.tensor([[5]])
ENDS = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}


@cache
def gpt2() -> Any:
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
    return GPT2LMHeadModel(GPT2Config(**sizes, **ENDS)).eval()


@cache
def t5() -> Any:
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    return T5ForConditionalGeneration(T5Config(**sizes, **ENDS, decoder_start_token_id=0)).eval()


@cache
def llama() -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=50, num_key_value_heads=2, **sizes, **ENDS, attn_implementation="eager")
    return LlamaForCausalLM(config).eval()


def filled(model: Any, cache: Any, **more: Any) -> Any:
    """`cache` after the prompt."""
    name = "decoder_input_ids" if more else "input_ids"
    with torch.no_grad():
        return model(**{name: PROMPT}, **more, past_key_values=cache).past_key_values


def both() -> Any:
    return EncoderDecoderCache(DynamicCache(config=t5().config), DynamicCache(config=t5().config))


def encoded() -> Any:
    with torch.no_grad():
        return BaseModelOutput(last_hidden_state=t5().encoder(PROMPT).last_hidden_state)


def static(model: Any) -> Any:
    return StaticCache(model.config, max_cache_len=16)


def decoding() -> tuple[Any, dict[str, Any]]:
    return gpt2(), {"input_ids": TOKEN, "past_key_values": filled(gpt2(), static(gpt2()))}


def t5_decoding() -> tuple[Any, dict[str, Any]]:
    cache = filled(t5(), both(), encoder_outputs=encoded())
    given = {"encoder_outputs": encoded(), "decoder_input_ids": TOKEN, "past_key_values": cache}
    return t5(), given


CALLS: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "gpt2 prefill": lambda: (gpt2(), {"input_ids": PROMPT}),
    "gpt2 prefill into a cache": lambda: (gpt2(), {"input_ids": PROMPT, "past_key_values": DynamicCache()}),
    "gpt2 decode": lambda: (
        gpt2(),
        {"input_ids": TOKEN, "past_key_values": filled(gpt2(), DynamicCache(config=gpt2().config))},
    ),
    "gpt2 decode, static": decoding,
    "llama prefill, static": lambda: (
        llama(),
        {"input_ids": PROMPT, "past_key_values": static(llama())},
    ),
    "t5 prefill": lambda: (
        t5(),
        {"input_ids": PROMPT, "decoder_input_ids": PROMPT, "past_key_values": both()},
    ),
    "t5 decode": t5_decoding,
}


def tensors(value: Any) -> list[torch.Tensor]:
    register_caches()
    leaves = pytree.tree_leaves(value)
    return [leaf.clone() for leaf in leaves if isinstance(leaf, torch.Tensor)]


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(call, marks=[pytest.mark.slow] * (call in ("gpt2 prefill", "gpt2 decode")))
        for call in CALLS
    ],
)
def test_prefill_and_decoding_in_the_slab_are_those_of_the_model(call: str) -> None:
    model, kwargs = CALLS[call]()
    before = tensors(kwargs)
    assert before
    program = load_program(model, (), kwargs, name="cached")
    plan = make_plan(program.graph, "greedy_by_size")

    fresh, again = CALLS[call]()[1], CALLS[call]()[1]
    with torch.no_grad():
        expected = model(**as_given(fresh))
    assert expected.past_key_values is not None
    in_slab = program.with_module(insert_slab(program, plan)).run((), kwargs)
    assert type(in_slab.past_key_values) is type(expected.past_key_values)
    assert same_bits(tensors(expected), tensors(in_slab))
    # A static cache is written in place, with the same values; any other stays as it was given.
    assert same_bits(tensors(fresh), tensors(kwargs))
    if "static" not in call:
        assert same_bits(tensors(kwargs), before)
    assert same_bits(tensors(expected), tensors(run_safely(program, plan, (), again).value))


def test_bytes_of_a_decoding_step_are_the_observed_ones_and_caches_are_no_part_of_them() -> None:
    model, kwargs = decoding()
    measured = compare_run(load_program(model, (), kwargs), (), kwargs, eager=model)
    assert measured.equality.exact
    assert measured.difference == 0
    assert not measured.differing
    cached = sum(tensor.nbytes for tensor in tensors(kwargs["past_key_values"]))
    assert cached == 2 * (2 * 2 * 16 * 8 * 4 + 8)
    names = {storage.name for storage in capture(model, (), kwargs).storages if storage.nbytes == 1024}
    assert {f"past_key_values_layers_{n}_{one}" for n in (0, 1) for one in ("keys", "values")} <= names


def test_what_eager_makes_of_a_cache_is_observed_without_the_cache() -> None:
    model, kwargs = decoding()
    with torch.no_grad():
        observation = observe(model, **kwargs)
    assert observed_peak(observation, "dispatch")[0] < 4096


def test_a_static_runtime_decodes_token_after_token() -> None:
    model, kwargs = decoding()
    runtime = StaticRuntime(model, (), decoding()[1])
    cache = decoding()[1]["past_key_values"]
    for token in (5, 7, 9):
        ids = torch.tensor([[token]])
        with torch.no_grad():
            expected = model(input_ids=ids, past_key_values=cache).logits
        result = runtime(input_ids=ids, past_key_values=kwargs["past_key_values"])
        assert torch.equal(result.logits, expected)
    assert int(kwargs["past_key_values"].layers[0].cumulative_length) == 11


def test_a_model_is_trained_although_it_returns_a_cache() -> None:
    graph = capture_step(gpt2(), (), {"input_ids": PROMPT, "labels": PROMPT})
    assert any(op.phase == "backward" for op in graph.ops)


FACTORY = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel, StaticCache

def decode():
    sizes = {"vocab_size": 50, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32}
    config = GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
    cache = StaticCache(config, max_cache_len=16)
    cache.early_initialization(1, 2, 8, torch.float32, torch.get_default_device())
    ids = torch.zeros(1, 1, dtype=torch.long)
    return GPT2LMHeadModel(config).eval(), {"input_ids": ids, "past_key_values": cache}
"""


def test_a_cache_made_on_meta_is_captured_as_one_on_the_cpu(tmp_path: Path) -> None:
    """A factory runs under the meta device: its cache, too."""
    from memplan_engine.torch_capture.torch_factory import build_factory, capture_factory

    file = tmp_path / "decoding.py"
    file.write_text(FACTORY)
    graph = capture_factory(f"{file}:decode")
    built = build_factory(f"{file}:decode")
    real = capture(built.model, built.args, built.kwargs, name="decode")
    assert [op.kind for op in graph.ops] == [op.kind for op in real.ops]
    assert make_plan(graph, "greedy_by_size").arena_bytes == make_plan(real, "greedy_by_size").arena_bytes


def test_a_cache_is_taken_apart_and_put_together_again() -> None:
    register_caches()
    cache = EncoderDecoderCache(filled(gpt2(), DynamicCache()), DynamicCache())
    cache.is_updated[0] = True
    leaves, form = pytree.tree_flatten(cache)
    assert len(leaves) == 4
    assert all(isinstance(leaf, torch.Tensor) for leaf in leaves)
    again = pytree.tree_unflatten(leaves, form)
    assert type(again) is EncoderDecoderCache
    assert again.get_seq_length() == 8
    assert again.self_attention_cache.layers[1].keys is cache.self_attention_cache.layers[1].keys
    # What a run writes down in Python must not come back to whoever gave the cache.
    again.is_updated[1] = True
    again.self_attention_cache.layers.pop()
    assert cache.is_updated == {0: True}
    assert len(cache.self_attention_cache.layers) == 2
    assert form == pytree.tree_flatten(cache)[1] != pytree.tree_flatten(again)[1]


def test_a_layer_works_where_its_tensors_are() -> None:
    register_caches()
    layer = filled(gpt2(), static(gpt2())).layers[0]
    assert layer.device.type == "cpu"
    leaves, form = pytree.tree_flatten(layer)
    moved = pytree.tree_unflatten([leaf.to("meta") for leaf in leaves], form)
    assert moved.device.type == "meta"
    assert moved.max_cache_len == 16
