"""An exported program → Graph: what is allocated once, and which ops make and read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError
from memplan_engine.graph import Graph, Storage, Tensor, check_graph, storage_role
from memplan_engine.importers.torch_fake import FakeTwins, concrete, fake_mode, quiet
from memplan_engine.importers.torch_run import Run, Slot, is_transform, labels

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from torch.export.graph_signature import ExportGraphSignature, InputSpec
    from torch.fx import GraphModule, Node


@dataclass(frozen=True, slots=True)
class Program:
    """The parts of an exported program that a graph is made of. `state` holds parameters, buffers and
    lifted constants by the names the signature gives them; fake and meta tensors will do, and what is
    missing is taken from the placeholder's recorded value."""

    module: GraphModule
    signature: ExportGraphSignature
    state: Mapping[str, Any]


def graph_from_exported(exported: ExportedProgram, name: str) -> Graph:
    """The Graph of an exported program.

    One `call_function` node is one op and one step, views included; a `getitem` is none, it names one of
    its producer's outputs (`split.0`, `split.1`, …). Nodes inside `wrap_with_set_grad_enabled` and
    `wrap_with_autocast` are ops of their own (`wrap.add`); `cond`, `while_loop` and the like are one op
    with fresh outputs, and the insides of their sub-graphs are not counted. Parameters, buffers (also those
    written in place) and lifted constants are CONSTANT. In a functional program the new values of mutated
    buffers are graph outputs; one with function transforms in it (vmap) is made functional first. Symbolic
    sizes take their hints: their values for the example inputs.

    Raises
    ------
    InputError: a size that depends on the data, an op that fake tensors cannot run, a sparse tensor.
    """
    if any(is_transform(node) for node in exported.graph.nodes):
        with quiet():
            exported = exported.run_decompositions({})
    state = {**exported.constants, **exported.state_dict}
    return graph_of_program(Program(exported.graph_module, exported.graph_signature, state), name)


def graph_of_program(program: Program, name: str) -> Graph:
    """As `graph_from_exported`, from the parts of a program."""
    import torch

    run = Run(name, fake_mode())
    twins = FakeTwins(run.mode)
    specs = {spec.arg.name: spec for spec in program.signature.input_specs}
    inputs: list[str] = []
    slots: list[Slot] = []
    for node in program.module.graph.nodes:
        if node.op == "placeholder":
            spec = specs.get(node.name) or specs.get(str(node.target))
            slots.append(run.keep(node.name, _placeholder(node, spec, program.state, twins)))
            owner = inputs if spec is None or spec.kind.name == "USER_INPUT" else run.constants
            owner.extend(labels(slots[-1].names))
    with torch.no_grad():
        outputs = labels(run.graph(program.module, slots).names)
    return _assemble(name, run, inputs, list(dict.fromkeys(outputs)))


def _placeholder(node: Node, spec: InputSpec | None, state: Mapping[str, Any], twins: FakeTwins) -> Any:
    """What to run the placeholder `node` with: a fake tensor, or the value of a plain argument."""
    import torch

    value = node.meta.get("val")
    if spec is not None and spec.kind.name != "USER_INPUT":
        value = state.get(str(spec.target), value)
    elif spec is not None and hasattr(spec.arg, "value"):
        value = spec.arg.value
    if isinstance(value, torch.Tensor):
        return twins.twin(value)
    return concrete(value) if isinstance(value, torch.SymInt) else value


def _assemble(name: str, run: Run, inputs: list[str], outputs: list[str]) -> Graph:
    first: dict[int, str] = {}
    for tensor, identity in run.storages.items():
        first.setdefault(identity, tensor)
    home = {tensor: first[identity] for tensor, identity in run.storages.items()}
    owned = {
        kind: {home[tensor] for tensor in tensors}
        for kind, tensors in (("inputs", inputs), ("constants", run.constants), ("outputs", outputs))
    }
    storages = tuple(
        Storage(owner, _storage_bytes(run, identity, owner), storage_role(owner, **owned))
        for identity, owner in first.items()
    )
    tensors = tuple(_tensor(name, tensor, value, home[tensor]) for tensor, value in run.tensors.items())
    lists = (tuple(inputs), tuple(outputs), tuple(run.constants))
    return check_graph(Graph(name, storages, tensors, tuple(run.ops), *lists), name)


def _storage_bytes(run: Run, identity: int, owner: str) -> int:
    try:
        return run.nbytes(identity)
    except InputError as error:
        raise InputError(run.source, f"tensor {owner!r}", error.found, error.expected) from None


def _tensor(source: str, name: str, value: torch.Tensor, storage: str) -> Tensor:
    try:
        shape = tuple(concrete(size) for size in value.shape)
    except InputError as error:
        raise InputError(source, f"tensor {name!r}", error.found, error.expected) from None
    elements = 1
    for size in shape:
        elements *= size
    dtype = str(value.dtype).removeprefix("torch.")
    return Tensor(name, shape, dtype, elements * value.element_size(), storage)
