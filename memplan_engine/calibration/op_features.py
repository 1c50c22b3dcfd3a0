"""The sizes that the memory of a kernel follows from, read off the tensors that an op takes and gives.

Nothing but shapes, strides and types is looked at, so that a captured graph says as much as a live call.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from memplan_engine.graph import Graph, is_contiguous

BLOCK = 16
"""Channels that oneDNN keeps side by side with AVX-512, as in its layouts nChw16c and OIhw16i16o."""
BROAD = 3
"""Columns of a depthwise kernel up to which oneDNN takes images with channels last as they are; the gradients
of others are made with each channel as a block of 16 × 16 (measured: 3 two copies of the weights, 5 to 9 take
257)."""
WIDEST = 14
"""Columns of a kernel up to which oneDNN has its own code for the gradient of weights (measured: 14 and below
take a copy of the larger operand, 16 and 32 four of the weights, and the columns of an image)."""
NATIVE_MOST = 20_480
"""Elements of an input, over its first four dimensions, up to which one image is convolved without oneDNN:
`use_mkldnn` in aten/src/ATen/native/Convolution.cpp, which asks this of float32 only."""
WHOLE = ("bfloat16", "float16")
"""Types that are always convolved by oneDNN, where it knows them. Of float64 it knows nothing."""
FORWARD_CONVOLUTION, BACKWARD_CONVOLUTION = "aten.convolution", "aten.convolution_backward"
ATTENTION = "aten._scaled_dot_product_flash_attention_for_cpu"
BACKWARD_ATTENTION = f"{ATTENTION}_backward"
ALIASES = {
    **{f"aten.conv{n}d": FORWARD_CONVOLUTION for n in (1, 2, 3)},
    **{f"aten.conv_transpose{n}d": FORWARD_CONVOLUTION for n in (1, 2, 3)},
    "aten.batch_norm": "aten.native_batch_norm",
    "aten._native_batch_norm_legit": "aten.native_batch_norm",
    "aten._native_batch_norm_legit_no_training": "aten.native_batch_norm",
    "aten.layer_norm": "aten.native_layer_norm",
    "aten.scaled_dot_product_attention": ATTENTION,
    "aten.softmax": "aten._softmax",
    "aten.log_softmax": "aten._log_softmax",
    "aten.linear": "aten.addmm",
    "aten.matmul": "aten.bmm",
    "aten.max_pool2d": "aten.max_pool2d_with_indices",
    "aten.adaptive_avg_pool2d": "aten._adaptive_avg_pool2d",
    "aten.dropout": "aten.native_dropout",
}
"""Operators of exported graphs, by those that the dispatcher hands to a kernel."""


class Shown(NamedTuple):
    """A tensor as a kernel sees it; strides in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: str
    nbytes: int

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return self.nbytes // prod(self.shape) if prod(self.shape) else 0


class Features(NamedTuple):
    """`kind` and `regime` say which formula holds, `sizes` (bytes, by name) what goes into it."""

    kind: str
    regime: str
    sizes: dict[str, int]


