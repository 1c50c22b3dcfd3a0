"""Eager runs predicted on fake tensors: against real runs, and as graphs that everything opens."""

from __future__ import annotations

import gc
import json
from itertools import groupby, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from memplan_engine import (
    Graph,
    InputError,
    Scope,
    find_peak,
    load,
    load_observation,
    make_plan,
    observation_graph,
    observe_fake,
    observe_model,
    observed_peak,
    to_problem,
    validate_plan,
    write_observation,
)
from memplan_engine.formats.memplan_json.json_file import dumps, loads
from memplan_engine.recordings.observed_flow import Category, Stage, flow_peak, state_bytes
from memplan_engine.torch_capture.training.torch_recipe import Recipe
from memplan_engine.units import exact
from tests.support.measured import measure_call
from tests.support.training_models import NAMES, build, untied_gpt2, wide_mlp

SGD, ADAM, ADAMW = Recipe("sgd"), Recipe("adam"), Recipe("adamw")


class Block(nn.Module):
    """Two layers, under whatever kind of checkpoint, or none."""

    def __init__(self, **kind: Any) -> None:
        super().__init__()
        self.first, self.second, self.kind = nn.Linear(64, 256), nn.Linear(256, 64), kind

    def body(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.second(nn.functional.dropout(self.first(x).relu(), 0.1))
        return result

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = checkpoint(self.body, x, **self.kind) if self.kind else self.body(x)
        return result


class Keeps(nn.Module):
    """Keeps a table of positions from its first call on, in a cache, and numbers that are no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.factors = nn.Linear(64, 64), torch.rand(64)
        self.table: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.table is None:
            self.table = torch.arange(64.0).sin()
        return (self.layer(x) * self.factors + self.table[None]).sum()


class Stack(nn.Module):
    def __init__(self, **kind: Any) -> None:
        super().__init__()
        self.blocks = nn.Sequential(nn.Linear(64, 64), *(Block(**kind) for _ in range(3)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.blocks(x)
        return result


class Squared(torch.autograd.Function):
    """Saves what autograd would not."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x.clone())
        return x * x

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * gradients[0]


class Custom(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = Squared.apply(self.linear(x))
        return result


def policy() -> Any:
    return create_selective_checkpoint_contexts([torch.ops.aten.addmm.default])


STEPS = {
    "plain": (Stack, {}),
    "checkpoint": (Stack, {"use_reentrant": False}),
    "re-entrant": (Stack, {"use_reentrant": True}),
    "selective": (Stack, {"use_reentrant": False, "context_fn": policy}),
    "custom function": (Custom, {}),
}


def real_peak(model: nn.Module, args: Any, recipe: Recipe | None) -> int:
    return observed_peak(observe_model(model, args, recipe=recipe), "dispatch")[0]


def test_what_a_model_keeps_beside_its_buffers_is_state_and_in_no_peak() -> None:
    flow = observe_fake(Keeps(), (torch.rand(8, 64),), recipe=SGD).flow
    assert flow is not None
    assert state_bytes(flow) == 4 * (64 * 64 + 64) + 2 * 4 * 64
    # Both gradients, that of the layer's result, the loss and what it is differentiated with.
    assert flow_peak(flow)[0] == 4 * (64 * 64 + 64) + 4 * 8 * 64 + 2 * 4


RECIPES = {"sgd": SGD, "adam": ADAM, "adamw": ADAMW, "adamw by lists": Recipe("adamw", foreach=True)}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(name, kind, marks=[] if name == "plain" or kind == "adamw" else [pytest.mark.slow])
        for name, kind in product(STEPS, RECIPES)
    ],
)
def test_steps_hold_what_real_ones_do(name: str, kind: str) -> None:
    made_by, options = STEPS[name]
    recipe = RECIPES[kind]
    torch.manual_seed(0)
    model, x = made_by(**options), (torch.rand(128, 64),)
    seen = observe_fake(model, x, recipe=recipe)
    assert observed_peak(seen)[0] == real_peak(model, x, recipe)
    assert seen.flow is not None
    again = {stage for stage in seen.flow.stages if stage is Stage.RECOMPUTE}
    assert bool(again) == (name in ("checkpoint", "re-entrant", "selective"))


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe("sgd", accumulate=3),
        Recipe("adam", clip_grad_norm=1.0),
        Recipe("adamw", accumulate=2, clip_grad_norm=0.5),
        Recipe(lambda parameters: torch.optim.AdamW(parameters, fused=True)),
        Recipe(lambda parameters: torch.optim.SGD(parameters, momentum=0.9, nesterov=True)),
    ],
    ids=["accumulate", "clip", "both", "fused", "momentum"],
)
def test_recipes_hold_what_real_ones_do(recipe: Recipe) -> None:
    torch.manual_seed(0)
    model, x = Stack(), (torch.rand(128, 64),)
    assert observed_peak(observe_fake(model, x, recipe=recipe))[0] == real_peak(model, x, recipe)


