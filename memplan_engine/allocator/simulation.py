"""The caching allocator run over a recording or an observation: what it would reserve, and where everything
lies.

Its rules are those of `c10/cuda/CUDACachingAllocator.cpp`, torch 2.13; the kernel is in `kernels/allocator`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from memplan_engine.allocator.event_rows import EventRows, event_rows
from memplan_engine.allocator.settings import DEFAULTS, MIB, AllocatorSettings
from memplan_engine.kernels.allocator.blocks import LARGE_SEGMENT, SMALL_SEGMENT, UNLIMITED
from memplan_engine.kernels.allocator.requests import SMALL, round_size, segment_size
from memplan_engine.kernels.allocator.run import ALLOC, FAILED, RETRIED, TRY, run_allocator
from memplan_engine.problem import Ints
from memplan_engine.recordings.allocator_recording import EVENT, Action, Partial, Recording, checked_events
from memplan_engine.recordings.observation import Observation, observation_recording
from memplan_engine.recordings.observed_flow import BEFORE, devices_of, fullest_device

UNKNOWN_RANGE = 1 << 40
"""Address space of an expandable segment where the device is unknown, bytes: more than any has memory."""


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """A request that could not be met: the event that made it, the bytes `asked`, what was asked of the
    device for it, and what was reserved, allocated and free on the device then. `was_recorded`: it failed in
    the recording, too, which went on."""

    event: int
    stack: int
    asked: int
    wanted: int
    reserved: int
    allocated: int
    device_free: int
    capacity: int
    allowed: int | None
    was_recorded: bool

    def message(self, device: int = 0, total: int | None = None) -> str:
        """What torch 2.13 says; `total` is the memory of the device where the allocator had not all of it.
        Where torch says what each process holds, this has nothing."""
        allowed = f"{torch_size(self.allowed)} allowed; " if self.allowed is not None else ""
        whole = self.capacity if total is None else total
        free = torch_size(self.device_free)
        cached = torch_size(self.reserved - self.allocated)
        return (
            f"CUDA out of memory. Tried to allocate {torch_size(self.wanted)}. GPU {max(device, 0)} has "
            f"a total capacity of {torch_size(whole)} of which {free} is free. {allowed}Of the allocated "
            f"memory {torch_size(self.allocated)} is allocated by PyTorch, and {cached} is reserved by "
            "PyTorch but unallocated. If reserved but unallocated memory is large try setting "
            "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for "
            "Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
        )


@dataclass(frozen=True, slots=True, eq=False)
class AllocatorRun:
    """What the allocator did under `settings` on a device of `capacity` bytes (None: without limit).

    Step k is after the k-th event of `recording`, step 0 before the first, with what was there already; a run
    that ended in an error ends at step `ended`, and its columns stay as they were there. Bytes a step, int64:
    `requested` what tensors asked for, `active` their blocks, those included that wait for a stream,
    `allocated` without these, `reserved` what is held of the device. `address` and `block` are of each
    allocation (−1: none), `log` has rows of (step, address, bytes, tree) for each change of what is reserved.
    """

    recording: Recording
    settings: AllocatorSettings
    capacity: int | None
    rows: EventRows
    requested: Ints
    active: Ints
    allocated: Ints
    reserved: Ints
    address: Ints
    block: Ints
    made: Ints
    log: Ints
    retries: int
    failures: tuple[OutOfMemory, ...]
    ended: int

    @property
    def peak_reserved(self) -> int:
        """The most bytes held of the device at once."""
        return int(self.reserved.max(initial=0))

    @property
    def peak_requested(self) -> int:
        """The most bytes that tensors had asked for at once."""
        return int(self.requested.max(initial=0))

    @property
    def peak_active(self) -> int:
        """The most bytes of blocks in use at once: requests, rounded."""
        return int(self.active.max(initial=0))

    @property
    def fragmentation(self) -> Ints:
        """Reserved and not active, a value a step."""
        return self.reserved - self.active

    @property
    def is_rules_only(self) -> bool:
        """Whether such settings were compared with too few recordings to rely on."""
        return self.settings.is_rules_only

    @property
    def fits(self) -> bool:
        """Whether every request was met."""
        return not self.failures


def simulate_allocator(
    source: Recording | Observation,
    settings: AllocatorSettings = DEFAULTS,
    *,
    capacity: int | None = None,
    device: int | None = None,
    as_recorded: bool = False,
) -> AllocatorRun:
    """What PyTorch's caching allocator would reserve for the requests of `source` under `settings`.

    `capacity` is what the device gives to this allocator, bytes: all of it, less what other things in the
    process hold. Of an observation `device` chooses the device (the one with the most bytes, of a predicted
    run, unless given); its weights and inputs are allocated first.
    Requests that failed in a recording are made again, and let go at once. `as_recorded` starts from the
    segments and blocks that a snapshot shows, and puts new segments where the device put them: to compare.
    O(n log n) events.

    Raises
    ------
    InputError: a request of 4 PiB or more; as `Observation.at`.
    """
    recording = source if isinstance(source, Recording) else resident_recording(source, device)
    rows = event_rows(recording, as_recorded)
    rules = _rules(settings, capacity, len(rows.streams), len(rows.pools))
    placed, over_time, ended, log, done = run_allocator(
        rows.op, rows.ident, rows.size, rows.base, rows.given, rows.extent, rules, max(rows.idents, 1)
    )
    # The last row of each event, or of what was before; after the end all stays as it was.
    step = (
        np.minimum(np.searchsorted(rows.event, np.arange(-1, len(recording.events)), side="right"), done) - 1
    )
    columns = np.concatenate([over_time, np.zeros((1, 4), dtype=np.int64)])[step]
    log = log.copy()
    log[:, 0] = rows.event[log[:, 0]] + 1
    return AllocatorRun(
        *(recording, settings, capacity, rows),
        *(columns[:, 3], columns[:, 1], columns[:, 2], columns[:, 0]),
        *(placed[: rows.idents, 0], placed[: rows.idents, 1], ended[:, 1], log),
        retries=int((ended[:done, 0] == RETRIED).sum()),
        failures=_failures(rows, over_time, ended, done, rules, capacity, recording),
        ended=int(rows.event[done - 1]) + 1 if done else 0,
    )


def resident_recording(observation: Observation, device: int | None = None, late: bool = False) -> Recording:
    """An observation as the requests that its device would see: what was there before the run (weights,
    optimizer state, inputs) is allocated before all else. Where the observation does not know it, the
    recording is partial. `late` as in `observation_recording`.

    Raises
    ------
    InputError: as `Observation.at`.
    """
    flow = observation.flow
    if flow is None:
        seen = observation_recording(observation, None, device)
        return replace(seen, partial=(Partial.BEGUN_MIDWAY,))
    device = fullest_device(flow) if device is None else device
    recording = observation_recording(observation, None, device if observation.devices else None, late)
    storages = flow.storages
    there = (storages.maker == BEFORE) & (storages.nbytes > 0) & (storages.device == device)
    nbytes = storages.nbytes[there]
    first = np.zeros(len(nbytes), dtype=EVENT)
    first["size"], first["action"], first["stack"], first["pool"] = nbytes, Action.ALLOC, -1, -1
    # Places above all others: only that they differ counts.
    top = int((recording.events["address"] + recording.events["size"]).max(initial=0))
    first["address"] = top + 512 * (1 + np.arange(len(nbytes)))
    events = checked_events(np.concatenate([first, recording.events]), observation.name)
    several = len(devices_of(flow)) > 1
    return replace(recording, name=observation.name + several * f" on cuda:{device}", events=events)


def torch_size(nbytes: int) -> str:
    """ "20.00 MiB", as torch's `format_size` writes bytes."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes >= unit:
            return f"{nbytes / unit:.2f} {name}"
    return f"{nbytes} bytes"


