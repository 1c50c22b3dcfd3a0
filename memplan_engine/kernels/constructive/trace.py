"""What a kernel looks at and what it takes, step by step, while it plans: what a replay is made of.

A kernel that can be traced has a last argument `trace`, None when it only plans. Numba leaves out every
branch under `trace is not None` then: planning is compiled as if those branches did not exist, and the
tracing twin is compiled from the same lines when somebody first asks for a replay.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Ints

LISTED = 32
"""How many candidates of a step are listed: the first, the one that is taken, and the last."""
BUFFER, RESULT, SEEN, FITTING, TAKEN, KIND, OTHER, OTHER_RESULT = range(8)
"""Columns of `Trace.steps`."""
NONE = -1


class Trace(NamedTuple):
    """`steps`: for each step the buffer, what it got, how many candidates were looked at, how many of them
    were possible, the place in `listed` of the one taken (NONE for none of them), a kind and another buffer
    with what it got, as the kernel says. `listed[step]`: up to LISTED candidates of four numbers each, which
    the kernel explains. `begun[0]`: how many steps there are.
    """

    steps: Ints
    listed: Ints
    begun: Ints


def make_trace(steps: int) -> Trace:
    """Room for `steps` steps. Pages that are never written cost nothing."""
    return Trace(
        np.empty((steps, 8), dtype=np.int64),
        np.empty((steps, LISTED, 4), dtype=np.int64),
        np.zeros(1, dtype=np.int64),
    )


@kernel
def begin_step(trace: Trace, buffer: int) -> None:
    """From now on `buffer` is placed."""
    step = trace.begun[0]
    trace.begun[0] += 1
    trace.steps[step] = NONE
    trace.steps[step, BUFFER] = buffer
    trace.steps[step, SEEN] = trace.steps[step, FITTING] = trace.steps[step, KIND] = 0


@kernel
def note(trace: Trace, one: int, two: int, three: int, four: int, fits: bool) -> None:
    """A candidate is looked at. Once the list is full, the last row is that of the latest."""
    step = trace.begun[0] - 1
    row = min(trace.steps[step, SEEN], LISTED - 1)
    trace.listed[step, row, 0], trace.listed[step, row, 1] = one, two
    trace.listed[step, row, 2], trace.listed[step, row, 3] = three, four
    trace.steps[step, SEEN] += 1
    trace.steps[step, FITTING] += fits


@kernel
def take_noted(trace: Trace) -> None:
    """The candidate noted last is taken, unless a later one is."""
    step = trace.begun[0] - 1
    row = min(trace.steps[step, SEEN], LISTED) - 1
    if row == LISTED - 1:
        # Out of the way of those to come.
        trace.listed[step, row - 1] = trace.listed[step, row]
        row -= 1
    trace.steps[step, TAKEN] = row


@kernel
def end_step(trace: Trace, result: int, kind: int) -> None:
    """The buffer got `result`."""
    step = trace.begun[0] - 1
    trace.steps[step, RESULT], trace.steps[step, KIND] = result, kind


@kernel
def note_other(trace: Trace, other: int, result: int) -> None:
    """Another buffer moves to `result` in the same step."""
    step = trace.begun[0] - 1
    trace.steps[step, OTHER], trace.steps[step, OTHER_RESULT] = other, result
