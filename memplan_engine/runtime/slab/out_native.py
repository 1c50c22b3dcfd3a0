"""The `out` overloads of operators: which of them really write where they are told, and which only copy."""

from __future__ import annotations

import operator
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node

from memplan_engine.runtime.slab.out_site import Asked
from memplan_engine.torch_capture.torch_operators import gives_views, out_overload
from memplan_engine.torch_capture.torch_storages import is_composite

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


@cache
def native_out(target: Any) -> OpOverload | None:
    """The overload with the arguments of the operator `target`, matched by name and type of every one, that
    writes its results into memory it is given, by a kernel of its own; None when there is none."""
    found = _writing_tensors(target, generated=False)
    if found is not None and target._schema.name in UNTRUSTED:
        return None
    if found is None or qualified_name(found) in COMPOSITES:
        return found
    return None if is_composite(target) or is_composite(found) else found


def folds_otherwise(asked: Asked) -> bool:
    """Whether this call of a composite gives other last digits through its `out` overload.

    Matrix products fold the batches of an operand into rows where the other one wants gradients, even while
    none are recorded, but not when they write into memory they are given.
    """
    operands = [name for name in ("input", "self", "weight", "other") if asked.is_tensor(name)]
    folded = any(asked.tensor(name).dim() > 2 and not asked.tensor(name).is_contiguous() for name in operands)
    batched = any(asked.tensor(name).dim() > 2 for name in operands)
    wants = any(_wants_gradients(asked.given[name]) for name in operands)
    return wants and (folded if asked.is_tensor("weight") else batched)


def mixes_types(asked: Asked) -> bool:
    """Whether this call is of a batch norm whose input and parameters differ in type, as under autocast."""
    target: Any = asked.node.target
    if target._schema.name != "aten::native_batch_norm":
        return False
    names = ("input", "weight", "bias", "running_mean", "running_var")
    return len({asked.tensor(name).dtype for name in names if asked.is_tensor(name)}) > 1


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
    found = out_overload(target, generated)
    arguments = [] if found is None else found._schema.arguments
    return found if all(str(each.type) == "Tensor" for each in arguments if each.is_out) else None
