"""Re-running an exported graph under fake tensors, to see which nodes really share memory.

Recorded values, schema annotations and rules by op name all get some owners wrong; the storages of a re-run
do not (measured: 0 of 14,869 nodes). Everything made is kept alive, so that no storage is seen twice; what
operators inside a node make and let go is seen on the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError, MemplanError, one_line
from memplan_engine.graph import Op
from memplan_engine.torch_capture.torch_fake import RECORDED, as_exported
from memplan_engine.torch_capture.torch_kernels import as_on_cpu
from memplan_engine.torch_capture.torch_source import source_of
from memplan_engine.torch_capture.torch_writes import out_variant_of, written_values

if TYPE_CHECKING:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx import GraphModule, Node

INLINED = {"wrap_with_set_grad_enabled", "wrap_with_autocast"}
"""Higher-order ops that only set a mode around their sub-graph: its nodes are steps like any others."""

SIZE_CHECKS = {"aten._assert_scalar", "aten.sym_constrain_range", "aten.sym_constrain_range_for_size"}
SIZE_FUNCTIONS = ("aten.sym_", "torch.sym_", "torch._sym_", "operator.", "math.")

Held = tuple[Any, ...]
"""Bytes, ints or SymInts: what an op holds inside at moments of which one is its fullest."""


@dataclass(frozen=True, slots=True)
class Slot:
    """What a node gave: its value, and a structure of the same form with a tensor's name at each leaf that
    is a tensor and None at every other."""

    value: Any
    names: Any


@dataclass(slots=True)
class Run:
    """A re-run in progress. `tensors` and `storages` keep, by tensor name, every tensor made and the
    identity of the storage it had when it was made; `held`, by op, what `execute` says of it."""

    source: str
    mode: FakeTensorMode
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    storages: dict[str, int] = field(default_factory=dict)
    sizes: dict[int, torch.UntypedStorage] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)
    held: dict[str, Held] = field(default_factory=dict)

    def keep(self, name: str, value: Any) -> Slot:
        """Name every tensor in `value`: `name` itself for a lone tensor, else `name.0`, `name.1`, …"""
        import torch
        from torch.utils import _pytree as pytree

        leaves, form = pytree.tree_flatten(value)
        lone = isinstance(value, torch.Tensor)
        names: list[str | None] = []
        for index, leaf in enumerate(leaves):
            if not isinstance(leaf, torch.Tensor):
                names.append(None)
                continue
            label = name if lone else f"{name}.{index}"
            storage = leaf.untyped_storage()
            self.tensors[label] = leaf
            self.storages[label] = storage._cdata
            self.sizes[storage._cdata] = storage
            names.append(label)
        return Slot(value, pytree.tree_unflatten(names, form))

    def nbytes(self, identity: int) -> int | torch.SymInt:
        """Bytes of the storage `identity`, at the end of the run."""
        return self.sizes[identity].nbytes()

    def graph(self, module: GraphModule, inputs: list[Slot], prefix: str = "") -> Slot:
        """Run `module` on `inputs`, one for each placeholder; what its output node returns."""
        pending = iter(inputs)
        env: dict[Node, Slot] = {}
        for node in module.graph.nodes:
            if node.op == "placeholder":
                env[node] = next(pending)
            elif node.op == "get_attr":
                env[node] = self._attribute(module, node, prefix)
            elif node.op == "output":
                return look_up(node.args[0], env)
            else:
                env[node] = as_exported(partial(self._call, node, env, prefix))
        raise InputError(self.source, "graph", "no output node", "a graph that returns something")

    def _attribute(self, module: GraphModule, node: Node, prefix: str) -> Slot:
        import torch

        value = attrgetter(str(node.target))(module)
        if not isinstance(value, torch.Tensor):
            return Slot(value, None)
        slot = self.keep(prefix + node.name, self.mode.from_tensor(value, static_shapes=True))
        self.constants.append(slot.names)
        return slot

    def _call(self, node: Node, env: dict[Node, Slot], prefix: str) -> Slot:
        if is_item_of_sequence(node, env):
            parent, index = env[node.args[0]], node.args[1]  # type: ignore[index]
            return Slot(parent.value[index], parent.names[index])
        arguments = look_up((node.args, node.kwargs), env)
        (args, kwargs), name = arguments.value, prefix + node.name
        if kind_of(node) in INLINED:
            return self._inline(node, args, arguments.names[0], name)
        if is_transform(node):
            raise InputError(self.source, f"node {name}", f"torch.func's {kind_of(node)}", "a plain operator")
        if changes_layout(node):
            self._keep_as_made((args, kwargs))
        try:
            with self.mode:
                value, held = self.execute(node, args, kwargs)
            slot = self.keep(name, fresh(value) if is_higher_order(node) else value)
        except MemplanError:
            raise
        except Exception as error:
            raise InputError(
                self.source,
                f"node {name} ({kind_of(node)})",
                brief(error),
                f"an op that fake tensors can run, {RECORDED}",
            ) from error
        if labels(slot.names) or not is_arithmetic_on_sizes(node):
            self._record(node, name, slot, env, arguments.names, held)
        return slot

    def _keep_as_made(self, arguments: Any) -> None:
        """Tensors whose shape or strides an operator changes in place are described as they were made: there
        an op writes them, and whoever reads them later has the operator's result."""
        from torch.utils import _pytree as pytree

        changed = {id(leaf) for leaf in pytree.tree_leaves(arguments)}
        for name, tensor in self.tensors.items():
            if id(tensor) in changed:
                with self.mode:
                    self.tensors[name] = tensor.detach()

    def execute(self, node: Node, args: Any, kwargs: Any) -> tuple[Any, Held]:
        """What the operator of `node` gives for these arguments, in storages as CPU kernels make them, and
        the bytes that the operators inside it hold beside that, at each moment that may be its fullest."""
        # Here, not above: it needs torch.
        from memplan_engine.torch_capture.torch_inside import Inside

        target: Any = node.target
        value, held = Inside().watch(kind_of(node), lambda: target(*args, **kwargs), (args, kwargs))
        return as_on_cpu(target, value, args, kwargs), held

    def _inline(self, node: Node, args: Any, names: Any, name: str) -> Slot:
        from torch.fx import GraphModule

        at = next(index for index, arg in enumerate(args) if isinstance(arg, GraphModule))
        inputs = [Slot(value, label) for value, label in zip(args[at + 1 :], names[at + 1 :], strict=True)]
        with wrapped_mode(kind_of(node), args[:at]):
            return self.graph(args[at], inputs, prefix=f"{name}.")

    def _record(
        self, node: Node, name: str, slot: Slot, env: dict[Node, Slot], arguments: Any, held: Held
    ) -> None:
        read = [label for source in node.all_input_nodes for label in labels(env[source].names)]
        self.held[name] = held
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        self.ops.append(
            Op(
                name,
                kind_of(node),
                inputs=tuple(dict.fromkeys(read)),
                outputs=tuple(labels(slot.names)),
                mutates=tuple(dict.fromkeys(written(node, *arguments))),
                module=str(stack[-1][0]).split("@")[0] if stack else "",
                source=source_of(node.meta.get("stack_trace")),
                out_variant=out_variant_of(node.target),
            )
        )


