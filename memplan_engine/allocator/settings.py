"""The settings of PyTorch's caching allocator, as `PYTORCH_CUDA_ALLOC_CONF` (`PYTORCH_ALLOC_CONF`) has them.

Keys, limits and their order are those of torch 2.13: `c10/core/AllocatorConfig.cpp` and
`c10/cuda/CUDAAllocatorConfig.h`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from memplan_engine.errors import InputError
from memplan_engine.recordings.allocator_recording import Action, Recording

VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"
MIB = 1 << 20
LARGE_SEGMENT_MB = 20
"""kLargeBuffer: the segment that several requests from 1 to 10 MiB share."""
LEAST_LARGE_SEGMENT_MB = 10
CLASSES = 16
"""Classes of sizes from 1 MiB, 2 MiB, … 32 GiB on, each with divisions of its own."""
WITHOUT_EFFECT = (
    "backend",
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "graph_capture_record_stream_reuse",
    "throw_on_cudamalloc_oom",
    "pinned_use_cuda_host_register",
    "pinned_use_hip_host_register",
    "pinned_num_register_threads",
    "pinned_reserve_segment_size_mb",
    "pinned_use_background_threads",
    "pinned_max_round_threshold_mb",
    "pinned_max_cached_size_mb",
)
"""Settings of torch that change nothing of what is reserved on the device; they are kept as they stand."""
_TOKEN = re.compile(r"[,:\[\]]|[^,:\[\]\s]+")
_LINE = re.compile(r"""\s*(export\s+)?PYTORCH_(CUDA_)?ALLOC_CONF=(["']?)(?P<text>[^"']*)\3\s*""")
_WHOLE = re.compile(r"[0-9]{1,12}", re.ASCII)


@dataclass(frozen=True, slots=True)
class AllocatorSettings:
    """Frozen; the defaults are torch's. Sizes are MiB, which torch calls mb; None where there is no limit.

    `garbage_collection_threshold` has an effect only together with a `per_process_memory_fraction` below 1,
    as in torch. `roundup_power2_divisions` has 16 numbers, for sizes from 1 MiB, 2 MiB, 4 MiB … on, 0 or 1
    for none.
    """

    max_split_size_mb: int | None = None
    max_non_split_rounding_mb: int | None = None
    large_segment_size_mb: int = LARGE_SEGMENT_MB
    roundup_power2_divisions: tuple[int, ...] = (0,) * CLASSES
    garbage_collection_threshold: float = 0.0
    expandable_segments: bool = False
    per_process_memory_fraction: float = 1.0
    others: tuple[tuple[str, str], ...] = ()

    @property
    def is_rules_only(self) -> bool:
        """Whether it rests on the rules: expandable segments were compared with a single recorded file."""
        return self.expandable_segments

    def __str__(self) -> str:
        """As the variable has them; "" for the defaults."""
        parts = []
        if self.large_segment_size_mb != LARGE_SEGMENT_MB:
            parts.append(f"large_segment_size_mb:{self.large_segment_size_mb}")
        if self.max_split_size_mb is not None:
            parts.append(f"max_split_size_mb:{self.max_split_size_mb}")
        if self.max_non_split_rounding_mb is not None:
            parts.append(f"max_non_split_rounding_mb:{self.max_non_split_rounding_mb}")
        if any(self.roundup_power2_divisions):
            parts.append(f"roundup_power2_divisions:{_divisions_text(self.roundup_power2_divisions)}")
        if self.garbage_collection_threshold:
            parts.append(f"garbage_collection_threshold:{self.garbage_collection_threshold:g}")
        if self.expandable_segments:
            parts.append("expandable_segments:True")
        if self.per_process_memory_fraction != 1.0:
            parts.append(f"per_process_memory_fraction:{self.per_process_memory_fraction:g}")
        return ",".join([*parts, *(f"{key}:{value}" for key, value in self.others)])

    @property
    def words(self) -> str:
        """For people: "default settings", or the text of the variable."""
        return str(self) or "default settings"


DEFAULTS = AllocatorSettings()


def parse_settings(text: str, source: str = VARIABLE) -> AllocatorSettings:
    """The settings that `text` stands for: "expandable_segments:True,max_split_size_mb:128", or the line that
    sets the variable to it, as it is printed.

    Refused is what torch refuses, and beyond it what torch reads as something else (`128;x`, `-5`).

    Raises
    ------
    InputError: an unknown setting, or a value that is out of its limits.
    """
    line = _LINE.fullmatch(text)
    return _Reader(line["text"] if line else text, source).read()


def recorded_settings(recording: Recording) -> tuple[AllocatorSettings, str]:
    """The settings under which `recording` was made, as far as its file says, and what it says that is not
    understood ("" if nothing). Files before torch 2.3 only show whether segments expand."""
    expands = bool(recording.segments["expandable"].any() or recording.rows(Action.SEGMENT_MAP).size)
    try:
        found = parse_settings(recording.settings, "settings of the recording")
    except InputError as error:
        return AllocatorSettings(expandable_segments=expands), str(error)
    return replace(found, expandable_segments=found.expandable_segments or expands), ""


def _divisions_text(divisions: tuple[int, ...]) -> str:
    if len(set(divisions)) == 1:
        return str(divisions[0])
    # The first boundary that is named counts for all below it, ">" for all above the last.
    first = next(i for i in range(CLASSES) if divisions[i] != divisions[0]) - 1
    last = max(i for i in range(CLASSES) if divisions[i] != divisions[-1])
    named = [f"{1 << i}:{divisions[i]}" for i in range(first, last + 1)]
    return f"[{','.join([*named, f'>:{divisions[-1]}'])}]"


class _Reader:
    """Token by token, as torch's ConfigTokenizer has them."""

    def __init__(self, text: str, source: str) -> None:
        self.tokens: list[str] = _TOKEN.findall(text)
        self.source, self.at = source, 0

    def read(self) -> AllocatorSettings:
        found = DEFAULTS
        while self.at < len(self.tokens):
            key = self._next("the name of a setting")
            if key not in _READERS and key not in WITHOUT_EFFECT:
                raise InputError(
                    self.source, "", repr(key), f"one of {', '.join((*_READERS, *WITHOUT_EFFECT))}"
                )
            self._expect(":", key)
            if key in _READERS:
                value: Any = _READERS[key](self, key, found)
                found = replace(found, **{key: value})
            else:
                found = replace(found, others=(*found.others, (key, self._other(key))))
            if self.at < len(self.tokens):
                self._expect(",", key)
        least = found.large_segment_size_mb
        for key in ("max_split_size_mb", "max_non_split_rounding_mb"):
            value = getattr(found, key)
            if value is not None and value < least:
                raise InputError(
                    self.source, key, str(value), f"at least {least}, the size of a large segment"
                )
        return found

    def _next(self, expected: str, key: str = "") -> str:
        if self.at >= len(self.tokens):
            raise InputError(self.source, key, "the end", expected)
        self.at += 1
        return self.tokens[self.at - 1]

    def _expect(self, token: str, key: str) -> None:
        found = self._next(repr(token), key)
        if found != token:
            raise InputError(self.source, key, repr(found), repr(token))

    def _whole(self, key: str, least: int = 0) -> int:
        expected = f"a whole number{f', at least {least}' if least else ''}"
        found = self._next(expected, key)
        if not _WHOLE.fullmatch(found) or int(found) < least:
            raise InputError(self.source, key, repr(found), expected)
        return int(found)

    def _other(self, key: str) -> str:
        value = self._next("a value", key)
        if key == "backend" and value != "native":
            raise InputError(self.source, key, repr(value), "native: no other backend is simulated")
        return value

    def megabytes(self, key: str, _: AllocatorSettings) -> int:
        return self._whole(key)

    def large_segment(self, key: str, _: AllocatorSettings) -> int:
        return self._whole(key, LEAST_LARGE_SEGMENT_MB + 1)

    def switch(self, key: str, _: AllocatorSettings) -> bool:
        found = self._next("True or False", key)
        if found not in ("True", "False"):
            raise InputError(self.source, key, repr(found), "True or False")
        return found == "True"

    def fraction(self, key: str, _: AllocatorSettings) -> float:
        below_one = key == "garbage_collection_threshold"
        expected = f"a number above 0 and {'below 1' if below_one else 'up to 1'}"
        found = self._next(expected, key)
        try:
            value = float(found)
        except ValueError:
            value = 0.0
        if not 0 < value <= 1 or (below_one and value == 1):
            raise InputError(self.source, key, repr(found), expected)
        return value

    def divisions(self, key: str, before: AllocatorSettings) -> tuple[int, ...]:
        if self.tokens[self.at : self.at + 1] != ["["]:
            return (self._power(key, False),) * CLASSES
        self.at += 1
        made, first, last = list(before.roundup_power2_divisions), True, 0
        while self.tokens[self.at : self.at + 1] != ["]"]:
            boundary = self._next("a size in MiB, '>' or ']'", key)
            if boundary != ">" and (not _WHOLE.fullmatch(boundary) or not _is_power(int(boundary))):
                raise InputError(self.source, key, repr(boundary), "a power of two of MiB, or '>'")
            self._expect(":", key)
            value = self._power(key, True)
            if boundary == ">":
                made[last + 1 :] = [value] * (CLASSES - last - 1)
            else:
                last = min(int(boundary).bit_length() - 1, CLASSES - 1)
                if first:
                    made[:last] = [value] * last
                made[last], first = value, False
            if self.tokens[self.at : self.at + 1] != ["]"]:
                self._expect(",", key)
        self.at += 1
        return tuple(made)

    def _power(self, key: str, or_none: bool) -> int:
        value = self._whole(key)
        if not _is_power(value) and not (or_none and value == 0):
            expected = "a power of two, or 0 for no rounding" if or_none else "a power of two"
            raise InputError(self.source, key, str(value), expected)
        return value


def _is_power(value: int) -> bool:
    return value > 0 and not value & (value - 1)


_READERS = {
    "max_split_size_mb": _Reader.megabytes,
    "max_non_split_rounding_mb": _Reader.megabytes,
    "large_segment_size_mb": _Reader.large_segment,
    "roundup_power2_divisions": _Reader.divisions,
    "garbage_collection_threshold": _Reader.fraction,
    "expandable_segments": _Reader.switch,
    "per_process_memory_fraction": _Reader.fraction,
}
