"""What a recording cost: live and reserved bytes over time, fragmentation, what was there at each failure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from memplan_engine.bounds import Bound
from memplan_engine.callers import Caller, Stacks
from memplan_engine.plan import Plan
from memplan_engine.planner import make_plan
from memplan_engine.problem import Ints, Problem
from memplan_engine.profile import live_at
from memplan_engine.recordings.allocator_recording import Action, Partial, Recording, reserved_over_time
from memplan_engine.recordings.recorded_problem import Spans, buffers, recording_problem
from memplan_engine.strategies.base import SolveLimits, Strategy, limits_were_budget


@dataclass(frozen=True, slots=True)
class Group:
    """Buffers that one line of code asked for: how many, and their bytes. `kinds` are its operations, the
    most bytes first; `caller` has the first of them."""

    caller: Caller
    count: int
    nbytes: int
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Moment:
    """A step with its bytes: live, and reserved of the device. `groups` is what is live, the most bytes
    first; they sum to `live`."""

    step: int
    live: int
    reserved: int
    groups: tuple[Group, ...]

    @property
    def unused(self) -> int:
        """Reserved and not live: fragments, rounding, and what the allocator keeps for later."""
        return self.reserved - self.live


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """A request that failed at `moment`: bytes `asked`, and what the device still had free."""

    moment: Moment
    asked: int
    device_free: int
    stack: int

    @property
    def fits_unused(self) -> bool:
        """Whether the bytes were there, but in pieces: reserved and not live, together with what the device
        had free, are enough."""
        return self.asked <= self.moment.unused + self.device_free


@dataclass(frozen=True, slots=True, eq=False)
class Cost:
    """What one recording cost. `peak` is the step with the most live bytes, `height` the one with the most
    reserved; `plan` is what one arena planned in advance would have needed, `bound` what no planner beats.
    `knows_reserved`: the file says what was reserved; else it is taken for what was live. Of a partial
    recording all of these are of the part that was recorded, and the least that the run had."""

    recording: Recording
    problem: Problem
    peak: Moment
    height: Moment
    failures: tuple[OutOfMemory, ...]
    bound: Bound
    plan: Plan
    older: int
    younger: int
    unmatched: int
    knows_reserved: bool = True
    over_time: OverTime | None = None

    @property
    def fragmentation(self) -> int | None:
        """Peak reserved minus peak live, bytes: what the device had to have beyond what was ever in use. None
        for a partial recording: what was in use before it is unknown."""
        return None if self.recording.partial else self.height.reserved - self.peak.live

    @property
    def saved(self) -> int | None:
        """Peak reserved minus the planned arena, bytes; None for a partial recording."""
        return None if self.recording.partial else self.height.reserved - self.plan.arena_bytes

    @property
    def seconds(self) -> float:
        """From the first event to the last; 0 where a file has no times."""
        times = self.recording.events["time"]
        times = times[times > 0]
        return float(times.max() - times.min()) / 1e6 if len(times) else 0.0


@limits_were_budget
def cost_of(
    recording: Recording, strategy: str | Strategy = "auto", limits: SolveLimits | None = None
) -> Cost:
    """What `recording` cost, and what `strategy` makes of the same buffers.

    Raises
    ------
    MemplanError: as `recording_problem` and `make_plan` do.
    """
    spans = buffers(recording)
    problem = recording_problem(recording, spans)
    plan = make_plan(problem, strategy, limits=limits)
    over_time = memory_over_time(recording, spans)
    return Cost(
        recording,
        problem,
        moment_at(problem, over_time, int(np.argmax(over_time.live))),
        moment_at(problem, over_time, int(np.argmax(over_time.reserved))),
        failures_of(recording, problem, over_time),
        plan.bound,
        plan,
        older=int((spans.start == 0).sum()),
        younger=int((spans.end == recording.steps).sum()),
        unmatched=spans.double_frees + spans.lost_frees,
        knows_reserved=over_time.knows_reserved,
        over_time=over_time,
    )


def moment_at(problem: Problem, over: OverTime, step: int) -> Moment:
    """What is live at `step` of a recording's problem, and what was reserved."""
    return Moment(step, int(over.live[step]), int(over.reserved[step]), groups_at(problem, step))


