"""The simulated caching allocator: a million events timed, and recorded snapshots compared.

    python -m benchmarks.allocator [--events N]

The events allocate and free at random, up to 2,000 allocations at once, of sizes from 512 B to 100 MiB. CPU
seconds on one thread with the kernel compiled, the least of three. With MEMPLAN_SNAPSHOTS=FOLDER every
*.pickle there is simulated as it was recorded: addresses that are equal, segments predicted and invented, the
peak of reserved bytes.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np

from memplan_engine.allocator.settings import parse_settings
from memplan_engine.allocator.simulation import simulate_allocator
from memplan_engine.callers import Stacks
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

MOST_LIVE = 2_000
SIZES = (512, 4096, 70_000, 1 << 20, 3 << 20, 7 << 20, 33 << 20, 100 << 20)
REPEATS = 3


def drawn_recording(count: int, seed: int = 0) -> Recording:
    """`count` events, each at an address that no other has at that time."""
    random = np.random.default_rng(seed)
    events = np.zeros(count, dtype=EVENT)
    sizes = random.choice(SIZES, count) + random.integers(0, 2000, count)
    chance = random.random(count)
    live: list[tuple[int, int]] = []
    for row in range(count):
        if not live or (len(live) < MOST_LIVE and chance[row] < 0.5):
            live.append((row << 12, int(sizes[row])))
            events[row] = (*live[-1], 0, row, -1, -1, Action.ALLOC)
        else:
            chosen = int(chance[row] * len(live))
            live[chosen], live[-1] = live[-1], live[chosen]
            events[row] = (*live.pop(), 0, row, -1, -1, Action.FREE_COMPLETED)
    return Recording("drawn", 0, events, np.zeros(0, SEGMENT), np.zeros(0, BLOCK), Stacks())


def time_events(count: int) -> None:
    """Print the seconds of each choice of settings."""
    recording = drawn_recording(count)
    for text in ("", "max_split_size_mb:64,roundup_power2_divisions:8", "expandable_segments:True"):
        settings = parse_settings(text)
        seconds = []
        for _ in range(REPEATS):
            begun = time.process_time()
            run = simulate_allocator(recording, settings)
            seconds.append(time.process_time() - begun)
        print(
            f"{count:,} events  {settings.words:50}  {min(seconds):.2f} s  {run.peak_reserved:,} B reserved"
        )


def compare_snapshots(folder: Path) -> None:
    """Print, for each file, what is as it was recorded."""
    for path in sorted(folder.glob("*.pickle")):
        for recording in load_recording(path).recordings:
            if not len(recording.rows(Action.ALLOC)):
                continue
            # Where ranges of expandable segments begin is the driver's choice: a shift for each of two pools.
            ranges = 2 if recording.segments["expandable"].any() else 0
            settings = parse_settings("expandable_segments:True" if ranges else "")
            run = simulate_allocator(recording, settings, as_recorded=not ranges)
            rows = run.rows
            at = np.flatnonzero((rows.op == ALLOC) & (rows.event >= 0))
            shift = recording.events["address"][rows.event[at]] - run.address[rows.ident[at]]
            known, count = np.unique(shift, return_counts=True)
            same = np.isin(shift, known[np.argsort(-count)][:ranges] if ranges else [0])
            recorded, made = rows.made[at], run.made[at]
            fresh = simulate_allocator(recording, settings).peak_reserved
            print(
                f"{path.name}: {int(same.sum()):,} of {len(at):,} addresses, "
                f"{int(((made == recorded) & (made > 0)).sum()):,} of "
                f"{int((recorded > 0).sum()):,} segments, "
                f"{int(((made > 0) & (recorded == 0)).sum()):,} invented; reserved "
                f"{int(reserved_over_time(recording).max()):,} recorded, {run.peak_reserved:,} simulated, "
                f"{fresh:,} from the requests alone"
            )


def main() -> None:
    """Run both."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    count = parser.parse_args().events
    simulate_allocator(drawn_recording(2_000))
    time_events(count)
    if folder := os.environ.get("MEMPLAN_SNAPSHOTS"):
        compare_snapshots(Path(folder))


if __name__ == "__main__":
    main()
