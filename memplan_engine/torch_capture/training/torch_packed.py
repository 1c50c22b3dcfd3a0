"""Packed sequences on fake tensors: what torch's C++ does with the numbers of rows of each moment, which it
reads in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def pad_packed_sequence(
    data: torch.Tensor, batch_sizes: torch.Tensor, batch_first: bool, padding: Any, total_length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `aten::_pad_packed_sequence` (aten/src/ATen/native/PackedSequence.cpp, torch 2.13), for
    `batch_sizes` that are real: rows that end together are copied together."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    if isinstance(batch_sizes, FakeTensor) or not isinstance(data, FakeTensor):
        return torch._C._VariableFunctions._pad_packed_sequence(
            data, batch_sizes, batch_first, padding, total_length
        )
    sizes = torch._C.TensorBase.tolist(batch_sizes)
    moments, rows = len(sizes), sizes[0]
    steps = total_length if total_length > 0 else moments
    if steps < moments:
        raise ValueError(f"total_length of {steps} for a sequence of {moments}")
    output = data.new_full((steps, rows, *data.shape[1:]), padding)
    lengths = torch.tensor([sum(size > row for size in sizes) for row in range(rows)])
    offset = begin = 0
    for moment in range(1, moments + 1):
        size = sizes[begin]
        if moment < moments and sizes[moment] == size:
            continue
        block = data[offset : offset + size * (moment - begin)].view(moment - begin, size, *data.shape[1:])
        output[begin:moment, :size].copy_(block)
        offset, begin = offset + size * (moment - begin), moment
    return (output.transpose(0, 1) if batch_first else output), lengths
