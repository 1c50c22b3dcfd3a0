"""Attention on the device cuda without one: which kernel torch takes, and what each gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from memplan_engine import InputError, observe_fake
from memplan_engine.recordings.observed_flow import Category, state_bytes
from memplan_engine.torch_capture.training.torch_recipe import Recipe
from tests.support.fake_cards import flow_of, made, needs_guard

ATTENTION = {
    "aten._scaled_dot_product_flash_attention": "flash",
    "aten._scaled_dot_product_efficient_attention": "efficient",
    "aten._scaled_dot_product_cudnn_attention": "cudnn",
    "aten._safe_softmax": "math",
}
HALF, BRAIN, FULL, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64


@pytest.fixture(scope="module", autouse=True)
def _guard() -> None:
    needs_guard()


class LlamaBlock(nn.Module):
    """One layer as Llama has it, without rotary embeddings."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.first(x)
        q, k, v = (
            layer(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).flatten(2))
        normed = self.second(x)
        return (x + self.down(functional.silu(self.gate(normed)) * self.up(normed))).sum()


def test_what_a_llama_layer_saves_with_flash_attention() -> None:
    batch, length, width, heads, hidden = 2, 48, 64, 4, 160
    model = LlamaBlock(width, heads, hidden).bfloat16()
    x = torch.rand(batch, length, width, dtype=BRAIN)
    seen = observe_fake(model, (x,), recipe=Recipe("sgd"), device="cuda", arch="sm80")
    flow = flow_of(seen)
    tokens = batch * length
    narrow = 7  # both norms' results, q, k, v, what attention gives, the first sum
    wide = 4  # gate, silu of it, up, their product
    logsumexp, random_state = 4 * batch * heads * length, 16 + 8
    norms, loss = 2 * 4 * tokens, 2
    by_hand = 2 * tokens * (narrow * width + wide * hidden) + norms + logsumexp + random_state + loss
    saved = [row for row, each in enumerate(flow.storages.categories) if each is Category.ACTIVATION]
    assert sum(flow.storages.nbytes[saved]) == by_hand
    head = width // heads
    (forward,) = made(seen, "aten._scaled_dot_product_flash_attention")
    assert forward == [
        ((batch, heads, length, head), "bfloat16", 2 * tokens * width, 0),
        ((batch, heads, length), "float32", logsumexp, 0),
        ((2,), "uint64", 16, 0),
        ((), "uint64", 8, 0),
        ((0,), "bfloat16", 0, 0),
    ]
    (backward,) = made(seen, "aten._scaled_dot_product_flash_attention_backward")
    assert [each[2] for each in backward] == [2 * tokens * width] * 3
    assert state_bytes(flow) == 2 * (4 * width * width + 3 * width * hidden + 2 * width)


def test_cudnn_gives_what_it_gave_on_a_card() -> None:
    """The sizes that code compiled for a card has for this call, in
    https://github.com/pytorch/pytorch/issues/169849: output, logsumexp, seed and offset."""

    def attend() -> None:
        q, k, v = (torch.rand(1, 24, 261, 64, device="cuda", dtype=BRAIN, requires_grad=True) for _ in "qkv")
        functional.scaled_dot_product_attention(q, k, v)

    seen = observe_fake(attend, device="cuda", arch="sm90")
    assert made(seen, "aten._scaled_dot_product_cudnn_attention") == [
        [
            ((1, 24, 261, 64), "bfloat16", 24 * 261 * 64 * 2, 0),
            ((1, 24, 261, 1), "float32", 24 * 261 * 4, 0),
            ((), "int64", 8, 0),
            ((), "int64", 8, 0),
        ]
    ]


