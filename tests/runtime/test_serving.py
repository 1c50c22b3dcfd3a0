"""A causal language model that is served: bytes of both phases and of the cache, by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

pytest.importorskip("torch")
from memplan_engine import InputError
from memplan_engine.accelerators.presets import accelerator
from memplan_engine.devices.inference_answers import inference_answer
from memplan_engine.recordings.inference import Inference, inference_of
from memplan_engine.reporters.devices.inference_tables import inference_headline
from memplan_engine.runtime.serving.served_ranks import observe_served
from memplan_engine.verdict import Reason
from tests import ROOT

pytestmark = pytest.mark.usefixtures("forked_scripts")

LLAMAS = ROOT / "example_graphs" / "llama_served.py"
WIDTH, WORDS, BATCH, CONTEXT = 8, 32, 2, 20
MODEL = """
import torch
from torch import nn


class Tiny(nn.Module):
    def __init__(self, window=None):
        super().__init__()
        self.window = window
        self.embed = nn.Embedding(32, 8)
        self.k, self.v = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)

    def forward(self, input_ids, past_key_values=None, use_cache=False):
        h = self.embed(input_ids)
        if past_key_values is None:
            k, v = self.k(h), self.v(h)
        else:
            k = torch.cat([past_key_values[0], self.k(h)], 1)
            v = torch.cat([past_key_values[1], self.v(h)], 1)
        if self.window:
            v = v[:, -self.window:].clone()
        return {"past_key_values": (k, v)}


class Forgets(Tiny):
    def forward(self, input_ids, past_key_values=None, use_cache=False):
        h = self.embed(input_ids)
        return {"past_key_values": (self.k(h)[:, :1].clone(),)}


def factory():
    return Tiny(), {}


def windowed():
    return Tiny(window=8), {}


def forgetful():
    return Forgets(), {}


def classifier():
    return nn.Linear(8, 8), {}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "tiny.py"
    path.write_text(MODEL)
    return path


def served(model, factory):
    return observe_served(f"{model}:{factory}", batch=BATCH, context=CONTEXT)


def test_both_phases_and_the_cache_by_hand_then_blocks(model, memplan, tmp_path):
    folder = tmp_path / "served"
    asked = ("--batch", BATCH, "--context", CONTEXT, "--device", "a100-80", "--utilization", 0.9)
    code, out, err = memplan("devices", f"{model}:factory", *asked, "-o", folder, "--json")
    assert code == 0, err
    said = json.loads(out)["inference"]
    weights = 4 * (WORDS * WIDTH + 2 * WIDTH * WIDTH)
    # Words of eight bytes, and what is looked up for them: keys and values are the cache.
    prefill = 8 * BATCH * CONTEXT + 4 * BATCH * CONTEXT * WIDTH
    # The same of one token, and its key or value before it is joined to the others.
    decode = 8 * BATCH + 2 * 4 * BATCH * WIDTH
    token = 2 * 4 * WIDTH
    assert said["weight_bytes"] == weights
    assert (said["prefill_bytes"], said["decode_bytes"]) == (prefill, decode)
    assert (said["token_bytes"], said["sequence_bytes"], said["block_bytes"]) == (token, 0, 16 * token)
    usable = int(0.9 * accelerator("a100-80").usable_bytes)
    # A context and one workspace of cuBLAS; the allocator reserves one segment of 2 MiB.
    least, most = (300 << 20) + 8_519_680, (1100 << 20) + 2 * 8_519_680
    left = [usable - most - (2 << 20), usable - least - weights - prefill]
    assert said["left_bytes"] == left
    assert said["blocks"] == [each // (16 * token) for each in left]
    assert said["longest_context"] == [each // BATCH * 16 for each in said["blocks"]]
    # Twenty tokens take two blocks.
    assert said["largest_batch"] == [each // (2 * 16 * token) for each in left]
    code, out, err = memplan("devices", folder, *asked[4:], "--block", 1, "--json")
    assert code == 0, err
    assert json.loads(out)["inference"]["blocks"] == [each // token for each in left]
    code, out, err = memplan("devices", folder, *asked[4:])
    assert code == 0, err
    assert f"{said['blocks'][0]:,} to {said['blocks'][1]:,} of 16 tokens" in out


def test_a_window_that_is_full_is_a_part_of_each_sequence(model):
    (run,) = served(model, "windowed")
    found = inference_of(run.observation)
    assert isinstance(found, Inference)
    assert (found.token_bytes, found.sequence_bytes) == (4 * WIDTH, 8 * 4 * WIDTH)
    answer = inference_answer([run], accelerator("h100-80"))
    need = 2 * 16 * found.token_bytes + found.sequence_bytes
    assert answer.largest_batch[1] == answer.left_bytes[1] // need
    assert answer.blocks[1] == (answer.left_bytes[1] - BATCH * 8 * 4 * WIDTH) // (16 * 4 * WIDTH)
    seen = run.observation
    compiled = replace(run, observation=replace(seen, flow=replace(seen.flow, compiled=True)))
    unsure = inference_answer([compiled], accelerator("h100-80"))
    assert (answer.reason, unsure.reason) == (None, Reason.COMPILED)
    assert str(Reason.COMPILED) in inference_headline(unsure)


@pytest.mark.parametrize(
    ("factory", "says"),
    [
        ("forgetful", "tiny.py:forgetful: KV cache: found a cache of 64 bytes"),
        ("classifier", "input_ids"),
        ("missing", "missing"),
    ],
)
def test_what_is_no_causal_language_model_is_refused(model, factory, says):
    with pytest.raises(InputError, match=says):
        served(model, factory)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--batch", 0), "--batch: found 0"),
        (("--context", -1), "--context: found -1"),
        (("--", "more"), "found arguments"),
    ],
)
def test_options_that_cannot_be(model, memplan, options, says):
    code, out, err = memplan("devices", f"{model}:factory", *options)
    assert (code, out) == (2, "")
    assert says in err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "factory", "context", "published"),
    [
        # github.com/vllm-project/vllm/pull/2031: one A100 of 80 GB, before and after that change.
        ("a100-80", "llama_2_7b", 4_096, (7_351, 7_449)),
        # github.com/vllm-project/vllm/pull/10511: 53.29 GiB for the cache, on a device of 79.22.
        ("h100-80", "llama_3_8b", 8_192, (27_284, 27_284)),
    ],
)
def test_blocks_that_vllm_has_published(device, factory, context, published):
    pytest.importorskip("transformers")
    runs = observe_served(f"{LLAMAS}:{factory}", batch=1, context=context, arch="sm80")
    answer = inference_answer(runs, accelerator(device), utilization=0.9)
    # What is held beside is a range, and what vLLM samples with is not counted.
    low, high = answer.blocks
    assert published[0] < high * 1.005
    assert 0.98 * low < published[1]
