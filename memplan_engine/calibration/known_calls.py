"""Calls of operators as text: what the kernels of one call took is known by it, to the byte, for the next.

    aten.convolution(float32[1,3,32,32], float32[8,3,3,3]) -> float32[1,8,30,30]; _, _, None, [1, 1], …

First the tensors that a call takes and gives (strides in braces where they are not row-major, "×3" for three
of a kind), then its other arguments, with "_" for each tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import groupby

from memplan_engine.calibration.op_features import ALIASES, Shown, is_row_major

LONGEST = 1_000
"""Characters of a part of a call that is written out; optimizers take lists of hundreds of tensors."""
ARGUMENTS = "; "
"""Between the tensors and the other arguments."""


def tensors_text(kind: str, inputs: Sequence[Shown], outputs: Sequence[Shown]) -> str:
    """A call of the operator `kind` by its tensors."""
    return _short(f"{ALIASES.get(kind, kind)}({_list(inputs)}) -> {_list(outputs)}")


def call_text(kind: str, inputs: Sequence[Shown], outputs: Sequence[Shown], arguments: str) -> str:
    """A call of the operator `kind` by its tensors and its other `arguments`."""
    return f"{tensors_text(kind, inputs, outputs)}{ARGUMENTS}{_short(arguments)}"


def _short(text: str) -> str:
    """`text`, or, of a long one, its beginning and a digest."""
    return text if len(text) <= LONGEST else f"{text[:100]}… sha256:{sha256(text.encode()).hexdigest()}"


def _list(tensors: Iterable[Shown]) -> str:
    runs = ((text, len(list(those))) for text, those in groupby(map(_tensor, tensors)))
    return ", ".join(f"{text}×{count}" if count > 1 else text for text, count in runs)


def _tensor(shown: Shown) -> str:
    shape = f"{shown.dtype}[{','.join(map(str, shown.shape))}]"
    if shown.strides is None or is_row_major(shown):
        return shape
    return f"{shape}{{{','.join(map(str, shown.strides))}}}"
