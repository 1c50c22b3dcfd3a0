"""A model made ready to run node by node: its flat graph, its Graph, its weights, and how it is called; and
such a run with somebody looking on, in which values go with their last reader."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from memplan_engine.errors import InputError
from memplan_engine.graph import Graph, Tensor, unknown_sizes
from memplan_engine.rewrites.order.order_problem import whole_ops
from memplan_engine.runtime.signature import (
    CallForm,
    Expected,
    call_form,
    check_call,
    check_inputs,
    expected_input,
    flatten_call,
)
from memplan_engine.torch_capture.capture_module import exporting, fake_inputs
from memplan_engine.torch_capture.higher_order import INSIDES
from memplan_engine.torch_capture.torch_exporting import (
    export_as_eager,
    hearing_of_compiled,
    made_functional,
)
from memplan_engine.torch_capture.torch_fake import RECORDED, FakeTwins, as_exported, fake_mode
from memplan_engine.torch_capture.torch_graph import (
    assemble,
    graph_from_exported,
    plain_operators,
    same_strides,
)
from memplan_engine.torch_capture.torch_run import (
    INLINED,
    Run,
    attribute_of,
    is_arithmetic_on_sizes,
    kind_of,
    takes_item,
    wrapped_mode,
)

Around = Callable[[str, str, Callable[[], Any]], Any]
"""`around(name, kind, call)` runs `call()` for the op `name` and gives what it gave."""


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A flat ATen graph that can be run.

    `module` has one placeholder for each of `state` (parameters, buffers, lifted constants: the model's own
    tensors, not copies), followed by one for each of `expected`, the flat inputs; `placeholders` are their
    names in that order. `graph` is the same as memplan sees it: tensors bear the names of nodes, `name.0`,
    `name.1`, … for several outputs. `written` says for each output of `module` the placeholder that gets it
    copied in after the run (a functional program's new values of buffers and inputs), None for what is
    returned; `form` and `out_spec` are the nested forms of the call and of what it returns. `state_names` are
    those of `state` in the model ("encoder.weight"), where they are known. `laid_out` is `graph` as it was
    captured, with the ops inside those that call graphs; None where there are none.
    """

    name: str
    module: GraphModule
    graph: Graph
    state: tuple[torch.Tensor, ...]
    placeholders: tuple[str, ...]
    expected: tuple[Expected, ...]
    written: tuple[str | None, ...]
    form: CallForm
    out_spec: pytree.TreeSpec
    state_names: tuple[str, ...] = ()
    laid_out: Graph | None = None

    @property
    def named_state(self) -> dict[str, torch.Tensor]:
        """`state` by the names that the model has for it; by those of placeholders where it has none."""
        names = self.state_names or self.placeholders
        return dict(zip(names, self.state, strict=False))

    def inputs(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> list[Any]:
        """The values of all placeholders, `state` included, for the call `(*args, **kwargs)`.

        Raises
        ------
        InputError, naming the input: arguments of another form, shape, type, device or strides than those
            captured.
        """
        leaves = flatten_call(self.form, self.name, args, kwargs or {})
        check_inputs(self.expected, leaves, self.name)
        return [*self.state, *leaves]

    def outputs(self, values: Sequence[Any], inputs: Sequence[Any]) -> Any:
        """What forward returns, from the flat outputs of `module` for the flat `inputs`; new values of
        buffers and inputs are copied into them first, as forward would have left them."""
        places = dict(zip(self.placeholders, inputs, strict=True))
        kept = []
        with torch.no_grad():
            for value, target in zip(values, self.written, strict=True):
                if target is None:
                    kept.append(value)
                else:
                    places[target].copy_(value)
        return pytree.tree_unflatten(kept, self.out_spec)

    def interpret(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """What forward returns, by torch's own interpreter of fx graphs: the reference."""
        inputs = self.inputs(args, kwargs)
        with torch.no_grad():
            interpreter = torch.fx.Interpreter(self.module)
            # It would add lines to messages that are one line.
            interpreter.extra_traceback = False
            values = interpreter.run(*inputs)
        return self.outputs(flat_outputs(values), inputs)

    def run(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """What forward returns, by `module` itself."""
        inputs = self.inputs(args, kwargs)
        with torch.no_grad():
            values = self.module.forward(*inputs)
        return self.outputs(flat_outputs(values), inputs)

    def with_module(self, module: GraphModule) -> Program:
        """The same program with another graph module, which takes and gives the same (`insert_slab`)."""
        return replace(self, module=module)


def flat_outputs(values: Any) -> list[Any]:
    """The flat outputs of a graph, whatever its output node holds them in."""
    return list(values) if isinstance(values, (tuple, list)) else [values]


def load_program(
    model: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    functional: bool = False,
    name: str | None = None,
) -> Program:
    """Export `model(*args, **kwargs)` by `torch.export` (non-strict, nothing decomposed) so that it can run.

    Model and inputs are real tensors; the model is taken in the mode (train or eval) it is in and is not
    changed, and the program uses its very parameters. `functional` replaces in-place ops by functional ones.

    Raises
    ------
    InputError: no module, one that torch.export cannot trace (control flow that depends on data, unsupported
        ops or inputs), sizes that depend on the data, tensors that are not real.
    """
    label = name or type(model).__name__
    check_call(model, args, kwargs, label)
    _check_real(model, (args, kwargs), label)
    call = (tuple(args), dict(kwargs or {}))
    with hearing_of_compiled(model) as heard, exporting(label), torch.no_grad():
        # Dataclasses among the inputs are made known to torch.export on the way.
        fake_inputs((list(args), dict(kwargs or {})), FakeTwins(fake_mode()))
        exported, decisive = export_as_eager(model, *call, call, label)
        if functional:
            exported = made_functional(exported, label)
    form = call_form(model, exported.call_spec.in_spec)
    program = program_from_exported(exported, name=label, form=form)
    graph = replace(program.graph, compiled=bool(heard))
    return replace(program, graph=graph, expected=_with_decisive(program, call, decisive))


def _with_decisive(program: Program, call: Any, decisive: Sequence[torch.Tensor]) -> tuple[Expected, ...]:
    """What `program` expects, with the content of the tensors in the call `call` that are decisive."""
    ids = {id(tensor) for tensor in decisive}
    leaves = flatten_call(program.form, program.name, *call)
    return tuple(
        replace(expected, decisive=leaf.clone()) if id(leaf) in ids else expected
        for expected, leaf in zip(program.expected, leaves, strict=True)
    )


def program_from_exported(
    exported: torch.export.ExportedProgram, *, name: str = "exported", form: CallForm | None = None
) -> Program:
    """The Program of an exported program with real weights.

    Raises
    ------
    InputError: sizes that depend on the data or are dynamic, inputs other than tensors and plain values.
    """
    exported = plain_operators(exported)
    # Operators that call graphs are run whole: what is inside them is torch's to allocate.
    laid_out = graph_from_exported(exported, name)
    graph = whole_ops(laid_out, scratch=True)
    _check_sizes(graph, name)
    correct_layouts(exported.graph_module, graph)
    program, values = program_and_inputs(exported, graph, name, form or CallForm(exported.call_spec.in_spec))
    names = program.placeholders[len(program.state) :]
    expected = tuple(map(expected_input, names, values))
    return replace(program, expected=expected, laid_out=None if graph is laid_out else laid_out)


def correct_layouts(module: GraphModule, graph: Graph) -> None:
    """Give the recorded values of the nodes of `module` the shapes and strides that CPU kernels make, which
    `graph` knows: recorded are those that a tensor has in the end, after `transpose_` and the like."""
    tensors = {tensor.name: tensor for tensor in graph.tensors}
    for node in module.graph.nodes:
        value = node.meta.get("val")
        if node.op != "call_function" or value is None:
            continue
        if isinstance(value, FakeTensor):
            node.meta["val"] = _laid_out(value, tensors.get(node.name))
        elif isinstance(value, (tuple, list)):
            parts = (
                _laid_out(result, tensors.get(f"{node.name}.{index}")) for index, result in enumerate(value)
            )
            node.meta["val"] = type(value)(parts)


def _laid_out(value: Any, tensor: Tensor | None) -> Any:
    """`value`, or a tensor like it with the shape and strides of `tensor`, where these are others."""
    if tensor is None or not isinstance(value, FakeTensor):
        return value
    strides = tensor.strides
    if strides is None:
        strides = tuple(math.prod(tensor.shape[dim + 1 :]) for dim in range(len(tensor.shape)))
    if value.shape == tensor.shape and same_strides(tensor.shape, strides, value.stride()):
        return value
    with value.fake_mode:
        return torch.empty_strided(tensor.shape, strides, dtype=value.dtype, device=value.device)


def program_and_inputs(
    exported: torch.export.ExportedProgram, graph: Graph, name: str, form: CallForm
) -> tuple[Program, tuple[Any, ...]]:
    """The Program of an exported program whose Graph is `graph`, which takes any inputs, and the captured
    value of each of these. Raises InputError for state that is no tensor."""
    values = {**exported.constants, **exported.state_dict}
    signature, nodes = exported.graph_signature, exported.graph.find_nodes(op="placeholder")
    state: list[tuple[str, torch.Tensor]] = []
    inputs: list[tuple[str, Any]] = []
    for spec, node in zip(signature.input_specs, nodes, strict=True):
        if spec.kind.name == "USER_INPUT":
            inputs.append((node.name, getattr(spec.arg, "value", node.meta.get("val"))))
            continue
        value = values.get(str(spec.target))
        if not isinstance(value, torch.Tensor):
            found = f"a {spec.kind.name.lower()} of type {type(value).__name__}"
            raise InputError(name, f"input {node.name!r}", found, "parameters, buffers and tensors")
        # As they are: an operator may choose its kernel by whether a weight wants gradients (matmul does).
        state.append((str(spec.target), value))
    targets = {str(spec.target): spec.arg.name for spec in signature.input_specs if spec.target is not None}
    program = Program(
        name,
        exported.graph_module,
        graph,
        tuple(value for _, value in state),
        tuple(node.name for node in nodes),
        tuple(Expected(placeholder) for placeholder, _ in inputs),
        tuple(
            None if spec.kind.name == "USER_OUTPUT" else targets.get(str(spec.target), str(spec.target))
            for spec in signature.output_specs
        ),
        form,
        exported.call_spec.out_spec,
        tuple(target for target, _ in state),
    )
    return program, tuple(value for _, value in inputs)


def program_from_module(
    module: GraphModule,
    inputs: Sequence[Any],
    *,
    state: int = 0,
    name: str = "graph",
    graph: Graph | None = None,
    state_names: tuple[str, ...] = (),
) -> Program:
    """The Program of a flat fx graph of operators, as `make_fx` gives it, with example `inputs`, one for each
    placeholder. The first `state` of them are kept between runs (weights); the others are given anew to each
    run, as positional arguments. The run returns the flat list of the graph's outputs. `graph` is the Graph
    of `module` where there is one already; tensors bear the names of nodes, placeholders any.

    Raises
    ------
    InputError: another number of inputs than placeholders, nodes that are no operators, sizes that depend on
        the data.
    """
    nodes = module.graph.find_nodes(op="placeholder")
    if len(nodes) != len(inputs) or not 0 <= state <= len(inputs):
        raise InputError(
            name, "inputs", f"{len(inputs)}, {state} of them state", f"{len(nodes)} placeholders"
        )
    if calls := [node for node in module.graph.nodes if node.op in ("call_module", "call_method")]:
        raise InputError(name, f"node {calls[0].name}", calls[0].op, "a flat graph of operators (make_fx)")
    names = [node.name for node in nodes]
    if graph is None:
        graph = graph_of_module(module, inputs, state, name)
    _check_sizes(graph, name)
    leaves = list(inputs[state:])
    returned = module.graph.output_node().args[0]
    many = isinstance(returned, (tuple, list))
    outputs = pytree.tree_flatten([0] * len(returned) if many else 0)[1]  # type: ignore[arg-type]
    return Program(
        name,
        module,
        graph,
        tuple(inputs[:state]),
        tuple(names),
        tuple(expected_input(node, leaf) for node, leaf in zip(names[state:], leaves, strict=True)),
        (None,) * (len(returned) if many else 1),  # type: ignore[arg-type]
        CallForm(pytree.tree_flatten((tuple(leaves), {}))[1]),
        outputs,
        state_names,
    )


def graph_of_module(module: GraphModule, inputs: Sequence[Any], state: int, name: str) -> Graph:
    """The Graph of a flat fx graph of operators, run on fake twins of `inputs`; the first `state` of them are
    constants. Operators that call graphs are whole, with what they hold inside as their workspace."""
    run = Run(name, insides=INSIDES)
    nodes = enumerate(module.graph.find_nodes(op="placeholder"))
    arguments = [run.take(node.name, inputs[index], index < state) for index, node in nodes]
    return whole_ops(assemble(run, run.run(module, arguments)), scratch=True)


def _check_real(model: torch.nn.Module, inputs: Any, source: str) -> None:
    """Raise InputError for a meta or fake tensor: there would be nothing to run on."""
    tensors = [
        (f"weight {key!r}", tensor) for key, tensor in (*model.named_parameters(), *model.named_buffers())
    ]
    leaves = [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]
    for place, tensor in (*tensors, *(("inputs", leaf) for leaf in leaves)):
        if tensor.is_meta or hasattr(tensor, "fake_mode"):
            raise InputError(source, place, "a tensor without values (meta or fake)", "a real tensor")


def _check_sizes(graph: Graph, source: str) -> None:
    """Raise InputError for sizes that are not known before the run."""
    if unknown := unknown_sizes(graph):
        name = next(iter(unknown))
        makers = [op for op in graph.ops if name in op.outputs]
        lines = [f" at {op.source.file}:{op.source.line}" if op.source else "" for op in makers]
        found = "a size that depends on the data" + "".join(
            f" ({op.kind}{line})" for op, line in zip(makers, lines, strict=True)
        )
        raise InputError(source, f"tensor {name!r}", found, f"sizes known before, {RECORDED}")
    if graph.symbols:
        found = f"the dynamic size {graph.symbols[0].name!r}"
        raise InputError(source, "shapes", found, "a program captured with plain sizes")


def run_nodes(
    module: GraphModule,
    inputs: Sequence[Any],
    around: Around,
    *,
    read: Callable[[Any], Any] = lambda value: value,
    prefix: str = "",
) -> Any:
    """What `module` returns for `inputs`, one for each placeholder. Ops are called through `around` by the
    names that they have in a memplan Graph: a `getitem` and arithmetic on sizes are none, and sub-graphs that
    only set a mode are run node by node. A value is let go after its last reader, one without readers at
    once; inputs are the caller's to hold. `read` makes the value of a `get_attr` node of the attribute."""
    last = last_readers(module)
    env: dict[Node, Any] = {}
    pending = iter(inputs)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            env[node] = next(pending)
        elif node.op == "get_attr":
            env[node] = read(attribute_of(module, node))
        elif node.op == "output":
            return map_arg(node.args[0], lambda used: env[used])
        else:
            env[node] = _call(node, env, around, read, prefix + node.name)
        for dead in last.get(node, ()):
            env.pop(dead, None)
    return None


def last_readers(module: GraphModule) -> dict[Node, list[Node]]:
    """Each node → the nodes whose values nobody needs after it has run; itself where nobody reads it."""
    reader: dict[Node, Node] = {}
    for node in module.graph.nodes:
        reader[node] = node
        reader.update(dict.fromkeys(node.all_input_nodes, node))
    freed_after: dict[Node, list[Node]] = {}
    for node, last in reader.items():
        freed_after.setdefault(last, []).append(node)
    return freed_after


def _call(node: Node, env: dict[Node, Any], around: Around, read: Callable[[Any], Any], name: str) -> Any:
    arguments: Any = map_arg((node.args, node.kwargs), lambda used: env[used])
    args, kwargs = arguments
    del arguments
    target: Any = node.target
    kind = kind_of(node)
    if kind in INLINED:
        operands: list[Any] = list(args)
        at = next(index for index, arg in enumerate(operands) if isinstance(arg, GraphModule))
        with wrapped_mode(kind, operands[:at]):
            return run_nodes(operands[at], operands[at + 1 :], around, read=read, prefix=f"{name}.")
    if takes_item(node, env.__getitem__) or is_arithmetic_on_sizes(node):
        return target(*args, **kwargs)
    return around(name, kind, lambda: as_exported(lambda: target(*args, **kwargs)))
