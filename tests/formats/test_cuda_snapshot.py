"""Memory snapshots: events become buffers, addresses a placement, and both are what really happened."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memplan_examples.make_snapshot import BASE, GAP, SEGMENT, Allocator, frame, stack, write_snapshot

from memplan_engine import (
    ImportOptions,
    InputError,
    Plan,
    Problem,
    find_peak,
    find_provenance,
    load,
    make_plan,
    validate_plan,
)
from memplan_engine.formats.allocator_files.cuda_snapshot import load_snapshot
from memplan_engine.recordings.allocator_recording import (
    Action,
    Selection,
    choose_recording,
    reserved_over_time,
)
from memplan_engine.recordings.recorded_problem import buffers, recorded_plan, recording_problem

MIB = 1 << 20


@pytest.fixture
def written(tmp_path: Path) -> Any:
    def write(value: Any, protocol: int = 4) -> Path:
        return write_snapshot(tmp_path / "some.pickle", value, protocol)

    return write


def small() -> Allocator:
    """Two segments; `b` waits in the first, and what came before is a."""
    #  event    1        2     3     4      5      6      7        8
    #        segment  alloc alloc  free   free  alloc  segment  alloc
    #                   a     b    a req  a com   c              d
    allocator = Allocator()
    a = allocator.alloc(1000, stack(10))
    allocator.alloc(MIB, stack(20, "bmm"))
    allocator.free(a)
    allocator.alloc(600, stack(10))
    allocator.alloc(SEGMENT, stack(30))
    return allocator


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_events_become_buffers(written: Any, protocol: int) -> None:
    problem = load(written(small().snapshot(), protocol))
    assert isinstance(problem, Problem)
    assert problem.names == (
        "train.py:10 forward #1", "train.py:20 forward #1", "train.py:10 forward #2", "train.py:30 forward #1"
    )  # fmt: skip
    assert problem.start.tolist() == [2, 3, 6, 8]
    assert problem.end.tolist() == [5, 9, 9, 9]
    assert problem.size.tolist() == [1000, MIB, 600, SEGMENT]
    assert problem.alignment.tolist() == [512] * 4
    assert problem.steps == 9


def test_who_asked_is_the_provenance(written: Any) -> None:
    problem = load(written(small().snapshot()))
    assert isinstance(problem, Problem)
    known = find_provenance(problem)
    assert [each.kind for each in known] == ["addmm", "bmm", "addmm", "addmm"]
    assert {each.module for each in known} == {"train.forward"}
    assert [str(each.source) for each in known] == [f"/home/me/train.py:{line}" for line in (10, 20, 10, 30)]
    peak = find_peak(problem)
    assert (peak.step, peak.nbytes) == (8, SEGMENT + MIB + 600)
    assert str(peak.contributors[1].provenance.source) == "/home/me/train.py:20"
    # It stays with the buffers through what makes problems of problems.
    from memplan_engine.planner import as_problem
    from memplan_engine.problem import select

    assert find_provenance(as_problem(problem, alignment=1024)) == known
    assert find_provenance(select(problem, np.array([1, 0]))) == (known[1], known[0])


def test_the_recorded_placement_has_no_room_for_addresses_that_were_never_held(written: Any) -> None:
    plan = load(written(small().snapshot()), ImportOptions(offsets_as_plan=True))
    assert isinstance(plan, Plan)
    assert plan.strategy == "recorded"
    assert validate_plan(plan).valid
    # a, b one behind the other, c where a was; d has a segment of its own, behind or below.
    a, b, c, d = plan.offsets.tolist()
    assert (b - a, c - a) == (1024, 0)
    assert {a // SEGMENT, d // SEGMENT} == {0, 1}
    assert plan.arena_bytes <= 2 * SEGMENT < GAP
    assert plan.bound.nbytes == SEGMENT + MIB + 600


def test_what_is_older_than_the_recording_is_worked_back(written: Any) -> None:
    """The last five events: a's free, c, and d with its segment; where b came from only its block tells."""
    problem = load(written(small().snapshot(most_events=5)))
    assert isinstance(problem, Problem)
    assert problem.names == (
        "before the recording, 1000 B #1", "train.py:20 forward #1",
        "train.py:10 forward #1", "train.py:30 forward #1",
    )  # fmt: skip
    assert problem.start.tolist() == [0, 0, 3, 5]
    assert problem.end.tolist() == [2, 6, 6, 6]
    assert problem.size.tolist() == [1000, MIB, 600, SEGMENT]


