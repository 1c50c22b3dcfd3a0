"""What kernels noted while they planned, as the columns of a replay."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from memplan_engine.kernels.constructive.place import MOST
from memplan_engine.kernels.constructive.trace import BUFFER, FITTING, LISTED, SEEN, TAKEN, Trace
from memplan_engine.problem import Ints
from memplan_engine.replay.replay_values import VERDICTS, Holes, Objects, Verdict

NO_END = -1


def read_holes(trace: Trace, size: Ints, fits: Verdict, above: Verdict) -> Holes:
    """The holes of all steps; `size` is that of each buffer, bytes.

    `fits` is the verdict of a hole with room that was not taken, `above` that of the one without an end.
    """
    first, step, taken, rows = _listed(trace)
    more, possible = _counts(trace, first)
    kept = taken | ~_inside_another(step, rows[:, 0], rows[:, 1])
    step, taken, rows = step[kept], taken[kept], rows[kept]
    first = np.searchsorted(step, np.arange(len(first)))
    low, high, offset = (rows[:, column] for column in range(3))
    needed = size[trace.steps[: trace.begun[0], BUFFER]][step]
    short = np.maximum(0, offset - (high - needed))
    as_tight = (high - low == _of_taken(high - low, taken, step)) & (fits is Verdict.NOT_TIGHTEST)
    verdict = np.select(
        [taken, short > 0, high == MOST, as_tight],
        [VERDICTS.index(each) for each in (Verdict.TAKEN, Verdict.TOO_SMALL, above, Verdict.NOT_LOWEST)],
        VERDICTS.index(fits),
    )
    columns = (first, more, possible, low, np.where(high == MOST, NO_END, high), offset, short, verdict)
    return Holes(*(frozen(column) for column in columns))


def read_objects(trace: Trace, size: Ints, smaller: Verdict, enough: Verdict) -> Objects:
    """The shared objects of all steps; `size` is that of each buffer, bytes.

    `smaller` and `enough` are the verdicts of one that was free and not taken, by whether it is smaller than
    the buffer.
    """
    first, step, taken, rows = _listed(trace)
    number, nbytes, value, free = (rows[:, column] for column in range(4))
    needed = size[trace.steps[: trace.begun[0], BUFFER]][step]
    equal = value == _of_taken(value, taken, step)
    verdict = np.select(
        [taken, free == 0, equal, nbytes < needed],
        [VERDICTS.index(each) for each in (Verdict.TAKEN, Verdict.IN_USE, Verdict.NO_BETTER, smaller)],
        VERDICTS.index(enough),
    )
    more, possible = _counts(trace, first)
    columns = (first, more, possible, number, nbytes, value, verdict)
    return Objects(*(frozen(column) for column in columns))


def frozen(column: Ints) -> Ints:
    """A read-only int64 column of its own."""
    own = np.array(column, dtype=np.int64)
    own.flags.writeable = False
    return own


def _listed(trace: Trace) -> tuple[Ints, Ints, NDArray[np.bool_], Ints]:
    """Where the rows of each step begin, and for each row its step, whether it was taken, and its numbers."""
    count = int(trace.begun[0])
    steps, listed = trace.steps[:count], trace.listed[:count]
    rows = np.minimum(steps[:, SEEN], LISTED)
    # Taken as the last of more than there is room for: it stands there twice.
    last = listed[:, LISTED - 1]
    full = (steps[:, SEEN] >= LISTED) & (steps[:, TAKEN] == LISTED - 2)
    rows = rows - (full & (last == listed[:, LISTED - 2]).all(axis=1))
    first = np.concatenate([[0], np.cumsum(rows)])
    step = np.repeat(np.arange(count), rows)
    place = np.arange(len(step)) - first[step]
    return first, step, steps[step, TAKEN] == place, listed[step, place]


def _inside_another(step: Ints, low: Ints, high: Ints) -> NDArray[np.bool_]:
    """Which rows lie within another row of their step, or say what the next says again.

    A neighbour that meets several pieces of a buffer with gaps ends a hole once for each, and only the
    outermost is one; the others never have room. In a step, neither `low` nor `high` falls from row to row:
    what lies within another row shares a side with it.
    """
    if not len(step):
        return np.zeros(0, dtype=np.bool_)
    same_step = step[1:] == step[:-1]
    same_low, same_high = same_step & (low[1:] == low[:-1]), same_step & (high[1:] == high[:-1])
    of_low, of_high = (np.concatenate([[0], np.cumsum(~same)]) for same in (same_low, same_high))
    top = high[np.append(np.flatnonzero(~same_low), len(step) - 1)][of_low]
    bottom = low[np.append(0, np.flatnonzero(~same_high) + 1)][of_high]
    again = np.append(same_low & same_high, False)
    inside: NDArray[np.bool_] = (high < top) | (low > bottom) | again
    return inside


def _of_taken(value: Ints, taken: NDArray[np.bool_], step: Ints) -> Ints:
    """For each row the `value` of the row that its step took; −1 where it took none."""
    of_step = np.full(int(step.max(initial=-1)) + 1, -1, dtype=np.int64)
    of_step[step[taken]] = value[taken]
    return of_step[step]


def _counts(trace: Trace, first: Ints) -> tuple[Ints, Ints]:
    steps = trace.steps[: trace.begun[0]]
    return steps[:, SEEN] - np.diff(first), steps[:, FITTING]
