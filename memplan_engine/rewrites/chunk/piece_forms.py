"""Where the pieces of a region's tensors lie: their shapes, strides and places in storages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from memplan_engine.graph import Tensor, is_contiguous
from memplan_engine.rewrites.chunk.region import Region


def pieces_of(region: Region, count: int) -> Iterator[tuple[int, int]]:
    """The pieces, at most `count`, as equal as they can be but for the last: of `region.units` those from the
    first number to below the second."""
    each = -(-region.units // count)
    for low in range(0, region.units, each):
        yield low, min(low + each, region.units)


def rows_in(region: Region, tensor: Tensor, piece: tuple[int, int]) -> tuple[int, int]:
    """The rows of `tensor` that the piece has, from the first number to below the second."""
    per = tensor.shape[region.split[tensor.name]] // region.units
    return piece[0] * per, piece[1] * per


def cut(region: Region, tensor: Tensor, piece: tuple[int, int]) -> Tensor:
    """The piece of `tensor` as a view of it, in the same storage."""
    low, high = rows_in(region, tensor, piece)
    strides = _strides(tensor)
    item = _item(tensor)
    offset = tensor.offset + low * strides[region.split[tensor.name]] * item
    return _of(tensor, _shape(region, tensor, high - low), strides, offset, item)


def made_as(region: Region, tensor: Tensor, base: Tensor, piece: tuple[int, int]) -> Tensor:
    """The piece of `tensor` where only that piece of `base`, which fills its storage, is made. What lies
    behind all rows of one step of the dimension that is cut moves up, since there are fewer of them."""
    low, high = rows_in(region, tensor, piece)
    dim = region.split[base.name]
    first, last = rows_in(region, base, piece)
    rows, whole = last - first, base.shape[dim]
    extent = _strides(base)[dim] * whole

    def moved(places: int) -> int:
        return places // extent * extent * rows // whole + places % extent

    item = _item(tensor)
    strides = tuple(moved(stride) for stride in _strides(tensor))
    offset = moved(tensor.offset // item) * item
    return _of(tensor, _shape(region, tensor, high - low), strides, offset, item)


def _of(tensor: Tensor, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, item: int) -> Tensor:
    found = None if is_contiguous(shape, strides) else strides
    return replace(tensor, shape=shape, nbytes=prod(shape) * item, strides=found, offset=offset)


def _shape(region: Region, tensor: Tensor, rows: int) -> tuple[int, ...]:
    dim = region.split[tensor.name]
    return (*tensor.shape[:dim], rows, *tensor.shape[dim + 1 :])


def _item(tensor: Tensor) -> int:
    return tensor.nbytes // max(prod(tensor.shape), 1)


def _strides(tensor: Tensor) -> tuple[int, ...]:
    if tensor.strides is not None:
        return tensor.strides
    return tuple(prod(tensor.shape[dim + 1 :]) for dim in range(len(tensor.shape)))
