"""Exports take eager mode's way (transformers' models, fused layers): the same operators, bytes and bits."""

from __future__ import annotations

import copy
import logging
import sys
from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from memplan_engine import StaticRuntime, make_plan, to_problem
from memplan_engine.errors import InputError
from memplan_engine.runtime.loading import run_target
from memplan_engine.runtime.program import load_program
from memplan_engine.runtime.trial.run_in_plan import run_in_plan
from memplan_engine.torch_capture.capture_module import as_given, capture
from memplan_engine.torch_capture.torch_exporting import FUSED, TRANSFORMERS
from memplan_engine.torch_capture.training.torch_step import capture_step

transformers = pytest.importorskip("transformers")
OWN = ("transformers.masking_utils", "transformers.integrations.sdpa_attention", "transformers.utils")
WITHOUT_MEMORY = ("aten::_local_scalar_dense", "aten::_assert_tensor_metadata", "aten::equal")
SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4}
DECODER = {**SIZES, "vocab_size": 30, "num_key_value_heads": 2}
SIDES = {
    f"{side}_{name}": n
    for side in ("encoder", "decoder")
    for name, n in {"layers": 1, "attention_heads": 4, "ffn_dim": 24}.items()
}


def ids(rows: int = 1, length: int = 6) -> torch.Tensor:
    return torch.arange(3, 3 + rows * length).view(rows, length)


def config(name: str, **options: Any) -> Any:
    return getattr(transformers, f"{name}Config")(**options)


def decoder(name: str, kind: str = "ForCausalLM", **options: Any) -> Any:
    def build(attention: str) -> Any:
        made = config(name, **DECODER, **options, attn_implementation=attention)
        return getattr(transformers, f"{name}{kind}")(made), {"input_ids": ids(), "use_cache": False}

    return build


def gpt2(attention: str, **inputs: Any) -> Any:
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 4, "vocab_size": 30, "n_positions": 16}
    made = config("GPT2", **sizes, bos_token_id=0, eos_token_id=0, attn_implementation=attention)
    return transformers.GPT2LMHeadModel(made), {"input_ids": ids(2), "use_cache": False, **inputs}


def bert(attention: str) -> Any:
    model = transformers.BertModel(config("Bert", **SIZES, vocab_size=30, attn_implementation=attention))
    return model, {"input_ids": ids(), "attention_mask": torch.ones_like(ids())}


def vit(attention: str) -> Any:
    made = config("ViT", **SIZES, image_size=32, attn_implementation=attention)
    return transformers.ViTForImageClassification(made), {"pixel_values": torch.rand(1, 3, 32, 32)}


