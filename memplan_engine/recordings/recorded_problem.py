"""A recording as a problem, and the allocator's own placement as a plan."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from memplan_engine.callers import Callers
from memplan_engine.plan import Plan
from memplan_engine.planner import adopt
from memplan_engine.problem import Ints, Problem, make_problem
from memplan_engine.recordings.allocator_recording import Recording
from memplan_engine.recordings.observation import Level, Observation, observation_recording
from memplan_engine.recordings.recorded_spans import Spans, buffers, offsets
from memplan_engine.scope import Scope
from memplan_engine.units import format_bytes

GRANULE = 512
"""PyTorch's CUDA allocator hands out multiples of it; kernels may count on addresses that are."""
OLDER, UNKNOWN = "before the recording", "buffer"
RECORDED = "recorded"
"""The name of the allocator's own placement among the strategies."""


def recording_problem(recording: Recording, spans: Spans | None = None) -> Problem:
    """Every allocation as a buffer of the size that was requested, alive from its event to its free.

    Step k is after the k-th event, step 0 before the first. Names are the line that asked for the memory and
    a number; `provenance` has the line. Offsets are multiples of 512 bytes, or of what all addresses are
    multiples of.

    Raises
    ------
    InputError: sizes that are negative, or that sum past 2^63 − 1.
    """
    spans = buffers(recording) if spans is None else spans
    callers = Callers(spans.stack, recording.stacks)
    return make_problem(
        spans.start,
        spans.end,
        spans.size,
        names=_names(spans, callers, recording.labels),
        alignment=_granule(spans.address),
        steps=recording.steps,
        name=recording.name,
        callers=callers,
        scope=Scope.EAGER,
    )


def observed_problem(
    observation: Observation, level: Level | str | None = None, device: int | None = None
) -> Problem:
    """Every allocation that was observed as a buffer, alive from its event to its free; step k is after the
    k-th event, step 0 before the first. What the run freed and had not made is there from step 0 on.

    Names are those of the ops: "conv2d_1", and "conv2d_1 temporary" for what was free again before the op
    ended; a second one has a number. Arguments and errors are those of `observation_recording`.
    """
    return recording_problem(observation_recording(observation, level, device))


def recorded_plan(recording: Recording, problem: Problem | None = None) -> Plan:
    """Where the allocator put everything, as a plan of strategy "recorded"; `validate_plan` says whether the
    recording makes sense. `problem` is that of the recording if it is known already."""
    spans = buffers(recording)
    problem = recording_problem(recording, spans) if problem is None else problem
    return adopt(problem, offsets(recording, spans), RECORDED)


def _granule(address: Ints) -> int:
    """The largest power of two up to GRANULE of which every address is a multiple."""
    bits = int(np.bitwise_or.reduce(address)) if len(address) else 0
    return GRANULE if not bits & (GRANULE - 1) else bits & -bits


def _names(spans: Spans, callers: Callers, labels: tuple[str, ...]) -> list[str]:
    """ "train.py:12 forward #3": by the caller, or "conv2d", "conv2d #2" by `labels`, where there are any.

    Counted in order of start; without a stack by the size, so that the same tensor of two runs has the same
    name.
    """
    counts: dict[str, int] = {}
    names = []
    for stack, start, size in zip(
        spans.stack.tolist(), spans.start.tolist(), spans.size.tolist(), strict=True
    ):
        if stack < 0:
            label = _unknown(size, start == 0)
        else:
            label = labels[stack] if labels else callers.stacks.caller(stack).label
        counts[label] = number = counts.get(label, 0) + 1
        names.append(label if labels and number == 1 else f"{label} #{number}")
    return names


@lru_cache(4096)
def _unknown(nbytes: int, older: bool) -> str:
    return f"{OLDER if older else UNKNOWN}, {format_bytes(nbytes)}"
