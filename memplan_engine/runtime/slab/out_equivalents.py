"""Operators without an `out` overload of their own (or with one that gives other bits), written in place by
operators that have one and give the same bits: the very kernels that they call themselves.

tests/runtime/test_runtime_equivalents.py compares every one of them, bit for bit, over shapes, types and
layouts.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from memplan_engine.graph import is_contiguous
from memplan_engine.runtime.slab.operators import done
from memplan_engine.runtime.slab.out_calls import (
    PARTS,
    OpCall,
    Site,
    is_vector_product,
    write_part,
    write_vector_product,
)

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Equivalent:
    """`applies` looks at a captured call; `write` replaces it and returns the node with its result."""

    applies: Callable[[OpCall], bool]
    write: Callable[[Site], Node]


def find_equivalent(op_call: OpCall) -> Equivalent | None:
    """The way to write the results of this call in place, where there is one in the table."""
    schema = getattr(op_call.node.target, "_schema", None)
    if schema is None or not pytree.tree_leaves(op_call.node.meta.get("val")):
        return None
    equivalent = EQUIVALENTS.get(schema.name)
    return equivalent if equivalent is not None and equivalent.applies(op_call) else None


def _on_cpu(op_call: OpCall) -> bool:
    return op_call.result.device.type == "cpu"


def _flat(op_call: OpCall) -> bool:
    """Whether `linear` flattens its input and adds the bias in one go."""
    if not op_call.is_tensor("bias") or op_call.tensor("input").dim() < 3:
        return False
    return op_call.tensor("input").is_contiguous() and op_call.tensor("bias").dim() == 1


def _linear(site: Site) -> Node:
    if is_vector_product(site.op_call):
        return write_vector_product(site)
    features = site.op_call.tensor("weight").shape[0]
    rows = math.prod(site.op_call.result.shape[:-1])
    flat = site.call(
        aten.view.default, site.argument("input"), [rows, site.op_call.tensor("input").shape[-1]]
    )
    weight = site.call(aten.t.default, site.argument("weight"))
    memory = site.memory([rows, features], [features, 1])
    product = site.call(aten.addmm.out, site.argument("bias"), flat, weight, out=memory)
    return site.call(aten.view.default, product, list(site.op_call.result.shape))


def _relu(site: Site) -> Node:
    return site.call(aten.clamp_min.out, site.argument("self"), 0, out=site.memory())


def _batch_norm_all(site: Site) -> Node:
    op_call = site.op_call
    training = op_call.arguments.get("training", False)
    kind, device = op_call.tensor("input").dtype, op_call.result.device
    if training:
        size, target = [op_call.tensor("input").shape[1]], aten.empty.memory_format
        scratch = [site.call(target, size, dtype=kind, device=device) for _ in range(2)]
    else:
        # Nothing is saved.
        scratch = [site.empty(kind, device)] * 2
    return site.call(
        aten.native_batch_norm.out,
        *(site.argument(name) for name in ("input", "weight", "bias", "running_mean", "running_var")),
        training,
        op_call.arguments["momentum"],
        op_call.arguments["eps"],
        out=site.memory(),
        save_mean=scratch[0],
        save_invstd=scratch[1],
    )


def _batch_norm(site: Site) -> Node:
    return _item(site, _batch_norm_all(site))


def _item(site: Site, results: Node) -> Node:
    return site.call(operator.getitem, results, 0)


def _plain_batch_norm(op_call: OpCall) -> bool:
    """On the CPU, with statistics, parameters and input of one type, which the kernel of `out` asks for."""
    if not _on_cpu(op_call) or not op_call.tensor("input").numel():
        return False
    names = ("weight", "bias", "running_mean", "running_var")
    kinds = {op_call.tensor(name).dtype for name in names if op_call.is_tensor(name)}
    has_statistics = op_call.is_tensor("running_mean") and op_call.is_tensor("running_var")
    return kinds == {op_call.tensor("input").dtype} and (
        has_statistics or op_call.arguments.get("training", False)
    )


def _max_pool2d(site: Site) -> Node:
    op_call = site.op_call
    indices = site.call(
        aten.empty_strided.default,
        list(op_call.result.shape),
        list(op_call.result.stride()),
        dtype=torch.int64,
        device=op_call.result.device,
    )
    names = ("self", "kernel_size", "stride", "padding", "dilation", "ceil_mode")
    arguments = [site.argument(name) for name in names]
    out = aten.max_pool2d_with_indices.out
    return _item(site, site.call(out, *arguments, out=site.memory(), indices=indices))


def _adaptive_pool(site: Site) -> Node:
    size = site.op_call.arguments["output_size"]
    if list(size) == [1, 1]:
        # To one pixel the operator takes the mean, and its `out` overload does not.
        return site.call(aten.mean.out, site.argument("self"), [-1, -2], True, out=site.memory())
    return site.call(aten.adaptive_avg_pool2d.out, site.argument("self"), size, out=site.memory())


def _embedding(site: Site) -> Node:
    rows, width = site.op_call.tensor("indices").numel(), site.op_call.tensor("weight").shape[1]
    indices = site.call(aten.reshape.default, site.argument("indices"), [rows])
    memory = site.memory([rows, width], [width, 1])
    selected = site.call(aten.index_select.out, site.argument("weight"), 0, indices, out=memory)
    return site.call(aten.view.default, selected, list(site.op_call.result.shape))


def _softmax(out: Any) -> Callable[[Site], Node]:
    def write(site: Site) -> Node:
        return site.call(out, site.argument("self"), site.argument("dim"), False, out=site.memory())

    return write


def _same_type(op_call: OpCall) -> bool:
    return _on_cpu(op_call) and op_call.arguments["dtype"] in (None, op_call.tensor("self").dtype)


def _source(op_call: OpCall) -> str:
    return "input" if op_call.is_tensor("input") else "self"


def _copies(op_call: OpCall) -> bool:
    """Whether the call only copies its first argument, perhaps into another shape or type."""
    name = _source(op_call)
    if not op_call.is_tensor(name) or op_call.tensor(name).device != op_call.result.device:
        return False
    source, result = op_call.tensor(name), op_call.result
    if source.is_complex() != result.is_complex() or source.is_quantized:
        return False
    same = source.shape == result.shape
    return same or (source.dtype == result.dtype and is_contiguous(result.shape, result.stride()))


def _copy(site: Site) -> Node:
    source, result = site.op_call.tensor(_source(site.op_call)), site.op_call.result
    values = site.argument(_source(site.op_call))
    if source.shape == result.shape:
        return site.call(aten.copy_.default, site.memory(), values)
    shape = list(source.shape)
    strides = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    copied = site.call(aten.copy_.default, site.memory(shape, strides), values)
    return site.call(aten.view.default, copied, list(result.shape))


def _fill(value: Callable[[OpCall], Any]) -> Equivalent:
    def write(site: Site) -> Node:
        return site.call(aten.fill_.Scalar, site.memory(), value(site.op_call))

    return Equivalent(lambda op_call: isinstance(value(op_call), (int, float, bool)), write)


def _pads(op_call: OpCall) -> bool:
    if op_call.arguments.get("mode", "constant") != "constant":
        return False
    return all(isinstance(side, int) and side >= 0 for side in op_call.arguments["pad"])


def _pad(site: Site) -> Node:
    op_call, sides = site.op_call, site.op_call.arguments["pad"]
    memory = site.memory()
    if not any(sides):
        return site.call(aten.copy_.default, memory, site.argument("self"))
    site.call(aten.fill_.Scalar, memory, op_call.arguments["value"] or 0)
    inner = memory
    last = op_call.result.dim() - 1
    for dim in range(len(sides) // 2):
        if sides[2 * dim] or sides[2 * dim + 1]:
            length = op_call.tensor("self").shape[last - dim]
            inner = site.call(aten.narrow.default, inner, last - dim, sides[2 * dim], length)
    copied = site.call(aten.copy_.default, inner, site.argument("self"))
    # What the node returns must come after the copy, not only after the fill.
    return site.memory(after=[site.call(done, copied)])


def _operator(out: Callable[[OpCall], Any], *names: str) -> Equivalent:
    """Another operator's `out` overload, called with the arguments `names`."""

    def write(site: Site) -> Node:
        return site.call(out(site.op_call), *(site.argument(name) for name in names), out=site.memory())

    return Equivalent(lambda op_call: out(op_call) is not None, write)


