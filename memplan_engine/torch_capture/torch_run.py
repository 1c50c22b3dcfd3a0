"""Re-running an exported graph under fake tensors, to see which nodes really share memory.

Recorded values, schema annotations and rules by op name all get some owners wrong; the storages of a re-run
do not (measured: 0 of 14,869 nodes). Everything made is kept alive, so that no storage is seen twice; what
operators inside a node make and let go is seen on the way.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError, MemplanError, one_line
from memplan_engine.graph import Op, Path
from memplan_engine.torch_capture.torch_autocast import WRAPPER, AutocastCache
from memplan_engine.torch_capture.torch_fake import (
    RECORDED,
    FakeTwins,
    as_exported,
    concrete,
    fake_mode,
    quiet,
    storage_of,
)
from memplan_engine.torch_capture.torch_operators import as_allocated, out_variant_of, written_values
from memplan_engine.torch_capture.torch_source import located, source_of

if TYPE_CHECKING:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx import GraphModule, Node

INLINED = {"wrap_with_set_grad_enabled", WRAPPER}
"""Higher-order ops that only set a mode around their sub-graph: its nodes are steps like any others."""
CALLED = {"wrap": 1, "tag_activation_checkpoint": 1, "strict_mode": 1, "invoke_subgraph": 2}
"""Higher-order ops that only call their sub-graph → the place of its first input."""

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


LayOut = Callable[["Run", str, Slot, Slot], tuple[str, ...]]
"""Adds what is inside the op of this name with these arguments and results; what else that op reads."""


@dataclass(slots=True)
class Run:
    """A re-run in progress. `tensors` and `storages` keep, by tensor name, every tensor made and the
    identity of the storage it had when it was made; `held`, by op, what `execute` says of it. `insides`
    has by kind what adds the ops inside of operators that call graphs; `within` is where ops are added now.
    `held_by` has, by tensor name, the op up to whose end its storage is held. `alive` are all storages that
    were ever named: the identity of one that is gone would be another's."""

    source: str
    mode: FakeTensorMode = field(default_factory=fake_mode)
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    storages: dict[str, int] = field(default_factory=dict)
    sizes: dict[int, torch.UntypedStorage] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)
    held: dict[str, Held] = field(default_factory=dict)
    insides: Mapping[str, LayOut] = field(default_factory=dict)
    within: Path = ()
    held_by: dict[str, str] = field(default_factory=dict)
    alive: list[torch.UntypedStorage] = field(default_factory=list)
    autocast: AutocastCache = field(init=False)
    twins: FakeTwins = field(init=False)

    def __post_init__(self) -> None:
        self.twins, self.autocast = FakeTwins(self.mode), AutocastCache(self.held_by)

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
            self.tensors[label] = leaf
            self.storages[label] = storage_of(leaf)
            self.sizes[storage_of(leaf)] = leaf.untyped_storage()
            self.alive.append(leaf.untyped_storage())
            names.append(label)
        return Slot(value, pytree.tree_unflatten(names, form))

    def name_of(self, node: Node, prefix: str) -> str:
        """What the Graph calls `node`; nodes of sub-graphs have the name of their caller for a prefix."""
        return prefix + node.name

    def take(self, name: str, value: Any, constant: bool = False) -> Slot:
        """What to give a placeholder for `value`: fake twins, which are inputs, or `constant`, as they
        are kept between runs."""
        with as_input_error(self.source, f"placeholder {name}", "a tensor of less than 2^63 bytes"):
            slot = self.keep(name, self.twins.twin(value))
        (self.constants if constant else self.inputs).extend(labels(slot.names))
        return slot

    def nbytes(self, tensor: str) -> int | torch.SymInt:
        """Bytes of the storage that the tensor was made in, at the end of the run."""
        return self.sizes[self.storages[tensor]].nbytes()

    def is_made(self, tensor: str) -> bool:
        """Return whether an op made the storage of `tensor`: it is no input and no constant."""
        owned = {self.storages[name] for name in (*self.inputs, *self.constants)}
        return self.storages[tensor] not in owned

    def share(self, tensor: str, result: str, *, is_first: bool) -> None:
        """Have `result` lie in the storage of `tensor`, which an op made. What lies there already may be the
        same result of another branch, unless it `is_first`: then the larger storage counts."""
        one, other = self.storages[tensor], self.storages[result]
        if is_first:
            self.tensors[result] = self.tensors[tensor]
        if is_first or concrete(self.sizes[one].nbytes()) > concrete(self.sizes[other].nbytes()):
            self.sizes[other] = self.sizes[one]
        self.storages.update({name: other for name, owner in self.storages.items() if owner == one})

    def resemble(self, tensors: Sequence[str], others: Sequence[str]) -> None:
        """Give `tensors` storages of the sizes that `others` have; they share those that `others` share."""
        found: dict[int, int] = {}
        for tensor, other in zip(tensors, others, strict=True):
            if self.is_made(other):
                own = found.setdefault(self.storages[other], self.storages[tensor])
                self.sizes[own] = self.sizes[self.storages[other]]
                self.storages[tensor] = own

    def hold(self, tensors: Iterable[str], op: str) -> None:
        """Hold the storages of these tensors up to the end of `op`."""
        self.held_by.update(dict.fromkeys(tensors, op))

    @contextmanager
    def inside(self, call: str, branch: str) -> Iterator[None]:
        """Add ops to a branch of the op `call` meanwhile."""
        before, self.within = self.within, (*self.within, (call, branch))
        try:
            yield
        finally:
            self.within = before

    def add(self, op: Op) -> None:
        """Add `op`, inside what is being run."""
        self.ops.append(replace(op, within=self.within))

    def call(self, module: GraphModule, inputs: list[Slot], prefix: str) -> Slot:
        """Run `module`, a sub-graph, on `inputs`; what it returns."""
        return self._graph(module, inputs, prefix, {})

    def run(self, module: GraphModule, inputs: list[Slot], env: dict[Node, Slot] | None = None) -> Slot:
        """Run `module` on `inputs`, one for each placeholder, without gradients; what its output node
        returns. `env` gets what each node gave."""
        import torch

        with torch.no_grad(), quiet(), self.autocast.kept(module):
            return self._graph(module, inputs, "", {} if env is None else env)

    def _graph(self, module: GraphModule, inputs: list[Slot], prefix: str, env: dict[Node, Slot]) -> Slot:
        pending = iter(inputs)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                env[node] = next(pending)
            elif node.op == "get_attr":
                env[node] = self._attribute(module, node, prefix)
            elif node.op == "output":
                return look_up(node.args[0], env)
            else:
                env[node] = as_exported(partial(self._call, node, env, prefix))
                self.autocast.after(node, self._last)
        raise InputError(self.source, "graph", "no output node", "a graph that returns something")

    @property
    def _last(self) -> str:
        """The op that ran last."""
        return self.ops[-1].name if self.ops else ""

    def _attribute(self, module: GraphModule, node: Node, prefix: str) -> Slot:
        import torch

        value = attribute_of(module, node)
        if not isinstance(value, torch.Tensor):
            return Slot(value, None)
        slot = self.keep(self.name_of(node, prefix), self.mode.from_tensor(value, static_shapes=True))
        self.constants.append(slot.names)
        return slot

    def _call(self, node: Node, env: dict[Node, Slot], prefix: str) -> Slot:
        if takes_item(node, lambda source: env[source].value):
            parent, index = env[node.args[0]], node.args[1]  # type: ignore[index]
            with as_input_error(self.source, f"node {node.name}", f"one of {len(parent.value)} results"):
                return Slot(parent.value[index], parent.names[index])
        arguments = look_up((node.args, node.kwargs), env)
        (args, kwargs), name = arguments.value, self.name_of(node, prefix)
        kind = kind_of(node)
        if kind in INLINED or kind in CALLED:
            return self._inline(node, args, arguments.names[0], name)
        if is_transform(node):
            raise InputError(self.source, f"node {name}", f"torch.func's {kind_of(node)}", "a plain operator")
        if changes_layout(node):
            self._keep_as_made((args, kwargs))
        place, expected = f"node {name} ({kind_of(node)})", f"an op that fake tensors can run, {RECORDED}"
        with as_input_error(self.source, place, expected):
            with self.mode, self.autocast.around(node):
                value, held = self.execute(node, args, kwargs)
            slot = self.keep(name, fresh(value) if is_higher_order(node) else value)
            casts = labels(self.keep(f"{name}.cast", tuple(self.autocast.casts)).names)
        self.autocast.casts = []
        self.autocast.names += casts
        if labels(slot.names) or not is_arithmetic_on_sizes(node):
            read: tuple[str, ...] = ()
            if kind in self.insides:
                with as_input_error(self.source, place, expected):
                    given = Slot(args, arguments.names[0])
                    first = len(self.ops)
                    read, held = self.insides[kind](self, name, given, slot), ()
                    self.ops[first:] = [_as_called_by(node, op) for op in self.ops[first:]]
            outputs = (*labels(slot.names), *casts)
            self._record(node, name, outputs, env, arguments.names, held, read)
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
        from memplan_engine.torch_capture.torch_storages import Inside

        target: Any = node.target
        inside = Inside()
        value, held = inside.watch(kind_of(node), lambda: target(*args, **kwargs), (args, kwargs))
        self.autocast.casts = inside.cached_casts(value)
        return as_allocated(target, value, args, kwargs), held

    def _inline(self, node: Node, args: Any, names: Any, name: str) -> Slot:
        from torch.fx import GraphModule

        at = next(index for index, arg in enumerate(args) if isinstance(arg, GraphModule))
        begin = at + CALLED.get(kind_of(node), 1)
        inputs = [Slot(value, label) for value, label in zip(args[begin:], names[begin:], strict=True)]
        region = self.autocast.region() if kind_of(node) == WRAPPER else nullcontext()
        with region, wrapped_mode(kind_of(node), args[:at]):
            slot = self._graph(args[at], inputs, f"{name}.", {})
        self.autocast.ended(self._last)
        return slot

    def _record(
        self,
        node: Node,
        name: str,
        outputs: tuple[str, ...],
        env: dict[Node, Slot],
        arguments: Any,
        held: Held,
        inside: Sequence[str] = (),
    ) -> None:
        read = [*inside]
        read += [label for source in node.all_input_nodes for label in labels(env[source].names)]
        written = written_values(node.target, node.args, node.kwargs, arguments)
        self.held[name] = held
        self.add(
            Op(
                name,
                kind_of(node),
                inputs=tuple(dict.fromkeys(read)),
                outputs=outputs,
                mutates=tuple(dict.fromkeys(label for names in written for label in labels(names))),
                module=module_of(node),
                source=source_of(node.meta.get("stack_trace")),
                out_variant=out_variant_of(node.target),
            )
        )


