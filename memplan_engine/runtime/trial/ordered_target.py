"""A model in another order of its ops, and what that comes to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from memplan_engine.formats.memplan_json.run_format import OrderEntry
from memplan_engine.formats.order_files import load_schedule
from memplan_engine.graph import Graph
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
    graph, laid_out = target.program.graph, target.program.laid_out or target.program.graph
    if file is None:
        found = reorder(graph, None if seconds is None else SolveLimits(seconds))
        ordered, bound = found.graph, found.bound_bytes
    else:
        steps, bound = in_order_of(laid_out, load_schedule(file, laid_out), file.name), None
        own = {op.name: op for op in graph.ops}
        ordered = replace(graph, ops=tuple(own[op.name] for op in steps.ops if op.name in own))
    program = reordered_program(target.program, ordered)
    return replace(target, program=program), order_entry(graph, ordered, bound, file)


def order_entry(graph: Graph, ordered: Graph, bound: int | None, file: Path | None) -> OrderEntry:
    """What `ordered` comes to, the ops of `graph` in another order, that of `file` where one is given."""
    return OrderEntry(
        moved=len(moved_ops(graph, ordered)),
        live_before=peak_in_order(graph),
        live_after=peak_in_order(ordered),
        bound_bytes=bound,
        file=file.name if file else "",
    )
