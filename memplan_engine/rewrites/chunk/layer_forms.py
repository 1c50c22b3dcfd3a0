"""Forms of layers: norms, attention, losses, embeddings, convolutions and pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from memplan_engine.graph import Op
from memplan_engine.op_kinds.ordered import plain_kind
from memplan_engine.rewrites.chunk.form_arguments import flag, number, numbers
from memplan_engine.rewrites.chunk.forms import Form, Labels, Rule, Shape

NONE, MEAN, SUM = 0, 1, 2
"""How a loss is reduced: not at all, to the mean of its rows by their weights, to their sum."""


def _rows(shape: Shape, count: int) -> Labels:
    """Labels of the first `count` dimensions, None for the others."""
    return tuple(f"d{dim}" if dim < count else None for dim in range(len(shape)))


def _normed(op: Op, reads: Sequence[Shape], makes: Sequence[Shape]) -> Form | None:
    """Layer norm: rows are all dimensions but the last ones, which it works on."""
    over = numbers(op, "normalized_shape")
    if over is None:
        return None
    count = len(reads[0]) - len(over)
    weights = tuple(_rows(shape, 0) for shape in reads[1:])
    return Form((_rows(reads[0], count), *weights), tuple(_rows(shape, count) for shape in makes))


def _normed_backward(op: Op, reads: Sequence[Shape], makes: Sequence[Shape]) -> Form | None:
    """Gradient of the output, input, mean, 1 / deviation, weights; then gradients of input and weights."""
    over = numbers(op, "normalized_shape")
    if over is None or len(reads) < 4:
        return None
    count = len(reads[0]) - len(over)
    read = tuple(_rows(shape, count if at < 4 else 0) for at, shape in enumerate(reads))
    made = tuple(_rows(shape, count if len(shape) > len(over) else 0) for shape in makes)
    return Form(read, made, frozenset(f"d{dim}" for dim in range(count)))


def _embedded(op: Op, reads: Sequence[Shape], makes: Sequence[Shape]) -> Form | None:
    if len(reads) != 2 or len(makes[0]) != len(reads[1]) + 1:
        return None
    rows = len(reads[1])
    return Form((_rows(reads[0], 0), _rows(reads[1], rows)), (_rows(makes[0], rows),))


def _embedded_backward(op: Op, reads: Sequence[Shape], makes: Sequence[Shape]) -> Form | None:
    if len(reads) != 2 or len(reads[0]) != len(reads[1]) + 1 or number(op, "scale_grad_by_freq") != 0:
        return None
    rows = len(reads[1])
    sums = frozenset(f"d{dim}" for dim in range(rows))
    return Form((_rows(reads[0], rows), _rows(reads[1], rows)), (_rows(makes[0], 0),), sums)


def _loss(op: Op, reads: Sequence[Shape], makes: Sequence[Shape]) -> Form | None:
    """Logarithms of probabilities and targets; then the loss and the weight of all rows. With weights of
    classes the weight of a row is not known before."""
    reduction = number(op, "reduction")
    if len(reads) != 2 or len(reads[0]) != 2 or reduction is None or number(op, "ignore_index") is None:
        return None
    if reduction == NONE:
        return Form((("n", None), ("n",)), (("n",), ()), frozenset({"n"}))
    return Form((("n", None), ("n",)), ((), ()), frozenset({"n"}))


def _loss_backward(op: Op, reads: Sequence[Shape], makes: Sequence[Shape]) -> Form | None:
    """Gradient of the loss, logarithms of probabilities, targets, the weight of all rows."""
    reduction = number(op, "reduction")
    if len(reads) != 4 or len(reads[1]) != 2 or reduction is None:
        return None
    first: Labels = ("n",) if reduction == NONE else ()
    return Form((first, ("n", None), ("n",), ()), (("n", None),))


def _attention(op: Op, reads: Sequence[Shape], makes: Sequence[Shape]) -> Form | None:
    """Query, key, value and a mask, by batch and head; by row of the query where all see all."""
    if len(reads) < 3 or any(len(shape) != 4 for shape in reads[:3]) or reads[1][1] != reads[0][1]:
        return None
    if number(op, "is_causal") is None or number(op, "dropout_p") != 0:
        return None
    backward = plain_kind(op.kind).endswith("backward")
    query = None if flag(op, "is_causal") or backward else "q"

    def rows(shape: Shape, third: str | None) -> Labels:
        return ("b", "h", third, None)[: len(shape)]

    def mask(shape: Shape) -> Labels:
        skip = 4 - len(shape)
        whole = (*reads[0][:3], 0)[skip:]
        labels = ("b", "h", query, None)[skip:]
        pairs = zip(shape, whole, labels, strict=True)
        return tuple(label if size == other else None for size, other, label in pairs)

    if backward:
        if len(reads) != 6:
            return None
        return Form(tuple(rows(shape, None) for shape in reads), tuple(rows(shape, None) for shape in makes))
    first = (rows(reads[0], query), rows(reads[1], None), rows(reads[2], None))
    return Form((*first, *map(mask, reads[3:])), tuple(rows(shape, query) for shape in makes))


def _batched(weights: int = 0, channels: bool = False) -> Rule:
    """The first dimension is the batch, the second one of `channels` that know nothing of one another; the
    `weights` inputs behind the first at most are read whole."""

    def rule(op: Op, reads: Sequence[Shape], makes: Sequence[Shape]) -> Form | None:
        if len(reads) > 1 + weights or len(reads[0]) < 3:
            return None
        count = 2 if channels else 1
        whole = tuple(_rows(shape, 0) for shape in reads[1:])
        return Form((_rows(reads[0], count), *whole), tuple(_rows(shape, count) for shape in makes))

    return rule


def _convolved(op: Op, reads: Sequence[Shape], makes: Sequence[Shape]) -> Form | None:
    """Without a batch dimension its input has as many as its weight less one."""
    batched = len(reads) > 1 and len(reads[0]) == len(reads[1]) == len(makes[0])
    return _batched(2)(op, reads, makes) if batched else None


def _batch_norm(op: Op, reads: Sequence[Shape], makes: Sequence[Shape]) -> Form | None:
    """With its running statistics only: those of a batch are of all rows."""
    trains = number(op, "training")
    if op.kind.endswith("no_training"):
        trains = 0
    if trains != 0 or len(reads[0]) < 2:
        return None
    whole = tuple(_rows(shape, 0) for shape in reads[1:])
    return Form((_rows(reads[0], 1), *whole), (_rows(makes[0], 1), *(_rows(each, 0) for each in makes[1:])))


def _resized(op: Op, reads: Sequence[Shape], makes: Sequence[Shape]) -> Form | None:
    return _batched(channels=True)(op, reads, makes) if len(reads[0]) == 4 else None


_POOLS = "maxpool2d avgpool2d adaptiveavgpool2d maxpool2dwithindices upsamplenearest2d upsamplebilinear2d"
_SDPA: dict[str, Callable[[Op, Sequence[Shape], Sequence[Shape]], Form | None]] = dict.fromkeys(
    (
        "scaleddotproductattention",
        "scaleddotproductflashattentionforcpu",
        "scaleddotproductflashattentionforcpubackward",
    ),
    _attention,
)
LAYER_RULES: dict[str, Rule] = {
    **dict.fromkeys(("layernorm", "nativelayernorm"), _normed),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution"), _convolved),
    **dict.fromkeys(("batchnorm", "nativebatchnormlegitnotraining"), _batch_norm),
    **dict.fromkeys(_POOLS.split(), _resized),
    **_SDPA,
    "nativelayernormbackward": _normed_backward,
    "embedding": _embedded,
    "embeddingdensebackward": _embedded_backward,
    "nlllossforward": _loss,
    "nlllossbackward": _loss_backward,
    "groupnorm": _batched(2),
}
