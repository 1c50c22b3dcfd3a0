"""The three operators of a graph that runs in a slab, registered with torch as `memplan::…`.

After the JIT memory planner of PyTorch (`prim::AllocateSlab`, `prim::AllocateTensor`, `prim::ReleaseSlab`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from memplan_engine.errors import InputError, MemplanError
from memplan_engine.graph import MAX_BYTES

BASE_ALIGNMENT = 64
"""Bytes: what torch's CPU allocator gives every allocation."""

_LIBRARY: Any = torch.library.Library("memplan", "DEF")  # type: ignore[no-untyped-call]
_LIBRARY.define("allocate_slab(int nbytes, int alignment, Device device) -> Tensor")
_LIBRARY.define(
    "allocate_tensor(Tensor(a) slab, int offset, int[] size, int[] stride, ScalarType dtype, int[] after=[])"
    " -> Tensor(a)"
)
_LIBRARY.define("release_slab(Tensor(a!) slab, int[] after=[]) -> ()")


def aligned(nbytes: int) -> int:
    """`nbytes` rounded up to a whole unit of `BASE_ALIGNMENT`."""
    return -(-nbytes // BASE_ALIGNMENT) * BASE_ALIGNMENT


def allocate_slab(nbytes: int, alignment: int, device: torch.device) -> torch.Tensor:
    """`nbytes` of uninitialised memory as a tensor of bytes that starts at a multiple of `alignment` bytes.

    Raises
    ------
    InputError: a size or alignment out of range. MemplanError: the device has not that much memory.
    """
    if not 0 <= nbytes <= MAX_BYTES or not 1 <= alignment <= MAX_BYTES:
        raise InputError("slab", "size", f"{nbytes} bytes at {alignment}", "0 to 2^63-1 bytes, alignment ≥ 1")
    # Views of any item size need a whole number of items.
    whole = aligned(nbytes)
    spare = alignment if BASE_ALIGNMENT % alignment else 0
    if whole + spare > MAX_BYTES:
        raise InputError("slab", "size", f"{nbytes} bytes at {alignment}", "at most 2^63-1 bytes in all")
    try:
        slab = torch.empty(whole + spare, dtype=torch.uint8, device=device)
    except RuntimeError as error:
        raise MemplanError(f"slab: {nbytes} bytes are more than {device} can allocate") from error
    if not spare:
        return slab
    start = -slab.data_ptr() % alignment
    return slab[start : start + whole]


def allocate_tensor(
    slab: torch.Tensor,
    offset: int,
    size: Sequence[int],
    stride: Sequence[int],
    dtype: torch.dtype,
    after: Sequence[int] = (),
) -> torch.Tensor:
    """A view of `slab` from byte `offset` on; `stride` in elements. `after` holds the tokens of the ops that
    must have run before these bytes are used again (`done`): it is looked at by nobody, and orders the graph.

    Raises
    ------
    InputError: a negative offset, one that is no multiple of the item size, a view that leaves the slab.
    """
    item = dtype.itemsize
    shift = int(slab.storage_offset())
    start, remainder = divmod(offset + shift, item)
    try:
        # Bytes around the slab that make it start where it should would let a view out unseen.
        larger = slab.untyped_storage().nbytes() != slab.shape[0]
        if remainder or offset < 0 or (larger and offset + _reach(size, stride) * item > slab.shape[0]):
            raise RuntimeError("outside of the slab or not at an item")
        return torch.as_strided(slab.view(dtype), size, stride, start)
    except (RuntimeError, OverflowError) as error:
        found = f"size {tuple(size)}, strides {tuple(stride)} of {dtype} at byte {offset}"
        raise InputError(
            "slab", "tensor", found, f"a multiple of {item} within {slab.shape[0]} bytes"
        ) from error


def release_slab(slab: torch.Tensor, after: Sequence[int] = ()) -> None:
    """The end of the slab: nothing is written to it any more. Its memory goes with the last reference to it,
    which in the graphs that `insert_slab` makes is this one."""


def done(*values: object) -> int:
    """A token that says that the nodes `values` have run: what it is given to runs after them."""
    return 0


def _reach(size: Sequence[int], stride: Sequence[int]) -> int:
    """Elements from the first to behind the last of a tensor of this size and these strides."""
    return 0 if 0 in size else 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))


def _fake_slab(nbytes: int, alignment: int, device: torch.device) -> torch.Tensor:
    return torch.empty(aligned(nbytes), dtype=torch.uint8, device=device)


for _name, _kernel, _fake in (
    ("allocate_slab", allocate_slab, _fake_slab),
    ("allocate_tensor", allocate_tensor, allocate_tensor),
    ("release_slab", release_slab, release_slab),
):
    _LIBRARY.impl(_name, _kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"memplan::{_name}", _fake, lib=_LIBRARY)
    for _key in ("AutogradCPU", "AutogradCUDA", "ADInplaceOrView"):
        # Slabs hold no gradients.
        _LIBRARY.impl(_name, torch.library.fallthrough_kernel, _key)
