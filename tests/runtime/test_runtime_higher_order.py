"""Operators that call graphs, run for real: what is measured inside of them, and what they leave behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops import hints_wrapper
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import flex_attention

from memplan_engine import InputError, compare_run, load_program, make_plan
from memplan_engine.runtime.loading import run_target
from memplan_engine.runtime.trial.run_in_plan import run_in_plan

X = torch.linspace(-1, 1, 16 * 32).reshape(16, 32)
NBYTES = X.nbytes
TURN = torch.zeros((), dtype=torch.int64)


class Calls(nn.Module):
    """Calls `function`, which may change a buffer."""

    count: torch.Tensor

    def __init__(self, function: Callable[[Any, torch.Tensor], Any]) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(16, 32))
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


def branch(self: Calls, x: torch.Tensor) -> torch.Tensor:
    def wide(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x, x]).sin()[:16].clone()

    return torch.cond(x.sum() > -1e9, wide, torch.cos, (x,))


def looked_at(self: Calls, x: torch.Tensor) -> torch.Tensor:
    """The condition is where the loop holds most, and the answer before is still there."""

    def goes_on(n: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return (torch.cat([x, x, x, x]).sin().sum() > 1e9) | (n < 3)

    return while_loop(goes_on, lambda n, x: (n + 1, x.sin()), (TURN, x + 1))[1]


def scan_in_branch(self: Calls, x: torch.Tensor) -> torch.Tensor:
    def rows(x: torch.Tensor) -> torch.Tensor:
        return scan(lambda carry, row: ((carry + row).tanh(), (carry * row).sin()), x[0] * 0, x)[1]

    return torch.cond(x.sum() > -1e9, rows, torch.cos, (x + 1,))


def one_turn(self: Calls, x: torch.Tensor) -> Any:
    return scan(lambda carry, row: ((carry + row).tanh(), (carry * row).sin()), x[0] * 0, x[:1])


def mapped(self: Calls, x: torch.Tensor) -> torch.Tensor:
    def wide(row: torch.Tensor) -> torch.Tensor:
        return torch.outer(row, row).sin().sum(0)

    return map_rows(wide, x)


def attention(self: Calls, x: torch.Tensor) -> torch.Tensor:
    def nearer(score: torch.Tensor, b: Any, h: Any, i: Any, j: Any) -> torch.Tensor:
        return score + (i - j)  # type: ignore[no-any-return]

    heads = x.reshape(1, 1, 32, 16)
    return flex_attention(heads, heads, heads, score_mod=nearer)  # type: ignore[return-value]


def hinted(self: Calls, x: torch.Tensor) -> torch.Tensor:
    def body(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x]).sin()[:16].clone()

    return hints_wrapper(body, (x,), {}, hints={"a": True})


# By hand: x has N bytes, the answer of a condition 1, the number of a turn 8.
PEAKS: dict[Callable[..., Any], int | None] = {
    branch: 1 + 6 * NBYTES,
    looked_at: 10 * NBYTES + 8 + 1,
    scan_in_branch: None,
    one_turn: None,
    mapped: None,
    attention: None,
    hinted: 4 * NBYTES,
}


@pytest.mark.parametrize("function", PEAKS)
def test_what_is_inside_is_measured_and_as_predicted(function: Callable[..., Any]) -> None:
    torch._dynamo.reset()
    model = Calls(function).eval()
    measured = compare_run(load_program(model, (X,)), (X,), eager=model)
    assert measured.equality.exact
    assert measured.differing == ()
    assert measured.dispatch_peak == PEAKS[function] or PEAKS[function] is None


def counting(self: Calls, x: torch.Tensor) -> torch.Tensor:
    def counted(x: torch.Tensor) -> torch.Tensor:
        self.count.view(-1).add_(1)
        return x * self.count

    return torch.cond(x.sum() > -1e9, counted, torch.cos, (x,))


def test_a_buffer_that_a_branch_writes_is_put_back_between_runs() -> None:
    model = Calls(counting).eval()
    target = run_target(model, (X,))
    run = run_in_plan(target, make_plan(target.program.graph, "greedy_by_size"), check=True).run
    assert run.passed
    assert run.equality is not None
    assert run.equality.exact
    assert not model.count.any()
    with pytest.raises(InputError, match=r"functional form.*without --functional it is taken as it is"):
        load_program(model, (X,), functional=True)
