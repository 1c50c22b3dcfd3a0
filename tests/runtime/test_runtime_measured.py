"""Predicted against measured: small programs and models, their temporaries, and equality with eager."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.runtime_models import programs
from memplan_engine import (
    InputError,
    Program,
    compare_results,
    compare_run,
    learn_workspaces,
    load_program,
    load_step,
    make_plan,
    observe,
    observed_peak,
    observed_problem,
    predict_temporaries,
    predicted_live,
    to_problem,
    with_workspaces,
    workspaces_as_tensors,
)
from memplan_engine.analysis.workspaces import live_by_step
from memplan_engine.graph import Source
from memplan_engine.runtime.trial.comparison import Measured
from memplan_engine.runtime.trial.equality import Equality
from tests.support.measured import PeakMode, measure_call, measure_graph_module


class Net(nn.Module):
    """Convolution, batch norm, in-place relu, layer norm, attention, views, and a value nobody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = nn.functional.relu(self.bn(self.conv(x)), inplace=True)
        rows = self.norm(y.flatten(2).transpose(1, 2))
        rows.exp()
        heads = rows[:, None]
        seen = nn.functional.scaled_dot_product_attention(heads, heads, heads)
        return {"logits": self.head(seen), "mean": seen.mean()}


def line_of(source: Source) -> str:
    return Path(source.file).read_text(encoding="utf-8").splitlines()[source.line - 1]


def net(train: bool = False) -> tuple[Net, torch.Tensor]:
    torch.manual_seed(0)
    return Net().train(train), torch.rand(2, 3, 8, 8)


@pytest.fixture(scope="module", params=[False, True], ids=["raw", "functional"])
def case(request: pytest.FixtureRequest) -> tuple[Net, Program, torch.Tensor, Measured]:
    model, x = net()
    program = load_program(model, (x,), functional=request.param)
    return model, program, x, compare_run(program, (x,), eager=model)


def test_predicted_bytes_are_those_dispatched_during_every_op(case: Any) -> None:
    measured = case[3]
    assert [op.name for op in measured.graph.ops] == list(measured.observation.ops.names)
    assert measured.differing == ()
    assert measured.predicted.tolist() == measured.dispatch.tolist()
    assert measured.difference == 0
    assert measured.equality.exact
    assert str(measured.equality) == "bitwise equal to eager"
    problem = observed_problem(measured.observation, "dispatch")
    assert problem.callers is not None
    source = problem.callers.of(problem.names.index("layer_norm")).source
    assert source is not None
    assert "self.norm(" in line_of(source)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ["gpt2 step", "mobilenet_v2 step"])
def test_predicted_bytes_of_a_step_of_the_published_size_are_those_dispatched(name: str) -> None:
    """Adam steps of GPT-2 with 124 million parameters and of MobileNetV2, raw and functional."""
    pytest.importorskip("transformers")
    for _, program, args, kwargs, _ in programs(name, full=True):
        measured = compare_run(program, args, kwargs)
        assert [op.name for op in measured.graph.ops] == list(measured.observation.ops.names)
        assert measured.predicted.tolist() == measured.dispatch.tolist()
        assert measured.equality.exact


class Counted(nn.Module):
    """Goes another way under fake tensors than on real ones."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return nn.functional.one_hot(ids, 5).sum(0) + nn.functional.one_hot(ids[:2], 9).sum()


def test_one_hot_holds_nothing_beside_its_result() -> None:
    ids = torch.tensor([0, 3, 1, 4, 3])
    measured = compare_run(load_program(Counted(), (ids,)), (ids,))
    assert measured.differing == ()
    assert measured.predicted_peak == measured.dispatch_peak == 5 * 5 * 8 + 5 * 8


def test_an_independent_measurement_agrees(case: Any) -> None:
    """Just after each node, and at its fullest moment, by storages that torch still holds."""
    _, program, x, measured = case
    inputs = program.inputs((x,))
    after = measure_graph_module(program.module, inputs)
    planned = live_by_step(to_problem(program.graph, alignment=1))
    assert planned.tolist() == [after[op.name] for op in program.graph.ops]
    with PeakMode(inputs) as mode:
        measure_graph_module(program.module, inputs)
    assert mode.peak == measured.dispatch_peak > planned.max()


def test_an_independent_measurement_of_an_eager_run_agrees() -> None:
    model, x = net()
    given = (list(model.parameters()), list(model.buffers()), x)
    with torch.no_grad():
        seen = observe(model, x)
        assert observed_peak(seen, "dispatch")[0] == measure_call(lambda: model(x), given)
        assert observed_peak(seen, "allocator")[0] > observed_peak(seen, "dispatch")[0]
    # With gradients, what autograd saves stays until the result has gone.
    seen = observe(model, x)
    assert observed_peak(seen, "dispatch")[0] == measure_call(lambda: model(x), given)


def test_temporaries_of_operators_made_of_others_are_predicted(case: Any) -> None:
    """Of 2 × 64 rows: mean and inverse deviation, and the logarithms of the attention's sums."""
    _, program, _, measured = case
    assert predict_temporaries(program) == {"layer_norm": 1024, "scaled_dot_product_attention": 512}
    inside = {taker.op: taker.inside for taker in measured.takers if taker.inside}
    assert inside == {"layer_norm": 1024, "scaled_dot_product_attention": 512}


