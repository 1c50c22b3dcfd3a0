"""Phases, saved activations and what recomputation changes, on graphs small enough to work out by hand."""

from __future__ import annotations

import memplan_examples
import pytest

from memplan_engine import load
from memplan_engine.analysis.training_phases import (
    Saved,
    TrainingMemory,
    min_cut_difference,
    phase_steps,
    recomputed_ops,
    saved_activations,
    training_memory,
)
from memplan_engine.errors import InputError
from memplan_engine.graph import Graph, Op, Phase
from memplan_engine.schedule import Schedule, sequential
from tests.support.graphs import make_graph

FORWARD, BACKWARD, OPTIMIZER = Phase
SIZES = {"w": 8, "x": 16, "h": 100, "a": 60, "y": 4, "dy": 4, "da": 60, "dw": 8}


def op(phase: Phase | None, name: str, reads: str, made: str, mutates: str = "") -> Op:
    outputs = tuple(made.split())
    return Op(name, name, tuple(reads.split()), outputs, tuple(mutates.split()), phase=phase)


def default_graph() -> Graph:
    """h = x·w; a = act(h), seen as `flat` too; y = loss(flat). The backward pass reads h, a and the loss."""
    return make_graph(
        [
            op(FORWARD, "product", "x w", "h"),
            op(FORWARD, "act", "h", "a"),
            op(FORWARD, "view", "a", "flat"),
            op(FORWARD, "loss", "flat", "y"),
            op(BACKWARD, "ones", "y", "dy"),
            op(BACKWARD, "act_backward", "dy h flat", "da"),
            op(BACKWARD, "product_backward", "da x w", "dw"),
        ],
        SIZES,
        views={"flat": "a"},
        inputs=["x"],
        constants=["w"],
        outputs=["y", "dw"],
    )


def min_cut_graph() -> Graph:
    """The same, but `a` is computed again from `h`, and the loss's gradient by an op of the forward pass."""
    return make_graph(
        [
            op(FORWARD, "product", "x w", "h"),
            op(FORWARD, "act", "h", "a"),
            op(FORWARD, "loss", "a", "y"),
            op(FORWARD, "ones", "y", "dy"),
            op(BACKWARD, "recompute.act", "h", "again"),
            op(BACKWARD, "view", "again", "flat"),
            op(BACKWARD, "act_backward", "dy h flat", "da"),
            op(BACKWARD, "product_backward", "da x w", "dw"),
        ],
        {**SIZES, "again": 60},
        views={"flat": "again"},
        inputs=["x"],
        constants=["w"],
        outputs=["y", "dw"],
    )


def test_saved_activations_are_made_forward_and_read_backward_through_views_too() -> None:
    # x and w are read by the backward pass as well, but are there anyway; da is its own.
    assert saved_activations(default_graph()) == ("h", "a", "y")
    assert saved_activations(min_cut_graph()) == ("h", "dy")


def test_a_storage_that_the_backward_pass_only_writes_is_saved_and_one_that_the_optimizer_reads_is_not() -> (
    None
):
    graph = make_graph(
        [
            op(FORWARD, "make", "x", "kept"),
            op(FORWARD, "other", "x", "later"),
            op(FORWARD, "alias", "x", "shown"),
            op(BACKWARD, "write", "shown", "written", mutates="kept"),
            op(OPTIMIZER, "update", "later written", "new"),
        ],
        {"x": 8, "kept": 8, "later": 8, "written": 8, "new": 8},
        views={"shown": "x"},
        inputs=["x"],
        outputs=["new"],
    )
    assert saved_activations(graph) == ("kept",)


def test_graphs_without_phases_save_nothing_and_have_no_ranges() -> None:
    graph = make_graph([op(None, "one", "x", "y")], {"x": 8, "y": 8}, inputs=["x"], outputs=["y"])
    assert saved_activations(graph) == ()
    assert phase_steps(graph, sequential(graph)) == {}
    with pytest.raises(InputError) as caught:
        training_memory(graph)
    assert str(caught.value) == (
        "net: ops: found none of phase forward, expected a training graph, whose ops have phases"
    )


def test_phase_steps_of_a_sequential_schedule() -> None:
    graph = default_graph()
    assert phase_steps(graph, sequential(graph)) == {FORWARD: ((0, 4),), BACKWARD: ((4, 7),)}


def test_phase_steps_that_interleave_overlap_or_leave_steps_out() -> None:
    graph = default_graph()
    # Two ops a step: `loss` runs beside `ones`; nothing runs at steps 4 and 6.
    assert phase_steps(graph, Schedule((0, 0, 1, 3, 3, 5, 7), 8)) == {FORWARD: ((0, 4),), BACKWARD: ((3, 8),)}
    # The backward op of step 1 cuts the forward pass in two.
    assert phase_steps(graph, Schedule((0, 2, 3, 3, 1, 4, 5), 6)) == {
        FORWARD: ((0, 1), (2, 4)),
        BACKWARD: ((1, 2), (4, 6)),
    }


def test_training_memory_by_hand() -> None:
    # At act_backward: h 100, a 60, y 4, dy 4 and da 60. The loss is kept as an output.
    assert training_memory(default_graph()) == TrainingMemory(164, 228, 5, BACKWARD)
    # The same bytes there, for `again` takes a's place; saved are h and dy.
    assert training_memory(min_cut_graph()) == TrainingMemory(104, 228, 6, BACKWARD)


def test_what_min_cut_changes_by_hand() -> None:
    change = min_cut_difference(default_graph(), min_cut_graph())
    assert (change.default.saved_bytes, change.min_cut.saved_bytes) == (164, 104)
    assert change.only_default == (Saved("a", 60), Saved("y", 4))
    assert change.only_min_cut == (Saved("dy", 4),)
    assert change.recomputed == ("act",)
    assert change.recomputed_by_default == ()
    assert change.moved_to_backward == ("view",)


def test_only_backward_ops_that_repeat_a_forward_op_are_recomputed() -> None:
    ops = [
        op(FORWARD, "a", "x", "t"),
        op(FORWARD, "recompute.b", "x", "u"),
        op(BACKWARD, "recompute.a", "x", "v"),
        op(BACKWARD, "recompute.c", "x", "z"),
    ]
    graph = make_graph(ops, dict.fromkeys("xtuvz", 8), inputs=["x"], outputs=["z"])
    assert recomputed_ops(graph) == ("a",)


def test_what_min_cut_changes_in_the_example() -> None:
    default, min_cut = (
        load(memplan_examples.PATH / f"bert_training_{part}.json") for part in ("default", "min_cut")
    )
    assert isinstance(default, Graph)
    assert isinstance(min_cut, Graph)
    change = min_cut_difference(default, min_cut)
    assert change.default == TrainingMemory(722_060_424, 752_635_020, 283, BACKWARD)
    assert change.min_cut == TrainingMemory(517_588_104, 598_494_348, 289, BACKWARD)
    # Of each of the four layers the products inside the GELU's tanh formula: 16 × 128 × 3,072 floats.
    large = [saved for saved in change.only_default if saved.nbytes == 25_165_824]
    assert len(large) == 8
    assert change.only_min_cut == ()
    assert sum(saved.nbytes for saved in change.only_default) == 722_060_424 - 517_588_104
    kinds = {op.name: op.kind for op in default.ops}
    assert {kinds[name] for name in change.recomputed} == {"aten.view", "aten.expand", "aten.mul", "aten.add"}
    assert phase_steps(default, sequential(default)) == {
        FORWARD: ((0, 244),),
        BACKWARD: ((244, 633),),
    }
