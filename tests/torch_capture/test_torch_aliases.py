"""Storages of a captured graph against those of a real run, and planned live bytes against measured ones."""

from __future__ import annotations

import operator
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from memplan_engine.lifetimes import to_problem
from memplan_engine.torch_capture.torch_graph import graph_from_exported
from tests.support.measured import measure_graph_module

transformers = pytest.importorskip("transformers")


class Cnn(nn.Module):
    """Batch norm in training, in-place relu, chunk, split, cat, expand, transpose, index_put_, a buffer
    written in place, an unused output, and outputs that are the input and a view of an activation."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.register_buffer("calls", torch.zeros(4))

    def forward(self, x):
        y = self.norm(self.conv(x)).relu_()
        a, b = y.chunk(2, dim=1)
        c, d, _ = torch.split(y, [2, 2, 4], dim=1)
        e = c.transpose(2, 3).contiguous() + d
        wide = e.mean(dim=(2, 3), keepdim=True).expand(-1, -1, 5, 5)
        hits = torch.zeros(4, 4).index_put_((torch.tensor([0, 1]), torch.tensor([2, 3])), torch.ones(2))
        self.calls.add_(1)
        values, _ = torch.max(y, dim=1)
        tail = y.detach().view(y.shape[0], -1)[:, 3:]
        a.mul_(2)
        return (a + b, wide, hits.t(), values), tail, x


class Autocast(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.first(x).view(2, 2, 8)
        with torch.enable_grad():
            z = y.float() * 2
        return self.second(z).squeeze(0)


def tiny(name):
    """What a model costs to trace grows with its layers. How layers follow each other, GPT-2's two show."""
    t = transformers
    name, _, layers = name.partition(", ")
    layers = 2 if layers else 1
    ids = torch.arange(12).reshape(1, 12) % 7
    image = torch.rand(1, 3, 32, 32)
    small = {
        "hidden_size": 16,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    if name == "gpt2":
        config = t.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=50, n_positions=16)
        return t.GPT2LMHeadModel(config), (ids,), {"use_cache": False}
    if name == "bert":
        return t.BertModel(t.BertConfig(vocab_size=50, max_position_embeddings=16, **small)), (ids,), {}
    if name == "llama":
        return t.LlamaForCausalLM(t.LlamaConfig(vocab_size=50, **small)), (ids,), {"use_cache": False}
    if name == "vit":
        return t.ViTModel(t.ViTConfig(image_size=32, patch_size=8, **small)), (image,), {}
    if name == "t5":
        config = t.T5Config(vocab_size=50, d_model=16, d_kv=8, d_ff=32, num_layers=layers, num_heads=2)
        inputs = {"input_ids": ids, "decoder_input_ids": ids[:, :5], "use_cache": False}
        return t.T5ForConditionalGeneration(config), (), inputs
    if name == "whisper":
        config = t.WhisperConfig(
            vocab_size=50, d_model=16, encoder_layers=layers, decoder_layers=layers,
            encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32,
            decoder_ffn_dim=32, num_mel_bins=8,
            max_source_positions=20, max_target_positions=12, pad_token_id=0, bos_token_id=1,
            eos_token_id=2, decoder_start_token_id=1,
        )  # fmt: skip
        inputs = {"decoder_input_ids": ids[:, :4], "use_cache": False}
        return t.WhisperForConditionalGeneration(config), (torch.rand(1, 8, 40),), inputs
    if name == "autocast":
        return Autocast(), (torch.rand(4, 8),), {}
    return Cnn(), (torch.rand(2, 3, 8, 8),), {}


NAMES = ["gpt2", "t5", "cnn", "cnn-training", "autocast"]
DEEPER = [f"{name}, 2 layers" for name in ("bert", "llama", "vit", "t5", "whisper")]
SLOW_NAMES = ["bert", "llama", "vit", "whisper", *DEEPER]
PROGRAMS = [f"{name}/{form}" for name in NAMES for form in ("raw", "functional")]
SLOW_PROGRAMS = [f"{name}/{form}" for name in SLOW_NAMES for form in ("raw", "functional")]


