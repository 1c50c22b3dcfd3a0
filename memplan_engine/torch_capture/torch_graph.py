"""An exported program → Graph: what is allocated once, and which ops make and read it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError
from memplan_engine.graph import (
    Graph,
    Role,
    Storage,
    Tensor,
    Workspace,
    check_graph,
    is_contiguous,
    storage_role,
)
from memplan_engine.scope import Scope
from memplan_engine.torch_capture.higher_order import INSIDES
from memplan_engine.torch_capture.torch_fake import quiet
from memplan_engine.torch_capture.torch_run import Run, Slot, is_transform, labels
from memplan_engine.torch_capture.torch_symbols import Size, Sizes, SymbolicRun, layout_of, symbolic_mode

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.export.graph_signature import ExportGraphSignature, InputSpec
    from torch.fx import GraphModule, Node


@dataclass(frozen=True, slots=True)
class Program:
    """The parts of an exported program that a graph is made of. `state` holds parameters, buffers and
    lifted constants by the names the signature gives them; fake and meta tensors will do, and what is
    missing is taken from the placeholder's recorded value. `ranges` are the range constraints by symbol."""

    module: GraphModule
    signature: ExportGraphSignature
    state: Mapping[str, Any]
    ranges: Mapping[Any, Any] = field(default_factory=dict)


def graph_from_exported(exported: ExportedProgram, name: str) -> Graph:
    """The Graph of an exported program.

    One `call_function` node is one op and one step, views included; a `getitem` is none, it names one of
    its producer's outputs (`split.0`, `split.1`, …). Nodes inside `wrap_with_set_grad_enabled` and
    `wrap_with_autocast` are ops of their own (`wrap.add`). `cond`, `while_loop` and the like are one op with
    fresh outputs, and those inside come before it. Parameters, buffers (also those
    written in place) and lifted constants are CONSTANT. In a functional program the new values of mutated
    buffers are graph outputs; one with function transforms in it (vmap) is made functional first.

    A program with dynamic shapes gives a graph with `symbols`: plain numbers are those of the example inputs,
    and every size that is not the same for all inputs has its formula. A size that depends on the data has no
    number: its symbol has no hint, and storages of it count 0 bytes. Asking for sizes, reckoning with them
    and checking them are no ops.

    Raises
    ------
    InputError: a size that is no formula of whole numbers, an op that fake tensors cannot run, a sparse
        tensor.
    """
    exported = plain_operators(exported)
    state = {**exported.constants, **exported.state_dict}
    program = Program(exported.graph_module, exported.graph_signature, state, exported.range_constraints)
    return graph_of_program(program, name)


def plain_operators(exported: ExportedProgram) -> ExportedProgram:
    """`exported`, made functional where it has function transforms (vmap) in it."""
    if not any(is_transform(node) for node in exported.graph.nodes):
        return exported
    with quiet():
        return exported.run_decompositions({})  # type: ignore[no-any-return]


def graph_of_program(program: Program, name: str) -> Graph:
    """As `graph_from_exported`, from the parts of a program. It is run on plain numbers for what shares which
    storage; where sizes are symbolic, once more on symbols for the formulas."""
    mode = symbolic_mode(program.module)
    run = Run(name, insides=INSIDES)
    returned = _run_program(program, run)
    traced = None
    if mode is not None:
        traced = SymbolicRun(name, mode, insides=INSIDES)
        _run_program(program, traced)
    return assemble(run, returned, program.ranges, traced)


def _run_program(program: Program, run: Run) -> Slot:
    """Run the program from its placeholders on; what it returns."""
    specs = {spec.arg.name: spec for spec in program.signature.input_specs}
    slots: list[Slot] = []
    for node in program.module.graph.find_nodes(op="placeholder"):
        spec = specs.get(node.name) or specs.get(str(node.target))
        constant = spec is not None and spec.kind.name != "USER_INPUT"
        slots.append(run.take(node.name, _placeholder_value(node, spec, program.state), constant))
    return run.run(program.module, slots)


def _placeholder_value(node: Node, spec: InputSpec | None, state: Mapping[str, Any]) -> Any:
    """What the placeholder `node` stands for: a tensor, or the value of a plain argument."""
    value = node.meta.get("val")
    if spec is None:
        return value
    if spec.kind.name != "USER_INPUT":
        return state.get(str(spec.target), value)
    return getattr(spec.arg, "value", value)