def module_of(node: Node) -> str:
    """Return the path of the innermost module that `node` is of, "" for none."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return str(stack[-1][0]).split("@")[0] if stack else ""


def _as_called_by(node: Node, op: Op) -> Op:
    """Return `op`, inside `node`, with the module of that where it has none itself. It has the line of `node`
    where it stands for what that keeps: others without a line are no expression of the user's."""
    source = op.source
    if source is None and op.kind.startswith("loop."):
        source = source_of(node.meta.get("stack_trace"))
    return replace(op, source=source, module=op.module or module_of(node))


def attribute_of(module: GraphModule, node: Node) -> Any:
    """The attribute of `module` that a get_attr node names."""
    return attrgetter(str(node.target))(module)


def look_up(args: Any, env: dict[Node, Slot]) -> Slot:
    """`args` with every node replaced by its value, and again by its names."""
    from torch.fx.node import map_arg

    values = map_arg(args, lambda node: env[node].value)
    return Slot(values, map_arg(args, lambda node: env[node].names))


def labels(names: Any) -> list[str]:
    """The tensor names in a structure of `Slot.names`, in order."""
    from torch.utils import _pytree as pytree

    return [leaf for leaf in pytree.tree_leaves(names) if isinstance(leaf, str)]


def takes_item(node: Node, value_of: Callable[[Any], Any]) -> bool:
    """Whether `node` only takes one output out of several: that is no step, it costs nothing."""
    return node.target is operator.getitem and isinstance(value_of(node.args[0]), (tuple, list))


