"""Runs predicted for the device cuda on a machine without one: bytes worked out by hand, the rules of torch's
sources, what the operators of a real card gave."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
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
from memplan_engine.recordings.observation import observation_recording
from memplan_engine.recordings.observed_flow import Stage, state_bytes
from memplan_engine.runtime.recorder.fake_cuda import ONE_ON_CUDA
from memplan_engine.torch_capture.training.torch_recipe import Recipe
from tests.runtime.test_real_cuda import REDUCED_IN_PLACE
from tests.support.fake_cards import flow_of, made, needs_guard


@pytest.fixture(scope="module", autouse=True)
def _guard() -> None:
    needs_guard()


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
        with torch.autocast("cuda", dtype=torch.bfloat16):
            assert nn.Linear(4, 4, device="cuda")(torch.rand(2, 4, device="cuda")).dtype is torch.bfloat16
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


def test_the_mean_of_a_loss_keeps_the_storage_of_every_element() -> None:
    """Torch's code for CUDA makes 8 × 16 numbers and gives back the first. A Huber loss is reduced into a
    tensor of its own."""

    class Losses(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            return [loss(x, y) for loss in (*REDUCED_IN_PLACE, functional.huber_loss)]

    seen = observe_fake(Losses(), (torch.rand(8, 16), torch.rand(8, 16)), device="cuda")
    for loss in REDUCED_IN_PLACE:
        assert made(seen, f"aten.{loss.__name__}") == [[((), "float32", 8 * 16 * 4, 0)]]
    assert made(seen, "aten.huber_loss") == [[((), "float32", 4, 0)]]
    assert observed_peak(seen)[0] == 4 * 8 * 16 * 4 + 4


def test_what_is_found_once_has_room_for_all_numbers() -> None:
    """By hand, of CUB's results for six numbers; of truths there are two at most."""

    def find() -> Any:
        x = torch.tensor([1.0, 2, 2, 3, 1, 1]).cuda()
        return torch.unique_consecutive(x), torch.unique(x, return_counts=True), torch.unique(x.cuda() > 5)

    seen = observe_fake(find, device="cuda")
    (runs,) = made(seen, "aten.unique_consecutive")
    assert [(shape, nbytes) for shape, _, nbytes, _ in runs] == [((4,), 24), ((0,), 0), ((0,), 0)]
    numbers, truths = made(seen, "aten._unique2")
    assert [(shape, nbytes) for shape, _, nbytes, _ in numbers] == [((3,), 24), ((0,), 0), ((3,), 48)]
    assert [nbytes for _, _, nbytes, _ in truths] == [2, 0, 16]


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
        while torch.rand(4, device="cuda").sum() > 1:
            pass

    with pytest.raises(InputError, match=r"test_fake_cuda\.py.*which is not known"):
        observe_fake(asks, device="cuda")

    def leaves() -> None:
        import os

        os._exit(7)

    with pytest.raises(MemplanError, match="ended with code 7"):
        observe_fake(leaves, device="cuda")


def test_values_are_known_on_a_default_device() -> None:
    """A part of an unknown place takes no memory, and what is worked out is worked out on the host."""

    def run() -> None:
        with torch.device("cuda"):
            table = torch.rand(4, 8)
            part = table[table.sum(1).argmax()]
            sizes = torch.zeros(2, dtype=torch.long)
            sizes[0], sizes[1] = 30, torch.rand(9).argmax()
            torch.zeros(int(sizes[0]), part.numel())

    assert observed_peak(observe_fake(run, device="cuda"))[0] == 4 * 4 * 8 + 2 * 8 + 4 * 30 * 8