Call = tuple[dict[str, Any], str]
CHOICES: dict[str, list[Call]] = {
    # The rules of aten/src/ATen/native/transformers/cuda/sdp_utils.cpp.
    "sm90": [
        ({}, "cudnn"),
        ({"dtype": HALF}, "cudnn"),
        ({"mask": (8, 8)}, "cudnn"),
        ({"mask": (4, 8, 8)}, "efficient"),  # cuDNN takes masks of two dimensions or four
        ({"dtype": FULL}, "efficient"),
        ({"dtype": DOUBLE}, "math"),
        ({"head": 136}, "flash"),  # cuDNN 9.20 stops at 128
        ({"head": 192, "value": 128}, "cudnn"),
        ({"head": 256}, "flash"),
        ({"head": 264}, "efficient"),
        ({"head": 260}, "math"),
        ({"head": 20}, "flash"),
        ({"head": 64, "value": 72}, "cudnn"),
        ({"dropout": 0.1}, "flash"),  # cuDNN knows sixteenths
        ({"dropout": 0.125}, "cudnn"),
        ({"keys": 1}, "flash"),
        ({"keys": 12, "causal": True}, "cudnn"),
        ({"groups": 2}, "cudnn"),
        ({"dimensions": 3}, "math"),
    ],
    "sm100": [({}, "cudnn"), ({"head": 192, "value": 128}, "cudnn"), ({"head": 136}, "flash")],
    "sm120": [({}, "flash"), ({"head": 200, "grad": True}, "efficient"), ({"mask": (8, 8)}, "efficient")],
    "sm86": [
        ({}, "flash"),
        ({"head": 200}, "flash"),
        ({"head": 200, "grad": True}, "efficient"),
        ({"head": 256, "grad": True}, "flash"),
        ({"head": 256, "grad": True, "dropout": 0.5}, "efficient"),
    ],
    "sm80": [
        ({}, "flash"),
        ({"mask": (8, 8)}, "efficient"),
        ({"dtype": FULL}, "efficient"),
        ({"dtype": FULL, "head": 6}, "math"),
        ({"keys": 12, "causal": True}, "efficient"),
        ({"groups": 2}, "flash"),
        ({"groups": 2, "mask": (8, 8)}, "math"),
        ({"groups": 2, "dtype": FULL, "grad": True}, "math"),
        ({"value": 72}, "efficient"),
        ({"value": 68}, "math"),
    ],
    "sm75": [({"dtype": HALF}, "efficient"), ({"dtype": BRAIN}, "math"), ({"dtype": FULL}, "efficient")],
    "sm50": [({"dtype": HALF, "head": 3}, "efficient"), ({"dtype": BRAIN}, "math")],
}


def call(options: dict[str, Any]) -> None:
    """One call of attention, of 2 × 4 heads and 8 queries unless the options say otherwise."""
    dtype, head = options.get("dtype", BRAIN), options.get("head", 64)
    grouped = options.get("groups", 1)
    keys = options.get("keys", 8)
    shapes = [
        (2, 4, 8, head),
        (2, 4 // grouped, keys, head),
        (2, 4 // grouped, keys, options.get("value", head)),
    ]
    skipped = 4 - options.get("dimensions", 4)
    q, k, v = (
        torch.rand(shape[skipped:], device="cuda", dtype=dtype, requires_grad=options.get("grad", False))
        for shape in shapes
    )
    mask = options.get("mask")
    given = None if mask is None else torch.ones(mask, device="cuda", dtype=torch.bool)
    functional.scaled_dot_product_attention(
        q, k, v, given, options.get("dropout", 0.0), options.get("causal", False), enable_gqa=grouped > 1
    )


def chosen(run: Callable[[], Any], arch: str) -> list[str]:
    kinds = observe_fake(run, device="cuda", arch=arch).ops.kinds
    return [ATTENTION[kind] for kind in kinds if kind in ATTENTION]


@pytest.mark.parametrize("arch", CHOICES)
def test_attention_is_the_kernel_that_torch_takes(arch: str) -> None:
    calls = CHOICES[arch]

    def run() -> None:
        for options, _ in calls:
            call(options)

    assert chosen(run, arch) == [kernel for _, kernel in calls]


def test_the_user_may_choose_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> None:
        for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
            with sdpa_kernel(backend):
                call({})
        call({})

    assert chosen(run, "sm90") == ["math", "flash", "efficient", "cudnn"]
    monkeypatch.setenv("TORCH_CUDNN_SDPA_DEPRIORITIZED", "1")
    assert chosen(lambda: call({}), "sm90") == ["flash"]

    def none() -> None:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            call({"dtype": FULL})

    with pytest.raises(InputError, match=r"No available kernel.*test_fake_cuda_attention\.py"):
        observe_fake(none, device="cuda")


def test_the_kernels_own_results() -> None:
    """Without gradients cuDNN makes no logsumexp; the efficient kernel pads its own to multiples of 32, and
    keeps the state of the random generator on the host."""
    seen = observe_fake(lambda: call({"grad": False}), device="cuda", arch="sm90")
    (cudnn,) = made(seen, "aten._scaled_dot_product_cudnn_attention")
    assert [each[2] for each in cudnn] == [2 * 4 * 8 * 64 * 2, 8, 8]
    seen = observe_fake(lambda: call({"grad": True, "mask": (8, 8)}), device="cuda", arch="sm80")
    (efficient,) = made(seen, "aten._scaled_dot_product_efficient_attention")
    assert [each[2:] for each in efficient] == [
        (2 * 4 * 8 * 64 * 2, 0),
        (2 * 4 * 32 * 4, 0),
        (8, -1),
        (8, -1),
    ]
