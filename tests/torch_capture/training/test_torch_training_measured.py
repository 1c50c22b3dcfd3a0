"""Training steps of real models: live bytes planned against live bytes measured."""

from __future__ import annotations

from functools import cache, partial
from itertools import product
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

from memplan_engine.analysis.peak import find_peak
from memplan_engine.analysis.training_phases import recomputed_ops
from memplan_engine.graph import Graph, Phase
from memplan_engine.lifetimes import Unread, to_problem
from memplan_engine.torch_capture.training.torch_recipe import Recipe
from memplan_engine.torch_capture.training.torch_step import (
    Gradients,
    StepModule,
    capture_step,
    step_graph,
    trace_step,
)
from memplan_engine.torch_capture.training.torch_training import TrainingCapture, capture_training
from tests.support.measured import PeakMode, measure_call, measure_graph_module
from tests.support.training_models import (
    NAMES,
    Model,
    build,
    by_name,
    live_bytes,
    real_inputs,
    real_like,
    stitched,
    untied_gpt2,
    wide_mlp,
)

# Together these have batch norm, dropout, attention, tied weights and both partitions. The others are slow.
CAPTURES = [("conv", "default"), ("conv", "min_cut"), ("bert", "default")]
SLOW_CAPTURES = [
    ("bert", "min_cut"), *product(("gpt2", "vit", "t5"), ("default", "min_cut")),
    *product(("bert, 2 layers", "vit, 2 layers", "t5, 2 layers"), ("default", "min_cut")),
]  # fmt: skip
each_capture = pytest.mark.parametrize(
    ("name", "partition"), CAPTURES + [pytest.param(*each, marks=pytest.mark.slow) for each in SLOW_CAPTURES]
)


@cache
def halves(name: str, partition: str) -> TrainingCapture:
    kind, _, layers = name.partition(", ")
    model, inputs, loss = build(kind, int(layers.removesuffix(" layers") or 1))
    return capture_training(model, (), inputs, loss=loss, partition=partition)


@cache
def adam_step(name: str, functional: bool, gradients: str) -> tuple[StepModule, Graph]:
    model, inputs, loss = build(name)
    step = trace_step(model, (), inputs, Recipe("adam", loss), gradients=gradients, functional=functional)
    return step, step_graph(step)


def measured(graph: Graph, after: dict[str, int]) -> list[int]:
    return [after[op.name.removeprefix("recompute.")] for op in graph.ops]


@each_capture
def test_planned_live_bytes_of_each_half_are_those_measured(name: str, partition: str) -> None:
    capture = halves(name, partition)
    for graph, module in (
        (capture.forward, capture.forward_module),
        (capture.backward, capture.backward_module),
    ):
        for unread in Unread:
            planned = live_bytes(to_problem(graph, alignment=1, unread=unread))
            run = measured(graph, measure_graph_module(module, real_inputs(module), unread=unread.value))
            assert max(planned) == max(run)
            off = [
                op.kind for op, ours, theirs in zip(graph.ops, planned, run, strict=True) if ours != theirs
            ]
            assert off == []


@each_capture
def test_planned_live_bytes_of_both_halves_together_are_those_measured(name: str, partition: str) -> None:
    capture = halves(name, partition)
    module, names = stitched(capture)
    after = measure_graph_module(module, real_inputs(capture.forward_module))
    ops = by_name(capture.joint)
    run = {name: after[node] for node, name in names.items() if name in ops}
    assert list(run) == list(ops)
    planned = live_bytes(to_problem(capture.joint, alignment=1))
    assert max(planned) == max(run.values())
    if capture.name != "T5ForConditionalGeneration":
        assert planned == list(run.values())


def test_reading_a_default_backward_graph_as_freed_is_not_what_the_interpreter_does() -> None:
    """The difference that `Unread.HELD` is for: dropout masks that nobody reads."""
    capture = halves("bert", "default")
    freed, held = (find_peak(to_problem(capture.backward, alignment=1, unread=u)).nbytes for u in Unread)
    module = capture.backward_module
    assert (freed, held) == tuple(
        max(measure_graph_module(module, real_inputs(module), unread=u.value).values()) for u in Unread
    )
    assert freed < held
    assert "native_dropout" in recomputed_ops(capture.joint)