@pytest.mark.parametrize("name", NAMES)
def test_models_hold_what_real_ones_do(name: str) -> None:
    model, inputs, loss = build(name)
    recipe = Recipe("adamw", loss=loss)
    for how in (None, recipe):
        seen = observe_fake(model, (), inputs, recipe=how)
        assert (
            observed_peak(seen)[0]
            == observed_peak(observe_model(model, (), inputs, recipe=how), "dispatch")[0]
        )


def test_a_step_against_a_measurement_that_knows_nothing_of_memplan() -> None:
    model, inputs, _ = untied_gpt2()
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        loss = model(**inputs).loss
        loss.backward()
        optimizer.step()

    predicted = observe_fake(model, (), inputs, recipe=ADAM)
    step()
    optimizer.zero_grad()
    state = [dict(each) for each in optimizer.state.values()]
    given = [list(model.parameters()), list(model.buffers()), inputs, state]
    assert measure_call(step, given) == observed_peak(predicted)[0]
    weights = sum(each.nbytes for each in model.parameters())
    kept = sum(value.nbytes for each in state for value in each.values())
    buffers = sum(each.nbytes for each in model.buffers())
    assert predicted.flow is not None
    assert state_bytes(predicted.flow) == weights + kept + buffers


@pytest.fixture(scope="module")
def predicted() -> Any:
    model, inputs, _ = wide_mlp()
    return observe_fake(model, (), inputs, recipe=Recipe("adam"), name="mlp")


def test_each_op_knows_what_it_did(predicted: Any) -> None:
    flow, ops = predicted.flow, predicted.ops
    assert flow.steps == 2
    assert len(flow.step_peaks) == 2
    # Adam makes its moments in the first step, of which there are two for each weight.
    assert flow.step_peaks[0] > flow.step_peaks[1] == flow_peak(flow)[0] == observed_peak(predicted)[0]
    stages = [stage for stage, _ in groupby(flow.stages)]
    assert stages == [Stage.FORWARD, Stage.BACKWARD, Stage.OPTIMIZER]
    first = ops.names.index("addmm")
    names = flow.storages.names
    assert {names[number] for number in flow.reads[first]} == {"0.weight", "0.bias", "input"}
    assert flow.modules[first] == "0"
    (made,) = flow.makes[first]
    assert flow.storages.shapes[made] == (32, 400)
    assert flow.storages.categories[made] is Category.TEMPORARY
    gradients = [n for n, category in enumerate(flow.storages.categories) if category is Category.GRADIENT]
    assert sum(flow.storages.nbytes[gradients]) == sum(
        flow.storages.nbytes[n]
        for n, category in enumerate(flow.storages.categories)
        if category is Category.WEIGHT
    )
    backward = [m for m, stage in zip(flow.modules, flow.stages, strict=True) if stage is Stage.BACKWARD]
    assert {"0", "2", "4"} <= set(backward)
    lines = [flow.source_of(n) for n in range(len(ops)) if flow.stages[n] is Stage.BACKWARD]
    assert any(line and line.file.endswith("linear.py") for line in lines)


