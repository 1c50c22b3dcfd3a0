"""The JSON of a problem: a column a field, so that 200,000 buffers are read in about a second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Literal

from pydantic import FailFast

from memplan_engine.errors import InputError
from memplan_engine.formats.memplan_json.callers_format import CallersEntry, callers_from, entry_of_callers
from memplan_engine.formats.memplan_json.graph_format import GraphBody, body_of, graph_from
from memplan_engine.formats.memplan_json.json_base import Count, Counts, Names, ScopeName, Strict
from memplan_engine.problem import FREE, Gap, Origin, Problem, make_problem
from memplan_engine.schedule import Schedule, check_schedule, sequential
from memplan_engine.scope import NO_BASIS, Basis, Scope


class GapEntry(Strict):
    """A gap of the buffer at the place `buffer`; without `low` and `high` it needs no bytes meanwhile."""

    buffer: Count
    start: Count
    end: Count
    low: Count = 0
    high: Count = 0


class ScheduleEntry(Strict):
    """`step_of_op[i]` is the step of the graph's op i."""

    step_of_op: Counts
    steps: Count


class OriginEntry(Strict):
    """The graph that a problem was made from; without `schedule` its ops run one a step."""

    graph: GraphBody
    schedule: ScheduleEntry | None = None


class BasisEntry(Strict):
    """What figures rest on: `notes`, what a predicted run `assumed`, with which of that a run may hold
    something else (`doubts`), and whether `torch.compile` compiles the Python they are of."""

    notes: Names = ()
    assumed: Names = ()
    doubts: Names = ()
    compiled: bool = False


class ProblemBody(Strict):
    """A problem inside another file, a value a buffer in each column.

    `alignment` may be one number for all buffers. `fixed` has null for offsets that may be chosen; without
    it all may be. Without `names` the buffers are "0", "1", …; without `steps` the last end is the last.
    `callers` says of the buffers of a recording which line of code asked for them. `ids` is what the list
    they come from calls the buffers, where it has names beside its ids. `scope` says what the buffers are all
    of; with an `origin` its graph says so, without either they are a list of buffers. `basis` is what
    that rests on.
    """

    name: str = "problem"
    steps: Count | None = None
    names: Names = ()
    start: Counts
    end: Counts
    size: Counts
    alignment: Counts = (1,)
    fixed: Annotated[tuple[Count | None, ...], FailFast()] = ()
    gaps: Annotated[tuple[GapEntry, ...], FailFast()] = ()
    origin: OriginEntry | None = None
    callers: CallersEntry | None = None
    ids: Names = ()
    scope: ScopeName | None = None
    basis: BasisEntry | None = None


class ProblemFile(ProblemBody):
    """A file in the format memplan/problem, version 1."""

    format: Literal["memplan/problem"]
    version: Literal[1]


def problem_from(body: ProblemBody, source: str) -> Problem:
    """The checked problem; raises InputError naming what is not sound in `source`."""
    gaps: dict[int, list[Gap]] = {}
    for entry in body.gaps:
        if entry.buffer >= len(body.start):
            raise InputError(source, "gaps", f"buffer {entry.buffer}", f"below {len(body.start)}")
        gaps.setdefault(entry.buffer, []).append(Gap(entry.start, entry.end, entry.low, entry.high))
    fixed = [FREE if offset is None else offset for offset in body.fixed]
    origin = None if body.origin is None else _origin(body.origin, source)
    callers = None if body.callers is None else callers_from(body.callers, len(body.start), source)
    try:
        return make_problem(
            body.start,
            body.end,
            body.size,
            names=body.names or None,
            alignment=body.alignment[0] if len(body.alignment) == 1 else body.alignment,
            fixed=fixed or None,
            gaps={buffer: tuple(own) for buffer, own in gaps.items()},
            steps=body.steps,
            name=body.name,
            origin=origin,
            callers=callers,
            ids=body.ids or None,
            scope=Scope(body.scope or Scope.BUFFERS),
            basis=NO_BASIS if body.basis is None else Basis(**body.basis.model_dump()),
        )
    except InputError as error:
        raise InputError(source, error.place, error.found, error.expected) from None


def body_of_problem(problem: Problem) -> ProblemBody:
    """`problem` as it is written inside another file."""
    return ProblemBody.model_validate(_fields(problem))


def file_of_problem(problem: Problem) -> ProblemFile:
    """`problem` as a file of its own."""
    return ProblemFile.model_validate({"format": "memplan/problem", "version": 1, **_fields(problem)})


def _origin(entry: OriginEntry, source: str) -> Origin:
    graph = graph_from(entry.graph, source)
    if entry.schedule is None:
        return Origin(graph, sequential(graph))
    schedule = Schedule(entry.schedule.step_of_op, entry.schedule.steps)
    return Origin(graph, check_schedule(graph, schedule, source))


def _fields(problem: Problem) -> dict[str, object]:
    n = len(problem)
    alignment = problem.alignment
    uniform = bool(n) and bool((alignment == alignment[0]).all())
    return {
        "name": problem.name,
        "steps": problem.steps,
        "names": () if problem.names == tuple(map(str, range(n))) else problem.names,
        "start": tuple(problem.start.tolist()),
        "end": tuple(problem.end.tolist()),
        "size": tuple(problem.size.tolist()),
        "alignment": tuple(alignment[:1].tolist() if uniform else alignment.tolist()) or (1,),
        "fixed": _fixed(problem.fixed.tolist()),
        "gaps": tuple(
            GapEntry(buffer=buffer, start=gap.start, end=gap.end, low=gap.low, high=gap.high)
            for buffer, gaps in sorted(problem.gaps.items())
            for gap in gaps
        ),
        "origin": _origin_entry(problem.origin) if problem.origin else None,
        "callers": entry_of_callers(problem.callers) if problem.callers else None,
        "ids": problem.ids or (),
        "scope": problem.scope.value if problem.origin is None else None,
        "basis": asdict(problem.basis) if problem.origin is None and problem.basis != NO_BASIS else None,
    }


def _fixed(offsets: Sequence[int]) -> tuple[int | None, ...]:
    column = tuple(None if offset == FREE else offset for offset in offsets)
    return column if any(offset is not None for offset in column) else ()


def _origin_entry(origin: Origin) -> OriginEntry:
    schedule = None
    if origin.schedule != sequential(origin.graph):
        schedule = ScheduleEntry(step_of_op=origin.schedule.step_of_op, steps=origin.schedule.steps)
    return OriginEntry(graph=body_of(origin.graph), schedule=schedule)
