"""Which bytes of a method are in use at which instruction.

The program names tensors and places, not lifetimes. A tensor is there from the instruction that writes it to
the last one that reads it. What is read before anything wrote it is another name of what was last written at
its place (a view), or else state that the program keeps. Results of a condition's branches are moved as
pointers: the bytes stay those of the branch, but for the branch that did not run.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from memplan_engine.errors import InputError
from memplan_engine.formats.executorch_program.pte_tables import MOST_USES, Method, Step


@dataclass(slots=True)
class Use:
    """Tensors that are one buffer: the first and the last step, those at which it is not there, and the
    values; `written` where the first use writes. `read`: the last step that reads one of the values."""

    first: int
    last: int
    values: list[int]
    written: bool
    name: str
    gaps: list[tuple[int, int]] = field(default_factory=list)
    read: int = 0


def _last_reads(method: Method) -> dict[int, int]:
    """By value the last instruction that reads it by its own name; behind all others for results."""
    last: dict[int, int] = {}
    for at, step in enumerate(method.steps):
        last |= dict.fromkeys((*step.reads, step.source), at)
    return last | dict.fromkeys(method.outputs, len(method.steps))


class Uses:
    """The buffers of a method, by value."""

    def __init__(self, method: Method) -> None:
        self.method = method
        self.by_value: dict[int, Use] = {}
        self._last_written: dict[tuple[int, int], Use] = {}
        self._last_read = _last_reads(method)
        self._moves: list[tuple[int, int, int]] = []
        for number in method.inputs:
            self._touch(0, number, True, "input")
        for at, step in enumerate(method.steps):
            self._step(at, step)
        for number in method.outputs:
            self._touch(len(method.steps), number, False, "output")
        self._close_loops()
        for _, source, target in self._moves:
            if method.placed[source].offset == method.placed[target].offset:
                self._unite(self.by_value[source], self.by_value[target])
        behind = self._behind_moves() if self._moves else []
        joined: dict[int, int] = {}
        for at, source, target in reversed(self._moves):
            other = joined.get(target)
            self._hold_moved(at, behind[at], source, target, other)
            joined[target] = source

    def buffers(self) -> list[Use]:
        """Each once, in the order of their values."""
        return list({id(use): use for _, use in sorted(self.by_value.items())}.values())

    def _step(self, at: int, step: Step) -> None:
        for number in step.reads:
            self._touch(at, number, False, step.name)
        for number in step.writes:
            self._touch(at, number, True, step.name)
        if step.source in self.method.placed and step.target in self.method.placed:
            self._touch(at, step.source, False, step.name)
            self._touch(at, step.target, True, step.name)
            self._moves.append((at, step.source, step.target))

    def _touch(self, at: int, number: int, writes: bool, name: str) -> None:
        placed = self.method.placed.get(number)
        if placed is None:
            return
        place = placed.memory, placed.offset
        use = self.by_value.get(number)
        if use is None:
            there = self._last_written.get(place)
            # Written over what is read here for the last time, it is in place; read first, it is a view. Else
            # two things are in the same bytes.
            if there is not None and (not writes or there.read <= there.last == at):
                use = there
                use.values.append(number)
            else:
                use = Use(at if writes else 0, at, [number], writes, name)
                if not writes or placed.has_content:
                    use.first, use.last, use.written = 0, len(self.method.steps), False
            self.by_value[number] = use
            use.read = max(use.read, self._last_read.get(number, 0))
        use.last = max(use.last, at)
        if writes:
            self._last_written[place] = use

    def _close_loops(self) -> None:
        """What a loop reads that was there before it, and what is read behind it, is there as long as it."""
        loops = [(step.jumps_to, at) for at, step in enumerate(self.method.steps) if 0 <= step.jumps_to <= at]
        buffers = self.buffers()
        if len(loops) * len(buffers) > MOST_USES:
            found = f"{len(loops):,} loops around {len(buffers):,} tensors"
            raise InputError(self.method.source, "instructions", found, "fewer")
        for begin, end in loops:
            for use in buffers:
                if use.first < begin <= use.last:
                    use.last = max(use.last, end)
                elif begin <= use.first <= end < use.last:
                    use.first = begin

    def _unite(self, one: Use, other: Use) -> None:
        if len(one.values) < len(other.values):
            one, other = other, one
        if one is not other:
            one.first, one.last = min(one.first, other.first), max(one.last, other.last)
            one.values += other.values
            one.gaps += other.gaps
            self.by_value |= dict.fromkeys(other.values, one)

    def _behind_moves(self) -> list[int]:
        """(steps,) the first step from each on that is no move."""
        behind = list(range(len(self.method.steps) + 1))
        for at in range(len(self.method.steps) - 1, -1, -1):
            if self.method.steps[at].source >= 0:
                behind[at] = behind[at + 1]
        return behind

    def _hold_moved(self, at: int, behind: int, moved: int, to: int, other: int | None) -> None:
        """Have what a branch gave be there as long as it is read, but for the other branch, which a jump at
        the step `behind` the moves leaves out; `other` is what that one gave."""
        source, target, placed = self.by_value[moved], self.by_value[to], self.method.placed
        if source is target or target.last <= source.last:
            return
        end = self.method.steps[behind].jumps_to if behind < len(self.method.steps) else -1
        leaves_out = behind < end <= target.last and source.last <= at
        beside = self.by_value[other] if other is not None else source
        if leaves_out and beside is not source and at < beside.first:
            low, high = sorted((placed[moved], placed[other or 0]), key=lambda each: each.offset)
            if low.offset == high.offset:
                # Either of them is there, in the same bytes.
                gap = at + 1, beside.first
                self._unite(source, beside)
                self.by_value[moved].gaps.append(gap)
                return
            if high.offset < low.offset + low.nbytes:
                # Which of the two is there behind both branches cannot be said of a buffer: the last one.
                return
        if leaves_out:
            source.gaps.append((at + 1, end))
        source.last = target.last
