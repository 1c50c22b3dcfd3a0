"""An ONNX model with its nodes in another order, and with the offsets of a plan as metadata: the same model
for whoever runs nodes as they stand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from memplan_engine.errors import InputError, MissingDependencyError
from memplan_engine.formats.onnx_model.onnx_proto import node_names, reads
from memplan_engine.graph import Graph
from memplan_engine.plan import Plan
from memplan_engine.schedule import in_order_of
from memplan_engine.system import write_atomically, write_target

IR_WITH_METADATA = 10
NOWHERE = "-"


def write_sorted_model(source: Path, graph: Graph, target: Path) -> None:
    """Write the model in `source`, from which `graph` was read, to `target`, its nodes in the order of the
    ops of `graph`, atomically. Weights, names, attributes and the graphs inside If, Loop and Scan stay as
    they are; nodes that only make constants stand before who reads them. Every value is made once, so each
    node reads what it read before. `onnx.checker` has passed the model before it is written.

    Raises
    ------
    InputError: a model with functions of its own (which memplan reads inlined), weights in other files that
        would not be found beside `target`, ops that are no nodes of the model, an order in which a node
        would read what is not there yet, a model that the checker refuses.
    MissingDependencyError: onnx is not installed.
    """
    _write(source, graph, target, lambda model: None)


def write_planned_model(source: Path, plan: Plan, target: Path) -> None:
    """The same in the order that `plan` is for, with its offsets: each node has "memplan.offsets" among its
    metadata, an entry for each output, bytes from the start of the arena, "-" for what is not in it; the
    model has "memplan.arena_bytes", "memplan.alignment" and "memplan.strategy".

    Raises
    ------
    InputError: as `write_sorted_model` does; a plan of no graph, or of one whose ops run side by side.
    """
    origin = plan.problem.origin
    if origin is None:
        raise InputError(plan.problem.name, "", "a plan of buffers", "a plan of the graph in an ONNX model")
    order = in_order_of(origin.graph, origin.schedule, target.name)
    _write(source, order, target, lambda model: _annotate(model, plan))


def _annotate(model: Any, plan: Plan) -> None:
    """Put the offsets of `plan` into the metadata of `model` and its nodes."""
    problem = plan.problem
    assert problem.origin is not None
    home = dict(zip(problem.names, plan.offsets.tolist(), strict=True))
    at = {
        tensor.name: home[tensor.storage] + tensor.offset
        for tensor in problem.origin.graph.tensors
        if tensor.storage in home
    }
    # Nodes have metadata since then.
    model.ir_version = max(model.ir_version, IR_WITH_METADATA)
    for node in model.graph.node:
        told = [str(at.get(name, NOWHERE)) for name in node.output]
        if any(each != NOWHERE for each in told):
            _put(node.metadata_props, "memplan.offsets", " ".join(told))
    _put(model.metadata_props, "memplan.arena_bytes", str(plan.arena_bytes))
    _put(model.metadata_props, "memplan.alignment", str(int(problem.alignment.max(initial=1))))
    _put(model.metadata_props, "memplan.strategy", plan.strategy)


def _put(entries: Any, key: str, value: str) -> None:
    """Have `entries` say `value` under `key`, whatever they have said."""
    entry = next((entry for entry in entries if entry.key == key), None) or entries.add()
    entry.key, entry.value = key, value


def _write(source: Path, graph: Graph, target: Path, change: Callable[[Any], None]) -> None:
    try:
        import onnx
    except ImportError:
        raise MissingDependencyError("onnx", "onnx", "writing an ONNX model") from None
    target = write_target(target)
    model = onnx.load(str(source), load_external_data=False)
    if model.functions:
        found = f"the function {model.functions[0].name!r} of the model's own"
        raise InputError(source.name, "", found, "a model without, or the order as .json")
    _check_external(model, source, target)
    nodes = _sorted_nodes(model, graph, source.name)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    change(model)
    try:
        onnx.checker.check_model(_without_outside(model))
    except (onnx.checker.ValidationError, ValueError) as error:
        found = str(error).strip().splitlines()[0]
        raise InputError(source.name, "", found, "a model that onnx.checker passes") from None
    write_atomically(target, model.SerializeToString())


def _outside(weight: Any) -> str | None:
    """The file that the content of a weight lies in; None where that is the model itself."""
    entries = {entry.key: entry.value for entry in weight.external_data}
    return entries.get("location", "") if weight.data_location == 1 else None


def _check_external(model: Any, source: Path, target: Path) -> None:
    """Raise InputError for weights in files beside `source` that would not lie beside `target`."""
    home, away = source.resolve().parent, target.resolve().parent
    for weight in model.graph.initializer:
        file = _outside(weight)
        if file is not None and home != away and (home / file).is_file():
            found = f"the weight {weight.name!r} in {file}, beside {source.name}"
            raise InputError(str(target), "", found, f"a name in {home}, where that file lies")


def _without_outside(model: Any) -> Any:
    """The model with weights from other files as inputs: to be checked they need not be there."""
    from onnx import helper

    copy = type(model)()
    copy.CopyFrom(model)
    graph, known = copy.graph, {value.name for value in copy.graph.input}
    outside = [weight for weight in graph.initializer if _outside(weight) is not None]
    for weight in outside:
        if weight.name not in known:
            graph.input.append(helper.make_tensor_value_info(weight.name, weight.data_type, weight.dims))
        graph.initializer.remove(weight)
    return copy


def _sorted_nodes(model: Any, graph: Graph, source: str) -> list[Any]:
    """Copies of the nodes in the order of the ops of `graph`, folded ones before who reads them."""
    nodes = list(model.graph.node)
    by_name = dict(zip(node_names(model.graph), nodes, strict=True))
    place = {id(node): index for index, node in enumerate(nodes)}
    maker = {out: node for node in nodes for out in node.output if out}
    if unknown := next((op.name for op in graph.ops if op.name not in by_name), None):
        raise InputError(source, f"op {unknown!r}", "no node of that name", "the model of the order")
    ops = {id(by_name[op.name]) for op in graph.ops}
    done: dict[int, Any] = {}

    def emit(node: Any) -> None:
        waiting = [node]
        while waiting:
            current = waiting[-1]
            missing = [
                maker[name] for name in reads(current) if name in maker and id(maker[name]) not in done
            ]
            if late := next((each for each in missing if id(each) in ops), None):
                found = f"it reads {late.output[0]!r}, which is made after it"
                raise InputError(source, f"node {current.name!r}", found, "nodes after what they read")
            waiting.extend(missing)
            if not missing:
                done.setdefault(id(current), current)
                waiting.pop()

    for op in graph.ops:
        emit(by_name[op.name])
    # What nobody reads stays, in its old order, at the end.
    for node in sorted((each for each in nodes if id(each) not in done), key=lambda each: place[id(each)]):
        emit(node)
    copies = []
    for node in done.values():
        copy = type(node)()
        copy.CopyFrom(node)
        copies.append(copy)
    return copies
