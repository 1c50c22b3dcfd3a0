"""Several cards in one process, none of which is there: bytes worked out by hand, a card at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import nn
from torch.nn import functional

from memplan_engine import (
    InputError,
    find_peak,
    load,
    load_observation,
    observation_graph,
    observe_fake,
    observed_peak,
    to_problem,
    write_observation,
)
from memplan_engine.allocator.answers import three_answers
from memplan_engine.files import ImportOptions
from memplan_engine.graph import Graph
from memplan_engine.recordings.allocator_recording import Selection
from memplan_engine.recordings.observation import Observation
from memplan_engine.recordings.observed_flow import flow_peak, fullest_device, host_peak, state_bytes
from memplan_engine.reporters.observation_tables import observation_summary, observation_tables
from memplan_engine.units import format_bytes
from tests.support.fake_cards import flow_of, needs_guard

ROWS, INTO, HIDDEN, CLASSES = 32, 64, 256, 1000
FIRST, SECOND = 4 * (INTO * HIDDEN + HIDDEN), 4 * (HIDDEN * CLASSES + CLASSES)
"""Bytes of the weights on either card."""
PEAKS = {0: 2 * FIRST + 4 * ROWS * INTO, 1: 2 * SECOND + 8 * ROWS + 4}
"""While AdamW takes roots: gradients and roots; on the first card the batch, on the second labels and the sum
of the loss's weights."""


@pytest.fixture(scope="module", autouse=True)
def _guard() -> None:
    needs_guard()


class Split(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(INTO, HIDDEN), nn.ReLU()).to("cuda:0")
        self.second = nn.Linear(HIDDEN, CLASSES).to("cuda:1")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.second(self.first(x).to("cuda:1"))
        return result


def train() -> None:
    model = Split()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        x, y = torch.rand(ROWS, INTO, device="cuda:0"), torch.randint(CLASSES, (ROWS,), device="cuda:1")
        loss = functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        loss = loss.detach_()
        optimizer.step()
        del loss


@pytest.fixture(scope="module")
def seen(_guard: None) -> Observation:
    return observe_fake(train, device="cuda", cards=2, name="split")


def test_figures_are_of_each_card(seen: Observation, tmp_path: Path) -> None:
    flow = flow_of(seen)
    assert seen.devices == (0, 1)
    assert fullest_device(flow) == 1
    for card, weights in ((0, FIRST), (1, SECOND)):
        assert flow_peak(flow, card)[0] == PEAKS[card]
        assert state_bytes(flow, card) == 3 * weights
        graph = observation_graph(seen, card)
        assert graph.name == f"split on cuda:{card}"
        assert find_peak(to_problem(graph, alignment=1)).nbytes == PEAKS[card]
    # How many steps there were Adam counts on the host.
    assert int(flow.storages.nbytes[flow.storages.device == -1].sum()) >= 4 * 4
    assert flow_peak(flow) == flow_peak(flow, 1)
    assert observed_peak(seen)[0] == PEAKS[1]
    assert observed_peak(seen, device=0)[0] == PEAKS[0]
    assert observation_graph(seen).name == "split on cuda:1"
    write_observation(seen, tmp_path / "run.json")
    again = load_observation(tmp_path / "run.json")
    assert flow_peak(flow_of(again), 0)[0] == PEAKS[0]
    loaded = load(tmp_path / "run.json", ImportOptions(selection=Selection(0)))
    assert isinstance(loaded, Graph)
    assert loaded == observation_graph(seen, 0)
    assert load(tmp_path / "run.json") == observation_graph(seen, 1)
    with pytest.raises(InputError, match="device: found 2, expected one of 0, 1"):
        observation_graph(seen, 2)


def test_the_summary_has_a_row_a_card(seen: Observation) -> None:
    said = observation_summary(seen)
    assert (said["device"], said["peak_bytes"], said["state_bytes"]) == (1, PEAKS[1], 3 * SECOND)
    assert [(each["device"], each["peak_bytes"], each["state_bytes"]) for each in said["devices"]] == [
        (0, PEAKS[0], 3 * FIRST),
        (1, PEAKS[1], 3 * SECOND),
    ]
    assert {each["peak_stage"] for each in said["devices"]} == {"optimizer"}


def test_the_allocator_is_simulated_a_card_at_a_time(seen: Observation) -> None:
    for card, weights in ((0, FIRST), (1, SECOND)):
        answers = three_answers(seen, index=card)
        assert answers.live_bytes == PEAKS[card] + 3 * weights
        assert answers.name == f"split on cuda:{card}"
    assert three_answers(seen).live_bytes == PEAKS[1] + 3 * SECOND


def test_each_card_has_streams_and_a_current_one_of_its_own() -> None:
    def run() -> None:
        assert torch.cuda.device_count() == 2
        with torch.cuda.device(1):
            assert torch.cuda.current_device() == 1
            assert torch.rand(2, device="cuda").device == torch.device("cuda", 1)
        assert torch.cuda.current_device() == 0
        assert torch.cuda.can_device_access_peer(0, 1)
        side = torch.cuda.Stream(device=1)
        x, y = (torch.rand(4, device=f"cuda:{card}") for card in (0, 1))
        with torch.cuda.stream(side):
            # Entering it makes its card the current one.
            assert torch.cuda.current_device() == 1
            x.tanh()
            y.sigmoid()
        assert torch.cuda.current_device() == 0
        assert torch.cuda.current_stream(1).stream_id == 0

    observed = observe_fake(run, device="cuda", cards=2)
    flow = flow_of(observed)
    rows = zip(observed.ops.kinds, flow.device.tolist(), flow.stream.tolist(), strict=True)
    found = {kind: (device, stream) for kind, device, stream in rows}
    assert found["aten.tanh"] == (0, 0)
    assert found["aten.sigmoid"] == (1, 1)


