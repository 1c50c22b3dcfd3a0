"""One node that shall write into the slab: what it was called with, and what it is replaced by; which `out`
overloads of operators really write where they are told; writes into a part of a tensor and products with a
vector, in place with the same bits.

The kernels of `slice_scatter` and its like copy the whole storage that their argument shows: of a tensor in a
slab that is the slab.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from memplan_engine.runtime.slab.operators import done
from memplan_engine.torch_capture.torch_operators import arguments_of, gives_views, out_overload
from memplan_engine.torch_capture.torch_storages import is_composite

aten = torch.ops.aten
PARTS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "aten::slice_scatter": (aten.slice.Tensor, ("dim", "start", "end", "step")),
    "aten::select_scatter": (aten.select.int, ("dim", "index")),
    "aten::diagonal_scatter": (aten.diagonal.default, ("offset", "dim1", "dim2")),
    "aten::copy": (None, ()),
}
"""By the operator's name: what shows the part that is written, and its arguments; None for all of it."""
COMPOSITES = frozenset({"aten::linear.out", "aten::matmul.out"})
"""`out` overloads made of other operators that nevertheless write in place and give the bits of their
functional forms (`linear.out` only for some inputs: `out_equivalents` knows which). Of other composites it is
not known: `adaptive_avg_pool2d.out` differs in the last digits."""
FOLDS = "its out overload does not fold batches where a weight wants gradients"
ONE_TYPE = "its out overload asks for parameters and statistics of the input's type"
UNTRUSTED = {
    **dict.fromkeys(
        (
            "aten::binary_cross_entropy",
            "aten::huber_loss",
            "aten::mse_loss",
            "aten::smooth_l1_loss",
            "aten::soft_margin_loss",
        ),
        "its out overload writes more than the result",
    ),
    "aten::linalg_lstsq": "its out overload gives other last digits",
    "aten::linalg_qr": "its out overload takes two results in one storage for one",
}
"""Operators whose `out` overloads do not do, by name, with the reason: losses first make room there for the
loss of every element. All others were compared with their functional forms on torch's own sample inputs."""


class OpCall:
    """The call of an operator: `arguments` holds nodes and plain values by name, defaults included."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.arguments = arguments_of(node.target, node.args, node.kwargs, defaults=True)

    @property
    def result(self) -> torch.Tensor:
        """What the node gave when it was captured (a fake tensor), the first of several results."""
        value = self.node.meta["val"]
        result: torch.Tensor = value if isinstance(value, torch.Tensor) else value[0]
        return result

    def tensor(self, name: str) -> torch.Tensor:
        """The argument `name` as it was captured (a fake tensor)."""
        value: torch.Tensor = self.arguments[name].meta["val"]
        return value

    def is_tensor(self, name: str) -> bool:
        """Whether the argument `name` is a tensor that some node gives."""
        value = self.arguments.get(name)
        return isinstance(value, Node) and isinstance(value.meta.get("val"), torch.Tensor)


@dataclass(slots=True)
class Site:
    """Where the nodes that replace one are made: at the end of `graph`. `allocate(result, size, strides,
    after)` makes the view of the slab for one of the node's results, laid out as captured unless told
    otherwise. `shared` holds nodes that several sites use."""

    op_call: OpCall
    graph: Graph
    env: Mapping[Node, Node]
    allocate: Callable[[int, Sequence[int] | None, Sequence[int] | None, Sequence[Node]], Node]
    shared: dict[Any, Node]

    def argument(self, name: str) -> Any:
        """The argument `name`, with nodes of the new graph."""
        return map_arg(self.op_call.arguments[name], lambda node: self.env[node])

    def memory(
        self,
        size: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        *,
        result: int = 0,
        after: Sequence[Node] = (),
    ) -> Node:
        """The node's place in the slab, as a tensor of this size and these strides."""
        return self.allocate(result, size, strides, after)

    def empty(self, dtype: torch.dtype, device: torch.device) -> Node:
        """A tensor without elements, one for all of its kind."""
        if (dtype, device) not in self.shared:
            target = torch.ops.aten.empty.memory_format
            self.shared[dtype, device] = self.call(target, [0], dtype=dtype, device=device)
        return self.shared[dtype, device]

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        """A new node."""
        return self.graph.call_function(target, args, kwargs)


def write_part(site: Site) -> Node:
    """A copy of `self` with `src` written into a part of it."""
    view, names = PARTS[site.op_call.node.target._schema.name]  # type: ignore[union-attr]
    if view is None:
        return site.call(aten.copy_.default, site.memory(), site.argument("src"))
    whole = site.call(aten.copy_.default, site.memory(), site.argument("self"))
    part = site.call(view, whole, *(site.argument(name) for name in names))
    written = site.call(aten.copy_.default, part, site.argument("src"))
    # What the node returns must come after both copies.
    return site.memory(after=[site.call(done, written)])


