"""What a newcomer's trial brought up: each is a model, a plan or a graph that once went wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from memplan_engine import (
    InputError,
    MemplanError,
    StaticRuntime,
    capture_step,
    capture_training,
    check_order,
    compare_run,
    insert_slab,
    load_program,
    make_plan,
    run_safely,
)
from memplan_engine.problem import select
from tests.support.runtime import Calls, same_bits


def test_results_that_may_not_share_a_storage_are_left_to_the_allocator() -> None:
    """linalg.qr.out takes Q and R in one storage for one tensor."""

    def model(linear: Any, x: torch.Tensor) -> Any:
        q, r = torch.linalg.qr(x)
        return q * 1, r * 1

    x = torch.arange(24.0).reshape(6, 4).sin()
    program = load_program(Calls(model), (x,))
    module = insert_slab(program, make_plan(program.graph))
    assert same_bits(program.with_module(module).run((x,)), program.interpret((x,)))


def test_dynamic_weights_that_want_gradients_give_the_bits_of_eager() -> None:
    torch.manual_seed(0)
    model = Calls(lambda linear, x: linear(x.mT)).eval()
    model.linear = torch.nn.Linear(16, 8)
    x = torch.randn(2, 16, 6)
    with torch.no_grad():
        expected = model(x)
    runtime = StaticRuntime(model, (x,), dynamic_shapes="args.0:0=b[1:64],args.0:2=l[2:512]")
    assert same_bits(runtime(x), expected)
    assert same_bits(runtime(x), expected)


def test_what_differs_only_while_it_is_observed_is_no_difference() -> None:
    """eigvalsh works out the vectors, too, when a dispatch mode is on."""
    a = torch.randn(20, 20, generator=torch.Generator().manual_seed(0))
    x = a @ a.mT
    model = Calls(lambda linear, x: torch.linalg.eigvalsh(x))
    assert compare_run(load_program(model, (x,)), (x,), eager=model).equality.exact


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (3, 8, 8)])
def test_a_fold_keeps_a_storage_as_large_as_its_columns(shape: tuple[int, ...]) -> None:
    def model(linear: Any, x: torch.Tensor) -> torch.Tensor:
        columns = torch.nn.functional.unfold(x, 3)
        return torch.nn.functional.fold(columns, (8, 8), 3).relu()

    measured = compare_run(load_program(Calls(model), (torch.ones(shape),)), (torch.ones(shape),))
    assert (measured.difference, measured.differing) == (0, ())
    # 27 × 36 columns, twice: once as made, once under the result.
    assert measured.dispatch_peak == 2 * 27 * 36 * 4 * (shape[0] if len(shape) == 4 else 1)


def chain() -> tuple[Any, torch.Tensor]:
    x = torch.ones(4, 8)
    return load_program(Calls(lambda linear, x: ((x * 2).exp() + 1).sum()), (x,)), x


def test_a_buffer_that_starts_after_it_is_made_is_found() -> None:
    program, x = chain()
    plan = make_plan(program.graph, "naive")
    start = plan.problem.start.copy()
    start[0] += 1
    late = replace(plan, problem=replace(plan.problem, start=start))
    with pytest.raises(InputError, match="as the graph needs"):
        run_safely(program, late, (x,))
    said = r"at step 0 makes buffer 'mul', bytes 0–127, which is live only during steps 1"
    with pytest.raises(MemplanError, match=said):
        run_safely(program, late, (x,), guard=0, force=True)


def test_a_plan_without_one_of_the_buffers_is_refused() -> None:
    program, _ = chain()
    plan = make_plan(program.graph, "naive")
    rows = torch.arange(1, len(plan.problem)).numpy()
    problem = replace(select(plan.problem, rows), origin=plan.problem.origin)
    less = replace(plan, problem=problem, offsets=plan.offsets[1:])
    with pytest.raises(InputError, match="no buffer 'mul'"):
        insert_slab(program, less)


def test_a_plan_of_other_shapes_says_which() -> None:
    x = torch.ones(3, 4)
    one, other = (load_program(torch.nn.Linear(4, width), (x,)) for width in (8, 16))
    with pytest.raises(
        InputError, match=r"op 'linear' reads .*float32\[8, 4\].* here and .*float32\[16, 4\]"
    ):
        insert_slab(one, make_plan(other.graph))


def test_another_place_in_the_slab_is_no_order() -> None:
    program, _ = chain()
    module = insert_slab(program, make_plan(program.graph))
    check_order(module)
    node = next(node for node in module.graph.nodes if node.name == "exp_memory")
    node.update_arg(1, node.args[1] + 64)
    with pytest.raises(InputError, match="node 'exp_memory'"):
        check_order(module)


@pytest.mark.parametrize("functional", [True, False])
def test_inputs_may_be_called_like_operators(functional: bool) -> None:
    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mm = torch.nn.Linear(4, 4)

        def forward(self, t: torch.Tensor, t_1: torch.Tensor) -> torch.Tensor:
            return ((torch.relu(self.mm(t)) - t_1) ** 2).sum()

    given = (torch.ones(3, 4), torch.zeros(3, 4))
    graph = capture_step(Step(), given, functional=functional)
    assert {"t", "t_1"} <= set(graph.inputs)
    if not functional:
        assert {"t", "t_1"} <= set(capture_training(Step(), given).joint.inputs)
