"""Codes of the sizes of gaps: two bytes a gap instead of sixteen, so that a search for a size reads little.

A larger size never has a smaller code; equal codes mean sizes within a thousandth of each other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Ints

Codes = NDArray[np.uint16]
NOTHING = np.uint16(0)
"""The code of no gap."""
LARGEST = np.uint16(65535)
"""Above all codes."""
FRACTION, BIAS = 10, 1023
CHUNK = 256


@kernel
def size_code(nbytes: int) -> np.uint16:
    """Six bits of exponent and ten of fraction of `nbytes`, which is 1 or more."""
    bits = np.float64(nbytes).view(np.int64)
    return np.uint16((bits >> (52 - FRACTION)) - (BIAS << FRACTION) + 1)


@kernel
def write_codes(low: Ints, high: Ints, codes: Codes) -> None:
    """The code of each gap `[low, high)`."""
    for i in range(len(low)):
        codes[i] = size_code(high[i] - low[i])


@kernel
def next_code(codes: Codes, floor: np.uint16, nearest: Codes) -> np.uint16:
    """The least of all codes that are `floor` or above, LARGEST if there is none.

    To `nearest` goes the least of each chunk, counted from `floor`: a code below it comes out as a very large
    number, since unsigned numbers wrap around.
    """
    least = LARGEST
    for chunk in range(-(-len(codes) // CHUNK)):
        ours, here = codes[chunk * CHUNK : (chunk + 1) * CHUNK], LARGEST
        # No branch in here, so that the compiler makes vector instructions of it.
        for i in range(len(ours)):
            here = min(here, np.uint16(ours[i] - floor))
        nearest[chunk] = here
        least = min(least, here)
    return np.uint16(floor + least) if least <= LARGEST - floor else LARGEST
