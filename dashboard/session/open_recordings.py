"""Recordings of an allocator as documents: the placement that was recorded, of one device and stream."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from memplan_engine import (
    InputError,
    MemplanError,
    Selection,
    Snapshot,
    choose_recording,
    load_recording,
)
from memplan_engine.files import recognise
from memplan_engine.formats.allocator_files.allocator_readers import is_trace
from memplan_engine.formats.importer import HEAD_BYTES
from memplan_engine.formats.json_stream import head_of
from memplan_engine.formats.read_limits import read_head
from memplan_engine.recordings.allocator_recording import Recording
from memplan_engine.recordings.recording_parts import DEFAULT_POOL, held, pool_text, pools, streams
from memplan_engine.units import format_bytes

_PART = re.compile(
    r"device=(-?[0-9]{1,4})(?:,stream=([0-9]{1,18}))?(?:,pool=([0-9]{1,18}):([0-9]{1,18}))?", re.ASCII
)


def is_recording(path: Path) -> bool:
    """Whether the file at `path` is one, by its content."""
    try:
        kind = recognise(path).name
    except MemplanError:
        return False
    if kind == "profiler":
        return is_trace(head_of(path, read_head(path, HEAD_BYTES), HEAD_BYTES).lstrip())
    return kind in ("pickle", "observation")


def part_text(device: int, stream: int | None = None, pool: tuple[int, int] | None = None) -> str:
    """ "device=0,stream=7,pool=0:1"."""
    asked = [f"device={device}"] + ([] if stream is None else [f"stream={stream}"])
    return ",".join(asked + ([] if pool is None else [f"pool={pool_text(pool)}"]))


def parse_part(text: str, source: str) -> Selection:
    """The same back; "" is the default. Raises InputError for what is none."""
    if not text:
        return Selection()
    match = _PART.fullmatch(text)
    if not match:
        raise InputError(source, "part", repr(text[:40]), "device=0, device=0,stream=7 or device=0,pool=0:1")
    pool = (int(match[3]), int(match[4])) if match[3] else None
    return Selection(int(match[1]), int(match[2]) if match[2] else None, pool)


def read_recording(path: Path, version: tuple[int, int], part: str) -> Recording:
    """A part of the recording; raises MemplanError."""
    return choose_recording(_snapshot(path, version), parse_part(part, path.name))


def parts(path: Path, version: tuple[int, int]) -> dict[str, str]:
    """What can be chosen, text → label: each device, its streams and memory pools where there are several."""
    labels = {}
    for recording in _snapshot(path, version).recordings:
        label = f"device {recording.device}" if recording.device >= 0 else "the CPU"
        told = f"{len(recording.events):,} events"
        reserved = held(recording)[0]
        labels[part_text(recording.device)] = f"{label}: {told}" + (
            f", {format_bytes(reserved)} reserved" if reserved else ""
        )
        numbers = streams(recording)
        if len(numbers) > 1:
            labels |= {part_text(recording.device, each): f"{label}, stream {each}" for each in numbers}
        several = pools(recording)
        if len(several) > 1:
            texts = [part_text(recording.device, pool=each) for each in several]
            labels |= dict(zip(texts, [f"{label}, {_pool_words(each)}" for each in several], strict=True))
    return labels


def _pool_words(pool: tuple[int, int]) -> str:
    return "the common pool" if pool == DEFAULT_POOL else f"private pool {pool_text(pool)}"


@lru_cache(2)
def _snapshot(path: Path, version: tuple[int, int]) -> Snapshot:
    """The file, read once for all of its parts; `version` changes with it."""
    return load_recording(path)
