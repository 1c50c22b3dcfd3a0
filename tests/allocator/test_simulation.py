"""The simulation, worked by hand on small recordings, and compared with snapshots that GPUs recorded."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from memplan_engine.allocator.settings import AllocatorSettings, parse_settings
from memplan_engine.allocator.simulation import AllocatorRun, simulate_allocator, torch_size
from memplan_engine.callers import Stacks
from memplan_engine.errors import InputError
from memplan_engine.files import load_recording
from memplan_engine.kernels.allocator.run import ALLOC
from memplan_engine.recordings.allocator_recording import (
    BLOCK,
    EVENT,
    SEGMENT,
    Action,
    Recording,
    reserved_over_time,
)

MIB = 1 << 20
SNAPSHOTS = "MEMPLAN_SNAPSHOTS"
"""Names a folder of snapshots recorded on GPUs: none is in this repository."""


def recording(*events: tuple[Action, int, int], stream: int = 0) -> Recording:
    """(what, name, MiB); the name stands for the address."""
    rows = np.zeros(len(events), dtype=EVENT)
    for row, (action, name, mib) in zip(rows, events, strict=True):
        row["action"], row["address"], row["size"], row["stream"] = action, name << 40, int(mib * MIB), stream
    rows["pool"] = rows["stack"] = -1
    return Recording("by hand", 0, rows, np.zeros(0, SEGMENT), np.zeros(0, BLOCK), Stacks())


A, F, R = Action.ALLOC, Action.FREE_COMPLETED, Action.FREE_REQUESTED
GROWING = recording(
    (A, 1, 24), (A, 2, 24), (F, 1, 24), (F, 2, 24), (A, 3, 25), (A, 4, 25), (F, 3, 25), (A, 5, 49)
)
"""24 MiB twice, then 25 MiB twice, then 49: what is cached is of no use any more."""


def test_segments_by_hand() -> None:
    run = simulate_allocator(GROWING)
    # 24 | 24 | . | . | 26 for 25, as segments are multiples of 2 MiB | 26 | . | 50 for 49
    assert (run.reserved // MIB).tolist() == [0, 24, 48, 48, 48, 74, 100, 100, 150]
    assert (run.requested // MIB).tolist() == [0, 24, 48, 24, 0, 25, 50, 25, 74]
    # Of 26 MiB for 25 the rest is not more than 1 MiB, and stays with the block.
    assert (run.active // MIB).tolist() == [0, 24, 48, 24, 0, 26, 52, 26, 76]
    assert (run.retries, run.failures, run.is_rules_only) == (0, (), False)


def test_expandable_segments_by_hand() -> None:
    run = simulate_allocator(GROWING, AllocatorSettings(expandable_segments=True))
    # Pages of 20 MiB: 40 for 24, 60 for 48, 60 for 50; 25 free at the front, 49 behind: 100.
    assert (run.reserved // MIB).tolist() == [0, 40, 60, 60, 60, 60, 60, 60, 100]
    assert run.is_rules_only


def test_what_is_cached_goes_back_before_a_request_fails() -> None:
    run = simulate_allocator(GROWING, capacity=100 * MIB)
    # At the last step the cached 24, 24 and 26 MiB go back, and 50 fit beside 26.
    assert run.retries == 1
    assert (run.reserved // MIB).tolist()[-1] == 76
    assert run.fits


def test_a_request_that_fails_ends_the_run_with_the_message_of_torch() -> None:
    run = simulate_allocator(GROWING, capacity=70 * MIB)
    assert not run.fits
    (failure,) = run.failures
    assert (failure.event, run.ended) == (7, 8)
    assert (run.reserved // MIB).tolist() == [0, 24, 48, 48, 48, 26, 52, 52, 26]
    assert failure.message(0) == (
        "CUDA out of memory. Tried to allocate 50.00 MiB. GPU 0 has a total capacity of 70.00 MiB of which "
        "44.00 MiB is free. Of the allocated memory 26.00 MiB is allocated by PyTorch, and 0 bytes is "
        "reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
        "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory "
        "Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
    )


def test_a_block_that_waits_for_a_stream_is_active_and_not_allocated() -> None:
    run = simulate_allocator(recording((A, 1, 30), (R, 1, 30), (A, 2, 30), (F, 1, 30)))
    assert (run.allocated // MIB).tolist() == [0, 30, 0, 30, 30]
    assert (run.active // MIB).tolist() == [0, 30, 30, 60, 30]
    assert run.peak_reserved == 60 * MIB


def test_garbage_is_collected_where_a_fraction_is_set() -> None:
    events = recording((A, 1, 30), (F, 1, 30), (A, 2, 40), (F, 2, 40), (A, 3, 50))
    kept = simulate_allocator(events, parse_settings("garbage_collection_threshold:0.5"), capacity=128 * MIB)
    assert kept.peak_reserved == 120 * MIB
    settings = parse_settings("garbage_collection_threshold:0.5,per_process_memory_fraction:0.9375")
    collected = simulate_allocator(events, settings, capacity=128 * MIB)
    # 70 MiB are above half of 120 MiB: the older of the two free segments goes before 50 MiB are asked for.
    assert (collected.reserved // MIB).tolist() == [0, 30, 30, 70, 70, 90]


def test_a_free_that_was_lost_ends_where_the_address_comes_again() -> None:
    run = simulate_allocator(recording((A, 1, 30), (A, 1, 30), (A, 1, 30)))
    assert run.peak_reserved == 30 * MIB


def test_nothing_recorded() -> None:
    run = simulate_allocator(recording())
    assert (run.reserved.tolist(), run.peak_requested, run.fits) == ([0], 0, True)


def test_a_request_beyond_all_devices_is_refused() -> None:
    with pytest.raises(InputError, match=r"less than 2\^52"):
        simulate_allocator(recording((A, 1, 1 << 33)))


def test_the_example_that_dies_of_fragmentation() -> None:
    path = Path(__file__).parents[2] / "example_graphs" / "cuda_snapshot.pickle"
    (found,) = load_recording(path).recordings
    run = simulate_allocator(found)
    assert run.peak_requested >= 1_450_180_608
    assert all(run.reserved >= run.active)
    assert all(run.active >= run.requested)


def test_sizes_as_torch_writes_them() -> None:
    assert [torch_size(n) for n in (0, 1023, 1024, 20 * MIB, 3 << 30)] == [
        *("0 bytes", "1023 bytes", "1.00 KiB", "20.00 MiB", "3.00 GiB")
    ]


def compared(run: AllocatorRun) -> tuple[int, int, int, int, int]:
    """Allocations, those at the recorded address; segments recorded, predicted, invented."""
    rows = run.rows
    at = np.flatnonzero((rows.op == ALLOC) & (rows.event >= 0))
    same = run.address[rows.ident[at]] == run.recording.events["address"][rows.event[at]]
    recorded, made = rows.made[at], run.made[at]
    return (
        *(len(at), int(same.sum()), int((recorded > 0).sum())),
        *(int(((recorded > 0) & (made == recorded)).sum()), int(((made > 0) & (recorded == 0)).sum())),
    )


@pytest.mark.skipif(
    not os.environ.get(SNAPSHOTS), reason=f"{SNAPSHOTS} names no folder of recorded snapshots"
)
def test_snapshots_that_gpus_recorded() -> None:
    total = np.zeros(5, dtype=np.int64)
    for path in sorted(Path(os.environ[SNAPSHOTS]).glob("*.pickle")):
        for found in load_recording(path).recordings:
            if len(found.rows(A)) and not found.segments["expandable"].any():
                run = simulate_allocator(found, as_recorded=True)
                total += compared(run)
                assert run.peak_reserved == int(reserved_over_time(found).max()), path.name
    allocations, same, segments, predicted, invented = total.tolist()
    assert allocations
    assert same >= 0.98 * allocations
    assert (predicted, invented) == (segments, 0)


@pytest.mark.skipif(
    not os.environ.get(SNAPSHOTS), reason=f"{SNAPSHOTS} names no folder of recorded snapshots"
)
def test_expandable_snapshots_that_gpus_recorded() -> None:
    """Ranges begin where the driver puts them: addresses are equal but for one shift a range."""
    for path in sorted(Path(os.environ[SNAPSHOTS]).glob("*.pickle")):
        for found in load_recording(path).recordings:
            if not found.segments["expandable"].any() or not len(found.rows(A)):
                continue
            reserved, failed = reserved_over_time(found), found.rows(Action.OOM)
            capacity = int(reserved[failed[0]] + found.events["address"][failed[0]]) if len(failed) else None
            run = simulate_allocator(found, AllocatorSettings(expandable_segments=True), capacity=capacity)
            assert [each.event for each in run.failures] == failed.tolist()
            assert run.peak_reserved == int(reserved.max()), path.name
            rows = run.rows
            at = np.flatnonzero((rows.op == ALLOC) & (rows.event >= 0))
            shift = found.events["address"][rows.event[at]] - run.address[rows.ident[at]]
            assert len(np.unique(shift)) <= 2 * len(rows.streams) * len(rows.pools)
            maps = found.events[found.rows(Action.SEGMENT_MAP, Action.SEGMENT_UNMAP)]
            signs = np.where(maps["action"] == Action.SEGMENT_MAP, 1, -1)
            assert (signs * maps["size"]).tolist() == run.log[:, 2].tolist()
