"""The checker of reuse: runs a graph on paper and sees whether every read finds the value that it means.

Shares no code with the transforms; what is known of op kinds (`kinds`) is all that both go by.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

from memplan_engine.errors import InputError
from memplan_engine.graph import Graph, Op
from memplan_engine.plan import Plan
from memplan_engine.rewrites.reuse.breaches import (
    Breach,
    Place,
    Rule,
    block_offsets,
    misplaced,
    not_the_same,
    overwrites,
    own_places,
    places_in,
    races,
    row_by_row,
    writes,
)
from memplan_engine.schedule import Schedule, sequential

UNDEFINED = -1
"""The write of bytes that nothing has written yet."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The bytes `[low, high)` of what was asked for hold the bytes of the write `write` from its byte `at`
    on."""

    low: int
    high: int
    write: int
    at: int


class Contents:
    """A memory, from address 0 on, as runs of bytes, each from one write. Run r begins at `_starts[r]` and
    ends where the next one begins; `_runs[r]` is its write, and the address at which byte 0 of that write
    would lie."""

    def __init__(self) -> None:
        self._starts: list[int] = [0]
        self._runs: list[tuple[int, int]] = [(UNDEFINED, 0)]

    def write(self, low: int, high: int, write: int, at: int = 0) -> None:
        """Put the bytes of `write` from `at` on into the addresses `[low, high)`."""
        if low >= high:
            return
        first, last = bisect_left(self._starts, low), bisect_right(self._starts, high)
        # What lay at `high` goes on behind it.
        behind = self._runs[last - 1]
        self._starts[first:last] = [low, high]
        self._runs[first:last] = [(write, low - at), behind]

    def read(self, low: int, high: int) -> list[Piece]:
        """What the addresses `[low, high)` hold, counted from `low`, in as few pieces as possible."""
        pieces: list[Piece] = []
        if low >= high:
            return pieces
        place = bisect_right(self._starts, low) - 1
        while place < len(self._starts) and self._starts[place] < high:
            begin = max(low, self._starts[place])
            end = min(high, self._starts[place + 1]) if place + 1 < len(self._starts) else high
            write, origin = self._runs[place]
            at = begin - origin if write != UNDEFINED else 0
            last = pieces[-1] if pieces else None
            if (
                last is not None
                and last.write == write
                and (write == UNDEFINED or last.at + last.high - last.low == at)
            ):
                pieces[-1] = Piece(last.low, end - low, write, last.at)
            else:
                pieces.append(Piece(begin - low, end - low, write, at))
            place += 1
        return pieces


def first_difference(expected: list[Piece], actual: list[Piece]) -> tuple[int, int] | None:
    """The first byte at which `actual`, of as many bytes, is not as in `expected`, and the write that is
    found there; bytes that are undefined in `expected` may be anything. None when all is as expected."""
    index = 0
    for piece in expected:
        while actual[index].high <= piece.low:
            index += 1
        scan = index
        while scan < len(actual) and actual[scan].low < piece.high:
            other = actual[scan]
            low = max(piece.low, other.low)
            same = other.write == piece.write and other.at - other.low == piece.at - piece.low
            if piece.write != UNDEFINED and not same:
                return low, other.write
            scan += 1
    return None


MOST_BREACHES = 100
ARENA = ""
"""The memory that all buffers of a plan share; other memories bear the names of storages."""


def check_reuse(
    original: Graph, reused: Graph, schedule: Schedule | None = None, *, alignment: int = 1
) -> tuple[Breach, ...]:
    """What goes wrong when `reused` is run in place of `original`; () when nothing does.

    Both graphs are run on paper, step by step: every byte of every storage carries the name of the write
    that put it there. Each op must find in `reused` what it finds in `original`, and so must whoever takes
    the outputs, and the caller who still has the inputs. A concatenation copies its inputs' bytes; inputs
    that lie inside the output already are not moved. Writing over one's own input is allowed to elementwise
    ops, element by element. Ops of one step run at once: none may write what another one touches.
    A tensor that began its storage must still begin at a multiple of the storage's alignment, or of
    `alignment` bytes where it has none.

    Strided tensors are taken as the bytes from their first to their last element, in both graphs alike.
    """
    bases = {storage.name: (storage.name, 0) for storage in reused.storages}
    return _run(original, reused, schedule or sequential(original), bases, alignment)


def check_plan_execution(
    plan: Plan, original: Graph | None = None, *, alignment: int = 1
) -> tuple[Breach, ...]:
    """What goes wrong when the plan's graph is run inside the arena; () when nothing does.

    As `check_reuse`, by addresses: all buffers of the plan lie at their offsets in one memory, and whatever
    is written there overwrites what was there before, whoever it belonged to. This proves lifetimes, gaps
    and offsets together, where `validate_plan` takes the lifetimes for granted. `original` is the graph
    before any transform, by default the plan's own.

    Raises
    ------
    InputError: a plan whose problem comes from no graph, or with another number of offsets than buffers.
    """
    problem = plan.problem
    if problem.origin is None:
        raise InputError(problem.name, "plan", "a problem that comes from no graph", "a plan of a graph")
    if len(plan.offsets) != len(problem):
        raise InputError(problem.name, "offsets", f"{len(plan.offsets)} offsets", f"{len(problem)}")
    graph = problem.origin.graph
    bases = {storage.name: (storage.name, 0) for storage in graph.storages}
    bases |= {
        name: (ARENA, offset) for name, offset in zip(problem.names, plan.offsets.tolist(), strict=True)
    }
    return _run(original or graph, graph, problem.origin.schedule, bases, alignment)


def _run(
    original: Graph, reused: Graph, schedule: Schedule, bases: Mapping[str, tuple[str, int]], alignment: int
) -> tuple[Breach, ...]:
    """What goes wrong where each storage of `reused` begins at `bases`: a memory and a byte."""
    breaches = not_the_same(original, reused)
    if breaches:
        return tuple(breaches[:MOST_BREACHES])
    expected, places = own_places(original), places_in(original, reused, bases)
    breaches = misplaced(original, reused, places, alignment)
    tensors = {tensor.name: tensor for tensor in original.tensors}
    by_step: dict[int, list[int]] = {}
    for index, step in enumerate(schedule.step_of_op):
        by_step.setdefault(step, []).append(index)
    machine = _Machine(original, expected, places)
    for step in sorted(by_step):
        breaches += races([original.ops[index] for index in by_step[step]], step, tensors, (expected, places))
        for index in by_step[step]:
            op = original.ops[index]
            breaches += overwrites(op, reused.ops[index], step, tensors, (expected, places))
            breaches += machine.run(op, step)
            if len(breaches) >= MOST_BREACHES:
                return tuple(breaches[:MOST_BREACHES])
    breaches += machine.finish(schedule.steps)
    return tuple(breaches[:MOST_BREACHES])


class _Machine:
    """Two memories side by side: `expected` as the original graph has it, `actual` as it is laid out now."""

    def __init__(self, graph: Graph, expected: Mapping[str, Place], actual: Mapping[str, Place]) -> None:
        self.graph, self.places = graph, (expected, actual)
        self.memories: tuple[dict[str, Contents], dict[str, Contents]] = ({}, {})
        self.tensors = {tensor.name: tensor for tensor in graph.tensors}
        self.writers: list[str] = []
        for name in (*graph.inputs, *graph.constants):
            self._write(name, "the caller")

    def run(self, op: Op, step: int) -> list[Breach]:
        """Let `op` read, then write; what it does not find as it should."""
        inputs = list(dict.fromkeys((*op.inputs, *op.mutates)))
        breaches = [breach for name in inputs for breach in self._compare(Rule.READ, name, op.name, step)]
        copies = self._joined(op)
        for name in writes(op, self.places[0]):
            if copies is None or name in op.mutates:
                self._write(name, op.name)
            else:
                self._copy(name, copies)
        return breaches

    def finish(self, steps: int) -> list[Breach]:
        """What the graph's caller does not find at the end: the outputs, and inputs that are his own."""
        breaches = [
            breach for name in self.graph.outputs for breach in self._compare(Rule.RETURNED, name, "", steps)
        ]
        for name in (*self.graph.inputs, *self.graph.constants):
            if self.places[1][name].memory != ARENA and name not in self.graph.outputs:
                breaches += self._compare(Rule.CALLERS, name, "", steps)
        return breaches

    def _memory(self, side: int, name: str) -> tuple[Contents, Place]:
        place = self.places[side][name]
        return self.memories[side].setdefault(place.memory, Contents()), place

    def _read(self, side: int, name: str) -> list[Piece]:
        memory, place = self._memory(side, name)
        return memory.read(place.low, place.high)

    def _write(self, name: str, writer: str) -> None:
        self.writers.append(writer)
        for side in (0, 1):
            memory, place = self._memory(side, name)
            memory.write(place.low, place.high, len(self.writers) - 1)

    def _joined(self, op: Op) -> tuple[list[Piece], list[Piece]] | None:
        """What the output of the concatenation `op` will hold on each side; None when its inputs do not
        become blocks of it, and the output is a value of its own."""
        offsets = block_offsets(op, self.tensors)
        if offsets is None:
            return None
        sides: tuple[list[Piece], list[Piece]] = ([], [])
        for name, low in zip(op.inputs, offsets, strict=True):
            tensor = self.tensors[name]
            if not row_by_row(tensor):
                # Its elements arrive in another order than they lie: bytes of a value of their own.
                self.writers.append(op.name)
                fresh = Piece(low, low + tensor.nbytes, len(self.writers) - 1, 0)
                sides[0].append(fresh)
                sides[1].append(fresh)
                continue
            for side in (0, 1):
                pieces = self._read(side, name)
                sides[side].extend(Piece(p.low + low, p.high + low, p.write, p.at) for p in pieces)
        return sides

    def _copy(self, name: str, copies: tuple[list[Piece], list[Piece]]) -> None:
        for side in (0, 1):
            memory, place = self._memory(side, name)
            for piece in copies[side]:
                memory.write(place.low + piece.low, place.low + piece.high, piece.write, piece.at)

    def _compare(self, rule: Rule, name: str, op: str, step: int) -> list[Breach]:
        difference = first_difference(self._read(0, name), self._read(1, name))
        if difference is None:
            return []
        byte, write = difference
        return [Breach(rule, step, op, name, self.writers[write] if write >= 0 else "", byte)]