def wanted_bytes(asked: int, settings: AllocatorSettings) -> int:
    """What the device must have for a request of `asked` bytes that nothing cached meets: a segment, or
    pages of an expandable one."""
    rules = _rules(settings, None, streams=1, pools=1)
    rounded = round_size(asked, rules)
    if settings.expandable_segments:
        page = SMALL_SEGMENT if rounded <= SMALL else int(rules[LARGE_SEGMENT])
        return -(-rounded // page) * page
    return segment_size(rounded, rules)


def _rules(settings: AllocatorSettings, capacity: int | None, streams: int, pools: int) -> Ints:
    """The settings as the kernel has them."""
    large = settings.large_segment_size_mb * MIB
    split, rounding = settings.max_split_size_mb, settings.max_non_split_rounding_mb
    limits = [UNLIMITED if capacity is None else capacity, UNLIMITED, UNLIMITED]
    allowed = _allowed(settings, capacity)
    if allowed is not None:
        limits[1] = allowed
        if settings.garbage_collection_threshold:
            limits[2] = int(settings.garbage_collection_threshold * allowed)
    reach = UNKNOWN_RANGE if capacity is None else capacity + capacity // 8
    trees = 2 * streams * pools
    return np.array(
        [
            UNLIMITED if split is None else split * MIB,
            large if rounding is None else rounding * MIB,
            *(large, int(settings.expandable_segments), *limits, reach, trees, streams),
            *settings.roundup_power2_divisions,
        ],
        dtype=np.int64,
    )


def _allowed(settings: AllocatorSettings, capacity: int | None) -> int | None:
    """What the process may hold; None without a limit, or where the device is unknown."""
    if capacity is None or settings.per_process_memory_fraction == 1.0:
        return None
    return int(settings.per_process_memory_fraction * capacity)


def _failures(
    rows: EventRows,
    over_time: Ints,
    ended: Ints,
    done: int,
    rules: Ints,
    capacity: int | None,
    recording: Recording,
) -> tuple[OutOfMemory, ...]:
    """The requests that were not met."""
    if capacity is None:
        return ()
    found = []
    for row in np.flatnonzero((ended[:done, 0] == FAILED) & np.isin(rows.op[:done], (ALLOC, TRY))).tolist():
        reserved, _, allocated, _ = over_time[row].tolist()
        asked, event = int(rows.size[row]), int(rows.event[row])
        found.append(
            OutOfMemory(
                event,
                int(recording.events["stack"][event]) if event >= 0 else -1,
                asked,
                segment_size(round_size(asked, rules), rules),
                reserved,
                allocated,
                capacity - reserved,
                capacity,
                None if int(rules[5]) == UNLIMITED else int(rules[5]),
                bool(rows.op[row] == TRY),
            )
        )
    return tuple(found)
