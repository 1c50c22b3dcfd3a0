"""Buffers one behind the other."""

from __future__ import annotations

import numpy as np

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Ints


@kernel
def stack_up(size: Ints, alignment: Ints, base: int) -> Ints:
    """Offsets in bytes that stack all buffers from `base` upwards, each at its alignment."""
    offsets = np.empty(len(size), dtype=np.int64)
    top = base
    for i in range(len(size)):
        offsets[i] = top + -top % alignment[i]
        top = offsets[i] + size[i]
    return offsets