def test_reserved_bytes_are_worked_back_from_the_end(written: Any) -> None:
    allocator = small()
    allocator.alloc(3 * SEGMENT, stack(40))
    (recording,) = load_snapshot(written(allocator.snapshot(most_events=4))).recordings
    assert reserved_over_time(recording).tolist() == [n * SEGMENT for n in (1, 2, 2, 5, 5)]


@pytest.mark.parametrize(
    ("requested", "completed", "ends"), [(True, False, 4), (False, True, 4), (True, True, 5)]
)
def test_files_with_only_one_kind_of_free(written: Any, requested: bool, completed: bool, ends: int) -> None:
    allocator = Allocator(requested=requested, completed=completed)
    address = allocator.alloc(1000, stack(10))
    allocator.alloc(1000, stack(20))
    allocator.free(address)
    problem = load(written(allocator.snapshot()))
    assert isinstance(problem, Problem)
    assert problem.end.tolist() == [ends, problem.steps]


def test_memory_that_waits_for_another_stream_is_not_free_yet(written: Any) -> None:
    def event(action: str, address: int) -> dict[str, Any]:
        return {"action": action, "addr": address, "size": 512, "stream": 0, "frames": []}

    one, other = BASE, BASE + 512
    trace = [event("alloc", one), event("free_requested", one), event("alloc", other)]
    trace += [event("free_requested", other), event("free_completed", other)]
    block = {"address": one, "size": 512, "requested_size": 512, "state": "active_pending_free", "frames": []}
    segment = {"device": 0, "address": BASE, "total_size": SEGMENT, "stream": 0, "blocks": [block]}
    problem = load(written({"segments": [segment], "device_traces": [trace]}))
    assert isinstance(problem, Problem)
    assert problem.names == ("buffer, 512 B #1", "buffer, 512 B #2")
    assert list(zip(problem.start.tolist(), problem.end.tolist(), strict=True)) == [(1, 6), (3, 5)]
    # Where there are requests alone, they are all there is: the block that waits has been freed.
    problem = load(written({"segments": [segment], "device_traces": [trace[:4]]}))
    assert isinstance(problem, Problem)
    assert list(zip(problem.start.tolist(), problem.end.tolist(), strict=True)) == [(1, 2), (3, 4)]


def model(seed: int, expandable: bool, streams: int) -> tuple[Allocator, list[tuple[int, int, int, int]]]:
    """A random run, and what was really in use: (event before which it begins, its end, size, address)."""
    chance = random.Random(seed)
    allocator = Allocator(expandable=expandable, limit=40 * SEGMENT)
    live: dict[int, tuple[int, int]] = {}
    truth = []
    for _ in range(chance.randrange(5, 90)):
        if live and chance.random() < 0.45:
            address = chance.choice(list(live))
            allocator.free(address)
            start, size = live.pop(address)
            truth.append((start, len(allocator.events), size, address))
        elif chance.random() < 0.06:
            allocator.empty_cache()
        else:
            size = chance.choice((1, 500, 512, 70_000, MIB, 3 * MIB, 9 * MIB))
            line, stream = chance.randrange(1, 9), chance.randrange(streams)
            address = allocator.alloc(size, stack(line), stream)
            if address >= 0:
                live[address] = (len(allocator.events), size)
    truth += [(start, len(allocator.events) + 1, size, address) for address, (start, size) in live.items()]
    return allocator, truth