def _bitwise(name: str) -> Equivalent:
    packet = getattr(aten, name)

    def out(op_call: OpCall) -> Any:
        return packet.Tensor_out if op_call.is_tensor("other") else packet.Scalar_out

    return _operator(out, "self", "other")


def _reversed(op_call: OpCall) -> Any:
    return aten.sub.out if op_call.arguments["alpha"] == 1 else None


def _with_number(name: str) -> Equivalent:
    """The overload for a number, which makes a tensor of it and calls the one for tensors."""
    packet = getattr(aten, name)

    def out(op_call: OpCall) -> Any:
        plain = op_call.node.target is packet.Scalar and op_call.arguments.get("alpha", 1) == 1
        return packet.out if plain else None

    return _operator(out, "self", "other")


def _where(site: Site) -> Node:
    """A number in place of one of the tensors, of the result's type."""
    op_call = site.op_call

    def operand(name: str) -> Any:
        if op_call.is_tensor(name):
            return site.argument(name)
        kind, device = op_call.result.dtype, op_call.result.device
        return site.call(aten.scalar_tensor.default, op_call.arguments[name], dtype=kind, device=device)

    out = aten.where.self_out
    return site.call(out, site.argument("condition"), operand("self"), operand("other"), out=site.memory())


def _one_number(op_call: OpCall) -> bool:
    tensors = [name for name in ("self", "other") if op_call.is_tensor(name)]
    return len(tensors) == 1 and op_call.tensor(tensors[0]).dtype == op_call.result.dtype