def is_item(node: Node) -> bool:
    """As `takes_item`, by the value that was recorded of the source."""
    return takes_item(node, lambda source: source.meta.get("val"))


def tensor_of(node: Node) -> str:
    """What the Graph calls the tensor that `node` gives, where it gives one."""
    return f"{node.args[0]}.{node.args[1]}" if is_item(node) else node.name


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


def wrapped_mode(kind: str, args: Any) -> AbstractContextManager[Any]:
    """The mode that the higher-order op `kind` sets around its sub-graph."""
    import torch

    if kind in CALLED:
        return nullcontext()
    return torch.set_grad_enabled(*args) if kind == "wrap_with_set_grad_enabled" else torch.autocast(*args)


@contextmanager
def as_input_error(source: str, place: str, expected: str, lines: bool = False) -> Iterator[None]:
    """What fails meanwhile becomes an InputError with the kind and the first line of the error, and with
    `lines` the line of the user's code that it went through; memplan's own errors are passed on."""
    try:
        yield
    except MemplanError:
        raise
    except Exception as error:
        found = located(brief(error), error) if lines else brief(error)
        raise InputError(source, place, found, expected) from error


def brief(error: BaseException) -> str:
    """An error's kind and the first line of its message that says something; a tensor is written on several
    lines."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = ": ".join([type(error).__name__, *lines[:1]])
    for line in lines[1:]:
        if text.count("(") <= text.count(")"):
            break
        text += f" {line}"
    return one_line(text, 300)
