"""Snapshots that are none, that are broken, or that stand for more than they are: an error in one line."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import pytest
from memplan_examples.make_snapshot import BASE, Allocator, frame, stack, write_snapshot

from memplan_engine import ImportOptions, InputError, Plan, load, validate_plan
from memplan_engine.formats.allocator_files import cuda_snapshot
from memplan_engine.formats.allocator_files.cuda_snapshot import load_snapshot


@pytest.fixture
def written(tmp_path: Path) -> Any:
    def write(value: Any, protocol: int = 4) -> Path:
        return write_snapshot(tmp_path / "some.pickle", value, protocol)

    return write


def small() -> Allocator:
    allocator = Allocator()
    address = allocator.alloc(1000, stack(10))
    allocator.alloc(1 << 20, stack(20, "bmm"))
    allocator.free(address)
    allocator.alloc(3 << 20, stack(30))
    return allocator


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"model": [1]}, "found a pickle of a dict with 'model', expected a memory snapshot of PyTorch"),
        (5, "found a pickle of 5"),
        ({"segments": 3}, "segments: found 3, expected a list"),
        ({"segments": [1]}, "segments: found 1, expected dicts only"),
        ({"segments": [{"address": -1}]}, "segment 0, address: found -1"),
        ({"segments": [], "device_traces": 1}, "device_traces: found something else"),
        ({"segments": [], "device_traces": [[5]]}, "device_traces: found 1 entries, 0 events"),
        ({"segments": [], "device_traces": []}, "found no device with segments or events"),
        (
            {"segments": [], "device_traces": [[{"action": "alloc", "addr": "x"}]]},
            "event 0: found action 'alloc'",
        ),
        (
            {"segments": [], "device_traces": [[{"action": "alloc", "addr": -4, "size": 4}]]},
            "event 0: found address",
        ),
        ({"segments": [], "device_traces": [[{"action": "alloc", "addr": 2**70}]]}, "event 0: found action"),
        ({"segments": [], "device_traces": [[{"action": "alloc", "frames": 3}]]}, "frames: found 3"),
        (
            {"segments": [], "device_traces": [[{"action": "alloc", "frames": [frame(1), 3]}]]},
            "other than a frame",
        ),
        ({"segments": [], "device_traces": [[{"action": "a", "pool_id": 1}]]}, "pool: found 1"),
        ({"segments": [], "x": [frame("a")]}, "frame: found 'forward'"),  # type: ignore[arg-type]
        ({"segments": [], "x": {"action": "alloc", "addr": 1}, "device_traces": []}, "0 entries, 1 events"),
        (
            {"segments": [{"address": 1, "total_size": 1, "blocks": [{"size": "x"}]}]},
            "segment 0, size: found 'x'",
        ),
    ],
)
def test_what_is_no_snapshot_is_said_in_one_line(written: Any, value: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load(written(value))
    assert message in str(caught.value)
    assert str(caught.value).startswith("some.pickle: ")


def test_a_small_file_that_stands_for_endless_blocks(written: Any) -> None:
    block = {"size": 512, "state": "active_allocated"}
    segment = {"device": 0, "address": BASE, "total_size": 1, "stream": 0, "blocks": [block] * 20_000}
    with pytest.raises(InputError, match="more entries than the file has bytes"):
        load(written({"segments": [segment] * 20_000}))


def test_more_events_and_calls_than_fit(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = Allocator()
    for line in range(5):
        allocator.alloc(512, stack(line))
    path = written(allocator.snapshot())
    monkeypatch.setattr(cuda_snapshot, "MOST_EVENTS", 5)
    with pytest.raises(InputError, match="more than 5 events"):
        load(path)
    monkeypatch.setattr(cuda_snapshot, "MOST_EVENTS", 6)
    monkeypatch.setattr(cuda_snapshot, "MOST_CALLS", 29)
    with pytest.raises(InputError, match="more than 29 calls"):
        load(path)
    monkeypatch.setattr(cuda_snapshot, "MOST_CALLS", 30)
    assert len(load_snapshot(path).recordings[0].events) == 6


def test_sizes_that_cannot_be_added_up(written: Any) -> None:
    events = [{"action": "alloc", "addr": 0, "size": 2**61, "stream": 0} for _ in range(3)]
    with pytest.raises(InputError, match="events: found sizes that sum to 6917529027641081856"):
        load(written({"segments": [], "device_traces": [events]}))
    segments = [{"address": n << 50, "total_size": 2**61} for n in range(5)]
    with pytest.raises(InputError, match="segments: found sizes that sum to"):
        load(written({"segments": segments, "device_traces": []}))


@pytest.mark.parametrize("protocol", [2, 5])
def test_broken_snapshots_are_errors_or_problems_and_nothing_else(tmp_path: Path, protocol: int) -> None:
    chance = random.Random(protocol)
    whole = pickle.dumps(small().snapshot(), protocol)
    path = tmp_path / "broken.pickle"
    opened = 0
    for _ in range(400):
        broken = bytearray(whole)
        for _ in range(chance.choice((1, 1, 2, 5))):
            broken[chance.randrange(2, len(broken))] = chance.randrange(256)
        path.write_bytes(broken)
        try:
            plan = load(path, ImportOptions(offsets_as_plan=True))
            assert isinstance(plan, Plan)
            validate_plan(plan)
            opened += 1
        except InputError:
            continue
    assert opened > 30, "some bytes may be anything: sizes, times, letters"
    for end in chance.sample(range(2, len(whole)), 80):
        path.write_bytes(whole[:end])
        with pytest.raises(InputError):
            load(path)