def _then_in_place(inner: Any, *names: str) -> Equivalent:
    """A copy of `self`, changed in place."""

    def write(site: Site) -> Node:
        copied = site.call(aten.copy_.default, site.memory(), site.argument("self"))
        return site.call(inner(site.op_call), copied, *(site.argument(name) for name in names))

    return Equivalent(lambda op_call: op_call.tensor("self").shape == op_call.result.shape, write)


def _masked_fill(op_call: OpCall) -> Any:
    return aten.masked_fill_.Tensor if op_call.is_tensor("value") else aten.masked_fill_.Scalar


def _arange(site: Site) -> Node:
    arguments = site.op_call.arguments
    start, step = arguments.get("start", 0), arguments.get("step", 1)
    return site.call(aten.arange.start_out, start, arguments["end"], step, out=site.memory())


def _slow_convolution(op_call: OpCall) -> bool:
    """Whether torch, with as many threads as now, takes its own kernel for this convolution (it does for
    small ones); that of oneDNN cannot be told where to write."""
    arguments = op_call.arguments
    sizes = [arguments[name] for name in ("stride", "padding", "dilation")]
    if not _on_cpu(op_call) or op_call.tensor("input").dim() != 4:
        return False
    if not all(isinstance(size, (list, tuple)) and len(size) == 2 for size in sizes):
        return False
    if arguments["groups"] != 1 or arguments.get("transposed") or list(arguments["dilation"]) != [1, 1]:
        return False
    real = [
        torch.empty_strided(value.shape, value.stride(), dtype=value.dtype) if value is not None else None
        for value in (
            op_call.tensor(name) if op_call.is_tensor(name) else None for name in ("input", "weight", "bias")
        )
    ]
    backend = torch._C._select_conv_backend(*real, *map(list, sizes), False, [0, 0], 1)
    return str(backend).endswith("Slow2d")


