"""The calls that a calibration measures: shapes drawn from a seed, as networks have them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

Draw = Callable[[random.Random], Callable[[], Any]]
MOST_BYTES = 16 << 20
"""Of one tensor: a calibration shall not need more than a small machine has."""
MOST_WORK = 3e8
"""Multiplications of one call, some hundredths of a second on one core."""
CHANNELS = (3, 4, 8, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128, 160, 192, 256, 384, 512, 1024, 2048)
PATCHES = (4, 8, 14, 16)
WIDE_PATCHES = (16, 16, 32)
SIDES = (4, 7, 8, 14, 16, 28, 32, 56, 64, 112)


@dataclass(frozen=True, slots=True)
class Call:
    """A family of calls: `count` of them are measured, each drawn by `draw`."""

    name: str
    count: int
    draw: Draw

    def draws(self, seed: int) -> Iterator[Callable[[], Any]]:
        """The calls, the same for the same seed."""
        numbers = random.Random(f"{self.name} {seed}")
        for _ in range(self.count):
            yield self.draw(numbers)


def _trained(
    call: Callable[..., Any], *tensors: torch.Tensor, trains: bool, turned: bool = False
) -> Callable[[], Any]:
    """`call(*tensors)`, and, where it `trains`, its backward pass, from a gradient whose channels lie side by
    side where it is `turned`, as that of an image is which a layer reads as a row of tokens."""
    if not trains:

        def infer() -> Any:
            with torch.no_grad():
                return call(*tensors)

        return infer
    wanted = [each.requires_grad_() for each in tensors if each.dtype.is_floating_point]

    def train() -> Any:
        result = call(*wanted) if len(wanted) == len(tensors) else call(*tensors)
        result = result[0] if isinstance(result, tuple) else result
        # Dense, as gradients in networks are: kernels copy those that `sum` gives, which are expanded.
        form = torch.channels_last if turned else torch.preserve_format
        gradient = torch.ones_like(result, memory_format=form)
        return torch.autograd.grad(result, wanted, gradient, allow_unused=True)

    return train


def _convolution(
    dimensions: int,
    kernels: tuple[int, ...],
    strides: tuple[int, ...],
    grouping: str = "dense",
    batches: tuple[int, ...] = (1, 2, 4, 8),
    few: bool = False,
    channels_last: bool = False,
    transposed: bool = False,
    turned: bool = False,
    patches: bool = False,
    sides: tuple[int, ...] = SIDES,
) -> Draw:
    """Draws convolutions of one way of computing them."""

    def draw(numbers: random.Random) -> Callable[[], Any]:
        while True:
            batch, kernel = numbers.choice(batches), numbers.choice(kernels)
            stride = kernel if patches else numbers.choice(strides)
            into, out = numbers.choice(CHANNELS[:2] if few else CHANNELS[2:]), numbers.choice(CHANNELS[2:])
            side = numbers.choice((*sides, 224) if few else sides) ** (2 if dimensions == 1 else 1)
            groups = 1
            if grouping == "depthwise":
                groups = out = into
            elif grouping == "grouped":
                groups = numbers.choice((2, 4, 8))
            if into % groups or out % groups or (stride > 1 and side < 4 * stride):
                continue
            made = side * stride if transposed else -(-side // stride)
            work = batch * out * into // groups * kernel**dimensions * (min(side, made)) ** dimensions
            largest = batch * 4 * max(into * side**dimensions, out * made**dimensions)
            if work <= MOST_WORK and largest <= MOST_BYTES:
                break
        first, second = (into, out // groups) if transposed else (out, into // groups)
        x = torch.rand(batch, into, *(side,) * dimensions)
        w, b = torch.rand(first, second, *(kernel,) * dimensions), torch.rand(out)
        if channels_last:
            x = x.to(memory_format=torch.channels_last)
        # Not backward through channels last where kernels are 1x1: torch 2.13 writes past its memory there.
        trains = numbers.random() < 0.6 and not (channels_last and 1 in kernels)
        gives_x = not few or numbers.random() < 0.3
        # Of patches, which are next to each other, nothing lies beside the image.
        padding = 0 if transposed or patches else kernel // 2
        names = (
            {1: "conv_transpose1d", 2: "conv_transpose2d"}
            if transposed
            else {1: "conv1d", 2: "conv2d", 3: "conv3d"}
        )
        operator = getattr(functional, names[dimensions])
        options = {"stride": stride, "padding": padding, "groups": groups}
        if trains and not gives_x:
            return _trained(lambda *each: operator(x, *each, **options), w, b, trains=True, turned=turned)
        return _trained(lambda *each: operator(*each, **options), x, w, b, trains=trains, turned=turned)

    return draw


def _rows(numbers: random.Random, most: int = 512) -> int:
    return numbers.choice([each for each in (1, 2, 7, 16, 24, 50, 64, 128, 197, 256, 512) if each <= most])


def _wide(numbers: random.Random) -> int:
    return numbers.choice((8, 10, 16, 32, 48, 64, 96, 128, 256, 512, 768, 1000, 1024))


def _tensors(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.rand(*shape) for shape in shapes]


def _linear(numbers: random.Random) -> Callable[[], Any]:
    rows, into, out = _rows(numbers), _wide(numbers), _wide(numbers)
    shape = (rows, into) if numbers.random() < 0.5 else (numbers.choice((1, 2, 4)), rows, into)
    bias = [torch.rand(out)] if numbers.random() < 0.7 else []
    x, w = _tensors(shape, (out, into))
    return _trained(functional.linear, x, w, *bias, trains=numbers.random() < 0.6)


def _batched(numbers: random.Random) -> Callable[[], Any]:
    batch, a, b, c = (
        numbers.choice((2, 4, 8, 12)),
        _rows(numbers, 256),
        _rows(numbers, 256),
        _rows(numbers, 256),
    )
    x, y = _tensors((batch, a, b), (batch, c, b) if (turned := numbers.random() < 0.5) else (batch, b, c))
    call = (lambda one, two: torch.bmm(one, two.transpose(1, 2))) if turned else torch.bmm
    return _trained(call, x, y, trains=numbers.random() < 0.5)


def _attention(numbers: random.Random) -> Callable[[], Any]:
    batch, heads, size = (
        numbers.choice((1, 2, 4)),
        numbers.choice((2, 4, 8, 12)),
        numbers.choice((8, 16, 32, 64)),
    )
    rows = numbers.choice((7, 16, 24, 50, 64, 128, 197, 256, 512, 1024))
    keys = rows if numbers.random() < 0.7 else _rows(numbers, 256)
    shape = ((batch, heads, rows, size), *((batch, heads, keys, size),) * 2)
    if numbers.random() < 0.6:  # As a layer gives them: heads turned out of the last dimension.
        tensors = [torch.rand(b, n, h, d).transpose(1, 2) for b, h, n, d in shape]
    else:
        tensors = _tensors(*shape)
    options: dict[str, Any] = {}
    if numbers.random() < 0.4:
        options["attn_mask"] = torch.rand(batch, 1, rows, keys)
    elif rows == keys and numbers.random() < 0.5:
        options["is_causal"] = True
    return _trained(
        lambda *qkv: functional.scaled_dot_product_attention(*qkv, **options),
        *tensors,
        trains=numbers.random() < 0.6,
    )


def _image(numbers: random.Random) -> torch.Tensor:
    while True:
        shape = numbers.choice((1, 2, 4, 8)), numbers.choice(CHANNELS[2:]), *(numbers.choice(SIDES),) * 2
        x = torch.empty(shape, device="meta")
        if x.nbytes <= MOST_BYTES:
            return torch.rand(shape)


def _weights_dtype(numbers: random.Random) -> torch.dtype:
    """The type of a norm's weights: that of its input, or, of one in half precision, also float32, as under
    autocast."""
    dtype = torch.get_default_dtype()
    return torch.float32 if dtype.itemsize < 4 and numbers.random() < 0.5 else dtype


def _batch_norm(numbers: random.Random) -> Callable[[], Any]:
    x = _image(numbers)
    n, learns = x.shape[1], numbers.random() < 0.6
    kind = _weights_dtype(numbers)
    mean, var = torch.zeros(n, dtype=kind), torch.ones(n, dtype=kind)
    return _trained(
        lambda x, w, b: functional.batch_norm(x, mean, var, w, b, training=learns),
        x, torch.rand(n, dtype=kind), torch.rand(n, dtype=kind), trains=learns,
    )  # fmt: skip


def _on_images(*calls: Callable[[torch.Tensor], Any]) -> Draw:
    return lambda numbers: _trained(numbers.choice(calls), _image(numbers), trains=numbers.random() < 0.5)


def _on_rows(*calls: Callable[[torch.Tensor], Any]) -> Draw:
    def draw(numbers: random.Random) -> Callable[[], Any]:
        x = torch.rand(numbers.choice((1, 2, 4)), _rows(numbers), _wide(numbers))
        return _trained(numbers.choice(calls), x, trains=numbers.random() < 0.5)

    return draw


def _layer_norm(numbers: random.Random) -> Callable[[], Any]:
    n = _wide(numbers)
    shape = numbers.choice((1, 2, 4)), _rows(numbers), n
    # As tokens are that an image has become, too: their channels lie apart.
    x = torch.rand(*shape) if numbers.random() < 0.6 else torch.rand(shape[0], n, shape[1]).transpose(1, 2)
    call, kind = functional.layer_norm, _weights_dtype(numbers)
    w, b = torch.rand(n, dtype=kind), torch.rand(n, dtype=kind)
    return _trained(lambda x, w, b: call(x, (n,), w, b), x, w, b, trains=numbers.random() < 0.5)


def _embedding(numbers: random.Random) -> Callable[[], Any]:
    many = numbers.choice((100, 1000, 5000))
    ids = torch.randint(many, (numbers.choice((1, 2, 4)), _rows(numbers)))
    return _trained(lambda w: functional.embedding(ids, w), torch.rand(many, _wide(numbers)), trains=True)


def _loss(numbers: random.Random) -> Callable[[], Any]:
    rows, classes = _rows(numbers), _wide(numbers)
    target = torch.randint(classes, (rows,))
    return _trained(lambda x: functional.cross_entropy(x, target), torch.rand(rows, classes), trains=True)


def _recurrent(kind: type[nn.Module]) -> Draw:
    def draw(numbers: random.Random) -> Callable[[], Any]:
        into, hidden = numbers.choice((8, 16, 32, 64, 128)), numbers.choice((8, 16, 32, 64, 128, 256))
        layers, both = numbers.choice((1, 2)), numbers.random() < 0.3
        model = kind(into, hidden, layers, bidirectional=both, batch_first=True)
        x = torch.rand(numbers.choice((1, 2, 4, 16)), numbers.choice((5, 10, 24, 50)), into)
        return _trained(lambda x: model(x), x, trains=numbers.random() < 0.5)

    return draw


def _optimizer(numbers: random.Random) -> Callable[[], Any]:
    weights = [nn.Parameter(torch.rand(_wide(numbers), _wide(numbers))) for _ in range(numbers.randint(1, 4))]
    make = numbers.choice((torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW))
    optimizer = make(weights, foreach=numbers.random() < 0.5)
    for each in weights:
        each.grad = torch.rand_like(each)
    return lambda: (optimizer.step(), optimizer.step())


def _indexed(x: torch.Tensor) -> torch.Tensor:
    return x[:, torch.arange(0, x.shape[1], 2)]


_POINTWISE = (
    torch.relu, torch.sigmoid, torch.tanh, functional.gelu, functional.silu, torch.exp,
    functional.hardtanh, functional.hardswish, functional.hardsigmoid, functional.leaky_relu,
    functional.elu, functional.softplus, torch.rsqrt, torch.sqrt, torch.cos, torch.sin, torch.neg,
    lambda x: x + x, lambda x: x * x, lambda x: x - 1.0, lambda x: x / 2.0, lambda x: x.pow(2),
    lambda x: torch.where(x > 0.5, x, -x), lambda x: x.clamp(0.1, 0.9), lambda x: x.clone(),
    lambda x: functional.dropout(x, 0.1), lambda x: x.transpose(-1, -2).contiguous(),
)  # fmt: skip
_REDUCED = (
    lambda x: x.sum(-1), lambda x: x.sum(), lambda x: x.mean(-1), lambda x: x.mean(), lambda x: x.var(-1),
    lambda x: x.std(-1), lambda x: x.amax(-1), lambda x: x.norm(), lambda x: x.cumsum(-1),
    lambda x: torch.softmax(x, -1), lambda x: torch.log_softmax(x, -1), lambda x: x.sort(-1),
    lambda x: x.topk(1), lambda x: x.logsumexp(-1), lambda x: torch.cat([x, x], -1),
    lambda x: torch.stack([x, x]), _indexed, lambda x: x.masked_fill(x > 0.5, 0.0),
    lambda x: functional.pad(x, (1, 2)), lambda x: x.roll(1, -1), lambda x: x.flip(-1),
    lambda x: torch.triu(x), lambda x: x[:, :, ::2] * 1.0,
)  # fmt: skip
_POOLED = (
    lambda x: functional.max_pool2d(x, 2), lambda x: functional.max_pool2d(x, 3, 2, 1),
    lambda x: functional.avg_pool2d(x, 2), lambda x: functional.adaptive_avg_pool2d(x, 1),
    lambda x: functional.adaptive_avg_pool2d(x, 2), lambda x: functional.pad(x, (1, 1, 1, 1)),
    lambda x: x.mean((2, 3)),
    lambda x: functional.pixel_shuffle(x, 2) if x.shape[1] % 4 == 0 else x * 2,
    lambda x: functional.group_norm(x, 4), lambda x: functional.unfold(x, 2, stride=2),
)  # fmt: skip
_RESIZED = (
    lambda x: functional.interpolate(x, scale_factor=2.0),
    lambda x: functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False),
)
CALLS = (
    Call("convolutions 1x1", 140, _convolution(2, (1,), (1,))),
    Call("convolutions 1x1, strided", 120, _convolution(2, (1,), (2,))),
    Call("convolutions 3x3 to 7x7", 180, _convolution(2, (3, 3, 5, 7), (1,))),
    Call("convolutions 3x3 to 7x7, strided", 140, _convolution(2, (3, 3, 5, 7), (2,))),
    Call("convolutions of colours", 150, _convolution(2, (1, 3, 5, 7), (1, 2), few=True)),
    Call("convolutions of patches", 80, _convolution(2, PATCHES, (), few=True, patches=True, turned=True)),
    Call("convolutions of images of patches", 50, _convolution(2, (4, 8, 16), (), few=True, patches=True)),
    Call("wide patches", 90, _convolution(2, WIDE_PATCHES, (), few=True, patches=True, turned=True)),
    Call("images of wide patches", 60, _convolution(2, WIDE_PATCHES, (), few=True, patches=True)),
    Call("convolutions into tokens", 90, _convolution(2, (1, 3, 7), (1, 2), turned=True)),
    Call("convolutions that merge patches", 60, _convolution(2, (2, 2, 4), (), patches=True, turned=True)),
    Call("convolutions that halve images", 60, _convolution(2, (2,), (), patches=True)),
    Call("depthwise convolutions", 160, _convolution(2, (3, 3, 5, 7), (1, 2), "depthwise")),
    Call("grouped convolutions", 140, _convolution(2, (1, 3, 3), (1, 2), "grouped")),
    Call("small convolutions", 110, _convolution(2, (1, 3), (1, 2), batches=(1,), sides=SIDES[:6])),
    Call("convolutions, channels last", 90, _convolution(2, (1, 3), (1, 2), channels_last=True)),
    Call("depthwise, channels last", 90, _convolution(2, (3, 5, 7), (1,), "depthwise", channels_last=True)),
    Call(
        "depthwise, all channels last",
        90,
        _convolution(2, (3, 5, 7), (1,), "depthwise", channels_last=True, turned=True),
    ),
    Call(
        "merged patches, channels last",
        90,
        _convolution(2, (2,), (), channels_last=True, patches=True, sides=SIDES[:8]),
    ),
    Call(
        "merged patches, all channels last",
        90,
        _convolution(2, (2,), (), channels_last=True, patches=True, turned=True, sides=SIDES[:8]),
    ),
    Call("convolutions in 1D", 160, _convolution(1, (1, 3, 5), (1, 2), sides=SIDES[1:7])),
    Call("convolutions in 3D", 120, _convolution(3, (1, 3, 3), (1, 2), sides=SIDES[:5])),
    Call("convolutions of films", 40, _convolution(3, (3,), (1, 2), sides=SIDES[1:6], few=True)),
    Call("transposed convolutions", 120, _convolution(2, (2, 2, 4), (2,), transposed=True, sides=SIDES[:8])),
    Call("linear layers", 80, _linear),
    Call("batched matmuls", 50, _batched),
    Call("attention", 160, _attention),
    Call("batch norm", 60, _batch_norm),
    Call("layer norm", 100, _layer_norm),
    Call("pooling", 120, _on_images(*_POOLED)),
    Call("resizing", 80, _on_images(*_RESIZED)),
    Call("pointwise operators", 160, _on_rows(*_POINTWISE)),
    Call("pointwise operators on images", 80, _on_images(*_POINTWISE)),
    Call("reductions and copies", 160, _on_rows(*_REDUCED)),
    Call("embeddings", 20, _embedding),
    Call("losses", 20, _loss),
    *(Call(kind.__name__, 30, _recurrent(kind)) for kind in (nn.LSTM, nn.GRU, nn.RNN)),
    Call("optimizers", 30, _optimizer),
)  # fmt: skip
"""What is measured in float32: forty seconds on one core."""