def assemble(
    run: Run, returned: Slot, ranges: Mapping[Any, Any] | None = None, traced: Run | None = None
) -> Graph:
    """The checked graph of a finished run and of what it returned; formulas are those of the same graph run
    on symbols, `traced`, and `ranges` the constraints of these."""
    sizes, outputs = Sizes(run.source, ranges or {}), list(dict.fromkeys(labels(returned.names)))
    first: dict[int, str] = {}
    for tensor, identity in run.storages.items():
        first.setdefault(identity, tensor)
    home = {tensor: first[identity] for tensor, identity in run.storages.items()}
    owned = {
        kind: {home[tensor] for tensor in tensors}
        for kind, tensors in (("inputs", run.inputs), ("constants", run.constants), ("outputs", outputs))
    }
    tensors = tuple(_tensor(sizes, tensor, run, traced or run, home[tensor]) for tensor in run.tensors)
    holders = {home[tensor]: op for tensor, op in run.held_by.items()}
    storages = []
    for owner in first.values():
        nbytes = _storage_size(sizes, owner, run, traced or run)
        role = storage_role(owner, **owned)
        held_by = "" if role is Role.CONSTANT or role is Role.INPUT else holders.get(owner, "")
        storages.append(Storage(owner, nbytes.number, role, formula=nbytes.formula, held_by=held_by))
    lists = (tuple(run.inputs), tuple(outputs), tuple(run.constants))
    ops = tuple(replace(op, workspace=_workspace(sizes, op.name, run, traced)) for op in run.ops)
    symbols = tuple(sizes.symbols)
    graph = Graph(run.source, tuple(storages), tensors, ops, *lists, symbols, Scope.WITH_TEMPORARIES)
    return check_graph(graph, run.source)


def _storage_size(sizes: Sizes, owner: str, run: Run, traced: Run) -> Size:
    """The size of the storage that the tensor `owner` is the first in."""
    place = f"tensor {owner!r}"
    symbolic = sizes.size(traced.nbytes(owner), place)
    nbytes = run.nbytes(owner)
    if isinstance(nbytes, int) and nbytes != symbolic.number:
        found = f"{nbytes} bytes, but {symbolic.formula or symbolic.number} in symbols"
        raise InputError(run.source, place, found, "the same size by number and by formula")
    return symbolic


def _workspace(sizes: Sizes, op: str, run: Run, traced: Run | None) -> Workspace:
    """What `op` holds inside: the number of the run on plain numbers, and the formula where it gives that."""
    shared = max((nbytes for nbytes in run.held.get(op, ()) if isinstance(nbytes, int)), default=0)
    if traced is None:
        return Workspace(shared)
    most = sizes.largest(traced.held.get(op, ()), f"op {op!r}")
    depends = any(symbol.hint is None for symbol in sizes.symbols)
    if most is None or (most.number != shared and not depends):
        # Operators in Python, which know formulas, may be made of others than those in C++.
        return Workspace(shared, formula=None)
    return Workspace(shared, formula=most.formula)


def _tensor(sizes: Sizes, name: str, run: Run, traced: Run, storage: str) -> Tensor:
    value, place = run.tensors[name], f"tensor {name!r}"
    dims = [sizes.size(size, place) for size in traced.tensors[name].shape]
    shape = tuple(dim.number for dim in dims)
    item = value.element_size()
    strides = tuple(stride if isinstance(stride, int) else 0 for stride in value.stride())
    offset = value.storage_offset()
    offset = offset * item if isinstance(offset, int) else 0
    layout = layout_of(traced.tensors[name], dims, sizes, place)
    if layout:
        *stride_sizes, start = layout
        numbers = tuple(size.number for size in stride_sizes)
        # Operators in Python, which know formulas, may lay out otherwise than those in C++, which are run.
        if same_strides(shape, strides, numbers) and start.number == offset:
            strides = numbers
        else:
            layout = ()
    return Tensor(
        name,
        shape,
        str(value.dtype).removeprefix("torch."),
        math.prod(shape) * item,
        storage,
        None if is_contiguous(shape, strides) else strides,
        offset,
        _texts(dims) if any(dim.formula for dim in dims) else (),
        _texts(layout),
    )


def _texts(sizes: Sequence[Size]) -> tuple[str, ...]:
    return tuple(size.formula or str(size.number) for size in sizes)


def same_strides(shape: Sequence[int], one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether both say where the same elements are: a dimension of size 1 has any stride."""
    return 0 in shape or all(n == 1 or a == b for n, a, b in zip(shape, one, other, strict=True))
