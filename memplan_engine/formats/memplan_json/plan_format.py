"""The JSON of a plan: its problem, the offsets, and what the strategy said of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Literal

from pydantic import FailFast, Field

from memplan_engine.bounds import Bound, BoundKind
from memplan_engine.errors import InputError
from memplan_engine.formats.memplan_json.json_base import Count, Counts, Strict, check_length
from memplan_engine.formats.memplan_json.problem_format import ProblemBody, body_of_problem, problem_from
from memplan_engine.graph import MAX_BYTES
from memplan_engine.plan import Parameter, Plan, make_objects, make_offsets
from memplan_engine.problem import Problem


class BoundEntry(Strict):
    """A lower bound on the arena in bytes, with its reason.

    `core` is the buffers that it rests on, where these are not all that are live at the step: their places
    in the problem's columns, ascending. Of a core that a search proved, `step` and `until` are the half-open
    stretch of steps within which each of them is live.
    """

    nbytes: Count
    kind: BoundKind
    step: Count
    unit: Annotated[int, Field(ge=1, le=MAX_BYTES)] = 1
    core: Counts = ()
    until: Count = 0


class PlanFile(Strict):
    """A file in the format memplan/plan, version 1. `offsets` and `arena_bytes` are bytes; `objects` is the
    shared object of each buffer, where buffers are assigned to whole objects."""

    format: Literal["memplan/plan"]
    version: Literal[1]
    strategy: str
    parameters: dict[str, Parameter] | None = None
    arena_bytes: Count
    bound: BoundEntry
    seconds: Annotated[float, Field(ge=0)] = 0.0
    offsets: Counts
    objects: Annotated[tuple[Count, ...] | None, FailFast()] = None
    problem: ProblemBody


def plan_from(file: PlanFile, source: str) -> Plan:
    """The plan; raises InputError when the offsets do not fit the problem or the arena that is stated.

    Whether buffers collide, or the bound is proved, is `validate`'s to say.
    """
    problem = problem_from(file.problem, source)
    check_length(file.offsets, len(problem), "offsets", source, "offsets", "buffer")
    if file.objects is not None:
        check_length(file.objects, len(problem), "objects", source, "objects", "buffer")
    arena = arena_of(file.offsets, problem, source)
    if arena != file.arena_bytes:
        raise InputError(
            source, "field arena_bytes", str(file.arena_bytes), f"{arena}, the end of the topmost buffer"
        )
    bound = bound_from(file.bound, len(problem), source)
    parameters = tuple((file.parameters or {}).items())
    offsets, objects = make_offsets(file.offsets), make_objects(file.objects)
    return Plan(problem, offsets, file.strategy, bound, parameters, file.seconds, objects)


def arena_of(offsets: Sequence[int], problem: Problem, source: str) -> int:
    """The end of the topmost buffer in bytes; raises InputError where one passes 2^63."""
    ends = [offset + size for offset, size in zip(offsets, problem.size.tolist(), strict=True)]
    arena = max(ends, default=0)
    if arena > MAX_BYTES:
        row = ends.index(arena)
        raise InputError(source, f"field offsets[{row}]", str(offsets[row]), "offset + size below 2^63")
    return arena


def bound_from(entry: BoundEntry, buffers: int, source: str, field: str = "") -> Bound:
    """The bound; raises InputError for a core that is no list of places below `buffers`. `field` is what
    stands before its name in the file."""
    previous = -1
    for place, index in enumerate(entry.core):
        if not previous < index < buffers:
            expected = f"places of buffers, ascending, below {buffers}"
            raise InputError(source, f"field {field}bound.core[{place}]", str(index), expected)
        previous = index
    return Bound(entry.nbytes, entry.kind, entry.step, entry.unit, entry.core, entry.until)


def file_of_plan(plan: Plan) -> PlanFile:
    """`plan` as a file of its own."""
    if len(plan.offsets) != len(plan.problem):
        found = f"{len(plan.offsets)} offsets"
        raise InputError(plan.problem.name, "offsets", found, f"{len(plan.problem)}, one for each buffer")
    bound = plan.bound
    return PlanFile.model_validate(
        {
            "format": "memplan/plan",
            "version": 1,
            "strategy": plan.strategy,
            "parameters": dict(plan.parameters) or None,
            "arena_bytes": plan.arena_bytes,
            "bound": BoundEntry(**asdict(bound)),
            "seconds": float(plan.seconds),
            "offsets": tuple(plan.offsets.tolist()),
            "objects": None if plan.objects is None else tuple(plan.objects.tolist()),
            "problem": body_of_problem(plan.problem),
        }
    )
