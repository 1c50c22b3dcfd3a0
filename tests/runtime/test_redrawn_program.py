"""Programs that draw random numbers again: the bits of the eager step, the state in which it leaves the
generator, and the bytes that were predicted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from memplan_engine import InputError, accelerator, fit_graph, fitted_program, insert_slab, load_program
from memplan_engine.analysis.op_costs import modelled_times
from memplan_engine.fitting.fitted import RandomOps, Stage, StageName, state_bytes_of
from memplan_engine.graph import Graph
from memplan_engine.op_kinds.generators import GENERATOR_BYTES, GENERATOR_OPS
from memplan_engine.op_kinds.ordered import drawing_ops
from memplan_engine.rewrites.recompute.recomputed_graph import recomputed_graph
from memplan_engine.runtime.generator_state import check_repeatable, generator_operators
from memplan_engine.runtime.loading import load_step
from memplan_engine.runtime.program import Program, program_from_module
from memplan_engine.runtime.recomputed_program import recomputed_program
from memplan_engine.runtime.slab.fitted_program import ordered_program
from memplan_engine.runtime.slab.insert_slab import slab_report
from memplan_engine.runtime.trial.equality import restoring, written_tensors
from tests.support.measured import measure_graph_module
from tests.support.runtime import same_bits

SEED = 5
LOWERED = (StageName.IN_PLACE, StageName.REORDER, StageName.GRADIENTS, StageName.RECOMPUTE)


class Dropping(nn.Module):
    """Wide layers, with dropout before and behind what they have in between."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(32, 128), nn.Dropout(0.2), nn.GELU(), nn.Dropout(0.1), nn.Linear(128, 32))
            for _ in range(5)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


def square(y: torch.Tensor) -> torch.Tensor:
    return y.square().mean()


def redrawn(graph: Graph, share: float) -> Stage:
    capacity = state_bytes_of(graph) + int(share * fit_graph(graph).best.plan.arena_bytes)
    times = modelled_times(graph, accelerator("a100-80"))
    stage = fit_graph(graph, capacity, LOWERED, times=times, random=RandomOps.STATE).best
    assert stage.generator_states > 0
    assert stage.generator_bytes == stage.generator_states * GENERATOR_BYTES
    return stage


def check(program: Program, inputs: tuple[Any, ...], stage: Stage) -> None:
    """The same bits from the same seed, in torch's allocator and in the slab, with the generator left as it
    was left before; and the peak that was predicted."""
    flat = program.inputs(inputs)
    other = fitted_program(program, stage.rewritten)
    base = ordered_program(program, stage.rewritten)
    module = insert_slab(base, stage.plan, policy="all")
    assert slab_report(module).slab_bytes == stage.plan.arena_bytes
    with restoring(written_tensors(program, flat), SEED) as restore:
        restore()
        expected = program.run(inputs)
        state = torch.get_rng_state()
        after = [tensor.clone() for tensor in written_tensors(program, flat)]
        for each in (other, base.with_module(module)):
            restore()
            result = each.run(inputs)
            assert same_bits(result, expected[: len(result)] if isinstance(result, list) else expected)
            assert same_bits(written_tensors(program, flat), after)
            assert torch.equal(torch.get_rng_state(), state)
        restore()
        assert max(measure_graph_module(other.module, flat).values()) == stage.load_bytes


@pytest.mark.parametrize("share", [0.5, 0.3])
def test_a_training_step_with_dropout_where_masks_alone_are_too_much(share: float) -> None:
    x = torch.rand(128, 32)
    program = load_step(Dropping().train(), (x,), optimizer="sgd", loss=square)
    stage = redrawn(program.graph, share)
    check(program, (x,), stage)
    # With masks kept no schedule has so few bytes.
    capacity = state_bytes_of(program.graph) + stage.plan.arena_bytes
    times = modelled_times(program.graph, accelerator("a100-80"))
    kept = fit_graph(program.graph, capacity, LOWERED, times=times)
    assert kept.best.plan.arena_bytes > stage.plan.arena_bytes


def test_the_gradients_are_those_of_eager() -> None:
    """Of the model itself, by autograd, from the same seed."""
    x, model = torch.rand(128, 32), Dropping().train()
    program = load_step(model, (x,), optimizer="sgd", loss=square)
    other = fitted_program(program, redrawn(program.graph, 0.4).rewritten)
    flat = program.inputs((x,))
    with restoring(written_tensors(program, flat), SEED) as restore:
        restore()
        loss = square(model(x))
        state = torch.get_rng_state()
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        before = [parameter.detach().clone() for parameter in model.parameters()]
        restore()
        result = other.run((x,))
        assert torch.equal(torch.get_rng_state(), state)
        assert same_bits(result[0], loss.detach())
        # torch's SGD with its default rate.
        stepped = [own - 1e-3 * gradient for own, gradient in zip(before, gradients, strict=True)]
        for now, expected in zip(model.parameters(), stepped, strict=True):
            torch.testing.assert_close(now.detach(), expected, rtol=0, atol=1e-7)