def test_learnt_temporaries_make_the_predicted_bytes_those_of_the_allocator(case: Any) -> None:
    model, program, x, measured = case
    learnt = learn_workspaces(measured, program.graph)
    assert predicted_live(learnt).tolist() == measured.allocator.tolist()
    assert measured.allocator_peak > measured.dispatch_peak
    again = compare_run(program, (x,), eager=model)
    assert predicted_live(learnt).max() == pytest.approx(again.allocator_peak, rel=0.01)
    assert {taker.op for taker in measured.takers} >= {"conv2d"}
    # In the arena they lie between the others.
    plan = make_plan(to_problem(workspaces_as_tensors(learnt), alignment=1), "greedy_by_size")
    assert measured.allocator_peak <= plan.arena_bytes <= 1.2 * measured.allocator_peak
    with pytest.raises(InputError, match="an observed run of the program Net"):
        learn_workspaces(observe(torch.exp, x), program.graph)


def test_the_figures_of_a_run(case: Any) -> None:
    measured = case[3]
    assert measured.difference == 0
    assert measured.predicted_peak == max(measured.predicted) == max(measured.dispatch)
    assert measured.allocator_peak == max(measured.allocator)
    assert measured.equality == Equality("eager", exact=True)


def test_a_run_in_training_mode_leaves_no_trace_and_is_the_same_every_time() -> None:
    """Running statistics are written without a word in the schema; dropout draws from one seed."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5)).train()
    x = torch.rand(2, 3, 6, 6)
    program = load_program(model, (x,))
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    random = torch.random.get_rng_state()
    measured = compare_run(program, (x,), eager=model)
    assert measured.equality.exact
    assert measured.difference == 0
    assert all(torch.equal(before[name], buffer) for name, buffer in model.named_buffers())
    assert torch.equal(random, torch.random.get_rng_state())


@pytest.mark.parametrize("functional", [False, True], ids=["in place", "functional"])
def test_a_training_step(functional: bool) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    x = torch.rand(2, 3, 6, 6)
    program = load_step(model.train(), (x,), loss=torch.sum, optimizer="adam", functional=functional)
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    measured = compare_run(program, (x,))
    assert (measured.differing, measured.difference) == ((), 0)
    assert str(measured.equality) == "bitwise equal to interpreter"
    assert all(map(torch.equal, weights, model.parameters()))
    assert predicted_live(learn_workspaces(measured, program.graph)).max() == measured.allocator_peak


def test_where_a_result_first_differs() -> None:
    model, x = net()
    program = load_program(model, (x,))

    def other(x: torch.Tensor) -> Any:
        # All that comes after the norm is off, the convolution before it is not.
        kept, model.norm.eps = model.norm.eps, 1e-2
        try:
            return model(x)
        finally:
            model.norm.eps = kept

    equality = compare_run(program, (x,), eager=other).equality
    assert (equality.exact, equality.reference, equality.op) == (False, "eager", "layer_norm")
    assert 0 < equality.largest < 1
    assert equality.output == "output['logits']"


def test_equality_is_of_bits_and_differences_are_the_largest() -> None:
    nan, one = torch.tensor([float("nan"), 1.0]), torch.tensor([1.0, 2.0, 3.0])
    assert compare_results([nan, 3], [nan.clone(), 3]).exact
    found = compare_results((one, one), (one, one + torch.tensor([0.0, -0.5, 0.25])))
    assert (found.exact, found.largest, found.output) == (False, 0.5, "output[1]")
    minus = compare_results(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert (minus.exact, minus.largest) == (False, 0.0)
    for other in (one[:2], one.double(), torch.tensor([1.0, 2.0, float("nan")]), None):
        assert compare_results(one, other).largest == float("inf")
    assert compare_results([one], [one, one]).output == "2 outputs instead of 1"
    assert compare_results(one[::2], one[::2].clone()).exact
    boolean, whole = torch.tensor([True, False]), torch.tensor([1 + 2j])
    assert compare_results([boolean, whole], [boolean.clone(), whole.clone()]).exact
    assert compare_results(whole, whole + 2).largest == 2.0


def test_workspaces_by_hand() -> None:
    """Two ops of 40 bytes each, and their scratch."""

    class Two(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.exp().neg()

    program = load_program(Two(), (torch.ones(10),))
    assert predicted_live(program.graph).tolist() == [40, 80]
    graph = with_workspaces(program.graph, {"exp": 100, "neg": 7})
    assert predicted_live(graph).tolist() == [140, 87]
    problem = to_problem(workspaces_as_tensors(graph), alignment=1)
    assert problem.names == ("exp", "exp.workspace", "neg", "neg.workspace")
    assert problem.start.tolist() == [0, 0, 1, 1]
    assert problem.end.tolist() == [2, 1, 2, 2]
    with pytest.raises(InputError, match="workspaces: found op 'other', expected an op of the graph"):
        with_workspaces(program.graph, {"other": 1})


def gpt2() -> tuple[nn.Module, dict[str, Any]]:
    import transformers as t

    tokens = {"vocab_size": 50, "n_positions": 16, "bos_token_id": 1, "eos_token_id": 2}
    config = t.GPT2Config(n_embd=16, n_layer=1, n_head=2, **tokens)
    return t.GPT2LMHeadModel(config), {"input_ids": torch.arange(8).reshape(1, 8), "use_cache": False}


def t5() -> tuple[nn.Module, dict[str, Any]]:
    import transformers as t

    sizes = {"vocab_size": 50, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    ids = torch.arange(8).reshape(1, 8)
    inputs = {"input_ids": ids, "decoder_input_ids": ids[:, :5].contiguous(), "use_cache": False}
    return t.T5ForConditionalGeneration(t.T5Config(decoder_start_token_id=0, **sizes)), inputs


@pytest.mark.parametrize(("build", "functional"), [(gpt2, True), (t5, False)], ids=["gpt2", "t5"])
def test_models_of_transformers(build: Callable[[], Any], functional: bool) -> None:
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    model, inputs = build()
    measured = compare_run(
        load_program(model.eval(), (), inputs, functional=functional), (), inputs, eager=model
    )
    assert np.array_equal(measured.predicted, measured.dispatch)
    assert measured.equality.exact
