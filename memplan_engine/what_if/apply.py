"""A problem and edits → another problem, the first one staying as it is; edits that can be undone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from memplan_engine.errors import InputError
from memplan_engine.graph import MAX_BYTES
from memplan_engine.problem import FREE, Buffer, Gap, Ints, Problem, make_problem
from memplan_engine.what_if.edits import MOST_PARTS, Align, Drop, Edit, Pin, Resize, Shorten, Split

_Refuse = Callable[[str, object, str], InputError]
"""(field, what was found, what was expected) → the error that says so of the edit at hand."""


@dataclass(frozen=True, slots=True, eq=False)
class Edited:
    """A problem after edits; its buffer i was, or is a part of, buffer `source[i]` of the original."""

    problem: Problem
    source: Ints


def apply(problem: Problem, edits: Sequence[Edit]) -> Problem:
    """`problem` after `edits`, one after another: a later one sees what the earlier ones have made.

    Buffers keep their order, parts stand where the whole was, and the time axis stays as it is.

    Raises
    ------
    InputError: a buffer that is not there, a value that it cannot have; names the edit and its field.
    """
    return apply_edits(problem, edits).problem


def apply_edits(problem: Problem, edits: Sequence[Edit]) -> Edited:
    """As `apply`, with where each buffer comes from."""
    if not edits:
        return Edited(problem, np.arange(len(problem)))
    draft = _Draft(problem, {name: (row, 0) for row, name in enumerate(problem.names)})
    for number, edit in enumerate(edits, 1):
        draft.take(edit, f"edit {number} ({edit.kind} {edit.buffer!r})")
    return draft.finish()


@dataclass(slots=True)
class _Draft:
    """What becomes of the buffers that edits touch, by their row; `place` finds a buffer by its name."""

    problem: Problem
    place: dict[str, tuple[int, int]]
    touched: dict[int, list[Buffer]] = field(default_factory=dict)

    def take(self, edit: Edit, where: str) -> None:
        """Carry out one edit; `where` is what errors call it."""

        def refuse(field: str, found: object, expected: str) -> InputError:
            return InputError(self.problem.name, f"{where}, field {field}", str(found), expected)

        if edit.buffer not in self.place:
            raise refuse("buffer", "no such buffer", "one of the problem's, or a part")
        row, place = self.place[edit.buffer]
        own = self.touched.setdefault(row, [self.problem[row]])
        own[place : place + 1] = _changed(own[place], edit, refuse)
        if isinstance(edit, Drop | Split):
            del self.place[edit.buffer]
            for index, part in enumerate(own):
                if self.place.get(part.name, (row, 0))[0] != row:
                    raise refuse("parts", repr(part.name), "a name that no other buffer bears")
                self.place[part.name] = (row, index)

    def finish(self) -> Edited:
        """The problem that has come of it."""
        problem = self.problem
        counts = np.ones(len(problem), dtype=np.int64)
        for row, own in self.touched.items():
            counts[row] = len(own)
        source = np.repeat(np.arange(len(problem)), counts)
        first = np.concatenate([[0], np.cumsum(counts)])
        columns = {key: getattr(problem, key)[source] for key in ("start", "end", "size", "alignment")}
        fixed, names = problem.fixed[source], [problem.names[row] for row in source.tolist()]
        gaps = {int(first[row]): own for row, own in problem.gaps.items() if row not in self.touched}
        for row, own in self.touched.items():
            for index, buffer in enumerate(own, int(first[row])):
                for key, column in columns.items():
                    column[index] = getattr(buffer, key)
                fixed[index] = FREE if buffer.fixed is None else buffer.fixed
                names[index] = buffer.name
                if buffer.gaps:
                    gaps[index] = buffer.gaps
        edited = make_problem(
            **columns,
            fixed=fixed,
            names=names,
            gaps=gaps,
            steps=problem.steps,
            name=problem.name,
            origin=problem.origin,
            callers=problem.callers.select(source) if problem.callers else None,
            ids=_ids(problem, names, source),
            scope=problem.scope,
            basis=problem.basis,
        )
        return Edited(edited, source)


def _ids(problem: Problem, names: list[str], source: Ints) -> list[str] | None:
    """The ids of the buffers that are left, a part's with the ending that its name has; None where there are
    none, or where a part's would be another one's."""
    if problem.ids is None:
        return None
    ids = [
        problem.ids[row] + name.removeprefix(problem.names[row])
        for row, name in zip(source.tolist(), names, strict=True)
    ]
    return ids if len(set(ids)) == len(ids) else None


def _changed(buffer: Buffer, edit: Edit, refuse: _Refuse) -> list[Buffer]:
    """What becomes of `buffer`; raises what `refuse` makes of a value that it cannot have."""
    match edit:
        case Drop():
            return []
        case Pin(_, offset):
            if offset is not None and not 0 <= offset <= MAX_BYTES:
                raise refuse("offset", offset, "0 or more bytes, below 2^63")
            if offset is not None and offset % buffer.alignment:
                raise refuse("offset", offset, f"a multiple of the alignment {buffer.alignment}")
            return [replace(buffer, fixed=offset)]
        case Align(_, alignment):
            if not 1 <= alignment <= MAX_BYTES:
                raise refuse("alignment", alignment, "1 or more bytes")
            if buffer.fixed is not None and buffer.fixed % alignment:
                raise refuse("alignment", alignment, f"one that divides the fixed offset {buffer.fixed}")
            return [replace(buffer, alignment=alignment)]
        case Resize(_, nbytes):
            if not 0 <= nbytes <= MAX_BYTES:
                raise refuse("nbytes", nbytes, "0 or more bytes, below 2^63")
            return [replace(buffer, size=nbytes, gaps=_in_bytes(buffer.gaps, 0, nbytes))]
        case Shorten(_, start, end):
            if not buffer.start <= start < end <= buffer.end:
                field = "start" if not buffer.start <= start < buffer.end else "end"
                found = f"{start}:{end}"
                raise refuse(field, found, f"steps within the lifetime {buffer.start}:{buffer.end}")
            return [replace(buffer, start=start, end=end, gaps=_in_steps(buffer.gaps, start, end))]
        case Split(_, parts):
            return _parts(buffer, parts, refuse)


def _parts(buffer: Buffer, parts: int, refuse: _Refuse) -> list[Buffer]:
    """The parts of `buffer`: whole units of its alignment, the last one with what is left."""
    units = -(-buffer.size // buffer.alignment)
    if not 2 <= parts <= MOST_PARTS:
        raise refuse("parts", parts, f"2 to {MOST_PARTS}")
    if parts > units:
        raise refuse("parts", parts, f"at most {units}: {buffer.size} bytes at alignment {buffer.alignment}")
    edges = [min(units * part // parts * buffer.alignment, buffer.size) for part in range(parts + 1)]
    return [
        replace(
            buffer,
            name=f"{buffer.name}#{number}",
            size=high - low,
            fixed=None if buffer.fixed is None else buffer.fixed + low,
            gaps=_in_bytes(buffer.gaps, low, high),
        )
        for number, (low, high) in enumerate(pairwise(edges), 1)
    ]


def _in_bytes(gaps: tuple[Gap, ...], low: int, high: int) -> tuple[Gap, ...]:
    """The gaps of the bytes `[low, high)` of a buffer, counted from `low`."""
    cut = []
    for gap in gaps:
        begin, end = max(gap.low, low) - low, min(gap.high, high) - low
        cut.append(replace(gap, low=begin, high=end) if begin < end else Gap(gap.start, gap.end))
    return tuple(cut)


def _in_steps(gaps: tuple[Gap, ...], start: int, end: int) -> tuple[Gap, ...]:
    """What of the gaps lies within the steps `[start, end)`."""
    return tuple(
        replace(gap, start=max(gap.start, start), end=min(gap.end, end))
        for gap in gaps
        if gap.start < end and start < gap.end
    )


@dataclass(frozen=True, slots=True)
class Scenario:
    """A plain value: `edits` in the order in which they were made, `undone` with the last one undone last."""

    edits: tuple[Edit, ...] = ()
    undone: tuple[Edit, ...] = ()

    def add(self, *edits: Edit) -> Scenario:
        """With `edits` made; what was undone before cannot be redone any more."""
        return Scenario((*self.edits, *edits))

    def undo(self) -> Scenario:
        """Without the last edit; as it is when there is none."""
        return Scenario(self.edits[:-1], (*self.undone, self.edits[-1])) if self.edits else self

    def redo(self) -> Scenario:
        """With the edit that was undone last."""
        return Scenario((*self.edits, self.undone[-1]), self.undone[:-1]) if self.undone else self

    def without(self, place: int) -> Scenario:
        """Without the edit at `place`, whatever came after it."""
        return replace(self, edits=(*self.edits[:place], *self.edits[place + 1 :]), undone=())

    def of(self, problem: Problem) -> Problem:
        """`problem` after the edits; raises InputError as `apply` does."""
        return apply(problem, self.edits)
