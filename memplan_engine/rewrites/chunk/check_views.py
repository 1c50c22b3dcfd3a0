"""Which rows a view of a piece shows, by where its elements lie: no kinds of views are known here."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod

from memplan_engine.graph import Tensor
from memplan_engine.rewrites.chunk.check_rows import Cut


def strides_of(tensor: Tensor) -> tuple[int, ...]:
    """In elements, those of a contiguous tensor included."""
    if tensor.strides is not None:
        return tensor.strides
    return tuple(prod(tensor.shape[dim + 1 :]) for dim in range(len(tensor.shape)))


def rows_shown(view: Tensor, whole_view: Tensor, read: Tensor, whole: Tensor, part: Cut) -> Cut:
    """The rows of `whole_view` that `view` shows: a view of `read`, which is the `part` of `whole`.

    Raises
    ------
    ValueError, with what is wrong: elements that lie elsewhere than in the view of the whole.
    """
    dims = [
        dim for dim, sizes in enumerate(zip(view.shape, whole_view.shape, strict=True)) if len({*sizes}) > 1
    ]
    if len(dims) != 1:
        raise ValueError("a view of a piece that is no piece of the view")
    (dim,) = dims
    first = int(part.low * whole.shape[part.dim])
    begin = _in_whole(view, read, whole, part.dim, first, [0] * len(view.shape))
    step = strides_of(whole_view)[dim]
    low, rest = divmod(begin - whole_view.offset // _item(whole_view), step) if step else (0, 1)
    if rest:
        raise ValueError("a view of a piece that begins elsewhere than in the view of the whole")
    for index in _corners(view.shape):
        shifted = [place + (low if at == dim else 0) for at, place in enumerate(index)]
        expected = whole_view.offset // _item(whole_view) + _place(shifted, strides_of(whole_view))
        if _in_whole(view, read, whole, part.dim, first, index) != expected:
            raise ValueError("a view of a piece that shows other elements than the view of the whole")
    size = whole_view.shape[dim]
    return Cut(dim, Fraction(low, size), Fraction(low + view.shape[dim], size))


def _corners(shape: Sequence[int]) -> list[list[int]]:
    """The last element, and one step and all steps along each dimension: these say where all elements lie."""
    found = [[size - 1 for size in shape]]
    for dim, size in enumerate(shape):
        places = {min(1, size - 1), size - 1}
        found += [[place if at == dim else 0 for at in range(len(shape))] for place in places]
    return found


def _in_whole(view: Tensor, read: Tensor, whole: Tensor, dim: int, first: int, index: Sequence[int]) -> int:
    """Where the element `index` of `view` lies in the storage of `whole`, in elements."""
    left = view.offset // _item(view) + _place(index, strides_of(view)) - read.offset // _item(read)
    found = [0] * len(read.shape)
    steps = strides_of(read)
    for at in sorted(range(len(steps)), key=lambda at: -steps[at]):
        if steps[at] and read.shape[at] > 1:
            found[at], left = divmod(left, steps[at])
    if left or any(not 0 <= place < size for place, size in zip(found, read.shape, strict=True)):
        raise ValueError("a view that shows more than it reads")
    found[dim] += first
    return whole.offset // _item(whole) + _place(found, strides_of(whole))


def _place(index: Sequence[int], strides: Sequence[int]) -> int:
    return sum(place * stride for place, stride in zip(index, strides, strict=True))


def _item(tensor: Tensor) -> int:
    return max(tensor.nbytes // max(prod(tensor.shape), 1), 1)
