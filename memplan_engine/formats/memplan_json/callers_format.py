"""The JSON of who asked for recorded buffers: frames and stacks once each, a stack for each buffer."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import FailFast, Field

from memplan_engine.callers import UNKNOWN_STACK, Callers, Frame, Stacks
from memplan_engine.errors import InputError
from memplan_engine.formats.memplan_json.json_base import Count, Counts, Strict, check_length

MOST_FRAMES = 1_000_000
"""Frames and stacks that a file may have, each."""
MOST_CALLS = 4_000_000
"""Calls in all stacks together."""
MOST_DEPTH = 256
"""Calls of one stack that are written, the innermost."""
MOST_LETTERS = 4_096
"""Of a function or a file."""

Word = Annotated[str, Field(max_length=MOST_LETTERS)]
Place = Annotated[int, Field(ge=UNKNOWN_STACK, le=MOST_FRAMES)]


class CallEntry(Strict):
    """One call: the function, its file and the line in it."""

    function: Word
    file: Word = ""
    line: Count = 0


class CallersEntry(Strict):
    """`stack` has for each buffer a place in `stacks`, −1 where nothing is known; a stack is places in
    `frames`, the innermost call first."""

    frames: Annotated[tuple[CallEntry, ...], FailFast(), Field(max_length=MOST_FRAMES)] = ()
    stacks: Annotated[tuple[Counts, ...], FailFast(), Field(max_length=MOST_FRAMES)] = ()
    stack: Annotated[tuple[Place, ...], FailFast()]


def callers_from(entry: CallersEntry, buffers: int, source: str) -> Callers:
    """The callers of `buffers` buffers; raises InputError for places that do not exist and too many calls."""
    check_length(entry.stack, buffers, "callers.stack", source, each="buffer")
    calls = sum(map(len, entry.stacks))
    if calls > MOST_CALLS:
        raise InputError(source, "field callers.stacks", f"{calls:,} calls", f"{MOST_CALLS:,} at most")
    for number, stack in enumerate(entry.stacks):
        if max(stack, default=0) >= max(1, len(entry.frames)) or (stack and not entry.frames):
            found, expected = str(max(stack)), f"below {len(entry.frames)}"
            raise InputError(source, f"field callers.stacks[{number}]", found, expected)
    column = np.array(entry.stack, dtype=np.int64)
    if (wrong := np.flatnonzero(column >= len(entry.stacks))).size:
        place, expected = f"field callers.stack[{wrong[0]}]", f"below {len(entry.stacks)}"
        raise InputError(source, place, str(column[wrong[0]]), expected)
    frames = tuple(Frame(each.function, each.file, each.line) for each in entry.frames)
    return Callers(column, Stacks(frames, entry.stacks))


def entry_of_callers(callers: Callers) -> CallersEntry | None:
    """As it is written: only the stacks that some buffer has, of each the innermost calls, as many as a file
    may hold; None where nothing is known, or where even one call a stack would be too much."""
    used, column = np.unique(callers.stack, return_inverse=True)
    known = used[used != UNKNOWN_STACK]
    depth = min(MOST_DEPTH, MOST_CALLS // max(1, len(known)))
    if not len(known) or len(known) > MOST_FRAMES or not depth:
        return None
    stacks = [callers.stacks.stacks[number][:depth] for number in known.tolist()]
    place_of = {
        frame: place for place, frame in enumerate(dict.fromkeys(frame for own in stacks for frame in own))
    }
    if len(place_of) > MOST_FRAMES:
        return None
    return CallersEntry(
        frames=tuple(_call(callers.stacks.frames[frame]) for frame in place_of),
        stacks=tuple(tuple(place_of[frame] for frame in own) for own in stacks),
        stack=tuple((column - (len(used) - len(known))).tolist()),
    )


def _call(frame: Frame) -> CallEntry:
    # Pickles may hold text that is no Unicode.
    function, file = (text.encode(errors="replace").decode() for text in (frame.function, frame.file))
    return CallEntry(function=function[:MOST_LETTERS], file=file[-MOST_LETTERS:], line=max(0, frame.line))