def write_joined(site: Site, in_place: frozenset[int]) -> Node:
    """A concatenation of which the inputs `in_place`, by number, lie where they belong: the others are
    copied beside them."""
    op_call = site.op_call
    memory = site.memory()
    begin, written = 0, [site.call(done, memory)]
    for number, node in enumerate(op_call.arguments["tensors"]):
        value, source = node.meta["val"], site.env[node]
        size = value.shape[op_call.arguments["dim"]] if value.numel() else 0
        if number not in in_place and size:
            part = site.call(aten.narrow.default, memory, op_call.arguments["dim"], begin, size)
            source = site.call(aten.copy_.default, part, source)
        written.append(site.call(done, source))
        begin += size
    return site.memory(after=written)


def is_vector_product(op_call: OpCall) -> bool:
    """Whether `matmul` or `linear` multiplies a vector by a matrix. Their `out` overloads give the result
    another shape meanwhile, of which torch warns."""
    names = ("input", "weight") if op_call.is_tensor("weight") else ("self", "other")
    left, right = map(op_call.tensor, names)
    return left.dim() == 1 and right.dim() == 2


def write_vector_product(site: Site) -> Node:
    """The product of matrices that the operator calls, and the bias added to it."""
    op_call = site.op_call
    is_linear = op_call.is_tensor("weight")
    length = op_call.result.shape[0]
    left = site.call(aten.unsqueeze.default, site.argument("input" if is_linear else "self"), 0)
    right = site.argument("weight" if is_linear else "other")
    right = site.call(aten.t.default, right) if is_linear else right
    product = site.call(aten.mm.out, left, right, out=site.memory([1, length], [length, 1]))
    product = site.call(aten.view.default, product, [length])
    if not is_linear or not op_call.is_tensor("bias"):
        return product
    return site.call(aten.add_.Tensor, product, site.argument("bias"))


@cache
def native_out(target: Any) -> OpOverload | None:
    """The overload with the arguments of the operator `target`, matched by name and type of every one, that
    writes its results into memory it is given, by a kernel of its own; None when there is none."""
    overload = _writing_tensors(target, generated=False)
    if overload is not None and target._schema.name in UNTRUSTED:
        return None
    if overload is None or qualified_name(overload) in COMPOSITES:
        return overload
    return None if is_composite(target) or is_composite(overload) else overload


def folds_otherwise(op_call: OpCall) -> bool:
    """Whether this call of a composite gives other last digits through its `out` overload.

    Matrix products fold the batches of an operand into rows where the other one wants gradients, even while
    none are recorded, but not when they write into memory they are given.
    """
    operands = [name for name in ("input", "self", "weight", "other") if op_call.is_tensor(name)]
    folded = any(
        op_call.tensor(name).dim() > 2 and not op_call.tensor(name).is_contiguous() for name in operands
    )
    batched = any(op_call.tensor(name).dim() > 2 for name in operands)
    wants = any(_wants_gradients(op_call.arguments[name]) for name in operands)
    return wants and (folded if op_call.is_tensor("weight") else batched)


def mixes_types(op_call: OpCall) -> bool:
    """Whether this call is of a batch norm whose input and parameters differ in type, as under autocast."""
    target: Any = op_call.node.target
    if target._schema.name != "aten::native_batch_norm":
        return False
    names = ("input", "weight", "bias", "running_mean", "running_var")
    return len({op_call.tensor(name).dtype for name in names if op_call.is_tensor(name)}) > 1


def _wants_gradients(node: Node) -> bool:
    """Whether the tensor that `node` gives wants gradients: even without any being recorded a view of a
    weight does as the weight does, which its captured value does not say."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor) and value.requires_grad:
        return True
    shows = node.target is operator.getitem or gives_views(node.target)
    source = node.args[0] if node.args else None
    return shows and isinstance(source, Node) and _wants_gradients(source)


@cache
def generated_out(target: Any) -> OpOverload | None:
    """The overload that torch generates for an operator without a kernel for it: it computes as ever, and
    then copies. None when there is none."""
    return _writing_tensors(target, generated=True)


def out_arguments(overload: OpOverload) -> list[str]:
    """The names of the arguments that `overload` writes into, in the order of what it returns."""
    return [argument.name for argument in overload._schema.arguments if argument.is_out]


def qualified_name(target: OpOverload) -> str:
    """As the dispatcher calls it: `aten::add.Tensor`, `aten::relu`."""
    schema = target._schema
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)


def _writing_tensors(target: Any, generated: bool) -> OpOverload | None:
    """As `out_overload`, where all that it writes are tensors, none a list of them."""
    overload = out_overload(target, generated)
    arguments = [] if overload is None else overload._schema.arguments
    return (
        overload if all(str(argument.type) == "Tensor" for argument in arguments if argument.is_out) else None
    )
