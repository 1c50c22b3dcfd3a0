"""The array types that the kernels take and give."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Shorts = NDArray[np.int32]