@cache
def exported_program(name):
    torch.manual_seed(0)
    model, args, kwargs = tiny(name.removesuffix("-training"))
    model.train(name.endswith("-training"))
    with torch.no_grad():
        return torch.export.export(model, args, kwargs, strict=False)


@pytest.fixture(
    scope="module", params=PROGRAMS + [pytest.param(each, marks=pytest.mark.slow) for each in SLOW_PROGRAMS]
)
def program(request):
    name, form = request.param.split("/")
    exported = exported_program(name)
    with torch.no_grad():
        return exported.run_decompositions({}) if form == "functional" else exported


def real_inputs(exported):
    """The real tensors that the exported graph's placeholders stand for."""
    state = {**exported.constants, **exported.state_dict}
    given = iter(pytree.tree_leaves(exported.example_inputs))
    return [
        next(given) if spec.kind.name == "USER_INPUT" else state[spec.target]
        for spec in exported.graph_signature.input_specs
    ]


class RealRun:
    """Runs a graph on real tensors, written without looking at the importer.

    `owner` maps every tensor's name to the identity of its storage. Everything is kept, so that no identity
    is seen twice."""

    def __init__(self, exported):
        self.owner, self.kept = {}, []
        with torch.no_grad():
            self.result = self.run(exported.graph_module, real_inputs(exported), "")

    def note(self, name, value):
        for index, leaf in enumerate(pytree.tree_leaves(value)):
            if isinstance(leaf, torch.Tensor):
                label = name if isinstance(value, torch.Tensor) else f"{name}.{index}"
                self.owner[label] = leaf.untyped_storage()._cdata
                self.kept.append(leaf)

    def run(self, module, inputs, prefix):
        env, values = {}, iter(inputs)
        for node in module.graph.nodes:
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: env[n])
            if node.op == "output":
                return args[0]
            if node.op == "placeholder":
                env[node] = next(values)
                if not prefix:
                    self.note(node.name, env[node])
            elif node.op == "get_attr":
                env[node] = getattr(module, node.target)
            elif node.target is operator.getitem:
                env[node] = args[0][args[1]]
            elif str(node.target).startswith("wrap_with"):
                grad = "grad" in str(node.target)
                head = 1 if grad else 4
                with torch.set_grad_enabled(args[0]) if grad else torch.autocast(*args[:4]):
                    env[node] = self.run(args[head], args[head + 1 :], f"{prefix}{node.name}.")
            else:
                env[node] = node.target(*args, **kwargs)
                self.note(prefix + node.name, env[node])
        return None


def partition(owner):
    """Each tensor's name → the first name with the same storage."""
    first = {}
    return {name: first.setdefault(identity, name) for name, identity in owner.items()}


def test_every_tensor_has_the_owner_it_has_in_a_real_run(program):
    graph = graph_from_exported(program, "captured")
    real = partition(RealRun(program).owner)
    assert {tensor.name: tensor.storage for tensor in graph.tensors} == real


def live_bytes(problem):
    """Live bytes at each step, by hand."""
    steps = np.arange(problem.steps)[:, None]
    live = (problem.start <= steps) & (steps < problem.end)
    return (live * problem.size).sum(axis=1).tolist()


def test_planned_live_bytes_are_those_of_a_real_run_that_frees_at_the_last_use(program):
    if any(str(node.target).startswith("wrap_with") for node in program.graph.nodes):
        pytest.skip("a wrapped sub-graph holds its operands until it returns")
    graph = graph_from_exported(program, "captured")
    after = measure_graph_module(program.graph_module, real_inputs(program))
    assert live_bytes(to_problem(graph, alignment=1)) == [after[op.name] for op in graph.ops]
