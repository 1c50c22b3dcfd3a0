"""What a device leaves to the allocator: one that is named, or the one on which a recording ran out of
memory."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from memplan_engine.accelerators.presets import Accelerator, Overhead
from memplan_engine.allocator.settings import AllocatorSettings
from memplan_engine.allocator.simulation import wanted_bytes
from memplan_engine.recordings.allocator_recording import Action, Recording, reserved_over_time
from memplan_engine.units import format_bytes

RECORDED = "recorded device"


@dataclass(frozen=True, slots=True)
class Device:
    """A device's memory: `total_bytes`, of which `headroom` stay free, and what else a process holds
    there. `is_recorded`: what else was held is not part of it (`recorded_device`)."""

    name: str
    total_bytes: int
    source: str
    headroom: int = 0
    overheads: tuple[tuple[Overhead, int], ...] = ()
    is_recorded: bool = False

    @property
    def least_overhead(self) -> int:
        """The least that is held beside the allocator, bytes."""
        return sum(count * overhead.least_bytes for overhead, count in self.overheads)

    @property
    def most_overhead(self) -> int:
        """The most that is held beside the allocator, bytes."""
        return sum(count * overhead.most_bytes for overhead, count in self.overheads)

    @property
    def least_left(self) -> int:
        """What is left to the allocator when the most is held beside it; 0 at least."""
        return max(self.total_bytes - self.headroom - self.most_overhead, 0)

    @property
    def most_left(self) -> int:
        """What is left to the allocator when the least is held beside it; 0 at least."""
        return max(self.total_bytes - self.headroom - self.least_overhead, 0)


def named_device(
    gpu: Accelerator | None, capacity: int | None, headroom: int, beside: tuple[tuple[Overhead, int], ...]
) -> Device | None:
    """The device `gpu`, or one of `capacity` bytes; None where neither is given."""
    if capacity is not None:
        return Device(gpu.name if gpu else "capacity", capacity, "as given", headroom, beside)
    if gpu is not None:
        return Device(gpu.name, gpu.usable_bytes, gpu.usable_source, headroom, beside)
    return None


def recorded_device(recording: Recording, settings: AllocatorSettings, headroom: int = 0) -> Device | None:
    """What the allocator could have of its device when a request failed under `settings`: what it had
    reserved, and what was free then; the least of several. None where nothing failed, or a file does not say
    what was reserved.

    torch gives back what it can, and looks what is free, before it fails: the context, NCCL and other
    processes have theirs already. Where more was free than the request needed, it was out of reach (a
    `per_process_memory_fraction`, say), and not counted. Of such a fraction the device is as large that the
    fraction of it is what could be had.
    """
    rows, reserved = recording.rows(Action.OOM), reserved_over_time(recording)
    if not rows.size or not reserved.any():
        return None
    wanted = [wanted_bytes(size, settings) for size in recording.events["size"][rows].tolist()]
    free = np.minimum(recording.events["address"][rows], np.array(wanted) - 1)
    totals, fraction = reserved[rows + 1] + free, settings.per_process_memory_fraction
    least = int(np.argmin(totals))
    step, total = int(rows[least]) + 1, ceil(int(totals[least]) / fraction)
    source = (
        f"{format_bytes(int(reserved[step]))} reserved and {format_bytes(int(free[least]))} free when a "
        f"request failed at step {step:,}; what else was held is taken off already"
    )
    if fraction < 1:
        source = f"of which {fraction:g} may be used: {source}"
    return Device(RECORDED, total, source, headroom, is_recorded=True)
