"""Operators that take functions, predicted: `cond`, loops, `map`, `flex_attention`, against real runs."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops import (
    foreach_map,
    hints_wrapper,
    out_dtype,
    tag_activation_checkpoint,
    wrap_activation_checkpoint,
)
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as mapped
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention import flex_attention as attention
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint

from memplan_engine import InputError, observe, observe_fake, observe_model, observed_peak
from memplan_engine.recordings.observed_flow import Stage
from memplan_engine.torch_capture.training.torch_recipe import Recipe
from memplan_engine.units import exact
from tests.support.fake_cards import needs_guard

SGD = Recipe("sgd")
X = (torch.rand(128, 64),)
Body = Callable[["Pair", torch.Tensor], Any]


class Pair(nn.Module):
    """Two layers, called in whatever way."""

    def __init__(self, body: Body, hidden: int = 256) -> None:
        super().__init__()
        self.up, self.down, self.body = nn.Linear(64, hidden), nn.Linear(hidden, 64), body
        self.graph: Any = None

    def wide(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.down(self.up(x).relu())
        return result

    def forward(self, x: torch.Tensor) -> Any:
        return self.body(self, x)


def branches(pair: Pair, x: torch.Tensor) -> torch.Tensor:
    branch = torch.cond(x.sum() > 0, pair.wide, lambda v: v.sin(), (x,))
    return (branch + 1).sum()


def nested(pair: Pair, x: torch.Tensor) -> torch.Tensor:
    def checked(v: torch.Tensor) -> torch.Tensor:
        return torch.cond(
            v.sum() > -1, lambda u: checkpoint(pair.wide, u, use_reentrant=False), torch.sin, (v,)
        )

    return torch.cond(x.sum() > 0, checked, lambda v: v.sin(), (x,)).sum()


def loops(pair: Pair, x: torch.Tensor) -> torch.Tensor:
    def body(step: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return step + 1, pair.wide(state).tanh()

    start = torch.zeros((), dtype=torch.int64)
    return (while_loop(lambda step, state: step < 3, body, (start, x))[1] * 2).sum()


def scans(pair: Pair, x: torch.Tensor) -> torch.Tensor:
    def combine(carry: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        fresh = (carry + pair.wide(row)).tanh()
        return fresh, fresh.exp()

    last, rows = scan(combine, torch.zeros(32, 64), x.view(4, 32, 64))
    return rows.sum() + last.sum()


def maps(pair: Pair, x: torch.Tensor) -> torch.Tensor:
    return (mapped(pair.wide, x.view(4, 32, 64)) + 1).sum()


def each(pair: Pair, x: torch.Tensor) -> torch.Tensor:
    pairs = foreach_map(lambda a, b: (a + b).relu().exp(), [pair.up(x)], [pair.up(x)])
    (hinted,) = hints_wrapper(lambda y: (y.sin().cos(),), (pairs[0],), {}, hints={"kept": True})
    whole = x.to(torch.int8)
    return hinted.sum() + out_dtype(torch.ops.aten.mm.default, torch.int32, whole, whole.T).sum()


LONG = [pytest.param(body, marks=pytest.mark.slow) for body in (nested, scans, maps)]


@pytest.mark.parametrize("body", [branches, loops, *LONG])
def test_a_step_is_a_real_one_to_the_byte(body: Body) -> None:
    """What a real run asks of the allocator, with graphs made by Dynamo and gradients that a tracer makes."""
    # For the copy of a transposed weight of 60 × 60 or more its kernel takes a block of scratch.
    width = 32 if body is scans else 256
    predicted = observe_fake(Pair(body, width), X, recipe=SGD)
    real = observe_model(Pair(body, width), X, recipe=SGD)
    assert observed_peak(predicted)[0] == observed_peak(real)[0]
    assert predicted.flow is not None
    assert predicted.flow.assumed == ()


HIDDEN, NARROW = 128 * 256 * 4, 128 * 64 * 4


@pytest.mark.parametrize("operator", [tag_activation_checkpoint, wrap_activation_checkpoint])
def test_operators_of_checkpoints(operator: Any) -> None:
    pair = Pair(lambda pair, x: operator(pair.graph, x).sum())
    pair.graph = torch.fx.symbolic_trace(nn.Sequential(pair.up, nn.ReLU(), pair.down))
    predicted, real = observe_fake(pair, X, recipe=SGD), observe_model(pair, X, recipe=SGD)
    assert observed_peak(predicted)[0] == observed_peak(real)[0]
    assert predicted.flow is not None
    assert Stage.RECOMPUTE in predicted.flow.stages


def test_inference_by_hand() -> None:
    # The hidden values twice and the condition.
    assert observed_peak(observe_fake(Pair(branches), X))[0] == 2 * HIDDEN + 1
    # With them what is carried and counted: the first count, the last, the next, and the condition.
    assert observed_peak(observe_fake(Pair(loops), X))[0] == 2 * HIDDEN + NARROW + 3 * 8 + 1
    # With them the condition of the outer and of the inner branch.
    assert observed_peak(observe_fake(Pair(nested), X))[0] == 2 * HIDDEN + 2


def test_cycles_of_dynamo_hold_what_a_function_was_given() -> None:
    """To the end, where Python's collector does not run: 256 numbers and the condition."""

    def called() -> torch.Tensor:
        x = torch.rand(256)
        torch.cond(x.sum() > -1, torch.sin, torch.cos, (x,))
        del x
        return torch.zeros(1024)

    predicted = observe_fake(called)
    gc.disable()
    try:
        real = observe(called, levels=["dispatch"])
    finally:
        gc.enable()
    assert observed_peak(predicted)[0] == observed_peak(real)[0] == 1024 + 1 + 4096
    assert predicted.flow is not None
    assert f"it would free {exact(1024 + 1)}" in predicted.flow.assumed[-1]


