"""Which dimensions of what an op reads and makes are the same rows: a label for each dimension, by op kind.

An op of which nothing is known here has no form, and ends a region.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from memplan_engine.graph import Op
from memplan_engine.op_kinds.ordered import plain_kind
from memplan_engine.rewrites.chunk.form_arguments import flag, number, numbers

Labels = tuple[str | None, ...]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Form:
    """`reads` and `makes` have a label for each dimension of each input and output, in the order of the op;
    None for one along which no pieces can be taken. Pieces along a label are pieces of every tensor that has
    it; what lacks it is read whole, and made only where the label is one of `sums`: of pieces it is the
    sum."""

    reads: tuple[Labels, ...]
    makes: tuple[Labels, ...]
    sums: frozenset[str] = frozenset()


Rule = Callable[[Op, Sequence[Shape], Sequence[Shape]], Form | None]


def _names(letter: str, count: int) -> Labels:
    return tuple(f"{letter}{index}" for index in range(count))


def pointwise(op: Op, reads: Sequence[Shape], makes: Sequence[Shape]) -> Form | None:
    """With broadcasting: dimensions are the same from the last one on."""
    if len(makes) != 1:
        return None
    made = _names("d", len(makes[0]))

    def aligned(shape: Shape) -> Labels | None:
        labels = made[len(made) - len(shape) :]
        if len(shape) > len(made):
            return None
        sizes = makes[0][len(made) - len(shape) :]
        pairs = zip(shape, sizes, labels, strict=True)
        return tuple(label if size == whole else None for size, whole, label in pairs)

    found = [aligned(shape) for shape in reads]
    if any(labels is None for labels in found):
        return None
    return Form(tuple(labels for labels in found if labels is not None), (made,))


def _same(op: Op, reads: Sequence[Shape], makes: Sequence[Shape]) -> Form | None:
    """All of one shape, and worked on along one dimension."""
    dim = number(op, "dim")
    if dim is None or {*reads, *makes} != {makes[0]} or len(makes) != 1:
        return None
    labels = _without(_names("d", len(makes[0])), [dim])
    return Form((labels,) * len(reads), (labels,))


def _without(labels: Labels, dims: Sequence[int]) -> Labels:
    """`labels` with None for the dimensions `dims`."""
    gone = {dim % len(labels) for dim in dims} if labels else set()
    return tuple(None if dim in gone else label for dim, label in enumerate(labels))


def _moved(order: Callable[[Op, int], Sequence[int] | None]) -> Rule:
    """Of a view with its dimensions in another order: `order` gives it for so many dimensions."""

    def rule(op: Op, reads: Sequence[Shape], makes: Sequence[Shape]) -> Form | None:
        if len(reads) != 1 or len(makes) != 1:
            return None
        labels = _names("d", len(reads[0]))
        dims = order(op, len(labels))
        return None if dims is None else Form((labels,), (tuple(labels[dim] for dim in dims),))

    return rule


def _transposed(op: Op, count: int) -> Sequence[int] | None:
    one, other = number(op, "dim0"), number(op, "dim1")
    if one is None or other is None:
        return None
    dims = list(range(count))
    dims[one], dims[other] = dims[other], dims[one]
    return dims


def _permuted(op: Op, count: int) -> Sequence[int] | None:
    dims = numbers(op, "dims")
    return None if dims is None else [dim % count for dim in dims]


def _viewed(op: Op, reads: Sequence[Shape], makes: Sequence[Shape]) -> Form | None:
    """Dimensions that are split up or joined: the outermost of each such group is the same rows."""
    if len(reads) != 1 or len(makes) != 1 or 0 in reads[0]:
        return None
    before, after = reads[0], makes[0]
    ours: list[str | None] = [None] * len(before)
    theirs: list[str | None] = [None] * len(after)
    left = [dim for dim, size in enumerate(before) if size > 1]
    right = [dim for dim, size in enumerate(after) if size > 1]
    while left and right:
        first, second = left.pop(0), right.pop(0)
        ours[first] = theirs[second] = f"d{first}"
        mine, other = before[first], after[second]
        while mine != other:
            rest = left if mine < other else right
            if not rest:
                return None
            if mine < other:
                mine *= before[rest.pop(0)]
            else:
                other *= after[rest.pop(0)]
    return Form((tuple(ours),), (tuple(theirs),))


def _expanded(op: Op, reads: Sequence[Shape], makes: Sequence[Shape]) -> Form | None:
    if len(reads) != 1 or len(makes) != 1 or len(reads[0]) > len(makes[0]):
        return None
    made = _names("d", len(makes[0]))
    skip = len(made) - len(reads[0])
    pairs = zip(reads[0], makes[0][skip:], made[skip:], strict=True)
    return Form((tuple(label if size == whole else None for size, whole, label in pairs),), (made,))


def _product(op: Op, reads: Sequence[Shape], makes: Sequence[Shape]) -> Form | None:
    if len(reads) != 2:
        return None
    return Form((("m", "k"), ("k", "n")), (("m", "n"),), frozenset({"k"}))


def _batched(op: Op, reads: Sequence[Shape], makes: Sequence[Shape]) -> Form | None:
    if len(reads) != 2:
        return None
    return Form((("b", "m", "k"), ("b", "k", "n")), (("b", "m", "n"),), frozenset({"k"}))


def _added(op: Op, reads: Sequence[Shape], makes: Sequence[Shape]) -> Form | None:
    """What is added is added once, so that no sums are taken of pieces."""
    if len(reads) != 3:
        return None
    made, batch = makes[0], ("b",) * (len(makes[0]) - 2)
    whole: Labels = (*batch, "m", "n")
    skip = len(made) - len(reads[0])
    pairs = zip(reads[0], made[skip:], whole[skip:], strict=True)
    first = tuple(label if size == other else None for size, other, label in pairs)
    return Form((first, (*batch, "m", None), (*batch, None, "n")), (whole,))


def _linear(op: Op, reads: Sequence[Shape], makes: Sequence[Shape]) -> Form | None:
    if len(reads) not in (2, 3) or len(reads[1]) != 2:
        return None
    rows = _names("d", len(makes[0]) - 1)
    return Form(((*rows, None), ("n", None), ("n",))[: len(reads)], ((*rows, "n"),))


def _matmul(op: Op, reads: Sequence[Shape], makes: Sequence[Shape]) -> Form | None:
    if len(reads) != 2 or min(map(len, reads)) < 2:
        return None
    made = _names("d", len(makes[0]) - 2)

    def batch(shape: Shape) -> Labels:
        skip = len(made) + 2 - len(shape)
        pairs = zip(shape[:-2], makes[0][skip:-2], made[skip:], strict=True)
        return tuple(label if size == whole else None for size, whole, label in pairs)

    first, second = (*batch(reads[0]), "m", None), (*batch(reads[1]), None, "n")
    return Form((first, second), ((*made, "m", "n"),))


def _reduced(op: Op, reads: Sequence[Shape], makes: Sequence[Shape]) -> Form | None:
    """`sum`, along some dimensions or all; a mean has none that it goes over in pieces."""
    if len(reads) != 1 or len(makes) != 1:
        return None
    labels = _names("d", len(reads[0]))
    given = numbers(op, "dim")
    gone = {dim % len(labels) for dim in given} if given and labels else set(range(len(labels)))
    if given is None and makes[0]:
        return None
    keep = flag(op, "keepdim")
    made = tuple(
        None if dim in gone else label for dim, label in enumerate(labels) if keep or dim not in gone
    )
    sums = frozenset(labels[dim] for dim in gone if plain_kind(op.kind) == "sum")
    kept = tuple(None if dim in gone and label not in sums else label for dim, label in enumerate(labels))
    return Form((kept,), (made,), frozenset(label for label in sums if label))


def _along(op: Op, reads: Sequence[Shape], makes: Sequence[Shape]) -> Form | None:
    """Cut or joined along one dimension, the others are as they were."""
    dim = number(op, "dim")
    if dim is None or not makes or {len(shape) for shape in (*reads, *makes)} != {len(makes[0])}:
        return None
    labels = _without(_names("d", len(makes[0])), [dim])
    return Form((labels,) * len(reads), (labels,) * len(makes))


def _selected(op: Op, reads: Sequence[Shape], makes: Sequence[Shape]) -> Form | None:
    dim = number(op, "dim")
    if dim is None or len(reads) != 1:
        return None
    labels = _without(_names("d", len(reads[0])), [dim])
    rest = tuple(label for place, label in enumerate(labels) if place != dim % len(labels))
    return Form((labels,), (rest,))


VIEWS = frozenset({"view", "unsafeview", "reshape", "expand"})
"""Kinds whose arguments are the sizes of what they make."""
_REVERSED = _moved(lambda op, count: range(count)[::-1])

RULES: dict[str, Rule] = {
    **dict.fromkeys(("view", "unsafeview", "reshape", "unsqueeze", "squeeze", "flatten"), _viewed),
    **dict.fromkeys(("softmax", "logsoftmax", "softmaxbackwarddata", "logsoftmaxbackwarddata"), _same),
    **dict.fromkeys(("detach", "alias", "clone", "contiguous", "tocopy", "to"), pointwise),
    **dict.fromkeys(("sum", "mean", "amax", "amin"), _reduced),
    **dict.fromkeys(("cat", "slice", "split", "splitwithsizes", "chunk"), _along),
    "t": _REVERSED,
    "transpose": _moved(_transposed),
    "permute": _moved(_permuted),
    "expand": _expanded,
    "select": _selected,
    "mm": _product,
    "bmm": _batched,
    "addmm": _added,
    "baddbmm": _added,
    "linear": _linear,
    "matmul": _matmul,
}