def _convolution(site: Site) -> Node:
    kernel = list(site.op_call.tensor("weight").shape[2:])
    before = [site.argument("input"), site.argument("weight"), kernel, site.argument("bias")]
    after = [list(site.op_call.arguments[name]) for name in ("stride", "padding")]
    return site.call(aten._slow_conv2d_forward.output, *before, *after, output=site.memory())


COPY = Equivalent(_copies, _copy)
EQUIVALENTS: dict[str, Equivalent] = {
    "aten::linear": Equivalent(lambda op_call: is_vector_product(op_call) or _flat(op_call), _linear),
    "aten::matmul": Equivalent(is_vector_product, write_vector_product),
    **dict.fromkeys(PARTS, Equivalent(lambda op_call: True, write_part)),
    "aten::relu": Equivalent(lambda op_call: op_call.result.dtype != torch.bool, _relu),
    "aten::batch_norm": Equivalent(_plain_batch_norm, _batch_norm),
    "aten::_native_batch_norm_legit_no_training": Equivalent(_plain_batch_norm, _batch_norm_all),
    "aten::max_pool2d": Equivalent(
        lambda op_call: _on_cpu(op_call) and op_call.result.dim() == 4, _max_pool2d
    ),
    "aten::adaptive_avg_pool2d": Equivalent(_on_cpu, _adaptive_pool),
    "aten::embedding": Equivalent(lambda op_call: op_call.tensor("weight").dim() == 2, _embedding),
    "aten::softmax": Equivalent(_same_type, _softmax(aten._softmax.out)),
    "aten::log_softmax": Equivalent(_same_type, _softmax(aten._log_softmax.out)),
    **dict.fromkeys(("aten::conv2d", "aten::convolution"), Equivalent(_slow_convolution, _convolution)),
    "aten::pad": Equivalent(_pads, _pad),
    "aten::constant_pad_nd": Equivalent(_pads, _pad),
    "aten::__and__": _bitwise("bitwise_and"),
    "aten::__or__": _bitwise("bitwise_or"),
    "aten::__xor__": _bitwise("bitwise_xor"),
    "aten::min": _operator(
        lambda op_call: aten.minimum.out if op_call.is_tensor("other") else None, "self", "other"
    ),
    "aten::max": _operator(
        lambda op_call: aten.maximum.out if op_call.is_tensor("other") else None, "self", "other"
    ),
    **{f"aten::{name}": _with_number(name) for name in ("add", "sub", "mul", "div")},
    "aten::rsub": _operator(_reversed, "other", "self"),
    "aten::where": Equivalent(_one_number, _where),
    "aten::masked_fill": _then_in_place(_masked_fill, "mask", "value"),
    "aten::index_put": _then_in_place(lambda _: aten.index_put_.default, "indices", "values", "accumulate"),
    "aten::arange": Equivalent(lambda op_call: True, _arange),
    **dict.fromkeys(
        (
            "aten::contiguous",
            "aten::clone",
            "aten::_to_copy",
            "aten::to",
            "aten::type_as",
            "aten::reshape",
            "aten::flatten",
            "aten::_unsafe_view",
            "aten::lift_fresh_copy",
        ),
        COPY,
    ),
    **dict.fromkeys(("aten::ones", "aten::new_ones", "aten::ones_like"), _fill(lambda op_call: 1)),
    **dict.fromkeys(("aten::zeros", "aten::new_zeros", "aten::zeros_like"), _fill(lambda op_call: 0)),
    **dict.fromkeys(
        ("aten::full", "aten::new_full", "aten::full_like"),
        _fill(lambda op_call: op_call.arguments["fill_value"]),
    ),
    "aten::scalar_tensor": _fill(lambda op_call: op_call.arguments["s"]),
}
"""By the operator's name."""
