"""The problem: every buffer that has to be placed, as numpy columns; those with gaps cut into rectangles."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from memplan_engine.callers import Callers
from memplan_engine.errors import InputError
from memplan_engine.graph import MAX_BYTES, Graph
from memplan_engine.schedule import Schedule
from memplan_engine.scope import NO_BASIS, Basis, Scope

Ints = NDArray[np.int64]
T = TypeVar("T")
FREE = -1
"""Value of `Problem.fixed` for a buffer whose offset the strategy may choose."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Steps `[start, end)` inside a buffer's lifetime in which it needs only the bytes `[low, high)` of
    itself (counted from its offset), or none at all when `low == high`. MiniMalloc's `gaps`."""

    start: int
    end: int
    low: int = 0
    high: int = 0


@dataclass(frozen=True, slots=True)
class Buffer:
    """One row of a Problem: bytes, steps, and the fixed offset if there is one."""

    name: str
    start: int
    end: int
    size: int
    alignment: int
    fixed: int | None
    gaps: tuple[Gap, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """The graph and schedule that a problem was made from; its buffers bear the names of the storages."""

    graph: Graph
    schedule: Schedule


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """All buffers to be placed together. Build one with `make_problem`, which checks it.

    `start`, `end` (half-open, steps), `size` and `alignment` (bytes) are read-only int64 arrays of n.
    `fixed` holds an offset in bytes, or FREE. `gaps` maps a buffer's index to its gaps, sorted by start.
    `steps` is the number of steps on the time axis. `callers` says of recorded buffers who asked for them;
    `ids` is what the list they come from calls the buffers, where it has names beside its ids; `scope` what
    the buffers are all of, and `basis` what that rests on. Equality and `fingerprint` look at everything but
    `name`, `origin`, `callers`, `ids`, `scope` and `basis`. `worked_out` keeps what `once` has worked out.
    """

    name: str
    names: tuple[str, ...]
    start: Ints
    end: Ints
    size: Ints
    alignment: Ints
    fixed: Ints
    gaps: dict[int, tuple[Gap, ...]]
    steps: int
    origin: Origin | None = field(default=None, repr=False)
    callers: Callers | None = field(default=None, repr=False)
    ids: tuple[str, ...] | None = field(default=None, repr=False)
    scope: Scope = Scope.BUFFERS
    basis: Basis = NO_BASIS
    worked_out: dict[Callable[[Problem], Any], Any] = field(default_factory=dict, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Problem) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __getitem__(self, index: int) -> Buffer:
        fixed = int(self.fixed[index])
        return Buffer(
            self.names[index],
            int(self.start[index]),
            int(self.end[index]),
            int(self.size[index]),
            int(self.alignment[index]),
            None if fixed == FREE else fixed,
            self.gaps.get(index, ()),
        )

    @property
    def fingerprint(self) -> str:
        """SHA-256 over names, columns, gaps and steps, in hexadecimal."""
        digest = hashlib.sha256(f"{self.steps}|{sorted(self.gaps.items())}|".encode())
        for column in (self.start, self.end, self.size, self.alignment, self.fixed):
            digest.update(column.tobytes())
        digest.update("\0".join(self.names).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def once(self, make: Callable[[Problem], T]) -> T:
        """`make(self)`, worked out at the first call and kept as long as this problem. Who asks shares the
        value with everybody else and must not write into it."""
        if make not in self.worked_out:
            self.worked_out[make] = make(self)
        value: T = self.worked_out[make]
        return value

    @property
    def total_bytes(self) -> int:
        """Sum of all sizes."""
        return int(self.size.sum())


def make_problem(
    start: Sequence[int] | Ints,
    end: Sequence[int] | Ints,
    size: Sequence[int] | Ints,
    *,
    names: Sequence[str] | None = None,
    alignment: int | Sequence[int] | Ints = 1,
    fixed: Sequence[int] | Ints | None = None,
    gaps: Mapping[int, tuple[Gap, ...]] | None = None,
    steps: int | None = None,
    name: str = "problem",
    origin: Origin | None = None,
    callers: Callers | None = None,
    ids: Sequence[str] | None = None,
    scope: Scope = Scope.BUFFERS,
    basis: Basis = NO_BASIS,
) -> Problem:
    """Check the columns and freeze them into a Problem.

    Parameters are as in `Problem`; `alignment` may be one number for all; `names` default to "0", "1", …;
    `steps` defaults to the last end. With an `origin`, `scope` and `basis` are its graph's.

    Raises
    ------
    InputError: columns of unequal length; a negative start or size; an end not after its start; an
        alignment below 1; a fixed offset that is negative or not a multiple of the alignment; a gap that
        leaves its lifetime, its buffer or the order; sizes, alignments and the largest fixed offset that sum
        past 2^63−1; a name or an id twice.
    """
    columns = {"start": start, "end": end, "size": size}
    arrays = {key: int_column(value, key, name) for key, value in columns.items()}
    n = len(arrays["start"])
    arrays["alignment"] = int_column(
        np.full(n, alignment) if np.ndim(alignment) == 0 else alignment, "alignment", name
    )
    arrays["fixed"] = int_column(np.full(n, FREE) if fixed is None else fixed, "fixed", name)
    labels = tuple(map(str, range(n))) if names is None else tuple(names)
    lengths = {key: len(value) for key, value in arrays.items()} | {"names": len(labels)}
    lengths |= {} if ids is None else {"ids": len(ids)}
    for key, length in lengths.items():
        if length != n:
            raise InputError(name, f"column {key}", f"{length} values", f"{n}, as many as start has")
    _check_columns(arrays, labels, name)
    _check_unique(ids or (), "id", name)
    checked_gaps = _check_gaps(gaps or {}, arrays, labels, name)
    last = int(arrays["end"].max()) if n else 0
    if steps is not None and steps < last:
        raise InputError(name, "steps", str(steps), f"at least {last}, the last end")
    for array in arrays.values():
        array.flags.writeable = False
    return Problem(
        name=name,
        names=labels,
        gaps=checked_gaps,
        steps=last if steps is None else steps,
        origin=origin,
        callers=callers,
        ids=None if ids is None else tuple(ids),
        scope=scope if origin is None else origin.graph.scope,
        basis=basis if origin is None else origin.graph.basis,
        **arrays,
    )


def select(problem: Problem, rows: Ints, name: str = "") -> Problem:
    """The buffers `rows` (indices, in any order) of `problem` on the same time axis, as a problem of their
    own, called `name` or as the whole. Nothing is checked again."""
    indices = rows.tolist()
    columns = {key: getattr(problem, key)[rows] for key in ("start", "end", "size", "alignment", "fixed")}
    for column in columns.values():
        column.flags.writeable = False
    return replace(
        problem,
        name=name or problem.name,
        names=tuple(problem.names[row] for row in indices),
        gaps={position: problem.gaps[row] for position, row in enumerate(indices) if row in problem.gaps},
        origin=None,
        callers=problem.callers.select(rows) if problem.callers else None,
        ids=None if problem.ids is None else tuple(problem.ids[row] for row in indices),
        **columns,
    )


def int_column(values: int | Sequence[int] | Ints, key: str, source: str) -> Ints:
    """`values` as an int64 array of one dimension, a copy; raises InputError naming the column `key`."""
    try:
        array = np.asarray(values)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise TypeError
        if array.dtype.kind == "u" and int(array.max(initial=0)) > MAX_BYTES:
            raise OverflowError
        return np.array(array.astype(np.int64, casting="same_kind" if array.size else "unsafe"))
    except (OverflowError, TypeError, ValueError):
        raise InputError(
            source, f"column {key}", "values that are not 64-bit integers", "whole numbers below 2^63"
        ) from None


def _check_columns(columns: dict[str, Ints], names: tuple[str, ...], source: str) -> None:
    start, end, size = columns["start"], columns["end"], columns["size"]
    alignment, fixed = columns["alignment"], columns["fixed"]
    _check_unique(names, "name", source)
    rules = (
        (start < 0, "start {start}", "0 or more"),
        (end <= start, "end {end} (half-open) with start {start}", "an end after the start"),
        (size < 0, "size {size}", "0 or more bytes"),
        (alignment < 1, "alignment {alignment}", "1 or more"),
        (fixed < FREE, "offset {fixed}", "0 or more bytes"),
        (
            (fixed > 0) & (fixed % np.maximum(alignment, 1) != 0),
            "offset {fixed}",
            "a multiple of alignment {alignment}",
        ),
    )
    for broken, found, expected in rules:
        if broken.any():
            row = int(np.argmax(broken))
            values = {key: int(column[row]) for key, column in columns.items()}
            raise InputError(
                source, f"buffer {names[row]!r}", found.format(**values), expected.format(**values)
            )
    # No placement passes this: below 2^63 no kernel overflows.
    worst = _exact_sum(size) + _exact_sum(alignment) + int(fixed.max(initial=0))
    if worst > MAX_BYTES:
        raise InputError(
            source,
            "column size",
            f"sizes, alignments and offsets that sum to {worst}",
            "a sum below 2^63",
        )


def _check_unique(labels: Sequence[str], noun: str, source: str) -> None:
    if len(set(labels)) != len(labels):
        twice = Counter(labels).most_common(1)[0][0]
        raise InputError(source, f"buffer {twice!r}", f"the {noun} twice", f"unique {noun}s")


def _exact_sum(column: Ints) -> int:
    """The sum of non-negative numbers, in two halves of 32 bits so that neither overflows."""
    return (int((column >> 32).sum()) << 32) + int((column & 0xFFFFFFFF).sum())


def _check_gaps(
    gaps: Mapping[int, tuple[Gap, ...]], columns: dict[str, Ints], names: tuple[str, ...], source: str
) -> dict[int, tuple[Gap, ...]]:
    checked = {}
    for row in sorted(gaps):
        if not 0 <= row < len(names):
            raise InputError(source, "gaps", f"buffer {row}", f"an index below {len(names)}")
        place = f"buffer {names[row]!r}"
        ordered = tuple(sorted(gaps[row], key=lambda gap: gap.start))
        start, end, size = (int(columns[key][row]) for key in ("start", "end", "size"))
        previous = start
        for gap in ordered:
            if not previous <= gap.start < gap.end <= end:
                raise InputError(
                    source,
                    place,
                    f"gap {gap.start}-{gap.end}",
                    f"gaps inside the lifetime {start}-{end} that do not overlap",
                )
            if not 0 <= gap.low <= gap.high <= size:
                raise InputError(
                    source, place, f"gap window {gap.low}:{gap.high}", f"a window within 0:{size}"
                )
            previous = gap.end
        if ordered:
            # Plain integers: the fingerprint is taken from their text.
            checked[int(row)] = tuple(
                Gap(int(gap.start), int(gap.end), int(gap.low), int(gap.high)) for gap in ordered
            )
    return checked


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """Rectangles of time × bytes: piece p belongs to buffer `owner[p]`, is there in the steps
    `[start[p], end[p])` and takes the bytes `[low[p], high[p])` counted from its owner's offset.

    `first` has n + 1 entries: the pieces of buffer b are `first[b] … first[b + 1] − 1`, in order of time.
    A buffer without gaps is one piece with low 0 and high = size.
    """

    first: Ints
    owner: Ints
    start: Ints
    end: Ints
    low: Ints
    high: Ints


def cut(problem: Problem) -> Pieces:
    """The pieces of every buffer, in buffer order; all columns are int64 arrays. Cut once a problem."""
    return problem.once(_cut)


def _cut(problem: Problem) -> Pieces:
    n = len(problem)
    if not problem.gaps:
        whole = np.arange(n + 1, dtype=np.int64)
        low = np.zeros(n, dtype=np.int64)
        return Pieces(whole, whole[:n], problem.start, problem.end, low, problem.size)
    rows: list[tuple[int, int, int, int, int]] = []
    counts = np.ones(n, dtype=np.int64)
    for buffer, gaps in problem.gaps.items():
        own = _cut_one(buffer, problem, gaps)
        counts[buffer] = len(own)
        rows.extend(own)
    whole_ids = np.setdiff1d(np.arange(n), np.fromiter(problem.gaps, dtype=np.int64))
    whole_rows = np.column_stack(
        [
            whole_ids,
            problem.start[whole_ids],
            problem.end[whole_ids],
            np.zeros_like(whole_ids),
            problem.size[whole_ids],
        ]
    )
    table = np.concatenate([whole_rows, np.array(rows, dtype=np.int64).reshape(-1, 5)])
    table = table[np.lexsort((table[:, 1], table[:, 0]))]
    first = np.concatenate([[0], np.cumsum(counts)])
    owner, start, end, low, high = (np.ascontiguousarray(table[:, column]) for column in range(5))
    return Pieces(first, owner, start, end, low, high)


def _cut_one(buffer: int, problem: Problem, gaps: tuple[Gap, ...]) -> list[tuple[int, int, int, int, int]]:
    size, end, clock = int(problem.size[buffer]), int(problem.end[buffer]), int(problem.start[buffer])
    pieces = []
    for gap in gaps:
        if clock < gap.start:
            pieces.append((buffer, clock, gap.start, 0, size))
        if gap.low < gap.high:
            pieces.append((buffer, gap.start, gap.end, gap.low, gap.high))
        clock = gap.end
    if clock < end:
        pieces.append((buffer, clock, end, 0, size))
    return pieces