def test_its_graph_has_its_peak_and_can_be_planned(predicted: Any) -> None:
    graph = observation_graph(predicted)
    problem = to_problem(graph, alignment=1)
    assert find_peak(problem).nbytes == observed_peak(predicted)[0]
    assert graph.scope is problem.scope is Scope.PREDICTED
    plan = make_plan(graph, "greedy_by_size")
    assert validate_plan(plan).valid
    assert loads(dumps(graph).decode(), "graph") == graph


@pytest.mark.parametrize("name", STEPS)
def test_every_graph_has_the_peak_that_was_recorded(name: str) -> None:
    kind, options = STEPS[name]
    seen = observe_fake(kind(**options), (torch.rand(128, 64),), recipe=ADAMW)
    graph = observation_graph(seen)
    assert find_peak(to_problem(graph, alignment=1)).nbytes == observed_peak(seen)[0]
    again = [op.name for op in graph.ops if op.name.startswith("recompute.")]
    assert bool(again) == (name in ("checkpoint", "re-entrant", "selective"))
    assert {each.removeprefix("recompute.") for each in again} <= {op.name for op in graph.ops}


def test_a_storage_is_held_as_long_as_a_name_holds_it() -> None:
    """By hand: x is 4,000 bytes; `kept` is not read after the second op, and held to the last."""

    def run(x: torch.Tensor) -> torch.Tensor:
        kept = x.neg()
        last = kept.abs().exp()
        return last.sin()

    seen = observe_fake(run, (torch.ones(1000),))
    graph = observation_graph(seen)
    storages = {storage.name: storage for storage in graph.storages}
    assert storages["neg"].held_by == "sin"
    assert storages["abs"].held_by == "exp"
    problem = to_problem(graph, alignment=1)
    lives = zip(problem.names, problem.start.tolist(), problem.end.tolist(), strict=True)
    assert list(lives) == [("neg", 0, 4), ("abs", 1, 3), ("exp", 2, 4), ("sin", 3, 4)]
    assert observed_peak(seen) == (12000, 2)


def test_a_storage_that_is_resized_is_another_one() -> None:
    def run() -> torch.Tensor:
        made = torch.zeros(1000)
        made.untyped_storage().resize_(0)
        other = torch.zeros(1000)
        made.untyped_storage().resize_(8000)
        return other

    seen = observe_fake(run)
    assert seen.ops.names == ("zeros", "resize_storage", "zeros_1", "resize_storage_1")
    assert np.array_equal(seen.flow.storages.nbytes, [4000, 0, 4000, 8000])
    assert observed_peak(seen) == (12000, 3)
    assert find_peak(to_problem(observation_graph(seen), alignment=1)).nbytes == 12000


def test_files_read_back_and_open_as_graphs(predicted: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_observation(predicted, path)
    back = load_observation(path)
    assert back.ops.names == predicted.ops.names
    for name in (
        "reads",
        "writes",
        "makes",
        "stages",
        "modules",
        "sources",
        "steps",
        "step_peaks",
        "assumed",
    ):
        assert getattr(back.flow, name) == getattr(predicted.flow, name)
    for name in ("nbytes", "maker", "released", "device"):
        assert np.array_equal(getattr(back.flow.storages, name), getattr(predicted.flow.storages, name))
    assert np.array_equal(back.at("dispatch"), predicted.at("dispatch"))
    graph = load(path)
    assert isinstance(graph, Graph)
    assert graph == observation_graph(predicted)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda flow: flow["reads"][0].append(10**6), r"flow.reads\[0\]\["),
        (lambda flow: flow["stages"].pop(), "flow.stages: found"),
        (lambda flow: flow["storages"]["maker"].__setitem__(0, 10**6), "flow.storages.maker"),
        (lambda flow: flow["storages"]["released"].__setitem__(-1, 0), "released"),
        (lambda flow: flow["stages"].__setitem__(0, "sideways"), r"flow.stages\[0\]"),
        (lambda flow: flow.pop("storages"), "flow.storages: found nothing"),
    ],
)
def test_a_file_that_is_not_sound_is_one_line(
    predicted: Any, tmp_path: Path, change: Any, message: str
) -> None:
    path = tmp_path / "run.json"
    write_observation(predicted, path)
    document = json.loads(path.read_text())
    change(document["flow"])
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=message) as error:
        load_observation(path)
    assert "\n" not in str(error.value)


