"""A model in another order of its ops, and what that comes to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from memplan_engine.formats.memplan_json.run_format import OrderEntry
from memplan_engine.formats.memplan_json.schedule_format import load_schedule
from memplan_engine.rewrites.order.order_problem import peak_in_order
from memplan_engine.rewrites.order.reorder import reorder
from memplan_engine.runtime.loading import RunTarget
from memplan_engine.runtime.reordered_program import reordered_program
from memplan_engine.schedule import in_order_of, moved_ops
from memplan_engine.strategies.base import SolveLimits


def ordered_target(
    target: RunTarget, file: Path | None = None, seconds: float | None = None
) -> tuple[RunTarget, OrderEntry]:
    """`target` with its ops in the order of the schedule in `file`, or in the best order that is found within
    `seconds` (10 where nobody says).

    Raises
    ------
    InputError: a schedule that the graph cannot run by, or one that runs several ops at once.
    """
    graph = target.program.graph
    if file is None:
        found = reorder(graph, None if seconds is None else SolveLimits(seconds))
        ordered, live, bound = found.graph, (found.live_before, found.live_after), found.bound_bytes
    else:
        ordered, bound = in_order_of(graph, load_schedule(file, graph), file.name), None
        live = peak_in_order(graph), peak_in_order(ordered)
    entry = OrderEntry(
        moved=len(moved_ops(graph, ordered)),
        live_before=live[0],
        live_after=live[1],
        bound_bytes=bound,
        file=file.name if file else "",
    )
    return replace(target, program=reordered_program(target.program, ordered)), entry
