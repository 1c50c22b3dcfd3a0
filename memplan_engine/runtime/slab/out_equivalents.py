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
    Asked,
    Site,
    is_vector_product,
    write_part,
    write_vector_product,
)

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Equivalent:
    """`applies` looks at a captured call; `write` replaces it and returns the node with its result."""

    applies: Callable[[Asked], bool]
    write: Callable[[Site], Node]


def find_equivalent(asked: Asked) -> Equivalent | None:
    """The way to write the results of this call in place, where there is one in the table."""
    schema = getattr(asked.node.target, "_schema", None)
    if schema is None or not pytree.tree_leaves(asked.node.meta.get("val")):
        return None
    found = EQUIVALENTS.get(schema.name)
    return found if found is not None and found.applies(asked) else None


def _on_cpu(asked: Asked) -> bool:
    return asked.result.device.type == "cpu"


def _flat(asked: Asked) -> bool:
    """Whether `linear` flattens its input and adds the bias in one go."""
    if not asked.is_tensor("bias") or asked.tensor("input").dim() < 3:
        return False
    return asked.tensor("input").is_contiguous() and asked.tensor("bias").dim() == 1


def _linear(site: Site) -> Node:
    if is_vector_product(site.asked):
        return write_vector_product(site)
    features = site.asked.tensor("weight").shape[0]
    rows = math.prod(site.asked.result.shape[:-1])
    flat = site.call(aten.view.default, site.given("input"), [rows, site.asked.tensor("input").shape[-1]])
    weight = site.call(aten.t.default, site.given("weight"))
    memory = site.memory([rows, features], [features, 1])
    made = site.call(aten.addmm.out, site.given("bias"), flat, weight, out=memory)
    return site.call(aten.view.default, made, list(site.asked.result.shape))


def _relu(site: Site) -> Node:
    return site.call(aten.clamp_min.out, site.given("self"), 0, out=site.memory())


def _batch_norm_all(site: Site) -> Node:
    asked = site.asked
    training = asked.given.get("training", False)
    kind, device = asked.tensor("input").dtype, asked.result.device
    if training:
        size, target = [asked.tensor("input").shape[1]], aten.empty.memory_format
        scratch = [site.call(target, size, dtype=kind, device=device) for _ in range(2)]
    else:
        # Nothing is saved.
        scratch = [site.empty(kind, device)] * 2
    return site.call(
        aten.native_batch_norm.out,
        *(site.given(name) for name in ("input", "weight", "bias", "running_mean", "running_var")),
        training,
        asked.given["momentum"],
        asked.given["eps"],
        out=site.memory(),
        save_mean=scratch[0],
        save_invstd=scratch[1],
    )


def _batch_norm(site: Site) -> Node:
    return _item(site, _batch_norm_all(site))


def _item(site: Site, made: Node) -> Node:
    return site.call(operator.getitem, made, 0)


def _plain_batch_norm(asked: Asked) -> bool:
    """On the CPU, with statistics, parameters and input of one type, which the kernel of `out` asks for."""
    if not _on_cpu(asked) or not asked.tensor("input").numel():
        return False
    names = ("weight", "bias", "running_mean", "running_var")
    kinds = {asked.tensor(name).dtype for name in names if asked.is_tensor(name)}
    has_statistics = asked.is_tensor("running_mean") and asked.is_tensor("running_var")
    return kinds == {asked.tensor("input").dtype} and (has_statistics or asked.given.get("training", False))


def _max_pool2d(site: Site) -> Node:
    asked = site.asked
    indices = site.call(
        aten.empty_strided.default,
        list(asked.result.shape),
        list(asked.result.stride()),
        dtype=torch.int64,
        device=asked.result.device,
    )
    names = ("self", "kernel_size", "stride", "padding", "dilation", "ceil_mode")
    given = [site.given(name) for name in names]
    out = aten.max_pool2d_with_indices.out
    return _item(site, site.call(out, *given, out=site.memory(), indices=indices))


def _adaptive_pool(site: Site) -> Node:
    size = site.asked.given["output_size"]
    if list(size) == [1, 1]:
        # To one pixel the operator takes the mean, and its `out` overload does not.
        return site.call(aten.mean.out, site.given("self"), [-1, -2], True, out=site.memory())
    return site.call(aten.adaptive_avg_pool2d.out, site.given("self"), size, out=site.memory())


def _embedding(site: Site) -> Node:
    rows, width = site.asked.tensor("indices").numel(), site.asked.tensor("weight").shape[1]
    indices = site.call(aten.reshape.default, site.given("indices"), [rows])
    memory = site.memory([rows, width], [width, 1])
    made = site.call(aten.index_select.out, site.given("weight"), 0, indices, out=memory)
    return site.call(aten.view.default, made, list(site.asked.result.shape))


