"""The memory timelines that PyTorch's profiler exports: bytes over time by category, without addresses."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from memplan_engine.callers import Callers, Frame, Stacks
from memplan_engine.errors import InputError
from memplan_engine.formats.allocator_files.pickle_refusals import brief
from memplan_engine.formats.json_stream import read_json
from memplan_engine.problem import Problem, make_problem
from memplan_engine.scope import Scope

MAX_BYTES = 64 << 20
MOST_POINTS = 1_000_000
"""Points in time, or events: 1.5 GB and 12 CPU seconds where each is a buffer of its own in every
category."""
CATEGORIES = (
    "parameter",
    "optimizer_state",
    "input",
    "temporary",
    "activation",
    "gradient",
    "autograd_detail",
    "unknown",
)
"""The profiler's categories by their number in a file."""
PREEXISTING, CREATE, INCREMENT_VERSION, DESTROY = 1, 2, 3, 4
POINTS = "[times, sizes by category], or [time, action, bytes, category] an event"


def load_timeline(path: Path | str) -> Problem:
    """The tensors of a memory timeline as buffers, named by category.

    Of the raw form (`.raw.json.gz`) each event is a step, and sizes are those of tensors; a new version is
    the same bytes in another category. Of the plotted form (`.json`, `.json.gz`) each point in time is a
    step, and a buffer is by how much a category grew. Neither says which of several equal tensors is freed:
    the youngest is taken. Live bytes at every step are exact, lifetimes are one way to read the file.

    Raises
    ------
    InputError: JSON that is neither, or in which more is freed than there was.
    """
    path = Path(path)
    value = read_json(path, MAX_BYTES)
    live = _Live(path.name)
    count = len(value[0]) if _is_points(value) else len(value) if isinstance(value, list) else 0
    if count > MOST_POINTS:
        raise InputError(path.name, "", f"{count:,} points in time", f"at most {MOST_POINTS:,}")
    if _is_points(value):
        _read_points(value[0], value[1], live)
    elif isinstance(value, list) and all(isinstance(event, list) and len(event) == 4 for event in value):
        _read_events(value, live)
    else:
        raise InputError(path.name, "", brief(value), f"a memory timeline: {POINTS}")
    return live.problem(path.name.split(".")[0])


def _is_points(value: Any) -> bool:
    if not (isinstance(value, list) and len(value) == 2):
        return False
    times, sizes = value
    if not (isinstance(times, list) and isinstance(sizes, list) and len(times) == len(sizes)):
        return False
    return all(isinstance(row, list) for row in sizes) and not any(isinstance(time, list) for time in times)


def _read_points(times: list[Any], sizes: list[Any], live: _Live) -> None:
    """The first column of each row is 0; then come the categories."""
    before = [0] * len(CATEGORIES)
    for row in sizes:
        if len(row) != len(CATEGORIES) + 1:
            expected = f"{len(CATEGORIES)} categories after a 0"
            raise InputError(live.source, f"point {live.step}", f"{len(row)} values", expected)
        now = [live.number(value) for value in row[1:]]
        for category, (old, new) in enumerate(zip(before, now, strict=True)):
            if new > old:
                live.grow(category, new - old)
            else:
                live.shrink(category, old - new)
        before = now
        live.step += 1


def _read_events(events: list[Any], live: _Live) -> None:
    moving: list[tuple[int, int]] = []
    for time, action, nbytes, category in events:
        if isinstance(time, bool) or not isinstance(time, int | float) or action not in (1, 2, 3, 4):
            raise InputError(
                live.source, f"event {live.step}", f"time {brief(time)}, action {brief(action)}", POINTS
            )
        place, size = live.number(category), live.number(nbytes, signed=True)
        if place >= len(CATEGORIES):
            raise InputError(
                live.source, f"event {live.step}", f"category {place}", f"0 to {len(CATEGORIES) - 1}"
            )
        if action == INCREMENT_VERSION and not moving:
            moving.append((place, -size))
        elif action == INCREMENT_VERSION:
            old, count = moving.pop()
            if count != size:
                raise InputError(
                    live.source, f"event {live.step}", f"{size} bytes", "those of the old version"
                )
            live.move(old, place, size)
        elif action == DESTROY:
            live.free(place, live.number(-size))
        else:
            live.make(place, live.number(size), old=action == PREEXISTING)
        live.step += 1


@dataclass(slots=True)
class _Live:
    """What is live, by category: of points (start, bytes), of events the starts of each size, the youngest
    last; and what has been."""

    source: str
    step: int = 1
    live: list[list[tuple[int, int]]] = field(default_factory=lambda: [[] for _ in CATEGORIES])
    tensors: dict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    ended: list[tuple[int, int, int, int]] = field(default_factory=list)

    def number(self, value: Any, signed: bool = False) -> int:
        """`value` as a whole number of bytes."""
        if type(value) is not int or not (-(1 << 62) if signed else 0) <= value < 1 << 62:
            raise InputError(self.source, f"step {self.step}", brief(value), "a whole number of bytes")
        return value

    def shrink(self, category: int, nbytes: int) -> None:
        """`nbytes` less, of the youngest first; of the last one a part may stay."""
        while nbytes:
            start, size = self.live[category].pop()
            gone = min(size, nbytes)
            self.ended.append((start, self.step, gone, category))
            if size > gone:
                self.live[category].append((start, size - gone))
            nbytes -= gone

    def grow(self, category: int, nbytes: int) -> None:
        """`nbytes` more."""
        self.live[category].append((self.step, nbytes))

    def make(self, category: int, nbytes: int, old: bool = False) -> None:
        """A tensor; an old one was there before the first step."""
        self.tensors[category, nbytes].append(0 if old else self.step)

    def free(self, category: int, nbytes: int) -> None:
        """The youngest tensor of so many bytes ends."""
        start = self._take(category, nbytes)
        if start < self.step:
            self.ended.append((start, self.step, nbytes, category))

    def move(self, old: int, new: int, nbytes: int) -> None:
        """The youngest tensor of so many bytes changes its category."""
        self.tensors[new, nbytes].append(self._take(old, nbytes))

    def _take(self, category: int, nbytes: int) -> int:
        if starts := self.tensors.get((category, nbytes)):
            return starts.pop()
        found = f"{nbytes} bytes of {CATEGORIES[category]} freed"
        raise InputError(self.source, f"event {self.step}", found, "some that are live")

    def problem(self, name: str) -> Problem:
        """Everything as buffers, in order of start."""
        rest = [(start, self.step, size, kind) for kind, rows in enumerate(self.live) for start, size in rows]
        rest += [
            (start, self.step, size, kind)
            for (kind, size), starts in self.tensors.items()
            for start in starts
        ]
        rows = sorted(row for row in [*self.ended, *rest] if row[0] < row[1])
        counts = [0] * len(CATEGORIES)
        names = []
        for _, _, _, kind in rows:
            counts[kind] += 1
            names.append(f"{CATEGORIES[kind]} #{counts[kind]}")
        start, end, size, kinds = (
            np.array([row[column] for row in rows], dtype=np.int64) for column in range(4)
        )
        stacks = Stacks(
            tuple(Frame(kind, "", 0) for kind in CATEGORIES), tuple((n,) for n in range(len(CATEGORIES)))
        )
        callers = Callers(kinds, stacks)
        return make_problem(
            start, end, size, names=names, steps=self.step, name=name, callers=callers, scope=Scope.EAGER
        )
