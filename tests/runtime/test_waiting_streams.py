"""Blocks that other streams use (`record_stream`): when the allocator may have them again, by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from memplan_engine import InputError, load_observation, observe_fake, write_observation
from memplan_engine.allocator.answers import three_answers
from memplan_engine.allocator.simulation import simulate_allocator
from memplan_engine.recordings.observation import observation_recording
from memplan_engine.recordings.stream_clock import News, StreamClock
from tests.support.fake_cards import flow_of, needs_guard

MIB = 1 << 20
ROUNDS, BLOCK = 4, 20 * MIB
"""A block of more than 10 MiB is a segment of its own, of a multiple of 2 MiB."""
SMALL = 2 * MIB
"""The segment of the sums on the other stream."""


@pytest.fixture(scope="module", autouse=True)
def _guard() -> None:
    needs_guard()


def rounds(after: Callable[[Any, Any], Any], own: bool = False) -> Callable[[], None]:
    """Rounds in which a block is made on the default stream, used on another one, and let go of; `after` each
    of them."""

    def run() -> None:
        side, main = torch.cuda.Stream(), torch.cuda.current_stream()
        for _ in range(ROUNDS):
            x = torch.empty(BLOCK, dtype=torch.uint8, device="cuda")
            side.wait_stream(main)
            with torch.cuda.stream(side):
                y = x.sum()
            x.record_stream(main if own else side)
            del x
            after(side, main)
            del y

    return run


def by_event(side: Any, main: Any) -> None:
    side.record_event().synchronize()


def over_the_other(side: Any, main: Any) -> None:
    main.wait_event(side.record_event())
    main.synchronize()


def too_early(side: Any, main: Any) -> None:
    """The event comes before what waits for it."""
    event = torch.cuda.Event()
    main.wait_event(event)
    event.record(side)
    main.synchronize()


def copied(side: Any, main: Any) -> None:
    main.wait_stream(side)
    torch.ones(2, device="cuda").to("cpu")


def sent(side: Any, main: Any) -> None:
    main.wait_stream(side)
    torch.ones(2, device="cuda").to("cpu", non_blocking=True)


def asked(side: Any, main: Any) -> None:
    main.wait_stream(side)
    torch.rand(2, device="cuda").sum().item()


KNOWN = {
    "stream": lambda side, main: side.synchronize(),
    "device": lambda side, main: torch.cuda.synchronize(),
    "event": by_event,
    "through another stream": over_the_other,
    "a copy": copied,
    "a value": asked,
}
UNKNOWN = {
    "nothing": lambda side, main: None,
    "another stream": lambda side, main: main.synchronize(),
    "an event that was not recorded": too_early,
    "a copy that nobody waits for": sent,
}


@pytest.mark.parametrize("how", KNOWN)
def test_a_block_comes_back_when_the_host_has_waited(how: str) -> None:
    seen = observe_fake(rounds(KNOWN[how]), device="cuda")
    answers = three_answers(seen)
    assert answers.reserved[1] < 2 * BLOCK
    assert answers.live_bytes < 2 * BLOCK
    assert all(op >= 0 for _, op in flow_of(seen).waits)


@pytest.mark.parametrize("how", UNKNOWN)
def test_else_it_may_be_gone_to_the_end_or_come_back_at_once(how: str) -> None:
    seen = observe_fake(rounds(UNKNOWN[how]), device="cuda")
    flow = flow_of(seen)
    assert [op for _, op in flow.waits] == [-1] * ROUNDS
    assert [int(flow.storages.nbytes[storage]) for storage, _ in flow.waits] == [BLOCK] * ROUNDS
    answers = three_answers(seen)
    least, most = answers.reserved
    assert most - least == (ROUNDS - 1) * BLOCK
    assert any("record_stream" in note for note in answers.notes)
    if how == "nothing":
        assert least == BLOCK + SMALL
    # Where the device has no more, torch waits for all streams.
    late = observation_recording(seen, late=True)
    tight = simulate_allocator(late, capacity=BLOCK + 2 * SMALL)
    assert tight.fits
    assert tight.retries == ROUNDS - 1


def test_its_own_stream_delays_nothing() -> None:
    assert flow_of(observe_fake(rounds(lambda side, main: None, own=True), device="cuda")).waits == ()


def test_files_keep_what_waits_and_refuse_what_cannot_be(tmp_path: Path) -> None:
    seen = observe_fake(rounds(lambda side, main: None), device="cuda")
    path = tmp_path / "run.json"
    write_observation(seen, path)
    again = load_observation(path)
    assert flow_of(again).waits == flow_of(seen).waits
    assert three_answers(again).reserved == three_answers(seen).reserved
    said = json.loads(path.read_text())
    first = said["flow"]["waiting"][0]
    gone = said["flow"]["storages"]["released"][first]
    for key, value, message in (
        ("waited", [-1], "flow.waited"),
        ("waited", [gone, -1, -1, -1], r"flow\.waited\[0\].*an op after"),
        ("waiting", [first] * ROUNDS, r"flow\.waiting.*twice"),
        ("waiting", [10**6, 1, 2, 3], "flow.waiting"),
    ):
        bad = {**said, "flow": {**said["flow"], key: value}}
        path.write_text(json.dumps(bad))
        with pytest.raises(InputError, match=message):
            load_observation(path)


def test_autograd_says_of_gradients_which_streams_use_them() -> None:
    """What a backward pass on another stream makes, the stream of the parameter uses: autograd marks it."""

    def train() -> None:
        side = torch.cuda.Stream()
        weight = torch.rand(1024, 1024, device="cuda", requires_grad=True)
        doubled = weight * 2
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            loss = doubled.exp().sum()
        torch.cuda.current_stream().wait_stream(side)
        loss.backward()

    flow = flow_of(observe_fake(train, device="cuda"))
    assert flow.waits
    # The gradient that it begins with goes the other way.
    assert {int(flow.stream[flow.storages.maker[storage]]) for storage, _ in flow.waits} == {0, 1}


def test_the_clock_by_hand() -> None:
    a, b, c = (0, 0), (0, 1), (1, 2)
    clock = StreamClock()
    clock.runs(0, a)
    clock.runs(1, b)
    clock.frees(10, 1, [b])
    assert clock.waiting() == (10,)
    # b's work up to op 1 is behind the event; c waits for it, and the host for c.
    clock.hears(2, [(News.RECORD, 7, *b), (News.WAIT, 7, *c)])
    clock.runs(3, b)
    clock.frees(11, 3, [b])
    clock.hears(4, [(News.STREAM, 0, *a)])
    assert clock.waiting() == (10, 11)
    clock.hears(5, [(News.DEVICE, 0, *c)])
    # Of card 1 alone nothing was given to c.
    assert clock.waiting() == (10, 11)
    clock.hears(6, [(News.STREAM, 0, *c)])
    assert (clock.waiting(), clock.done) == ((11,), {10: 6})
    clock.synchronizes(8, b)
    assert clock.done == {10: 6, 11: 8}
    # All that b was given is over.
    clock.frees(12, 9, [b])
    assert clock.done[12] == 9