def t5(attention: str) -> Any:
    sizes = {"d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 1, "num_heads": 4, "vocab_size": 30}
    made = config("T5", **sizes, decoder_start_token_id=0, attn_implementation=attention)
    inputs = {"input_ids": ids(), "decoder_input_ids": ids(1, 4), "use_cache": False}
    return transformers.T5ForConditionalGeneration(made), inputs


def whisper(attention: str) -> Any:
    ends = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    sizes = {"d_model": 16, "max_source_positions": 20, "vocab_size": 30, **SIDES, **ends}
    made = config("Whisper", **sizes, attn_implementation=attention)
    sound = torch.rand(1, made.num_mel_bins, 40)
    inputs = {"input_features": sound, "decoder_input_ids": ids(1, 4), "use_cache": False}
    return transformers.WhisperForConditionalGeneration(made), inputs


def decoding(attention: str) -> Any:
    made = config("Llama", **DECODER, attn_implementation=attention)
    model = transformers.LlamaForCausalLM(made).eval()
    with torch.no_grad():
        cache = model(input_ids=ids()).past_key_values
    return model, {"input_ids": ids(1, 1), "past_key_values": cache}


def static_cache(attention: str) -> Any:
    made = config("Llama", **DECODER, attn_implementation=attention)
    cache = transformers.StaticCache(made, max_cache_len=12)
    cache.early_initialization(1, 2, 4, torch.float32, torch.get_default_device())
    return transformers.LlamaForCausalLM(made), {"input_ids": ids(), "past_key_values": cache}


MODELS = {
    "gpt2": gpt2,
    "gpt2, padded": lambda attention: gpt2(
        attention, attention_mask=torch.tensor([[1] * 6, [0] * 2 + [1] * 4])
    ),
    "llama": decoder("Llama"),
    "mistral": decoder("Mistral", sliding_window=4),
    "qwen2": decoder("Qwen2"),
    "gemma": decoder("Gemma", head_dim=4),
    "bert": bert,
    "vit": vit,
    "t5": t5,
    "whisper": whisper,
    "decoding": decoding,
    "a static cache": static_cache,
}


class Operators(TorchDispatchMode):
    """Counts the operators that make something."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        schema = func._schema
        views = any(made.alias_info and not made.alias_info.is_write for made in schema.returns)
        if not views and schema.name not in WITHOUT_MEMORY:
            self.counted[schema.name] += 1
        return func(*args, **(kwargs or {}))


def operators(call: Any) -> Counter[str]:
    with torch.no_grad(), Operators() as found:
        call()
    return found.counted


# Decoders with a causal mask, encoders without one: one of each is quick.
ALIKE = ("gpt2", "llama", "qwen2", "gemma", "vit", "whisper", "a static cache")


@pytest.mark.parametrize(
    ("name", "attention"),
    [
        *(pytest.param(name, "sdpa", marks=[pytest.mark.slow] * (name in ALIKE)) for name in MODELS),
        ("gpt2", "eager"),
    ],
)
def test_an_export_runs_what_eager_runs(name: str, attention: str) -> None:
    torch.manual_seed(0)
    model, inputs = MODELS[name](attention)
    target = run_target(model.eval(), (), inputs)
    run = run_in_plan(target, make_plan(to_problem(target.program.graph), "greedy_by_size")).run
    assert run.equality.exact, run.equality
    assert run.predicted == run.dispatch
    again = copy.deepcopy(inputs)
    eager = operators(lambda: model(**as_given(inputs)))
    assert operators(lambda: target.program.run((), again)) == eager


def test_functions_of_transformers_are_its_own_again() -> None:
    module = sys.modules[TRANSFORMERS]
    names = ("is_tracing", "is_torchdynamo_exporting", "is_torchdynamo_compiling")
    before = [getattr(module, name) for name in names]
    model, inputs = gpt2("sdpa")
    capture(model.eval(), (), inputs)
    for name, function in zip(names, before, strict=True):
        found = [vars(each)[name] for key, each in sys.modules.items() if name in vars(each) and key in OWN]
        assert found
        assert all(each is function for each in found)
    assert not model._forward_pre_hooks


def test_a_mask_without_values_is_made_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    model, inputs = gpt2("sdpa", attention_mask=torch.ones(2, 6, dtype=torch.long))
    known = capture(model.eval(), (), inputs)
    assert "transformers" not in caplog.text
    meta = {name: value.to("meta") if hasattr(value, "to") else value for name, value in inputs.items()}
    with caplog.at_level(logging.WARNING):
        unknown = capture(model, (), meta)
    assert len(unknown.ops) > len(known.ops)
    assert "asks for values of a tensor of shape (2, 6)" in caplog.text


def test_a_program_refuses_other_values_of_what_decided_its_way() -> None:
    mask = torch.ones(2, 6, dtype=torch.long)
    model, inputs = gpt2("sdpa", attention_mask=mask)
    program = load_program(model.eval(), (), inputs)
    program.run((), {**inputs, "input_ids": ids(2).flip(1)})
    padded = mask.clone()
    padded[0, 0] = 0
    with pytest.raises(InputError, match="input 'attention_mask': found other values, expected those"):
        program.run((), {**inputs, "attention_mask": padded})


def test_a_static_cache_that_decodes_may_be_filled_further() -> None:
    model, inputs = static_cache("sdpa")
    with torch.no_grad():
        model.eval()(**inputs)
        one = {**inputs, "input_ids": ids(1, 1)}
        program = load_program(model, (), copy.deepcopy(one))
        other = copy.deepcopy(one)
        for _ in range(2):
            assert torch.equal(program.run((), one).logits, model(**other).logits)


def test_sizes_that_are_symbols_are_those_of_the_example(caplog: pytest.LogCaptureFixture) -> None:
    model, inputs = gpt2("sdpa")
    free = capture(model.eval(), (), inputs, dynamic_shapes="input_ids:0=batch[2:8],input_ids:1=seq[2:16]")
    assert "transformers" not in caplog.text
    assert [op.kind for op in free.ops] == [op.kind for op in capture(model, (), inputs).ops]


def test_a_way_that_no_export_can_take_is_left(caplog: pytest.LogCaptureFixture) -> None:
    model, inputs = decoder("Mistral", sliding_window=8)("sdpa")
    with caplog.at_level(logging.WARNING):
        graph = capture(model.eval(), (), inputs, dynamic_shapes="input_ids:1=seq[2:16]")
    assert graph.symbols
    assert "eager mode's cannot be exported" in caplog.text


class Attends(torch.nn.Module):
    """Attention of a tensor to itself."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attention, self.options = torch.nn.MultiheadAttention(16, 2, batch_first=True), options

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> Any:
        y, weights = self.attention(x, x, x, attn_mask=mask, **self.options)
        return y if weights is None else (y, weights)


def layer(**options: Any) -> torch.nn.Module:
    return torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, **options)