def test_a_state_is_what_torch_says() -> None:
    assert torch.get_rng_state().nbytes == GENERATOR_BYTES


def test_a_state_may_lie_anywhere_in_a_slab() -> None:
    generator_operators()
    state = torch.get_rng_state()
    behind = torch.zeros(3 * GENERATOR_BYTES, dtype=torch.uint8)[GENERATOR_BYTES : 2 * GENERATOR_BYTES]
    behind.copy_(state)
    drawn = torch.rand(3)
    moved = torch.get_rng_state()
    assert torch.equal(torch.ops.memplan.set_generator(behind), moved)
    assert torch.equal(torch.rand(3), drawn)
    torch.ops.memplan.put_generator_back(behind)
    assert torch.equal(torch.rand(3), drawn)


def by_hand(program: Program, name: str) -> Program:
    """`program` in which the op `name` runs again at once before its last reader."""
    names = [op.name for op in program.graph.ops]
    place = names.index(name)
    order = list(range(len(names)))
    order.insert(len(names) - 1, place)
    graph = recomputed_graph(program.graph, order)
    return recomputed_program(program, graph)


class Draws(nn.Module):
    def __init__(self, draw: Any) -> None:
        super().__init__()
        self.draw = draw

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        noise = self.draw(x)
        other = torch.rand_like(x)
        return (noise * 2 + other).sum() + noise


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: torch.rand(x.shape),
        lambda x: torch.randn_like(x),
        lambda x: torch.nn.functional.dropout(x, 0.5),
        lambda x: torch.normal(x, 1.0),
        lambda x: torch.randint(0, 9, x.shape),
        lambda x: torch.native_dropout(x, 0.5, True)[0],
        lambda x: torch.bernoulli(x),
        lambda x: torch.randperm(16),
        lambda x: torch.multinomial(x + 1, 1).expand(-1, 16),
    ],
)
def test_each_kind_of_draw_gives_the_same_again(draw: Any) -> None:
    x = torch.rand(16, 16)
    program = load_program(Draws(draw).train(), (x,))
    drawing = next(op.name for op in program.graph.ops if op.name in drawing_ops(program.graph))
    again = by_hand(program, drawing)
    kinds = [op.kind for op in again.graph.ops]
    assert [kinds.count(kind) for kind in sorted(GENERATOR_OPS)] == [1, 1, 1]
    torch.manual_seed(3)
    expected, state = program.run((x,)), torch.get_rng_state()
    torch.manual_seed(3)
    assert same_bits(again.run((x,)), expected)
    assert torch.equal(torch.get_rng_state(), state)


def test_what_cannot_be_repeated_is_refused() -> None:
    """A draw from a generator of its own, and one on another device: the state that is kept says nothing of
    them."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.empty(4)
    generator = torch.Generator()
    given: Any = {"generator": generator}
    noise = graph.call_function(torch.ops.aten.bernoulli.p, (x, 0.5), given)
    noise.meta["val"] = torch.empty(4)
    with pytest.raises(InputError, match="a draw from a generator of its own, expected draws from torch's"):
        check_repeatable("net", noise)
    noise.kwargs = {}
    check_repeatable("net", noise)
    noise.meta["val"] = torch.empty(4, device="meta")
    with pytest.raises(InputError, match="a draw on meta, expected a CPU"):
        check_repeatable("net", noise)


def test_other_states_are_refused() -> None:
    x = torch.rand(16, 16)
    program = load_program(Draws(torch.rand_like), (x,))
    good = by_hand(program, "rand_like").graph
    for left_out, found in (
        ("rand_like_generator", "rand_like_generator, which is read before it is made"),
        ("rand_like_again_set", "rand_like_again_set, which is read before it is made"),
        ("rand_like_again_put", "rand_like_1: draws other random numbers|left in another state"),
    ):
        graph = replace(good, ops=tuple(op for op in good.ops if op.name != left_out))
        with pytest.raises(InputError, match=found):
            recomputed_program(program, graph)


def test_a_flat_module_of_operators_runs_too() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    def step(x: torch.Tensor) -> torch.Tensor:
        noise, mask = torch.native_dropout(x, 0.5, True)
        return noise.exp().sum() + (noise * mask).sum()

    x = torch.rand(8, 8)
    module = make_fx(step)(x)
    program = program_from_module(module, [x])
    drawing = next(op.name for op in program.graph.ops if op.kind.startswith("aten.native_dropout"))
    again = by_hand(program, drawing)
    torch.manual_seed(1)
    expected = program.run((x,))
    torch.manual_seed(1)
    assert same_bits(again.run((x,)), expected)