def failures_of(
    recording: Recording, problem: Problem, over: OverTime, most: int | None = None
) -> tuple[OutOfMemory, ...]:
    """The requests that failed, the first `most` of them."""
    events = recording.events
    return tuple(
        OutOfMemory(
            moment_at(problem, over, row + 1),
            *(int(events[name][row]) for name in ("size", "address", "stack")),
        )
        for row in recording.rows(Action.OOM)[:most].tolist()
    )


@dataclass(frozen=True, slots=True, eq=False)
class OverTime:
    """Live and reserved bytes, a value a step each (int64), and the steps of the failed requests. Where a
    file does not say what was reserved (`knows_reserved`), it is taken for what was live. `partial` is that
    of the recording."""

    live: Ints
    reserved: Ints
    failures: tuple[int, ...]
    knows_reserved: bool
    partial: tuple[Partial, ...] = ()


def memory_over_time(recording: Recording, spans: Spans | None = None) -> OverTime:
    """What `recording` had in use and what it held of the device, over time."""
    live = live_over_time(buffers(recording) if spans is None else spans, recording.steps)
    reserved = reserved_over_time(recording)
    failures = tuple((recording.rows(Action.OOM) + 1).tolist())
    # Where a file does not say it, no less can have been reserved than was in use.
    return OverTime(live, np.maximum(reserved, live), failures, bool(reserved.any()), recording.partial)


def thinned(over: OverTime, most: int) -> tuple[Ints, Ints, Ints]:
    """Steps, and the most live and reserved bytes from each of them to the next: `most` of them at most."""
    steps = len(over.live)
    begin = np.unique(np.linspace(0, steps, min(most, steps), endpoint=False).astype(np.int64))
    live, reserved = (np.maximum.reduceat(column, begin) for column in (over.live, over.reserved))
    return begin, live, reserved


def live_over_time(spans: Spans, steps: int) -> Ints:
    """Bytes in use, a value a step."""
    change = np.zeros(steps + 1, dtype=np.int64)
    np.add.at(change, spans.start, spans.size)
    np.subtract.at(change, spans.end, spans.size)
    return np.cumsum(change)[:-1]


def by_stack(problem: Problem, step: int) -> tuple[Stacks, list[tuple[int, int, int]]]:
    """The stacks of a recording, and of those that asked for what is live at `step` the number (−1: none was
    recorded), the bytes and how many buffers."""
    callers, rows = problem.callers, live_at(problem, step)
    stack = callers.stack[rows] if callers else np.full(len(rows), -1, dtype=np.int64)
    numbers, inverse = np.unique(stack, return_inverse=True)
    counts, nbytes = np.bincount(inverse, minlength=len(numbers)), np.zeros(len(numbers), dtype=np.int64)
    np.add.at(nbytes, inverse, problem.size[rows])
    found = zip(numbers.tolist(), nbytes.tolist(), counts.tolist(), strict=True)
    return callers.stacks if callers else Stacks(), list(found)


def groups_at(problem: Problem, step: int) -> tuple[Group, ...]:
    """What is live at `step` by the line that asked for it, the most bytes first; ties by label."""
    stacks, found = by_stack(problem, step)
    several: dict[str, list[tuple[Caller, int, int]]] = defaultdict(list)
    for number, size, count in found:
        caller = stacks.caller(number)
        several[caller.label].append((caller, count, size))
    groups = [_grouped(parts) for parts in several.values()]
    return tuple(sorted(groups, key=lambda group: (-group.nbytes, group.caller.label)))


def _grouped(parts: list[tuple[Caller, int, int]]) -> Group:
    """Stacks that end in one line, as (caller, buffers, bytes), together."""
    by_kind: dict[str, int] = defaultdict(int)
    for caller, _, size in parts:
        by_kind[caller.kind] += size
    kinds = tuple(sorted(by_kind, key=lambda kind: (-by_kind[kind], kind)))
    counts, sizes = sum(count for _, count, _ in parts), sum(size for *_, size in parts)
    return Group(replace(parts[0][0], kind=kinds[0]), counts, sizes, kinds)
