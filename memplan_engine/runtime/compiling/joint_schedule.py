"""A joint graph of AOTAutograd as one question of order and of what runs again, with the moment in it at
which the forward pass is over."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from memplan_engine.errors import InputError
from memplan_engine.graph import Graph, Op, Phase, Role, Tensor, check_graph, storage_role
from memplan_engine.op_kinds.ordered import ONCE
from memplan_engine.rewrites.order.order_problem import peak_in_order
from memplan_engine.rewrites.recompute.recomputed_graph import first_run
from memplan_engine.runtime.compiling.compile_options import CompileOptions
from memplan_engine.runtime.compiling.op_schedule import OpSchedule, schedule_ops, with_unknown_once

BOUNDARY = "the_forward_pass_is_over"


@dataclass(frozen=True, slots=True)
class Joint:
    """A graph of the forward and the backward pass, with `results` of the forward pass, the `tangents` that
    the caller gives for them, and the inputs that are `written` over in between; by tensor names. `drawing`
    are the ops that draw random numbers."""

    graph: Graph
    results: tuple[str, ...]
    tangents: tuple[str, ...]
    written: tuple[str, ...] = ()
    drawing: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class JointSchedule:
    """The `schedule` of a joint graph, of whose ops those in `forward`, by name, run before the forward pass
    is over."""

    schedule: OpSchedule
    forward: frozenset[str]


def schedule_joint(joint: Joint, options: CompileOptions) -> JointSchedule:
    """The schedule of `joint` that `schedule_ops` finds.

    Raises
    ------
    InputError: as `with_boundary`. MemplanError: as `schedule_ops`.
    """
    whole = with_boundary(joint)
    asked = _with_results_made_once(whole, joint.results)
    # Writes in place come when the graph is in two: none is across the cut.
    schedule = schedule_ops(asked, options, in_place=False)
    now = dict(zip(asked.outputs, schedule.graph.outputs, strict=True))
    names = [op.name for op in schedule.graph.ops]
    forward = frozenset(names[: names.index(BOUNDARY)])
    graph = _without_boundary(
        joint, replace(schedule.graph, outputs=tuple(now.get(o, o) for o in whole.outputs))
    )
    return JointSchedule(replace(schedule, graph=graph, before=peak_in_order(whole)), forward)


def _with_results_made_once(graph: Graph, results: Collection[str]) -> Graph:
    """`graph` in which what makes a result runs once: the caller has it, and nothing is won by making it
    again. Where an op makes little for the caller beside other things (batch norm its new statistics) it may
    run again, and the graph does not return that little."""
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    nbytes = {storage.name: storage.nbytes for storage in graph.storages}
    given = {home[name] for name in results}
    ops: list[Op] = []
    little: set[str] = set()
    for op in graph.ops:
        made = {home[name] for name in op.outputs} - {home[name] for name in (*op.inputs, *op.mutates)}
        held = made & given
        if 2 * sum(nbytes[name] for name in held) < sum(nbytes[name] for name in made):
            little |= held
            held = set()
        ops.append(replace(op, kind=ONCE) if held else op)
    outputs = tuple(name for name in graph.outputs if home[name] not in little)
    returned = {home[name] for name in outputs}
    storages = tuple(
        replace(each, role=Role.ACTIVATION) if each.name in little - returned else each
        for each in graph.storages
    )
    return replace(graph, ops=tuple(ops), outputs=outputs, storages=storages)


def with_boundary(joint: Joint) -> Graph:
    """The graph of `joint` with an op that reads the results of the forward pass, makes the tangents, and
    writes over what that pass leaves changed: what follows from a tangent cannot run before it, and nothing
    reads behind it what was written over. It runs once.

    Raises
    ------
    InputError: the backward pass makes a result of the forward pass, or reads what that has written over.
    """
    graph = joint.graph
    late = set(joint.tangents)
    first = len(graph.ops)
    for index, op in enumerate(graph.ops):
        if late & {*op.inputs, *op.mutates}:
            first = min(first, index)
            late |= set(op.outputs)
    if wrong := late & set(joint.results):
        expected = "results that follow from the inputs alone"
        raise InputError(graph.name, min(wrong), "a result that follows from a gradient", expected)
    made = max(
        (index for index, op in enumerate(graph.ops) if set(op.outputs) & set(joint.results)), default=0
    )
    first = max(first, made + 1)
    tensors = {tensor.name: tensor for tensor in graph.tensors}
    _check_written(joint, tensors, graph.ops[first:])
    boundary = Op(
        BOUNDARY,
        ONCE,
        tuple(dict.fromkeys(joint.results)),
        joint.tangents,
        tuple(dict.fromkeys(joint.written)),
    )
    ops = [
        replace(op, phase=Phase.FORWARD if index < first else Phase.BACKWARD)
        for index, op in enumerate(with_unknown_once(graph, joint.drawing).ops)
    ]
    ops.insert(first, boundary)
    return check_graph(_with_tangents_made(graph, ops, joint.tangents), graph.name)


def _check_written(joint: Joint, tensors: dict[str, Tensor], later: Sequence[Op]) -> None:
    written = {tensors[name].storage for name in joint.written}
    for op in later:
        for name in (*op.inputs, *op.mutates):
            if tensors[name].storage in written:
                found = f"a read of {name}, which the forward pass writes over"
                raise InputError(joint.graph.name, op.name, found, "a backward pass that reads its results")


def _with_tangents_made(graph: Graph, ops: Sequence[Op], tangents: Collection[str]) -> Graph:
    """`graph` with these ops, one of which makes the tangents: they are no inputs any more."""
    inputs = tuple(name for name in graph.inputs if name not in tangents)
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    owned = {
        kind: {home[name] for name in names}
        for kind, names in (("inputs", inputs), ("constants", graph.constants), ("outputs", graph.outputs))
    }
    storages = tuple(replace(each, role=storage_role(each.name, **owned)) for each in graph.storages)
    return replace(graph, ops=tuple(ops), inputs=inputs, storages=storages)


def _without_boundary(joint: Joint, chosen: Graph) -> Graph:
    """`chosen` as a graph of the ops of `joint` alone: tangents are inputs, kinds what they were."""
    kinds = {op.name: op.kind for op in joint.graph.ops}
    ops = tuple(
        replace(op, kind=kinds[first_run(op.name, kinds)]) for op in chosen.ops if op.name != BOUNDARY
    )
    given = {tensor.storage for tensor in joint.graph.tensors if tensor.name in joint.graph.inputs}
    roles = {each.name: each.role for each in joint.graph.storages if each.name in given}
    storages = tuple(replace(each, role=roles.get(each.name, each.role)) for each in chosen.storages)
    return replace(chosen, ops=ops, inputs=joint.graph.inputs, storages=storages)
