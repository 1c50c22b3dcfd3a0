"""Runs predicted for the device cuda on a machine without one: bytes worked out by hand, the rules of torch's
sources, what the operators of a real card gave."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from memplan_engine import (
    InputError,
    MemplanError,
    find_peak,
    load_observation,
    observation_graph,
    observe_fake,
    observed_peak,
    to_problem,
    write_observation,
)
from memplan_engine.recordings.allocator_recording import Action
from memplan_engine.recordings.observation import Observation, observation_recording
from memplan_engine.recordings.observed_flow import Category, Flow, Stage, state_bytes
from memplan_engine.runtime.recorder.cuda_library import NoGuardError, guard_content
from memplan_engine.runtime.recorder.fake_cuda import ONE_ON_CUDA
from memplan_engine.torch_capture.training.torch_recipe import Recipe

ATTENTION = {
    "aten._scaled_dot_product_flash_attention": "flash",
    "aten._scaled_dot_product_efficient_attention": "efficient",
    "aten._scaled_dot_product_cudnn_attention": "cudnn",
    "aten._safe_softmax": "math",
}
HALF, BRAIN, FULL, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64


@pytest.fixture(scope="module", autouse=True)
def _guard() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a card of its own: test_real_cuda.py")
    try:
        guard_content()
    except NoGuardError as error:
        pytest.skip(str(error))
    # What a run imports is then there in each process that is forked.
    observe_fake(nn.Linear(2, 2), (torch.rand(1, 2),), recipe=Recipe("adam"))


def flow_of(observation: Observation) -> Flow:
    assert observation.flow is not None
    return observation.flow


def made(observation: Observation, kind: str) -> list[list[tuple[tuple[int, ...], str, int, int]]]:
    """Of each op of a kind the shape, dtype, bytes and device of what it made."""
    flow = flow_of(observation)
    each = flow.storages
    return [
        [(each.shapes[n], each.dtypes[n], int(each.nbytes[n]), int(each.device[n])) for n in flow.makes[op]]
        for op, other in enumerate(observation.ops.kinds)
        if other == kind
    ]


def torchgen_folders() -> list[Path]:
    spec = find_spec("torchgen")
    return [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]


def test_the_operators_of_one_kernel_are_those_of_torchgen() -> None:
    yaml: Any = pytest.importorskip("yaml")
    package = next(iter(torchgen_folders()))
    path = package / "packaged" / "ATen" / "native" / "native_functions.yaml"
    dispatch: dict[str, set[str]] = {}
    delegates: dict[str, str] = {}
    for function in yaml.safe_load(path.read_text()):
        name = function["func"].partition("(")[0]
        keys = (key.strip() for names in function.get("dispatch", {}) for key in names.split(","))
        dispatch[name] = set(keys)
        delegates[name] = function.get("structured_delegate", name)
    one = [
        name
        for name, keys in dispatch.items()
        if "CompositeImplicitAutograd" in keys and "CUDA" in keys | dispatch[delegates[name]]
    ]
    assert sorted(one) == sorted(ONE_ON_CUDA)


class Norms(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.linear = nn.RMSNorm(width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.mish(functional.silu(self.linear(self.norm(x)))).sum()


def test_silu_mish_and_rms_norm_are_one_op_each() -> None:
    """Full where the gradient of the bias has been made: the normed rows (saved), the gradients of the linear
    layer's output and input, of weight and bias, the norms' inverse deviations, the loss and its gradient."""
    rows, width = 32, 64
    seen = observe_fake(Norms(width), (torch.rand(rows, width),), recipe=Recipe("sgd"), device="cuda")
    by_hand = 4 * (3 * rows * width + width * width + width + rows + 2)
    assert observed_peak(seen)[0] == by_hand
    kinds = set(seen.ops.kinds)
    assert {"aten._fused_rms_norm", "aten.silu_backward", "aten.mish_backward"} <= kinds
    assert not kinds & {"aten.sigmoid", "aten.rsqrt", "aten.tanh"}
    assert made(seen, "aten._fused_rms_norm") == [
        [((rows, width), "float32", 4 * rows * width, 0), ((rows, 1), "float32", 4 * rows, 0)]
    ]


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

    with pytest.raises(InputError, match=r"No available kernel.*test_fake_cuda\.py"):
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


def test_a_step_on_two_streams_keeps_them() -> None:
    """Autograd runs the gradient of an op on the op's own stream; what is on the host has none but the
    default."""

    def train() -> None:
        left, right = (nn.Linear(8, 8, device="cuda") for _ in range(2))
        optimizer = torch.optim.SGD([*left.parameters(), *right.parameters()])
        x, side = torch.rand(4, 8, device="cuda"), torch.cuda.Stream()
        for _ in range(2):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                other = right(x).tanh()
            torch.cuda.current_stream().wait_stream(side)
            other.record_stream(torch.cuda.current_stream())
            (left(x).relu() + other).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    seen = observe_fake(train, device="cuda")
    flow = flow_of(seen)
    streams: dict[str, set[int]] = {}
    for kind, stream in zip(seen.ops.kinds, flow.stream.tolist(), strict=True):
        streams.setdefault(kind, set()).add(stream)
    assert streams["aten.tanh"] == streams["aten.tanh_backward"] == {1}
    assert streams["aten.relu"] == streams["aten.threshold_backward"] == {0}
    assert streams["aten.addmm"] == {0, 1}
    assert streams["aten._foreach_add_"] == {0}
    assert streams["aten.record_stream"] == {0}
    assert flow.steps == 2
    assert {Stage.FORWARD, Stage.BACKWARD, Stage.OPTIMIZER} == set(flow.stages)
    weight_gradients = [
        (stage, stream)
        for kind, stage, stream in zip(seen.ops.kinds, flow.stages, flow.stream.tolist(), strict=True)
        if kind == "aten.mm"
    ]
    assert sorted(weight_gradients) == [(Stage.BACKWARD, 0)] * 2 + [(Stage.BACKWARD, 1)] * 2
    # To the allocator a block is of the stream that it was made on, also where another one lets go of it.
    events = observation_recording(seen).events
    by_stream = {
        action: {number: int(those["size"][those["stream"] == number].sum()) for number in (0, 1)}
        for action in (Action.ALLOC, Action.FREE_COMPLETED)
        for those in [events[events["action"] == action]]
    }
    made = (flow.storages.maker >= 0) & (flow.storages.device == 0)
    stream, nbytes = flow.stream[flow.storages.maker[made]], flow.storages.nbytes[made]
    assert by_stream[Action.ALLOC] == {number: int(nbytes[stream == number].sum()) for number in (0, 1)}
    assert by_stream[Action.FREE_COMPLETED][1] == by_stream[Action.ALLOC][1] > 0


class Stack(nn.Module):
    def __init__(self, **kind: Any) -> None:
        super().__init__()
        self.layers, self.kind = nn.ModuleList(nn.Linear(16, 16) for _ in range(3)), kind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            body = nn.Sequential(layer, nn.ReLU(), nn.Dropout(0.5))
            x = checkpoint(body, x, **self.kind) if self.kind else body(x)
        return x.sum()


@pytest.mark.parametrize("kind", [{}, {"use_reentrant": False}, {"use_reentrant": True}], ids=str)
def test_stages_and_bytes_are_those_of_the_cpu(kind: dict[str, Any]) -> None:
    """Of operators that both run alike: in a thread of autograd's or in none, stage, module and bytes."""
    model, x = Stack(**kind), torch.rand(8, 16, requires_grad=True)
    recipe = Recipe("sgd", foreach=False)
    cpu, cuda = (observe_fake(model, (x,), recipe=recipe, device=device) for device in ("cpu", "cuda"))
    for seen in (cpu, cuda):
        assert (Stage.RECOMPUTE in flow_of(seen).stages) == bool(kind)
    column = [
        list(zip(each.ops.kinds, flow_of(each).stages, flow_of(each).modules, strict=True))
        for each in (cpu, cuda)
    ]
    dropped = {"aten.bernoulli_", "aten.div_", "aten.empty_like", "aten.native_dropout", "aten.mul"}
    without = [[row for row in rows if row[0] not in dropped and "dropout" not in row[0]] for rows in column]
    assert sorted(map(str, without[0])) == sorted(map(str, without[1]))


