"""A model in another order of its ops, and what that comes to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from memplan_engine.formats.memplan_json.run_format import OrderEntry
from memplan_engine.formats.order_files import load_schedule
from memplan_engine.graph import Graph
from memplan_engine.op_kinds.copies import TO_HOST, is_copy
from memplan_engine.op_kinds.generators import is_of_generator
from memplan_engine.rewrites.chunk.piece_names import runs_in_pieces
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
        ordered, bound = found.graph, found.bound_bytes
    else:
        ordered, bound = in_order_of(graph, load_schedule(file, graph), file.name), None
    program = reordered_program(target.program, ordered)
    return replace(target, program=program), order_entry(graph, ordered, bound, file)


def order_entry(graph: Graph, ordered: Graph, bound: int | None, file: Path | None) -> OrderEntry:
    """What `ordered` comes to, the ops of `graph` in another order, some of them more than once: that of
    `file`, where one is given."""
    known = {op.name for op in graph.ops}
    in_pieces = runs_in_pieces(ordered, known)
    once = replace(ordered, ops=tuple(op for op in ordered.ops if op.name in known))
    copied = sum(op.kind == TO_HOST for op in ordered.ops)
    more = sum(not (is_copy(op.kind) or is_of_generator(op.kind)) for op in ordered.ops) - len(once.ops)
    return OrderEntry(
        moved=len(moved_ops(graph, once)),
        again=0 if in_pieces else more,
        pieces=more if in_pieces else 0,
        copied=copied,
        live_before=peak_in_order(graph),
        live_after=peak_in_order(ordered),
        bound_bytes=bound,
        file=file.name if file else "",
    )
