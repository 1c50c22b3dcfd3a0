"""Scratch of single ops in the live bytes, and in the arena."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from memplan_engine.errors import InputError
from memplan_engine.graph import Graph, Role, Storage, Tensor, check_graph
from memplan_engine.lifetimes import Unread, to_problem
from memplan_engine.problem import Ints, Problem
from memplan_engine.profile import SUFFIX, load_of
from memplan_engine.schedule import Schedule, sequential


def with_workspaces(graph: Graph, nbytes: Mapping[str, int]) -> Graph:
    """`graph` with shared scratch of so many bytes for each op named; what ops had is replaced, ops that are
    not named keep theirs.

    Raises
    ------
    InputError: an op that the graph has not, a size below 0 or beyond 2^63 − 1.
    """
    unknown = nbytes.keys() - {op.name for op in graph.ops}
    if unknown:
        raise InputError(graph.name, "workspaces", f"op {min(unknown)!r}", "an op of the graph")
    # Of a graph with symbols these are numbers at their hints.
    formula = None if graph.symbols else ""
    ops = tuple(
        replace(op, workspace=replace(op.workspace, shared=int(nbytes[op.name]), formula=formula))
        if op.name in nbytes
        else op
        for op in graph.ops
    )
    return check_graph(replace(graph, ops=ops), graph.name)


def workspace_bytes(graph: Graph, schedule: Schedule | None = None) -> Ints:
    """The scratch in use at each step, bytes: the shared one of the ops that run then, and all that is kept
    for single ops, which is there at every step."""
    schedule = sequential(graph) if schedule is None else schedule
    scratch = np.zeros(schedule.steps, dtype=np.int64)
    shared = np.array([op.workspace.shared for op in graph.ops], dtype=np.int64)
    np.add.at(scratch, np.array(schedule.step_of_op, dtype=np.int64), shared)
    return scratch + sum(op.workspace.unique for op in graph.ops)


def predicted_live(graph: Graph, schedule: Schedule | None = None, *, unread: Unread = Unread.FREED) -> Ints:
    """Live bytes at each step as they are planned, scratch included: what the graph makes and what is
    returned; inputs and constants are the caller's and do not count."""
    schedule = sequential(graph) if schedule is None else schedule
    problem = to_problem(graph, schedule, alignment=1, unread=unread)
    return live_by_step(problem)[: schedule.steps] + workspace_bytes(graph, schedule)


def live_by_step(problem: Problem) -> Ints:
    """The live bytes at each step of `problem`."""
    load = load_of(problem)
    return np.repeat(load.live, np.diff(load.sections.bounds))


def workspaces_as_tensors(graph: Graph) -> Graph:
    """`graph` in which the shared scratch of each op is one more output of it, `<op>.workspace`, which nobody
    reads: a buffer of one step, so that it lies in the arena between the others instead of in a region of its
    own. The ops have no shared workspace any more.

    Raises
    ------
    InputError: a tensor that is called so already.
    """
    tensors, storages, ops = list(graph.tensors), list(graph.storages), []
    for op in graph.ops:
        nbytes = op.workspace.shared
        if nbytes:
            name = op.name + SUFFIX
            formula = op.workspace.formula or ""
            tensors.append(
                Tensor(name, (nbytes,), "uint8", nbytes, name, formulas=(formula,) if formula else ())
            )
            storages.append(Storage(name, nbytes, Role.ACTIVATION, formula=formula))
            workspace = replace(op.workspace, shared=0, formula="")
            op = replace(op, outputs=(*op.outputs, name), workspace=workspace)
        ops.append(op)
    return check_graph(
        replace(graph, tensors=tuple(tensors), storages=tuple(storages), ops=tuple(ops)), graph.name
    )