def test_figures_are_of_the_device_and_files_keep_them(tmp_path: Path) -> None:
    def train() -> None:
        torch.rand(1000)
        model = nn.Linear(8, 8).cuda()
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(2):
            model(torch.rand(4, 8).to("cuda", non_blocking=True)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    seen = observe_fake(train, device="cuda")
    flow = flow_of(seen)
    assert set(flow.storages.device.tolist()) == {-1, 0}
    assert seen.devices == (0,)
    assert state_bytes(flow) == 3 * 4 * (64 + 8)
    graph = observation_graph(seen)
    assert find_peak(to_problem(graph, alignment=1)).nbytes == observed_peak(seen)[0]
    write_observation(seen, tmp_path / "run.json")
    again = load_observation(tmp_path / "run.json")
    assert again.flow is not None
    for name in ("stream", "device"):
        assert np.array_equal(getattr(again.flow, name), getattr(flow, name))
    assert (
        again.flow.assumed
        == flow.assumed
        == ("cuda without a card, as compute capability 9.0 with cuDNN 9.20",)
    )
    assert observed_peak(again) == observed_peak(seen)


def test_what_a_model_finds_is_a_card() -> None:
    def ask() -> None:
        card = torch.cuda.get_device_properties(0)
        assert (card.major, card.minor) == torch.cuda.get_device_capability() == (8, 9)
        assert torch.cuda.is_available()
        assert torch.cuda.device_count() == 1
        assert torch.cuda.current_device() == 0
        assert torch.cuda.memory_allocated() == 0
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        event.synchronize()
        stream = torch.cuda.Stream(priority=-1)
        stream.wait_event(event)
        with torch.cuda.device(0), torch.cuda.stream(stream):
            assert torch.cuda.current_stream() == stream
            assert torch.cuda.current_stream() != torch.cuda.default_stream()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.manual_seed_all(0)
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.memory._record_memory_history()
        torch.cuda.memory._dump_snapshot("never.pickle")
        with torch.random.fork_rng(devices=[0]):
            torch.cuda.manual_seed(1)
        assert torch.cuda.is_bf16_supported()
        with torch.autocast("cuda", dtype=BRAIN):
            assert nn.Linear(4, 4, device="cuda")(torch.rand(2, 4, device="cuda")).dtype is BRAIN
        positions = torch.arange(4, device="cuda")
        assert bool((positions == torch.tensor([0, 1, 2, 3]).cuda()).all())
        assert torch.nonzero(positions).shape == (3, 1)
        assert torch.rand(3).pin_memory().to("cuda").is_cuda
        assert torch.rand(3, device="cuda", generator=torch.Generator("cuda")).is_cuda

    observe_fake(ask, device="cuda", arch="sm89")
    assert not torch.cuda.is_available()


def test_recurrent_layers_and_images_run() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.gru = nn.LSTM(6, 8, batch_first=True), nn.GRU(8, 4, batch_first=True)
            self.image = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            warped = functional.grid_sample(self.image(y), torch.zeros(2, 6, 6, 2, device=y.device))
            return self.gru(self.rnn(x)[0])[0].sum() + warped.sum()

    inputs = (torch.rand(2, 5, 6), torch.rand(2, 3, 8, 8).to(memory_format=torch.channels_last))
    seen = observe_fake(Both(), inputs, recipe=Recipe("adamw"), device="cuda")
    kinds = set(seen.ops.kinds)
    assert {
        "aten._thnn_fused_lstm_cell",
        "aten._thnn_fused_gru_cell",
        "aten.cudnn_batch_norm",
        "aten.convolution",
    } <= kinds
    assert {"aten._foreach_sqrt", "aten._foreach_addcdiv_"} <= kinds


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "tpu"}, "device: found 'tpu', expected one of cpu, cuda"),
        ({"device": "cuda", "arch": "sm91"}, "arch: found 'sm91', expected one of sm50, "),
        ({"device": "cuda", "arch": "hopper"}, "arch: found 'hopper'"),
        ({"arch": "sm90"}, "found 'sm90' for the device 'cpu', expected the device cuda"),
    ],
)
def test_unknown_devices_are_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        observe_fake(nn.Linear(2, 2), (torch.rand(1, 2),), **options)
    assert "\n" not in str(error.value)


def test_what_goes_wrong_in_the_other_process_is_one_line_here() -> None:
    def mixed() -> None:
        torch.rand(4, 4, device="cuda") @ torch.rand(4, 4)

    with pytest.raises(InputError, match=r"cuda:0.*cpu.*test_fake_cuda\.py") as error:
        observe_fake(mixed, device="cuda")
    assert "\n" not in str(error.value)

    def asks() -> None:
        if torch.rand(4, device="cuda").sum() > 1:
            pass

    with pytest.raises(InputError, match=r"test_fake_cuda\.py.*which is not known"):
        observe_fake(asks, device="cuda")

    def leaves() -> None:
        import os

        os._exit(7)

    with pytest.raises(MemplanError, match="ended with code 7"):
        observe_fake(leaves, device="cuda")