def test_on_a_card_dynamo_takes_functions_apart_too() -> None:
    needs_guard()
    assert observed_peak(observe_fake(Pair(branches), X, device="cuda"))[0] == 2 * HIDDEN + 1

    def products(pair: Pair, x: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor = associative_scan(lambda a, b: a * b, x, 0, combine_mode="pointwise")
        return total

    # Half as many pairs, their scan, the rows between, and both halves as a stack.
    by_hand = 3 * NARROW // 2 + NARROW
    assert observed_peak(observe_fake(Pair(products), X, device="cuda"))[0] == by_hand


def test_other_operators_that_call_functions() -> None:
    """Of `foreach_map` both arguments, their sum and what becomes of it."""
    assert observed_peak(observe_fake(Pair(each), X))[0] == 4 * HIDDEN


def test_what_is_not_known_is_assumed() -> None:
    """A branch on what a model computes is the one that holds more, and a loop goes round twice."""

    def routed(pair: Pair, x: torch.Tensor) -> torch.Tensor:
        hidden = pair.wide(x)
        return torch.cond(hidden.sum() > 0, lambda v: v.sin(), pair.wide, (hidden,))

    def settles(pair: Pair, x: torch.Tensor) -> torch.Tensor:
        (last,) = while_loop(lambda v: v.sum() < 100, lambda v: (pair.wide(v),), (pair.wide(x),))
        return last

    predicted = observe_fake(Pair(routed), X)
    assert observed_peak(predicted)[0] == 2 * HIDDEN + NARROW + 1
    assert predicted.flow is not None
    (note,) = predicted.flow.assumed
    assert note.endswith("as false: that branch holds more")
    predicted = observe_fake(Pair(settles), X)
    # What goes in, what the first round gives, and the condition.
    assert observed_peak(predicted)[0] == 2 * HIDDEN + 2 * NARROW + 1
    assert predicted.flow is not None
    (note,) = predicted.flow.assumed
    assert "as run 2 times" in note
    with pytest.raises(InputError, match=r"how often a while_loop runs in training at .*test_fake_higher"):
        observe_fake(Pair(lambda pair, x: settles(pair, x).sum()), X, recipe=SGD)


class Untold(torch._ops.HigherOrderOperator):
    def __init__(self) -> None:
        super().__init__("test_untold")

    def __call__(self, function: Any, *given: Any) -> Any:
        return super().__call__(function, *given)  # type: ignore[no-untyped-call]


def test_other_operators_are_refused_by_name() -> None:
    untold = Untold()
    untold.py_impl(torch._C.DispatchKey.AutogradCPU)(lambda function, *given: None)
    untold.fallthrough(torch._C.DispatchKey.AutogradCPU)
    with pytest.raises(InputError) as refused:
        observe_fake(Pair(lambda pair, x: untold(pair.wide, x)), X)
    assert "the higher-order operator test_untold at" in refused.value.found
    assert "memplan observe FACTORY" in refused.value.expected
    assert " 0x" not in str(refused.value)


class Attends(nn.Module):
    """Attention with a bias for each distance, of which each place sees what is before it."""

    def __init__(self, compiled: bool = False) -> None:
        super().__init__()
        self.mix, self.slope = nn.Linear(64, 192), nn.Parameter(torch.ones(4))
        self.attend = torch.compile(flex_attention) if compiled else flex_attention

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (4, 16)).transpose(1, 2) for part in self.mix(x).chunk(3, -1))
        length = x.shape[1]
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, length, length, device=x.device)
        score: Any = lambda s, b, h, i, j: s + self.slope[h] * (i - j)  # noqa: E731
        result: torch.Tensor = self.attend(q, k, v, score_mod=score, block_mask=mask)  # type: ignore[assignment]
        return result.sum()


TOKENS = (torch.rand(2, 128, 64),)


def test_eager_flex_attention_holds_all_scores() -> None:
    predicted, real = observe_fake(Attends(), TOKENS), observe_model(Attends(), TOKENS)
    assert observed_peak(predicted)[0] == observed_peak(real)[0] > 2 * 4 * 128 * 128 * 4


def test_flex_attention_that_is_compiled_is_predicted_as_eager() -> None:
    """Eager mode has Dynamo take its functions apart, which alone compiles nothing."""
    eager, compiled = observe_fake(Attends(), TOKENS), observe_fake(Attends(compiled=True), TOKENS)
    assert eager.flow is not None
    assert compiled.flow is not None
    assert (eager.flow.compiled, compiled.flow.compiled) == (False, True)
    assert observed_peak(compiled) == observed_peak(eager)


def test_a_step_of_flex_attention_on_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on the CPU, where torch refuses it: all that differs is one number that stays on the host."""
    needs_guard()
    predicted = observe_fake(Attends(), TOKENS, recipe=SGD, device="cuda")
    monkeypatch.setattr(attention, "_validate_device", lambda *tensors: None)
    assert observed_peak(predicted)[0] == observed_peak(observe_model(Attends(), TOKENS, recipe=SGD))[0] - 4