def look_up(args: Any, env: dict[Node, Slot]) -> Slot:
    """`args` with every node replaced by its value, and again by its names."""
    from torch.fx.node import map_arg

    values = map_arg(args, lambda node: env[node].value)
    return Slot(values, map_arg(args, lambda node: env[node].names))


def labels(names: Any) -> list[str]:
    """The tensor names in a structure of `Slot.names`, in order."""
    from torch.utils import _pytree as pytree

    return [leaf for leaf in pytree.tree_leaves(names) if isinstance(leaf, str)]


def is_item_of_sequence(node: Node, env: dict[Node, Slot]) -> bool:
    """Whether `node` only takes one output out of several: that is no step, it costs nothing."""
    import operator

    return node.target is operator.getitem and isinstance(env[node.args[0]].value, (tuple, list))  # type: ignore[index]


def is_higher_order(node: Node) -> bool:
    """Whether `node` calls sub-graphs (`cond`, `while_loop`, …)."""
    from torch._ops import HigherOrderOperator

    return isinstance(node.target, HigherOrderOperator)


def is_arithmetic_on_sizes(node: Node) -> bool:
    """Whether `node` only asks for a size, reckons with sizes or checks one: it touches no memory, and is in
    no graph of plain sizes, so it is no step, and what it asks about lives no longer for it."""
    kind = kind_of(node)
    return kind in SIZE_CHECKS or kind.startswith(SIZE_FUNCTIONS)


def changes_layout(node: Node) -> bool:
    """Whether `node` changes the shape or the strides of a tensor in place (`transpose_`)."""
    import torch

    return isinstance(node.target, torch._ops.OpOverload) and torch.Tag.inplace_view in node.target.tags


def is_transform(node: Node) -> bool:
    """Whether `node` enters or leaves a function transform (vmap, …), which changes torch's state and must
    not be run by itself; `run_decompositions({})` does away with these."""
    return getattr(node.target, "__module__", None) == "torch._functorch.predispatch"


def kind_of(node: Node) -> str:
    """The operator's short name: `aten.linear`, `cond`, `operator.add`."""
    target: Any = node.target
    schema = getattr(target, "_schema", None)
    if schema is not None:
        return str(schema.name).replace("::", ".")
    name = getattr(target, "__name__", str(target))
    return str(name) if is_higher_order(node) else f"{target.__module__.lstrip('_')}.{name}"


def fresh(value: Any) -> Any:
    """`value` with every tensor in a storage of its own: what a sub-graph returns never aliases anything."""
    import torch
    from torch.utils import _pytree as pytree

    def anew(leaf: Any) -> Any:
        return torch.empty_like(leaf) if isinstance(leaf, torch.Tensor) else leaf

    return pytree.tree_map(anew, value)


def written(node: Node, args: Any, kwargs: Any) -> Iterator[str]:
    """Names of the tensors that `node` writes in place. `args` and `kwargs` are structures of names."""
    for names in written_values(node.target, node.args, node.kwargs, (args, kwargs)):
        yield from labels(names)


@contextmanager
def wrapped_mode(kind: str, args: Any) -> Iterator[None]:
    """The mode that the higher-order op `kind` sets around its sub-graph."""
    import torch

    with ExitStack() as stack:
        if kind == "wrap_with_set_grad_enabled":
            stack.enter_context(torch.set_grad_enabled(args[0]))
        else:
            device, dtype, enabled, cache = args
            stack.enter_context(torch.autocast(device, dtype, enabled, cache))
        yield


def brief(error: BaseException) -> str:
    """An error's kind and the first line of its message that says something; a tensor is written on several
    lines."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = ": ".join([type(error).__name__, *lines[:1]])
    for line in lines[1:]:
        if told.count("(") <= told.count(")"):
            break
        told += f" {line}"
    return one_line(told, 300)