QUICK_STEPS = (
    ("conv", False, Gradients.HELD), ("conv", True, Gradients.FREED), ("bert", False, Gradients.HELD),
)  # fmt: skip
WHOLE_STEPS = [
    pytest.param(*each, marks=[pytest.mark.slow] * (each not in QUICK_STEPS))
    for each in product(NAMES, (False, True), Gradients)
]


@pytest.mark.parametrize(("name", "functional", "gradients"), WHOLE_STEPS)
def test_planned_live_bytes_of_a_whole_step_are_those_measured(
    name: str, functional: bool, gradients: str
) -> None:
    step, graph = adam_step(name, functional, gradients)
    after = measure_graph_module(step.module, real_like([each.value for each in step.arguments]))
    assert live_bytes(to_problem(graph, alignment=1)) == [after[op.name] for op in graph.ops]
    phases = [op.phase for op in graph.ops]
    assert phases == sorted(phases, key=list(Phase).index)
    assert set(phases) == set(Phase)


def eager_step(built: Model, make: Any) -> PeakMode:
    """Measures a second eager step, whose optimizer has its state and whose gradients are None before it;
    the loss has a name to its end, as it has in the plan."""
    model, inputs, loss = built
    optimizer = make(model.parameters())

    def step() -> torch.Tensor:
        output = model(**inputs)
        value = loss(output) if loss else output.loss
        del output
        value.backward()
        optimizer.step()
        return value

    step()
    optimizer.zero_grad(set_to_none=True)
    state = [list(kept.values()) for kept in optimizer.state.values()]
    with PeakMode((list(model.parameters()), list(model.buffers()), list(inputs.values()), state)) as mode:
        _ = step()
    return mode


SGD, ADAM = (partial(kind, lr=1e-3, foreach=False) for kind in (torch.optim.SGD, torch.optim.Adam))


@pytest.mark.parametrize(
    ("build_one", "make", "name", "peaks", "beyond"),
    [
        # In the backward pass: the gradient of the loss, 4 bytes, which backward() names to its end.
        (wide_mlp, SGD, "sgd", (870_444, 870_444), 4),
        pytest.param(untied_gpt2, SGD, "sgd", (718_596, 718_596), 4, marks=pytest.mark.slow),
        # In the optimizer: `denom` of the parameter before, a bias of 400 or of 64 numbers, which torch's
        # loop names until the next one is there.
        (wide_mlp, ADAM, "adam", (2_099_244, 1_297_644), 1600),
        pytest.param(untied_gpt2, ADAM, "adam", (1_228_548, 972_548), 256, marks=pytest.mark.slow),
    ],
    ids=["mlp sgd", "gpt2 sgd", "mlp adam", "gpt2 adam"],
)
def test_planned_peak_with_gradients_held_is_that_of_an_eager_step(
    build_one: Any, make: Any, name: str, peaks: tuple[int, int], beyond: int
) -> None:
    model, inputs, loss = built = build_one()
    mode = eager_step(built, make)
    graphs = [
        capture_step(model, (), inputs, optimizer=name, gradients=kind, loss=loss) for kind in Gradients
    ]
    planned = tuple(find_peak(to_problem(graph, alignment=1)).nbytes for graph in graphs)
    assert planned == peaks
    assert mode.peak - planned[0] == beyond
    # At the end of both: the loss and every gradient.
    outputs = {tensor.storage for tensor in graphs[0].tensors if tensor.name in graphs[0].outputs}
    held = sum(storage.nbytes for storage in graphs[0].storages if storage.name in outputs)
    assert held == mode.after[-1][1] == 4 + 4 * sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", ["conv", "bert", pytest.param("gpt2", marks=pytest.mark.slow)])
def test_planned_peak_is_close_to_that_of_an_eager_step(name: str) -> None:
    """Python keeps some values longer than their last use; nothing else differs by much."""
    model, inputs, loss = build(name)
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)

    def step() -> None:
        output = model(**inputs)
        value = loss(output) if loss else output.loss
        del output
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    step()
    state = [list(kept.values()) for kept in optimizer.state.values()]
    given = (list(model.parameters()), list(model.buffers()), list(inputs.values()), state)
    eager = measure_call(step, given)
    _, graph = adam_step(name, False, Gradients.HELD)
    planned = find_peak(to_problem(graph, alignment=1))
    assert planned.nbytes == pytest.approx(eager, rel=0.02)
