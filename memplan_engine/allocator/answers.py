"""Three answers to "how much memory", never one: live, reserved under named settings, and of the device in
all.

And what follows: whether it fits on a device, which settings would make it fit, what other settings change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from memplan_engine.accelerators.presets import (
    CONTEXT,
    NCCL,
    Accelerator,
    blas_workspace,
    nccl_buffers,
)
from memplan_engine.allocator.device import Device, named_device, recorded_device
from memplan_engine.allocator.settings import AllocatorSettings, parse_settings, recorded_settings
from memplan_engine.allocator.simulation import AllocatorRun, resident_recording, simulate_allocator
from memplan_engine.recordings.allocator_recording import (
    Action,
    Partial,
    Recording,
    least_needed,
    partial_words,
)
from memplan_engine.recordings.observation import Observation
from memplan_engine.units import count_of
from memplan_engine.verdict import Reason, Verdict, doubted

CANDIDATES = tuple(
    map(
        parse_settings,
        (
            "",
            "max_split_size_mb:512",
            "max_split_size_mb:256",
            "max_split_size_mb:128",
            "max_split_size_mb:64",
            "roundup_power2_divisions:8",
            "max_split_size_mb:128,roundup_power2_divisions:8",
            "expandable_segments:True",
        ),
    )
)
"""What is tried: the settings that torch's notes on memory management name against fragmentation, in steps of
two."""


@dataclass(frozen=True, eq=False)
class SettingsAnswer:
    """One choice of settings: `run` without a limit, and on `device`, where one is named, whether it fits.

    A partial recording never FITS: the run may have needed more than it shows.
    """

    recording: Recording
    settings: AllocatorSettings
    device: Device | None

    @cached_property
    def run(self) -> AllocatorRun:
        """Without a limit."""
        return simulate_allocator(self.recording, self.settings)

    @cached_property
    def on_device(self) -> AllocatorRun | None:
        """On the device: with the most held beside it if that works, else with the least."""
        if self.device is None:
            return None
        least = self.device.least_left
        if self.run.peak_reserved <= least and self.settings.per_process_memory_fraction == 1.0:
            return replace(self.run, capacity=least)
        tight = simulate_allocator(self.recording, self.settings, capacity=least)
        if tight.fits or self.device.most_left == least:
            return tight
        return simulate_allocator(self.recording, self.settings, capacity=self.device.most_left)

    @cached_property
    def least_reserved(self) -> int:
        """Return the most bytes that a partial recording says were held at once; 0 for a whole one."""
        return least_needed(self.recording) if self.recording.partial else 0

    @property
    def reserved(self) -> int:
        """The most bytes that are reserved at once: simulated, and not less than a partial recording says."""
        return max(self.run.peak_reserved, self.least_reserved)

    @property
    def recorded_more(self) -> bool:
        """Return whether a partial recording held more than a named device leaves to the allocator."""
        if self.device is None or self.device.is_recorded:
            return False
        fraction = self.settings.per_process_memory_fraction
        return self.least_reserved > int(fraction * self.device.most_left)

    @property
    def verdict(self) -> Verdict | None:
        """Return whether every request is met on the device; None without a device.

        FITS: with the most that other things hold there. UNDECIDED: with the least only, or where a run may
        hold something else than the recording (`reason`).
        """
        found = self._judged()
        return None if found is None else found[0]

    @property
    def reason(self) -> Reason | None:
        """Return what an undecided verdict depends on; None for any other."""
        found = self._judged()
        return None if found is None else found[1]

    def _judged(self) -> tuple[Verdict, Reason | None] | None:
        run = self.on_device
        if run is None or self.device is None:
            return None
        if not run.fits or self.recorded_more:
            verdict, reason = Verdict.DOES_NOT_FIT, None
        elif run.capacity == self.device.least_left:
            verdict, reason = Verdict.FITS, None
        else:
            verdict, reason = Verdict.UNDECIDED, Reason.OTHERS_HOLD
        doubt = self.recording.doubt
        return doubted(verdict, doubt) if doubt else (verdict, reason)

    @property
    def total(self) -> tuple[int, int] | None:
        """What the device holds in all, least and most bytes, without a limit; None without a device."""
        if self.device is None:
            return None
        reserved = self.reserved
        return reserved + self.device.least_overhead, reserved + self.device.most_overhead


@dataclass(frozen=True, slots=True)
class SettingsAdvice:
    """What other settings do. Where a request fails with the chosen ones (`failed`, on a recorded device or a
    named one): `settings` that meet it; else those that reserve least, `reserved` bytes, `saved` less. None
    if none do. `out_of_reach` as in `Answers`; `left` is what the device leaves to the allocator at most,
    None without one."""

    settings: AllocatorSettings | None
    reserved: int
    saved: int
    failed: bool
    is_recorded: bool
    out_of_reach: int | None
    left: int | None
    of_a_part: bool = False
    """True if nothing was tried because the recording is partial."""

    @property
    def is_rules_only(self) -> bool:
        """Whether the settings were compared with too few recordings to rely on."""
        return self.settings is not None and self.settings.is_rules_only


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """`live_bytes` are the most that tensors asked for at once, exact unless the recording is in `doubt`.
    `chosen` are the settings that were asked about, `others` what else was tried, `notes` what the figures
    leave out. Of a partial recording (`partial` says why) live and reserved bytes are the least, and nothing
    else is tried. Where a predicted run has blocks that other streams used (`record_stream`), all of these
    have them come back as late as they can, and `earliest` is the run in which they come back at once."""

    name: str
    live_bytes: int
    chosen: SettingsAnswer
    others: tuple[SettingsAnswer, ...]
    notes: tuple[str, ...]
    earliest: AllocatorRun | None = None

    @property
    def partial(self) -> tuple[Partial, ...]:
        """Why the recording is a part of a run; empty for a whole one."""
        return self.chosen.recording.partial

    @property
    def reserved(self) -> tuple[int, int]:
        """The least and the most bytes that are reserved under the chosen settings."""
        most = self.chosen.reserved
        runs = (most,) if self.earliest is None else (most, self.earliest.peak_reserved)
        return min(runs), max(runs)

    @property
    def less_reserved(self) -> tuple[SettingsAnswer, ...]:
        """Of the others those that reserve less than the chosen, the least first."""
        less = (each for each in self.others if each.run.peak_reserved < self.chosen.run.peak_reserved)
        return tuple(sorted(less, key=lambda each: (each.run.peak_reserved, each.run.is_rules_only)))

    @property
    def out_of_reach(self) -> int | None:
        """Where no settings can meet the first request that failed: the bytes that are live with it, more
        than the device leaves."""
        run, device = self.chosen.on_device, self.chosen.device
        if run is None or device is None or run.fits:
            return None
        failure = run.failures[0]
        live = int(run.requested[failure.event]) + failure.asked
        return live if live > device.most_left else None

    @property
    def suggested(self) -> SettingsAnswer | None:
        """Of the others that fit where the chosen do not, the one that reserves least; those that rest on
        rules alone come last. None if none does, or nothing needs to be mended."""
        if self.chosen.verdict in (None, Verdict.FITS):
            return None
        fitting = [other for other in self.others if other.verdict is Verdict.FITS]
        return min(fitting, key=lambda each: (each.run.is_rules_only, each.run.peak_reserved), default=None)

    @property
    def advice(self) -> SettingsAdvice:
        """What other settings do: for a request that failed, else for what is reserved."""
        chosen = self.chosen
        failed = chosen.verdict is Verdict.DOES_NOT_FIT
        best = self.suggested if failed else next(iter(self.less_reserved), None)
        most = chosen.reserved
        least = best.run.peak_reserved if best else most
        device, settings = chosen.device, best.settings if best else None
        return SettingsAdvice(
            *(settings, least, most - least, failed),
            is_recorded=device is not None and device.is_recorded,
            out_of_reach=self.out_of_reach,
            left=device.most_left if device else None,
            of_a_part=bool(self.partial),
        )


def three_answers(
    source: Recording | Observation,
    settings: AllocatorSettings | None = None,
    *,
    gpu: Accelerator | None = None,
    capacity: int | None = None,
    headroom: int = 0,
    communicators: int = 0,
    groups: Sequence[int] = (),
    index: int | None = None,
    candidates: Sequence[AllocatorSettings] = CANDIDATES,
) -> Answers:
    """Live bytes, reserved bytes under `settings`, and what the device holds in all; on `gpu` or on a device
    of `capacity` bytes, of which `headroom` stay free, whether it fits, and with which of `candidates` it
    would.

    `settings` are those of the recording unless given. Where it ran out of memory and no device is given,
    the device is what it could have then (`recorded_device`): with which settings would the request have
    been met? `communicators` are NCCL's, of `groups` each has the sizes in ranks. Of an observation `index`
    chooses the device.

    Raises
    ------
    InputError: as `simulate_allocator`.
    """
    waits = isinstance(source, Observation) and source.flow is not None and bool(source.flow.waits)
    recording = source if isinstance(source, Recording) else resident_recording(source, index, late=waits)
    then, unknown = recorded_settings(recording)
    settings = then if settings is None else settings
    earliest = None
    if waits and isinstance(source, Observation):
        earliest = simulate_allocator(resident_recording(source, index), settings)
    seen = isinstance(source, Recording) and bool(
        len(source.segments) or source.rows(Action.SEGMENT_ALLOC).size
    )
    streams = len({*recording.events["stream"].tolist()}) or 1
    nccl = [(NCCL, communicators), *((nccl_buffers(ranks), n) for ranks, n in Counter(groups).items())]
    beside = [(CONTEXT, 1), *nccl, (blas_workspace(gpu), 0 if seen else streams)]
    device = named_device(gpu, capacity, headroom, tuple((each, count) for each, count in beside if count))
    device = device or recorded_device(recording, then, headroom)
    chosen = SettingsAnswer(recording, settings, device)
    if device is not None and device.is_recorded:
        # What other settings would have done, not what more of the device would have.
        fraction = then.per_process_memory_fraction
        candidates = [replace(each, per_process_memory_fraction=fraction) for each in candidates]
    # What other settings would have done with what is not recorded is unknown.
    tried = dict.fromkeys([then, *candidates] if candidates and not recording.partial else [])
    others = tuple(SettingsAnswer(recording, other, device) for other in tried if other != settings)
    live = (earliest or chosen.run).peak_requested
    if recording.partial and recording.allocated is not None:
        live = max(live, int(recording.allocated.max()))
    notes = [*_notes(source, chosen), *_doubts(then, unknown, device, (chosen, *others))]
    return Answers(recording.name, live, chosen, others, tuple(notes), earliest)


def _doubts(
    then: AllocatorSettings, unknown: str, device: Device | None, answers: Sequence[SettingsAnswer]
) -> list[str]:
    """What of a recording is not understood, and whether its failure does not show in the simulation."""
    doubts = [f"not understood, and left out: {unknown}"] if unknown else []
    if device is not None and device.is_recorded and not device.headroom:
        as_then = (each for each in answers if each.settings == then)
        if any(each.verdict is Verdict.FITS for each in as_then):
            doubts.append(
                "simulated as recorded, the request that failed is met: what lay where before the recording "
                "is not known, and no verdict here says more than that"
            )
    return doubts


def _notes(source: Recording | Observation, chosen: SettingsAnswer) -> tuple[str, ...]:
    """What the figures leave out, and what they rest on."""
    run, settings, partial = chosen.run, chosen.settings, chosen.recording.partial
    basis = chosen.recording.basis
    notes = list(basis.remarks)
    if partial:
        notes.append(
            f"this recording is a part of a run: {partial_words(partial)}; the run may have needed more, and "
            "what other settings would do is not known"
        )
    if run.rows.older:
        notes.append(
            f"{count_of(run.rows.older, 'block')} from before the recording: allocated first, in order of "
            "address, for what they lay among is not known"
        )
    if isinstance(source, Observation):
        if source.flow is None:
            notes.append(
                "what was there before the run (weights, inputs) is not in the file, and not counted"
            )
        notes.append("kernels' own temporaries on a GPU are not in an observation made elsewhere")
    if isinstance(source, Observation) and source.flow is not None and source.flow.waits:
        notes.append(
            "blocks that other streams used (record_stream) come back when the host has waited for those "
            "streams, the latest that they can; the lower figure has them come back at once"
        )
    tried = len(run.recording.rows(Action.OOM))
    if tried:
        notes.append(f"{count_of(tried, 'request')} that failed in the recording: made, and let go at once")
    if settings.is_rules_only:
        notes.append("expandable segments: rules only, compared with a single recorded file so far")
    if settings.garbage_collection_threshold and settings.per_process_memory_fraction == 1.0:
        notes.append(
            "garbage_collection_threshold has no effect without a per_process_memory_fraction below 1"
        )
    return tuple(notes)