def features(kind: str, inputs: Sequence[Shown], outputs: Sequence[Shown], threads: int) -> Features:
    """The features of a call of the operator `kind` ("aten.convolution") on the tensors `inputs`, in the
    order of its schema, that gives `outputs`."""
    kind = ALIASES.get(kind, kind)
    dtype = _dtypes(inputs)
    if kind == FORWARD_CONVOLUTION and len(inputs) >= 2 and outputs:
        regime, sizes = _convolution(inputs[0], inputs[1], outputs[0])
        return Features(kind, f"{dtype} {regime}", sizes)
    if kind == BACKWARD_CONVOLUTION and len(inputs) >= 3:
        regime, sizes = _convolution(inputs[1], inputs[2], inputs[0])
        sizes[MADE] = sum(shown.nbytes for shown in outputs)
        made = "+".join(name for name, shown in _gradients(inputs, outputs) if shown)
        turned = "" if is_row_major(inputs[0]) else " turned"
        return Features(kind, f"{dtype} {regime} {made}{turned}", sizes)
    sizes = {f"in{place}": shown.nbytes for place, shown in enumerate(inputs[:MOST_SIZES])}
    sizes |= {f"out{place}": shown.nbytes for place, shown in enumerate(outputs[:MOST_SIZES])}
    if kind == ATTENTION and len(inputs) >= 3 and len(inputs[0].shape) == 4:
        sizes["blocks"] = _attention_blocks(inputs[0], inputs[1], threads)
    if kind == BACKWARD_ATTENTION and len(inputs) >= 4 and len(inputs[1].shape) == 4:
        sizes["blocks"] = _backward_blocks(inputs[1], inputs[2], threads)
    if kind == LAYER_NORM_BACKWARD:
        # Sums of the weights' gradients, by thread: LayerNormBackwardKernelImpl in
        # aten/src/ATen/native/cpu/layer_norm_kernel.cpp.
        sizes["sums"] = threads * sum(shown.nbytes for shown in outputs[1:])
    sizes[MADE] = sum(shown.nbytes for shown in outputs)
    words = [dtype, _strided(kind, inputs), f"{len(inputs)} in"]
    if kind in UPSAMPLED and outputs:
        # _use_vectorized_kernel_cond_2d in aten/src/ATen/native/cpu/UpSampleKernel.cpp.
        words += ["small"] * (sum(outputs[0].shape[-2:]) <= VECTORIZED_MOST)
    return Features(kind, " ".join(words), sizes)


MOST_SIZES = 4
"""Tensors of a side that a formula may speak of: kernels have few large ones."""
MADE = "made"
"""The size of all that a call gives: while a kernel still works on a padded result, or on none, it is not
there yet, so that formulas take it away from what they say is held."""
LAYER_NORM_BACKWARD = "aten.native_layer_norm_backward"
UPSAMPLED = ("aten.upsample_nearest2d", "aten.upsample_bilinear2d")
VECTORIZED_MOST = 128
"""Height and width of an image, together, up to which it is resized by a kernel for channels last."""


def _dtypes(inputs: Sequence[Shown]) -> str:
    """The type of the first tensor, with those of other types that are floating ("bfloat16+float32")."""
    if not inputs:
        return ""
    others = (shown.dtype for shown in inputs[1:] if "float" in shown.dtype)
    return "+".join(dict.fromkeys([inputs[0].dtype, *others]))


def _strided(kind: str, inputs: Sequence[Shown]) -> str:
    """Whether all tensors are row-major; of attention, which are not: its kernels copy some of them."""
    strided = [str(place) for place, shown in enumerate(inputs) if not is_row_major(shown)]
    if not strided:
        return "dense"
    return f"strided {','.join(strided)}" if kind.startswith(ATTENTION) else "strided"


def is_row_major(shown: Shown) -> bool:
    """Whether its elements lie side by side in the order of its dimensions."""
    return shown.strides is None or is_contiguous(shown.shape, shown.strides)


def _gradients(inputs: Sequence[Shown], outputs: Sequence[Shown]) -> list[tuple[str, bool]]:
    """Which gradients a backward convolution makes."""
    shapes = {shown.shape for shown in outputs}
    return [("x", inputs[1].shape in shapes), ("w", inputs[2].shape in shapes)]


