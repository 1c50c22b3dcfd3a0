"""What part of a model a buffer belongs to."""

import pytest

from memplan_engine import load, to_problem
from memplan_engine.analysis.module_roles import module_roles
from memplan_engine.graph import Op
from memplan_engine.problem import make_problem
from tests import ROOT
from tests.support.graphs import make_graph


def role_of(kind, module, inputs=0):
    """The role of an op that reads so many results of ops without a name."""
    before = [Op(f"b{i}", "made", (), (f"x{i}",)) for i in range(inputs)]
    op = Op("op", kind, tuple(f"x{i}" for i in range(inputs)), ("y",), module=module)
    sizes = dict.fromkeys([*(f"x{i}" for i in range(inputs)), "y"], 8)
    problem = to_problem(make_graph([*before, op], sizes, outputs=["y"]))
    return module_roles(problem)[problem.names.index("y")]


@pytest.mark.parametrize(
    ("module", "kind", "inputs", "role"),
    [
        ("transformer.h.0.mlp.c_proj", "aten.addmm", 1, "mlp"),
        ("transformer.h.0.mlp.act", "aten.add", 2, "mlp"),
        ("transformer.h.0.attn.c_proj", "aten.addmm", 1, "attention"),
        ("transformer.h.0", "aten.add", 2, "residual"),
        ("transformer.h.0.attn", "aten.add", 2, "attention"),
        ("encoder.layer.3.attention.output", "aten.add", 2, "residual"),
        ("encoder.layer.3.attention.output.dense", "aten.linear", 1, "attention"),
        ("layers.0.attention.out", "Add", 1, "attention"),  # A bias is no stream that goes past.
        ("transformer.h.0.ln_1", "aten.mul", 1, "norm"),
        ("decoder.layers.0.self_attn_layer_norm", "aten.mul", 1, "norm"),
        ("model.layers.0.post_attention_layernorm", "aten.pow", 1, "norm"),
        ("bert.embeddings.LayerNorm", "aten.native_layer_norm", 1, "norm"),
        ("transformer.wte", "aten.index", 1, "embedding"),
        ("model.rotary_emb", "aten.cos", 1, "embedding"),
        ("lm_head", "aten.linear", 1, "head"),
        ("fc", "aten.linear", 1, "head"),
        ("model.encoder.layers.0.fc1", "aten.linear", 1, "mlp"),
        ("layer1.0.conv1", "aten.convolution", 1, "convolution"),
        ("layer1.0.bn1", "aten.batch_norm", 1, "norm"),
        ("layer1.0.relu", "aten.relu", 1, "activation function"),
        ("", "DEPTHWISE_CONV_2D", 1, "convolution"),
        ("resnet.pooler", "aten.adaptive_avg_pool2d", 1, "pooling"),
        ("", "aten.scaled_dot_product_attention", 1, "attention"),
        ("", "aten.eq", 1, "other"),
        ("converter", "aten.eq", 1, "other"),
    ],
)
def test_names_and_kinds_tell(module, kind, inputs, role):
    assert role_of(kind, module, inputs) == role


def test_what_says_nothing_goes_with_what_it_reads():
    ops = [
        Op("a", "aten.linear", (), ("a",), module="layers.0.fc1"),
        Op("b", "aten.gelu", ("a",), ("b",), module="layers.0.activation_fn"),
        Op("c", "aten.clone", ("b",), ("c",)),
        Op("d", "aten.conv2d", (), ("d",)),
        Op("e", "aten.relu", ("d",), ("e",)),
        Op("f", "aten.clone", ("e",), ("f",)),
    ]
    problem = to_problem(make_graph(ops, dict.fromkeys("abcdef", 8), outputs=["c", "f"]))
    roles = dict(zip(problem.names, module_roles(problem), strict=True))
    assert [roles[name] for name in "abc"] == ["mlp"] * 3
    assert [roles[name] for name in "def"] == ["convolution", "activation function", "activation function"]


@pytest.mark.parametrize("name", ["gpt2", "vit_b16", "resnet50", "llama_7b", "whisper_tiny", "mobilenet_v2"])
def test_nearly_all_memory_of_well_known_models_has_a_role(name):
    problem = to_problem(load(ROOT / "example_graphs" / f"{name}.json"))
    areas = problem.size * (problem.end - problem.start)
    other = sum(
        area for area, role in zip(areas.tolist(), module_roles(problem), strict=True) if role == "other"
    )
    assert other < 0.01 * areas.sum()


def test_a_list_of_buffers_has_none():
    assert module_roles(make_problem([0, 1], [2, 3], [4, 5])) == ("other", "other")
