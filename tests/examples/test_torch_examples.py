"""The script that makes the example graphs."""

from __future__ import annotations

import importlib.util

import pytest

from memplan_engine import load
from memplan_engine.torch_capture.capture_module import capture
from tests import ROOT

pytest.importorskip("transformers")
SCRIPT = ROOT / "example_graphs" / "capture.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("example_capture", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_example_is_written_to_the_byte_as_it_is_stored(script, tmp_path):
    written = script.write_example(EXACT, tmp_path).read_bytes()
    assert written == SCRIPT.with_name(f"{EXACT}.json").read_bytes()
    assert b"site-packages" not in written
    assert b"transformers/models/vit/modeling_vit.py" in written


EXACT = "vit_b16"
QUICK = ("gpt2_dynamic",)
SLOW = (
    "bert_base", "bert_training_default", "bert_training_min_cut", "gpt2", "gpt2_all_logits",
    "gpt2_training_step", "llama_7b", "mobilenet_v2", "resnet50", "whisper_tiny",
)  # fmt: skip


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_what_is_stored_is_what_the_script_makes(script, name):
    def bare(graph):
        return [(op.kind, op.inputs, op.outputs, op.workspace) for op in graph.ops]

    stored, made = load(SCRIPT.with_name(f"{name}.json")), script.make_example(name)
    assert bare(made) == bare(stored)
    assert made.storages == stored.storages


def test_every_example_that_the_script_makes_is_compared(script):
    assert {EXACT, *QUICK, *SLOW} == {*script.INFERENCE, *script.TRAINING, *script.DYNAMIC}


def test_attention_holds_a_mask_as_floats(script):
    """By hand: beside the logarithm of a sum for each head and row a float for each pair of tokens. On the
    meta device nobody knows that the mask hides nothing."""
    model, inputs = script.bert_base()
    model.encoder.layer = model.encoder.layer[:1]
    graph = capture(model.eval(), kwargs={**inputs, "attention_mask": script.tokens(384).to("meta")})
    (attention,) = (op for op in graph.ops if op.kind == "aten.scaled_dot_product_attention")
    assert attention.workspace.shared == 4 * 12 * 384 + 4 * 384 * 384


def test_an_example_above_the_limit_is_refused(script, tmp_path, monkeypatch):
    there = load(SCRIPT.with_name("mobilenet_v2.json"))
    monkeypatch.setattr(script, "capture_example", lambda name: (there, script.About()))
    monkeypatch.setattr(script, "MAX_BYTES", 1000)
    with pytest.raises(RuntimeError, match=r"mobilenet_v2\.json has [0-9,]+ bytes, more than 1,000"):
        script.write_example("mobilenet_v2", tmp_path)
