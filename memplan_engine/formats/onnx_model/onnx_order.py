"""An ONNX model with its nodes in another order: the same model for whoever runs nodes as they stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

from memplan_engine.errors import InputError, MissingDependencyError
from memplan_engine.formats.onnx_model.onnx_proto import node_names, reads
from memplan_engine.graph import Graph, Path
from memplan_engine.system import write_atomically, write_target


def write_sorted_model(source: FilePath, graph: Graph, target: FilePath) -> None:
    """Write the model in `source`, from which `graph` was read, to `target`, its nodes in the order of the
    ops of `graph`, also in the graphs inside If, Loop and Scan, atomically. Weights, names and attributes
    stay as they are; nodes that only make constants stand before who reads them. Every value is made once, so
    each node reads what it read before. `onnx.checker` has passed the model before it is written.

    Raises
    ------
    InputError: a model with functions of its own (which memplan reads inlined), weights in other files that
        would not be found beside `target`, ops that are no nodes of the model, an order in which a node
        would read what is not there yet, a model that the checker refuses.
    MissingDependencyError: onnx is not installed.
    """
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


def _check_external(model: Any, source: FilePath, target: FilePath) -> None:
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
    """Copies of the nodes in the order of the ops of `graph`, those in graphs inside them too."""
    ops: dict[Path, list[str]] = {}
    for op in graph.ops:
        ops.setdefault(op.within, []).append(op.name)
    return _sorted(model.graph, ops, (), source)


def _sorted(graph: Any, ops: Mapping[Path, Sequence[str]], path: Path, source: str) -> list[Any]:
    """Copies of the nodes of a GraphProto, whose ops stand at `path`: folded nodes before who reads them."""
    prefix = f"{path[-1][0]}.{path[-1][1]}." if path else ""
    nodes = list(graph.node)
    names = [prefix + name for name in node_names(graph)]
    by_name = dict(zip(names, nodes, strict=True))
    place = {id(node): index for index, node in enumerate(nodes)}
    maker = {out: node for node in nodes for out in node.output if out}
    # Without the prefix it is something that the call does itself.
    order = [name for name in ops.get(path, ()) if name.startswith(prefix)]
    if unknown := next((name for name in order if name not in by_name), None):
        raise InputError(source, f"op {unknown!r}", "no node of that name", "the model of the order")
    kept = {id(by_name[name]) for name in order}
    done: dict[int, Any] = {}

    def emit(node: Any) -> None:
        waiting = [node]
        while waiting:
            current = waiting[-1]
            missing = [
                maker[name] for name in reads(current) if name in maker and id(maker[name]) not in done
            ]
            if late := next((each for each in missing if id(each) in kept), None):
                found = f"it reads {late.output[0]!r}, which is made after it"
                raise InputError(source, f"node {current.name!r}", found, "nodes after what they read")
            waiting.extend(missing)
            if not missing:
                done.setdefault(id(current), current)
                waiting.pop()

    for name in order:
        emit(by_name[name])
    # What nobody reads stays, in its old order, at the end.
    for node in sorted((each for each in nodes if id(each) not in done), key=lambda each: place[id(each)]):
        emit(node)
    copies = []
    for node in done.values():
        copy = type(node)()
        copy.CopyFrom(node)
        for attribute in copy.attribute:
            inner = (*path, (names[place[id(node)]], attribute.name.removesuffix("_branch")))
            if inner in ops:
                inside = _sorted(attribute.g, ops, inner, source)
                del attribute.g.node[:]
                attribute.g.node.extend(inside)
        copies.append(copy)
    return copies
