"""The optimizer in the backward pass: each parameter is updated as soon as its gradient is complete, and the
gradient is let go. What a hook of `register_post_accumulate_grad_hook` does."""

from __future__ import annotations

from collections.abc import Iterable

from memplan_engine.analysis.training_phases import fullest_moment
from memplan_engine.graph import PRODUCED, Graph, Phase
from memplan_engine.schedule import Schedule, check_schedule, dependencies


def gradient_spans(graph: Graph) -> dict[str, tuple[int, int]]:
    """The places of the first and the last op at which each of `gradient_storages` is there."""
    place = {op.name: index for index, op in enumerate(graph.ops)}
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    held = {storage.name: place.get(storage.held_by, 0) for storage in graph.storages}
    held |= dict.fromkeys((home[name] for name in graph.outputs), len(place))
    touched = gradient_storages(graph)
    return {name: (places[0], max(places[-1], held[name])) for name, places in touched.items()}


def at_once(graph: Graph, storages: Iterable[str]) -> frozenset[str]:
    """Return those of some `gradient_storages` that are there together at the fullest moment. A run of
    several training steps makes them anew in each."""
    spans = gradient_spans(graph)
    nbytes = {storage.name: storage.nbytes for storage in graph.storages}
    return fullest_moment({name: spans[name] for name in storages}, nbytes)


def updates_early(graph: Graph) -> bool:
    """Return whether the optimizer of `graph` runs in the backward pass: it updates before that is over, and
    no gradient is there while another module runs."""
    within = updated = False
    for op in graph.ops:
        within = within or (updated and op.phase is Phase.BACKWARD)
        updated = op.phase is Phase.OPTIMIZER or (updated and op.phase is not Phase.FORWARD)
    return within and not any(
        op.phase is not Phase.OPTIMIZER and op.module != graph.ops[first].module
        for first, last in gradient_spans(graph).values()
        for op in graph.ops[first : last + 1]
    )


def gradient_storages(graph: Graph) -> dict[str, list[int]]:
    """The storages that a backward pass of `graph` makes and an optimizer in it reads, with the places of the
    ops that touch each."""
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    touched: dict[str, list[int]] = {}
    made: set[str] = set()
    read: set[str] = set()
    for index, op in enumerate(graph.ops):
        for storage in {home[name]: None for name in (*op.inputs, *op.mutates, *op.outputs)}:
            touched.setdefault(storage, []).append(index)
        if op.phase is Phase.BACKWARD:
            made.update(home[name] for name in op.outputs)
        elif op.phase is Phase.OPTIMIZER:
            read.update(home[name] for name in (*op.inputs, *op.mutates))
    own = {storage.name for storage in graph.storages if storage.role in PRODUCED}
    return {storage: places for storage, places in touched.items() if storage in made & read & own}


def early_updates(graph: Graph) -> Schedule:
    """One op a step, those of the optimizer as soon as what they need is there; all others keep their order.

    An update waits for whoever reads the parameter before it is written, as `dependencies` says; one that
    needs several gradients waits for the last of them.
    """
    needs = dependencies(graph)
    # The op of another phase, by index, that each op waits for; the optimizer's own for nothing come with
    # those that use what they make.
    after = [-1] * len(needs)
    for index, before in enumerate(needs):
        is_update = graph.ops[index].phase is Phase.OPTIMIZER
        after[index] = max((after[other] for other in before), default=-1) if is_update else index
    users: list[list[int]] = [[] for _ in needs]
    for index, before in enumerate(needs):
        for other in before:
            users[other].append(index)
    for index in reversed(range(len(needs))):
        if after[index] < 0:
            after[index] = min((after[user] for user in users[index]), default=len(needs))
    order = sorted(range(len(needs)), key=lambda index: (after[index], index))
    step_of_op = [0] * len(order)
    for step, index in enumerate(order):
        step_of_op[index] = step
    return check_schedule(graph, Schedule(tuple(step_of_op), len(order)), graph.name)
