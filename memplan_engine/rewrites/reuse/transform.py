"""Both transforms, one after the other, and their proof."""

from __future__ import annotations

from typing import Unpack

from memplan_engine.errors import PlanError
from memplan_engine.graph import Graph
from memplan_engine.lifetimes import DEFAULT_ALIGNMENT, PlanningOptions, Unread
from memplan_engine.profile import load_of
from memplan_engine.rewrites.reuse.check_reuse import check_reuse
from memplan_engine.rewrites.reuse.concat import place_concats
from memplan_engine.rewrites.reuse.in_place import write_in_place
from memplan_engine.rewrites.reuse.reused import Reused, reused_problem
from memplan_engine.schedule import Schedule, check_schedule, sequential


def reuse(
    graph: Graph,
    schedule: Schedule | None = None,
    *,
    in_place: bool = True,
    concat: bool = True,
    **options: Unpack[PlanningOptions],
) -> Reused:
    """`graph` with the reuse that is asked for, checked by `check_reuse`; with neither, as it is.

    In-place writes come first: a block inside a concatenation covers no storage any more, and an op could no
    longer write into it. An op that writes into its input can also keep that input out of a concatenation, so
    where concatenations alone give the lower peak they are what remains of both. Plan with the same
    `options`; `plan_inputs` makes no difference here.

    Raises
    ------
    InputError: `alignment` below 1; a schedule that the graph cannot run by. PlanError: the checker's first
    breach; a defect of a transform.
    """
    alignment = options.get("alignment", DEFAULT_ALIGNMENT)
    unread = options.get("unread", Unread.FREED)
    schedule = sequential(graph) if schedule is None else check_schedule(graph, schedule, graph.name)
    first = write_in_place(graph, schedule) if in_place else Reused(graph, schedule)
    if not concat:
        return _checked(graph, first, alignment)
    second = place_concats(first.graph, schedule, alignment=alignment, unread=unread)
    both = Reused(
        second.graph,
        schedule,
        in_place=first.in_place,
        concats=second.concats,
        kept=(*first.kept, *second.kept),
        windows=second.windows,
    )
    if not in_place:
        return _checked(graph, both, alignment)
    alone = place_concats(graph, schedule, alignment=alignment, unread=unread)
    problems = (reused_problem(each, alignment=alignment, unread=unread) for each in (both, alone))
    peaks = [load_of(problem).peak for problem in problems]
    return _checked(graph, alone if peaks[1] < peaks[0] else both, alignment)


def _checked(graph: Graph, reused: Reused, alignment: int) -> Reused:
    breaches = check_reuse(graph, reused.graph, reused.schedule, alignment=alignment)
    if breaches:
        raise PlanError(f"{graph.name}: reuse is not sound: {breaches[0]}")
    return reused