@given(
    seed=st.integers(0, 10**6),
    share=st.floats(0, 1),
    expandable=st.booleans(),
    protocol=st.sampled_from([2, 4]),
)
def test_every_window_of_a_run_gives_what_was_really_live(
    tmp_path_factory: pytest.TempPathFactory, seed: int, share: float, expandable: bool, protocol: int
) -> None:
    allocator, truth = model(seed, expandable, streams=2)
    kept = int(share * len(allocator.events))
    path = tmp_path_factory.mktemp("run") / "run.pickle"
    write_snapshot(path, allocator.snapshot(most_events=kept), protocol)
    before = len(allocator.events) - kept
    expected = sorted(
        (max(0, start - before), end - before, size, address)
        for start, end, size, address in truth
        if end > before
    )
    if not expected:
        return
    snapshot = load_snapshot(path)
    recording = choose_recording(snapshot, Selection())
    spans = buffers(recording)
    found = zip(spans.start, spans.end, spans.size, spans.address, strict=True)
    assert sorted(tuple(map(int, row)) for row in found) == expected
    assert (spans.double_frees, spans.lost_frees) == (0, 0)
    plan = recorded_plan(recording)
    report = validate_plan(plan)
    assert report.valid, report.violations[0].message
    reserved = reserved_over_time(recording)
    assert reserved[-1] == allocator.reserved
    assert plan.arena_bytes >= plan.bound.nbytes
    best = make_plan(plan.problem, "greedy_by_size")
    assert validate_plan(best).valid
    if not expandable:
        # Blocks end where their requests do: but for that, every byte placed was reserved.
        assert plan.arena_bytes <= reserved.max() * 1.5


def test_streams_pools_and_devices_are_chosen(written: Any) -> None:
    one = Allocator()
    one.alloc(1000, stack(1))
    one.alloc(2000, stack(2), stream=7)
    one.alloc(3000, stack(3), pool=(0, 1))
    two = Allocator(device=2)
    two.alloc(10, stack(4))
    value = one.snapshot()
    other = two.snapshot()
    value["segments"] += other["segments"]
    value["device_traces"] = [value["device_traces"][0], [], other["device_traces"][2], []]
    snapshot = load_snapshot(written(value))
    assert [recording.device for recording in snapshot.recordings] == [0, 2]

    def sizes(**selection: Any) -> list[int]:
        return recording_problem(choose_recording(snapshot, Selection(**selection))).size.tolist()

    assert sizes() == [1000, 2000, 3000]
    assert sizes(device=2) == [10]
    assert sizes(stream=7) == [2000]
    assert sizes(stream=0) == [1000, 3000]
    assert sizes(pool=(0, 1)) == [3000]
    assert sizes(stream=0, pool=(0, 0)) == [1000]
    part = choose_recording(snapshot, Selection(pool=(0, 1)))
    assert part.steps == choose_recording(snapshot, Selection()).steps == 7
    assert reserved_over_time(part).tolist() == [0, 0, 0, 0, 0, SEGMENT, SEGMENT]
    for wrong, message in (
        ({"device": 1}, "device: found 1, expected one of 0, 2"),
        ({"stream": 3}, "found stream 3, expected what has events: streams 0, 7; pools 0:0, 0:1"),
        ({"stream": 7, "pool": (0, 1)}, "found stream 7 and pool 0:1, expected what has events"),
    ):
        with pytest.raises(InputError, match=message):
            sizes(**wrong)


def test_pools_that_the_events_name_themselves(written: Any) -> None:
    allocator = Allocator()
    allocator.free(allocator.alloc(100))
    value = allocator.snapshot()
    for event in value["device_traces"][0]:
        event["pool_id"] = (3, 4)
    value["segments"] = []
    snapshot = load_snapshot(written(value))
    assert len(recording_problem(choose_recording(snapshot, Selection(pool=(3, 4))))) == 1


def test_older_layouts_histories_no_addresses_no_times_and_bare_segments(written: Any) -> None:
    frames = [frame(12, "allocate")]
    blocks = [
        {
            "size": 1024,
            "state": "active_allocated",
            "history": [{"addr": BASE, "real_size": 900, "frames": frames}],
        },
        {"size": 2048, "state": "inactive"},
        {"size": 512, "requested_size": 512, "state": "active_allocated"},
    ]
    segment = {"device": 0, "address": BASE, "total_size": SEGMENT, "stream": 0, "segment_type": "small"}
    event = {"action": "free_completed", "addr": BASE + 8192, "size": 64, "stream": 0}
    value = {"segments": [segment | {"blocks": blocks}], "device_traces": [[event]]}
    (recording,) = load_snapshot(written(value, 2)).recordings
    spans = buffers(recording)
    assert spans.address.tolist() == [BASE, BASE + 3072, BASE + 8192]
    assert spans.size.tolist() == [900, 512, 64]
    assert spans.end.tolist() == [2, 2, 1]
    assert recording.stacks.caller(int(spans.stack[0])).label == "train.py:12 allocate"
    (bare,) = load_snapshot(written(value["segments"], 2)).recordings
    assert buffers(bare).size.tolist() == [900, 512]
    assert bare.steps == 1