def _softmax(out: Any) -> Callable[[Site], Node]:
    def write(site: Site) -> Node:
        return site.call(out, site.given("self"), site.given("dim"), False, out=site.memory())

    return write


def _same_type(asked: Asked) -> bool:
    return _on_cpu(asked) and asked.given["dtype"] in (None, asked.tensor("self").dtype)


def _source(asked: Asked) -> str:
    return "input" if asked.is_tensor("input") else "self"


def _copies(asked: Asked) -> bool:
    """Whether the call only copies its first argument, perhaps into another shape or type."""
    name = _source(asked)
    if not asked.is_tensor(name) or asked.tensor(name).device != asked.result.device:
        return False
    source, result = asked.tensor(name), asked.result
    if source.is_complex() != result.is_complex() or source.is_quantized:
        return False
    same = source.shape == result.shape
    return same or (source.dtype == result.dtype and is_contiguous(result.shape, result.stride()))


def _copy(site: Site) -> Node:
    source, result = site.asked.tensor(_source(site.asked)), site.asked.result
    given = site.given(_source(site.asked))
    if source.shape == result.shape:
        return site.call(aten.copy_.default, site.memory(), given)
    shape = list(source.shape)
    strides = [math.prod(shape[place + 1 :]) for place in range(len(shape))]
    made = site.call(aten.copy_.default, site.memory(shape, strides), given)
    return site.call(aten.view.default, made, list(result.shape))


def _fill(value: Callable[[Asked], Any]) -> Equivalent:
    def write(site: Site) -> Node:
        return site.call(aten.fill_.Scalar, site.memory(), value(site.asked))

    return Equivalent(lambda asked: isinstance(value(asked), (int, float, bool)), write)


def _pads(asked: Asked) -> bool:
    if asked.given.get("mode", "constant") != "constant":
        return False
    return all(isinstance(side, int) and side >= 0 for side in asked.given["pad"])