def test_a_file_cut_short_is_one_line(predicted: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_observation(predicted, path)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(InputError, match=r"run\.json: found broken JSON"):
        load(path)


class Asks(nn.Module):
    def __init__(self, ask: Any) -> None:
        super().__init__()
        self.linear, self.ask = nn.Linear(4, 4), ask

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        self.ask(y)
        return y


def test_a_loss_that_is_logged_is_taken_as_one_and_said_so() -> None:
    logged: list[float] = []
    seen = observe_fake(Asks(lambda y: logged.append(y.sum().item())), (torch.ones(2, 4),))
    assert [f"{each:.1f}" for each in logged] == ["1.0"]
    (note,) = seen.flow.assumed  # type: ignore[union-attr]
    assert "test_fake_run.py:" in note


@pytest.mark.parametrize(
    "ask", [lambda y: bool(y.sum() > 0), lambda y: y[y > 0], lambda y: y.argmax().item()]
)
def test_other_values_are_refused_with_the_line(ask: Any) -> None:
    with pytest.raises(InputError, match=r"test_fake_run\.py:\d+"):
        observe_fake(Asks(ask), (torch.ones(2, 4),))


class Chooses(nn.Module):
    """How much it computes depends on its input alone."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = (x.sum(1) > 2).nonzero()[:, 0]
        result: torch.Tensor = self.linear(x[rows]).relu()
        return result


def test_sizes_that_follow_from_inputs_are_known() -> None:
    x = torch.rand(64, 4)
    assert observed_peak(observe_fake(Chooses(), (x,)))[0] == real_peak(Chooses(), (x,), None)


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(InputError, match="a module or a function"):
        observe_fake(3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="optimizer: found 'lion'"):
        observe_fake(nn.Linear(2, 2), (torch.ones(1, 2),), recipe=Recipe("lion"))


def test_a_function_that_trains_its_own_model_is_recorded_whole() -> None:
    def train() -> None:
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.rand(4, 8)).sum().backward()
            optimizer.step()

    seen = observe_fake(train)
    flow = seen.flow
    assert flow is not None
    assert {Stage.FORWARD, Stage.BACKWARD, Stage.OPTIMIZER} == set(flow.stages)
    assert "Sequential.0" in flow.modules


class Standardised(nn.Module):
    """A convolution whose weights are normalised by a batch norm without statistics, as BiT's are."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(6, 3, 3, 3))

    def forward(self, x: Any) -> Any:
        flat = self.weight.reshape(1, 6, -1)
        normed = nn.functional.batch_norm(flat, None, None, training=True, momentum=0.0)
        return nn.functional.conv2d(x, normed.reshape_as(self.weight))


def test_a_batch_norm_without_statistics_is_predicted() -> None:
    x = torch.rand(2, 3, 8, 8)
    predicted, real = observe_fake(Standardised(), (x,)), observe_model(Standardised(), (x,))
    assert observed_peak(predicted)[0] == observed_peak(real, "dispatch")[0]


class _Node:
    """One of two that know each other, which only Python's collector frees."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.other = tensor, self


def _cycles(collects: bool) -> None:
    for _ in range(40):
        one, two = _Node(torch.zeros(256)), _Node(torch.zeros(256))
        one.other, two.other = two, one
        del one, two
        if collects:
            gc.collect()


def test_what_reference_cycles_hold_is_said_with_the_peak_without():
    """Two KiB a turn, 40 turns. Garbage is looked for before each 16th op, when 16 tensors are there."""
    seen = observe_fake(_cycles, (False,))
    assert observed_peak(seen)[0] == 40 * 2 * 1024
    (note,) = seen.flow.assumed
    assert note.startswith("Python's collector of reference cycles as never running")
    assert f"the peak is {exact(16 * 1024)}" in note
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_a_run_that_collects_by_itself_assumes_nothing_of_cycles():
    seen = observe_fake(_cycles, (True,))
    assert (observed_peak(seen)[0], seen.flow.assumed) == (2 * 1024, ())