def test_failures_are_kept_with_what_was_asked_and_free(written: Any) -> None:
    allocator = Allocator(limit=2 * SEGMENT)
    allocator.alloc(SEGMENT)
    assert allocator.alloc(4 * SEGMENT, stack(77)) == -1
    (recording,) = load_snapshot(written(allocator.snapshot())).recordings
    (row,) = recording.rows(Action.OOM)
    event = recording.events[row]
    assert (event["size"], event["address"]) == (4 * SEGMENT, SEGMENT)
    assert recording.stacks.caller(int(event["stack"])).label == "train.py:77 forward"
    assert len(buffers(recording)) == 1


@pytest.mark.parametrize(
    ("found", "text"),
    [
        # As torch 2.3 and later write it.
        (
            {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64", "max_split_size": 64 * MIB},
            "max_split_size_mb:64",
        ),
        ({"PYTORCH_CUDA_ALLOC_CONF": 7}, ""),
        ({"PYTORCH_CUDA_ALLOC_CONF": "x" * 5000}, ""),
        ("something else", ""),
    ],
)
def test_the_settings_of_the_recording_are_kept(written: Any, found: Any, text: str) -> None:
    (recording,) = load_snapshot(written({**small().snapshot(), "allocator_settings": found})).recordings
    assert recording.settings == text


def test_frees_that_were_lost_are_counted_and_what_follows_still_fits(written: Any) -> None:
    allocator = Allocator()
    address = allocator.alloc(1000)
    allocator.free(address)
    allocator.alloc(2000)
    value = allocator.snapshot()
    trace = value["device_traces"][0]
    lost = copy.deepcopy(value)
    lost["device_traces"][0] = [event for event in trace if not event["action"].startswith("free")]
    spans = buffers(load_snapshot(written(lost)).recordings[0])
    assert spans.lost_frees == 1
    assert (spans.start.tolist(), spans.end.tolist()) == ([2, 3], [3, 4])
    twice = copy.deepcopy(value)
    twice["device_traces"][0] = [*trace[:4], dict(trace[3]), *trace[4:]]
    spans = buffers(load_snapshot(written(twice)).recordings[0])
    assert spans.double_frees == 1
    assert spans.size.tolist() == [1000, 2000]


def test_without_segments_the_placement_is_guessed_from_the_addresses(written: Any) -> None:
    value = small().snapshot()
    value["segments"] = []
    value["device_traces"] = [
        [event for event in value["device_traces"][0] if "segment" not in event["action"]]
    ]
    plan = load(written(value), ImportOptions(offsets_as_plan=True))
    assert isinstance(plan, Plan)
    assert validate_plan(plan).valid
    assert plan.arena_bytes <= 2 * SEGMENT


def test_a_large_file_is_kept_small(tmp_path: Path) -> None:
    """9,000 events of 40 frames: of the dicts and the lists nothing stays."""
    import tracemalloc

    frames = [[frame(line, f"f{line}") for line in range(n, n + 40)] for n in range(20)]
    allocator = Allocator()
    for n in range(3_000):
        allocator.free(allocator.alloc(512, list(frames[n % 20])))
    path = write_snapshot(tmp_path / "large.pickle", allocator.snapshot())
    told: list[tuple[int, int]] = []
    tracemalloc.start()
    snapshot = load_snapshot(path, lambda done, total: told.append((done, total)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    (recording,) = snapshot.recordings
    assert len(recording.events) == 9_001
    assert len(recording.stacks.stacks) == 21
    assert peak < 5 << 20, "pickle.loads takes 13 MiB"
    assert told[-1] == (path.stat().st_size,) * 2