def _pad(site: Site) -> Node:
    asked, sides = site.asked, site.asked.given["pad"]
    memory = site.memory()
    if not any(sides):
        return site.call(aten.copy_.default, memory, site.given("self"))
    site.call(aten.fill_.Scalar, memory, asked.given["value"] or 0)
    inner = memory
    last = asked.result.dim() - 1
    for place in range(len(sides) // 2):
        if sides[2 * place] or sides[2 * place + 1]:
            length = asked.tensor("self").shape[last - place]
            inner = site.call(aten.narrow.default, inner, last - place, sides[2 * place], length)
    copied = site.call(aten.copy_.default, inner, site.given("self"))
    # What the node returns must come after the copy, not only after the fill.
    return site.memory(after=[site.call(done, copied)])


def _operator(out: Callable[[Asked], Any], *names: str) -> Equivalent:
    """Another operator's `out` overload, called with the arguments `names`."""

    def write(site: Site) -> Node:
        return site.call(out(site.asked), *(site.given(name) for name in names), out=site.memory())

    return Equivalent(lambda asked: out(asked) is not None, write)


def _bitwise(name: str) -> Equivalent:
    packet = getattr(aten, name)

    def out(asked: Asked) -> Any:
        return packet.Tensor_out if asked.is_tensor("other") else packet.Scalar_out

    return _operator(out, "self", "other")


def _reversed(asked: Asked) -> Any:
    return aten.sub.out if asked.given["alpha"] == 1 else None


def _with_number(name: str) -> Equivalent:
    """The overload for a number, which makes a tensor of it and calls the one for tensors."""
    packet = getattr(aten, name)

    def out(asked: Asked) -> Any:
        plain = asked.node.target is packet.Scalar and asked.given.get("alpha", 1) == 1
        return packet.out if plain else None

    return _operator(out, "self", "other")


def _where(site: Site) -> Node:
    """A number in place of one of the tensors, of the result's type."""
    asked = site.asked

    def operand(name: str) -> Any:
        if asked.is_tensor(name):
            return site.given(name)
        kind, device = asked.result.dtype, asked.result.device
        return site.call(aten.scalar_tensor.default, asked.given[name], dtype=kind, device=device)

    out = aten.where.self_out
    return site.call(out, site.given("condition"), operand("self"), operand("other"), out=site.memory())


def _one_number(asked: Asked) -> bool:
    tensors = [name for name in ("self", "other") if asked.is_tensor(name)]
    return len(tensors) == 1 and asked.tensor(tensors[0]).dtype == asked.result.dtype


def _then_in_place(inner: Any, *names: str) -> Equivalent:
    """A copy of `self`, changed in place."""

    def write(site: Site) -> Node:
        copied = site.call(aten.copy_.default, site.memory(), site.given("self"))
        return site.call(inner(site.asked), copied, *(site.given(name) for name in names))

    return Equivalent(lambda asked: asked.tensor("self").shape == asked.result.shape, write)


def _masked_fill(asked: Asked) -> Any:
    return aten.masked_fill_.Tensor if asked.is_tensor("value") else aten.masked_fill_.Scalar


def _arange(site: Site) -> Node:
    given = site.asked.given
    start, step = given.get("start", 0), given.get("step", 1)
    return site.call(aten.arange.start_out, start, given["end"], step, out=site.memory())


def _slow_convolution(asked: Asked) -> bool:
    """Whether torch, with as many threads as now, takes its own kernel for this convolution (it does for
    small ones); that of oneDNN cannot be told where to write."""
    given = asked.given
    sizes = [given[name] for name in ("stride", "padding", "dilation")]
    if not _on_cpu(asked) or asked.tensor("input").dim() != 4:
        return False
    if not all(isinstance(size, (list, tuple)) and len(size) == 2 for size in sizes):
        return False
    if given["groups"] != 1 or given.get("transposed") or list(given["dilation"]) != [1, 1]:
        return False
    real = [
        torch.empty_strided(value.shape, value.stride(), dtype=value.dtype) if value is not None else None
        for value in (
            asked.tensor(name) if asked.is_tensor(name) else None for name in ("input", "weight", "bias")
        )
    ]
    chosen = torch._C._select_conv_backend(*real, *map(list, sizes), False, [0, 0], 1)
    return str(chosen).endswith("Slow2d")


def _convolution(site: Site) -> Node:
    kernel = list(site.asked.tensor("weight").shape[2:])
    before = [site.given("input"), site.given("weight"), kernel, site.given("bias")]
    after = [list(site.asked.given[name]) for name in ("stride", "padding")]
    return site.call(aten._slow_conv2d_forward.output, *before, *after, output=site.memory())


COPY = Equivalent(_copies, _copy)
EQUIVALENTS: dict[str, Equivalent] = {
    "aten::linear": Equivalent(lambda asked: is_vector_product(asked) or _flat(asked), _linear),
    "aten::matmul": Equivalent(is_vector_product, write_vector_product),
    **dict.fromkeys(PARTS, Equivalent(lambda asked: True, write_part)),
    "aten::relu": Equivalent(lambda asked: asked.result.dtype != torch.bool, _relu),
    "aten::batch_norm": Equivalent(_plain_batch_norm, _batch_norm),
    "aten::_native_batch_norm_legit_no_training": Equivalent(_plain_batch_norm, _batch_norm_all),
    "aten::max_pool2d": Equivalent(lambda asked: _on_cpu(asked) and asked.result.dim() == 4, _max_pool2d),
    "aten::adaptive_avg_pool2d": Equivalent(_on_cpu, _adaptive_pool),
    "aten::embedding": Equivalent(lambda asked: asked.tensor("weight").dim() == 2, _embedding),
    "aten::softmax": Equivalent(_same_type, _softmax(aten._softmax.out)),
    "aten::log_softmax": Equivalent(_same_type, _softmax(aten._log_softmax.out)),
    **dict.fromkeys(("aten::conv2d", "aten::convolution"), Equivalent(_slow_convolution, _convolution)),
    "aten::pad": Equivalent(_pads, _pad),
    "aten::constant_pad_nd": Equivalent(_pads, _pad),
    "aten::__and__": _bitwise("bitwise_and"),
    "aten::__or__": _bitwise("bitwise_or"),
    "aten::__xor__": _bitwise("bitwise_xor"),
    "aten::min": _operator(
        lambda asked: aten.minimum.out if asked.is_tensor("other") else None, "self", "other"
    ),
    "aten::max": _operator(
        lambda asked: aten.maximum.out if asked.is_tensor("other") else None, "self", "other"
    ),
    **{f"aten::{name}": _with_number(name) for name in ("add", "sub", "mul", "div")},
    "aten::rsub": _operator(_reversed, "other", "self"),
    "aten::where": Equivalent(_one_number, _where),
    "aten::masked_fill": _then_in_place(_masked_fill, "mask", "value"),
    "aten::index_put": _then_in_place(lambda _: aten.index_put_.default, "indices", "values", "accumulate"),
    "aten::arange": Equivalent(lambda asked: True, _arange),
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
    **dict.fromkeys(("aten::ones", "aten::new_ones", "aten::ones_like"), _fill(lambda asked: 1)),
    **dict.fromkeys(("aten::zeros", "aten::new_zeros", "aten::zeros_like"), _fill(lambda asked: 0)),
    **dict.fromkeys(
        ("aten::full", "aten::new_full", "aten::full_like"), _fill(lambda asked: asked.given["fill_value"])
    ),
    "aten::scalar_tensor": _fill(lambda asked: asked.given["s"]),
}
"""By the operator's name."""