def test_cards_that_are_not_there_are_refused() -> None:
    with pytest.raises(InputError, match=r"cuda:1 at .*test_fake_cards\.py.*, and 1 card, .*--cards"):
        observe_fake(lambda: torch.rand(2, device="cuda:1"), device="cuda")

    def asks() -> None:
        torch.cuda.set_device(1)

    with pytest.raises(InputError, match=r"invalid device ordinal, cuda:1 of 1 card \(--cards\)"):
        observe_fake(asks, device="cuda")

    def parallel() -> None:
        nn.DataParallel(nn.Linear(2, 2).cuda())(torch.rand(4, 2, device="cuda"))

    with pytest.raises(InputError, match=r"DataParallel on 2 cards at .*test_fake_cards\.py"):
        observe_fake(parallel, device="cuda", cards=2)
    observe_fake(parallel, device="cuda")
    for cards, message in ((0, "cards: found 0, expected 1 to 64"), (65, "found 65")):
        with pytest.raises(InputError, match=message):
            observe_fake(train, device="cuda", cards=cards)
    with pytest.raises(InputError, match="found 2 for the device 'cpu', expected the device cuda"):
        observe_fake(train, cards=2)


@pytest.mark.usefixtures("forked_scripts")
def test_a_script_on_two_cards_from_the_command_line(memplan: Any, tmp_path: Path) -> None:
    script = tmp_path / "split.py"
    script.write_text(
        "import torch\nfrom torch import nn\n"
        "first, second = nn.Linear(64, 256).to('cuda:0'), nn.Linear(256, 1000).to('cuda:1')\n"
        "optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()])\n"
        "for _ in range(3):\n"
        "    optimizer.zero_grad()\n"
        "    second(first(torch.rand(8, 64, device='cuda')).to('cuda:1')).sum().backward()\n"
        "    optimizer.step()\n"
    )
    file = tmp_path / "run.json"
    options = ("--device", "cuda", "--cards", "2")
    said = json.loads(memplan("observe", "--fake", str(script), *options, "-o", str(file), "--json")[1])
    by_card = {each["device"]: each for each in said["devices"]}
    assert {card: each["state_bytes"] for card, each in by_card.items()} == {0: FIRST, 1: SECOND}
    for card in (0, 1):
        asked = ("--card", str(card), "--alignment", "1", "--json")
        peak = json.loads(memplan("peak", str(file), *asked)[1])
        assert peak["peak_bytes"] == by_card[card]["peak_bytes"]


def test_the_table_names_each_card(seen: Observation, capsys: pytest.CaptureFixture[str]) -> None:
    Console(width=140).print(*observation_tables(seen))
    table = capsys.readouterr().out
    assert "peak on cuda:1" in table
    assert "peak on cuda:0" in table


@pytest.mark.parametrize("pinned", [False, True])
def test_what_is_offloaded_to_the_host_is_said(pinned: bool, tmp_path: Path) -> None:
    """Saved are the input, 64 × 32, the GELU's input and the square's, 64 × 48, and no weight, as the input
    requires no gradient: all four bytes an element, on the host until the backward pass."""
    saved = 4 * (64 * 32 + 2 * 64 * 48)

    def offload() -> None:
        layers = nn.Sequential(nn.Linear(32, 48, device="cuda"), nn.GELU())
        x = torch.rand(64, 32, device="cuda")
        with torch.autograd.graph.save_on_cpu(pin_memory=pinned):
            loss = layers(x).square().mean()
        loss.backward()

    seen = observe_fake(offload, device="cuda")
    assert host_peak(flow_of(seen))[0] == saved
    host = observation_summary(seen)["host"]
    assert (host["peak_bytes"], host["peak_stage"]) == (saved, "forward")
    graph = observation_graph(seen)
    assert graph.notes == (f"on the host up to {format_bytes(saved)} more",)
    write_observation(seen, tmp_path / "offloaded.json")
    assert load(tmp_path / "offloaded.json") == graph


def test_moments_of_an_optimizer_on_the_host_are_said() -> None:
    """Weights on the device, their copies and Adam's two moments on the host, with one gradient a time."""

    def train_on_host() -> None:
        weight = nn.Parameter(torch.ones(64, 64, device="cuda"))
        copy = nn.Parameter(torch.ones(64, 64))
        optimizer = torch.optim.Adam([copy], foreach=False)
        for _ in range(2):
            weight.sum().backward()
            assert weight.grad is not None
            copy.grad = weight.grad.cpu()
            optimizer.step()
            optimizer.zero_grad()
            weight.grad = None
            with torch.no_grad():
                weight.copy_(copy)

    seen = observe_fake(train_on_host, device="cuda")
    nbytes, op = host_peak(flow_of(seen))
    size = 64 * 64 * 4
    # Weight, moments, gradient, the denominator's root and that over its correction; the count of steps.
    assert nbytes == 6 * size + 4
    assert flow_of(seen).stages[op] == "optimizer"


def test_a_run_on_the_host_has_nothing_beside(tmp_path: Path) -> None:
    seen = observe_fake(nn.Linear(4, 4), (torch.rand(2, 4),))
    assert host_peak(flow_of(seen)) == (0, -1)
    assert observation_summary(seen)["host"] is None
    assert observation_graph(seen).notes == ()
