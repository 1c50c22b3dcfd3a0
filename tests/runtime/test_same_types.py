"""Tensors of several types where eager kernels take one: refused as they refuse it, and where they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from memplan_engine import InputError, observe_fake


def wide(*shape: int) -> torch.Tensor:
    return torch.rand(shape)


def short(*shape: int) -> torch.Tensor:
    return torch.rand(shape).bfloat16()


ROWS = torch.tensor([0, 1])
REFUSED: dict[str, Callable[[], Any]] = {
    "mm": lambda: wide(2, 3) @ short(3, 4),
    "whole numbers": lambda: torch.ones(2, 3, dtype=torch.int64) @ wide(3, 4),
    "mv": lambda: wide(2, 3) @ short(3),
    "linear": lambda: functional.linear(wide(2, 3), short(4, 3), short(4)),
    "bias": lambda: functional.linear(wide(2, 3), wide(4, 3), short(4)),
    "addmm_": lambda: wide(2, 4).addmm_(wide(2, 3), short(3, 4)),
    "convolution": lambda: functional.conv2d(wide(1, 3, 8, 8), short(4, 3, 3, 3)),
    "index_add": lambda: wide(4, 3).index_add_(0, ROWS, short(2, 3)),
    "index_put": lambda: wide(4).index_put_((ROWS,), short(2)),
}
TAKEN: dict[str, Callable[[], Any]] = {
    "mm": lambda: short(2, 3) @ short(3, 4),
    "a number": lambda: short(4).index_put_((short(4) < 2,), torch.tensor(1.0)),
    "sums": lambda: wide(3) + short(3),
    "autocast": lambda: cast(wide(2, 3), wide(3, 4)),
}


def cast(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return left @ right


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_kernels_refuse_is_refused_with_the_line(case: Callable[[], Any]) -> None:
    with pytest.raises(RuntimeError, match="type"):
        case()
    with pytest.raises(InputError, match=r"the same dtype, but got \w+, \w+.* at .*test_same_types\.py:"):
        observe_fake(case)


@pytest.mark.parametrize("case", TAKEN.values(), ids=TAKEN)
def test_what_kernels_take_is_taken(case: Callable[[], Any]) -> None:
    case()
    observe_fake(case)


def test_a_model_may_catch_it() -> None:
    def caught() -> torch.Tensor:
        try:
            return wide(2, 3) @ short(3, 4)
        except RuntimeError:
            return wide(2, 3) @ wide(3, 4)

    seen = observe_fake(caught)
    assert "aten.mm" in seen.ops.kinds