def _convolution(x: Shown, w: Shown, y: Shown) -> tuple[str, dict[str, int]]:
    """How a convolution of `x` by `w` into `y` is computed, and its sizes: `…16` with channels in whole
    blocks, `columns` as im2col has them of one image, `unfolded` of all, `strided` the part of the input that
    a stride keeps."""
    batch, channels = x.shape[0], x.shape[1]
    made, kernel = y.shape[1], w.shape[2:]
    image, result = prod(x.shape[2:]), prod(y.shape[2:])
    transposed = result > image and w.shape[0] == channels
    groups = max(made // w.shape[1], 1) if transposed else max(channels // max(w.shape[1], 1), 1)
    grouping = "dense" if groups == 1 else "depthwise" if groups == channels else "grouped"
    small = batch == 1 and prod(x.shape[:4]) <= NATIVE_MOST and groups == 1
    native = small and not (len(kernel) >= 2 and kernel[-1] > 3 and kernel[-2] > 3)
    if x.dtype != "float32":
        native = x.dtype not in WHOLE
    words = [
        f"{len(kernel)}d",
        "transposed" * transposed,
        "native" if native else "onednn",
        grouping,
        "1x1" if prod(kernel) == 1 else "kxk",
        "patches"
        if image == result * prod(kernel) > result
        else "strided"
        if image >= 2 * result
        else "unit",
        "few" if (few := channels < BLOCK // 4 + 1) else "",
        "wide" if kernel[-1] > WIDEST else "",
        "odd" if not native and (made % BLOCK or (channels % BLOCK and not few)) else "",
        "" if is_row_major(x) else "channels_last",
        "broad" if grouping == "depthwise" and kernel[-1] > BROAD and not is_row_major(x) else "",
    ]
    sizes = {
        "x": x.nbytes,
        "w": w.nbytes,
        "y": y.nbytes,
        "x16": batch * _blocks(channels) * image * x.item,
        "w16": _blocked_weights(w, groups)
        if not few or groups > 1
        else _blocks(w.shape[0]) * w.nbytes // w.shape[0],
        "y16": batch * _blocks(made) * result * y.item,
        "columns": (made if transposed else channels) // groups * prod(kernel) * min(image, result) * x.item
        if transposed
        else channels * prod(kernel) * result * x.item,
        "strided": batch * channels * result * x.item,
        "unfolded": batch * channels * prod(kernel) * result * x.item,
        MADE: y.nbytes,
    }
    if grouping == "depthwise":
        # Each channel as a block of its own, as of images with channels last.
        sizes["w256"] = w.shape[0] * BLOCK * BLOCK * prod(kernel) * w.item
    return " ".join(word for word in words if word), sizes


def _blocks(channels: int) -> int:
    return -(-channels // BLOCK) * BLOCK


def _blocked_weights(w: Shown, groups: int) -> int:
    out, into = w.shape[0], w.shape[1]
    if groups > 1 and into == 1:
        return _blocks(out) * prod(w.shape[1:]) * w.item
    each = _blocks(max(out // groups, 1)) * groups
    return each * _blocks(into) * prod(w.shape[2:]) * w.item


def _attention_tile(q: Shown, k: Shown) -> tuple[int, int]:
    """Rows and keys that one thread works on at a time, as in
    aten/src/ATen/native/cpu/FlashAttentionKernel.cpp."""
    rows, keys = q.shape[2], k.shape[2]
    return min(256 if rows >= 768 else 64 if rows >= 192 else 32, rows), min(512, keys)


def _attention_blocks(q: Shown, k: Shown, threads: int) -> int:
    """Bytes of all threads' blocks, of float32: scores, two columns of statistics, the result."""
    rows, keys = _attention_tile(q, k)
    return 4 * threads * rows * (keys + 2 + q.shape[3])


def _backward_blocks(q: Shown, k: Shown, threads: int) -> int:
    """Bytes of all threads' blocks, of float32, in the backward pass: scores and their gradients, and one
    column of sums."""
    rows, keys = _attention_tile(q, k)
    return 4 * rows * (2 * threads * keys + 1)


def graph_features(graph: Graph, threads: int) -> dict[str, Features]:
    """The features of each op of a graph, by name."""
    return {name: features(*call, threads) for name, call in graph_tensors(graph).items()}


def graph_tensors(graph: Graph) -> dict[str, tuple[str, list[Shown], list[Shown]]]:
    """Kind, inputs and outputs of each op of a graph, by name."""
    shown = {
        tensor.name: Shown(tensor.shape, tensor.strides, tensor.dtype, tensor.nbytes)
        for tensor in graph.tensors
    }
    return {
        op.name: (
            op.kind.removesuffix(".default"),
            [shown[name] for name in op.inputs],
            [shown[name] for name in op.outputs],
        )
        for op in graph.ops
    }