X = torch.rand(2, 5, 16)
CAUSAL = torch.ones(5, 5, dtype=torch.bool).triu(1)
FUSED_MODELS = {
    "a layer": (layer, (X,)),
    "a layer with a mask": (layer, (X, CAUSAL)),
    "layers, gelu": (lambda: torch.nn.TransformerEncoder(layer(activation="gelu", norm_first=True), 2), (X,)),
    "encoder and decoder": (lambda: torch.nn.Transformer(16, 2, 1, 1, 32, batch_first=True), (X, X)),
    "attention": (Attends, (X,)),
    "attention without weights": (lambda: Attends(need_weights=False), (X, CAUSAL)),
    "an odd number of heads": (lambda: torch.nn.TransformerEncoderLayer(15, 3, 32), (X[..., :15],)),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in ("encoder and decoder", "attention")))
        for name in FUSED_MODELS
    ],
)
def test_fused_layers_are_one_operator_as_in_eager_mode(name: str) -> None:
    torch.manual_seed(0)
    build, given = FUSED_MODELS[name]
    model = build().eval()  # type: ignore[operator]
    target = run_target(model, given)
    run = run_in_plan(target, make_plan(to_problem(target.program.graph), "greedy_by_size"), check=True).run
    assert run.equality.exact, run.equality
    assert run.predicted == run.dispatch
    assert operators(lambda: target.program.run(given)) == operators(lambda: model(*given))
    fused = sum(kind in FUSED for kind in run.kinds)
    assert (fused > 0) is (name != "an odd number of heads")


def test_of_a_layer_with_hooks_the_attention_alone_is_fused() -> None:
    model = layer().eval()
    model.linear1.register_forward_hook(lambda module, given, made: made)
    program = load_program(model, (X,))
    assert {op.kind for op in program.graph.ops} & set(FUSED) == {FUSED[1]}
    assert operators(lambda: program.run((X,))) == operators(lambda: model(X))


def test_what_a_model_compiles_itself_is_not_run_compiled_on_fake_tensors() -> None:
    compiled: list[Any] = []

    def backend(module: Any, inputs: Any) -> Any:
        compiled.append(module)
        return module.forward

    class Compiles(torch.nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            made = super().forward(input)
            return torch.compile(torch.tanh, backend=backend)(made).sum()

    step = capture_step(Compiles(4, 3), (torch.rand(2, 4),))
    assert ("aten.tanh" in {op.kind for op in step.ops}, step.compiled) == (True, True)
    assert not compiled


def encoder(attention: str) -> Any:
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 2), {"src": torch.rand(2, 6, 16)}


ANY_SIZE = {
    "gpt2": (gpt2, "input_ids", ids),
    "llama": (decoder("Llama"), "input_ids", ids),
    "encoder": (encoder, "src", lambda rows, length: torch.rand(rows, length, 16)),
}


@pytest.mark.parametrize("name", [pytest.param("gpt2", marks=pytest.mark.slow), "llama", "encoder"])
def test_a_static_runtime_for_any_size_runs_what_eager_runs(name: str) -> None:
    """No mask is made, encoder layers are fused, and the bits are eager's."""
    torch.manual_seed(0)
    build, key, data = ANY_SIZE[name]
    model, inputs = build("sdpa")
    dims = f"{key}:0=batch[1:8],{key}:1=seq[2:16]"
    runtime = StaticRuntime(model.eval(), (), {**inputs, key: data(2, 6)}, dynamic_shapes=dims)
    for rows, length in ((2, 6), (3, 9), (1, 12), (2, 6)):
        call = {**inputs, key: data(rows, length)}
        with torch.no_grad():
            assert all(map(torch.equal, *map(pytree.tree_leaves, (runtime(**call), model(**call)))))
    nodes = runtime.export.program.module.graph.nodes
    attention = [node for node in nodes if "scaled_dot" in str(node.target) or FUSED[0] in str(node.target)]
    assert attention
    assert name == "encoder" or all(
        node.args[3:4] in ((), (None,)) and node.kwargs.get("attn_mask") is None for node in attention
    )


def test_a_static_runtime_for_any_size_takes_any_mask() -> None:
    torch.manual_seed(0)
    model, inputs = bert("sdpa")
    inputs = {"input_ids": ids(2), "attention_mask": torch.ones(2, 6, dtype=torch.long)}
    dims = ",".join(f"{key}:0=batch[1:8],{key}:1=seq[2:16]" for key in inputs)
    runtime = StaticRuntime(model.eval(), (), inputs, dynamic_shapes=dims)
    for length, hidden in ((6, 0), (9, 4)):
        mask = torch.ones(2, length, dtype=torch.long)
        mask[0, length - hidden :] = 0
        with torch.no_grad():
            call = {"input_ids": ids(2, length), "attention_mask": mask}
            torch.testing.assert_close(runtime(**call)[0], model(**call)[0])
