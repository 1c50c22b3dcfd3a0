"""Operators that call graphs, run for real: what is measured inside of them, and what they leave behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops import hints_wrapper
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import flex_attention

from memplan_engine import InputError, capture, compare_run, insert_slab, load_program, make_plan, to_problem
from memplan_engine.formats.order_files import load_schedule, write_order
from memplan_engine.planner import adopt
from memplan_engine.rewrites.order.reorder import reorder
from memplan_engine.rewrites.reuse import reuse, reused_problem
from memplan_engine.runtime.loading import run_target
from memplan_engine.runtime.slab.binding import of_whole_ops
from memplan_engine.runtime.slab.fitted_program import fitted_target
from memplan_engine.runtime.trial.ordered_target import ordered_target
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
        return score * 0.5 + (i - j)  # type: ignore[no-any-return]

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


def waiting(self: Calls, x: torch.Tensor) -> torch.Tensor:
    """Two values of 8 N bytes wait while a branch runs, of which only the sums are needed."""
    first, second = torch.cat([x] * 8), torch.cat([x] * 8).sin()
    taken = torch.cond(x.sum() > -1e9, lambda x: x.sin().relu(), torch.cos, (x + 1,))
    return taken.tanh() * first.sum(0) + second.sum(0)


def test_plans_and_orders_of_what_is_inside_run(tmp_path: Path) -> None:
    model, file = Calls(waiting).eval(), tmp_path / "order.json"
    graph, target = capture(model, (X,), name="waiting"), run_target(model, (X,), name="waiting")
    found = reorder(graph)
    assert found.live_after <= found.live_before - 8 * NBYTES
    write_order(found.graph, file)
    assert load_schedule(file, graph).steps == len(graph.ops)
    ordered, entry = ordered_target(target, file)
    assert entry.live_after == found.live_after
    plan = make_plan(reused_problem(reuse(found.graph)), "greedy_by_size")
    origin = of_whole_ops(plan).problem.origin
    assert origin is not None
    for one, plan_of_one in (
        (fitted_target(target, origin.graph), plan),
        (ordered, make_plan(to_problem(found.graph), "greedy_by_size")),
    ):
        run = run_in_plan(one, plan_of_one, check=True).run
        assert run.passed
        assert run.difference == 0


def test_a_schedule_that_takes_a_branch_apart_is_refused(tmp_path: Path) -> None:
    graph, file = capture(Calls(waiting), (X,), name="waiting"), tmp_path / "order.csv"
    moved = [op.name for op in graph.ops if op.name != "sum_2"]
    moved.insert(moved.index("cond"), "sum_2")
    file.write_text("op,step\n" + "".join(f"{name},{step}\n" for step, name in enumerate(moved)))
    with pytest.raises(InputError, match=r"op 'sum_2': found step \d+, but 'cond' and what is inside it run"):
        load_schedule(file, graph)


def test_a_list_of_buffers_is_no_plan_of_what_is_inside() -> None:
    program = load_program(Calls(waiting).eval(), (X,), name="waiting")
    plan = make_plan(program.graph, "greedy_by_size")
    with pytest.raises(InputError, match=r"a list of buffers, expected a plan saved as \.json"):
        insert_slab(program, adopt(replace(plan.problem, origin=None), plan.offsets, plan.strategy))
