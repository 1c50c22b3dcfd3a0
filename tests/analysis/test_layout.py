"""The whole memory: constants, activations, workspaces."""

from __future__ import annotations

import pytest

from memplan_engine import (
    InputError,
    Op,
    Workspace,
    check_graph,
    make_plan,
    make_problem,
    multi_stream,
    to_problem,
)
from memplan_engine.analysis.layout import Entry, RegionKind, make_layout, shared_workspace
from tests.support.graphs import make_graph

NET = make_graph(
    [
        Op("conv1", "conv", ("x", "w1"), ("a",), workspace=Workspace(shared=100, unique=7)),
        Op("relu", "relu", ("a",), ("b",)),
        Op("conv2", "conv", ("b", "w2"), ("c",), workspace=Workspace(shared=300)),
        Op("topk", "topk", ("c",), ("d",), workspace=Workspace(shared=200, unique=50)),
    ],
    {"x": 10, "w1": 65, "w2": 128, "a": 64, "b": 64, "c": 64, "d": 10},
    inputs=("x",),
    constants=("w1", "w2"),
    outputs=("d",),
)


def test_regions_lie_as_aitemplate_lays_them() -> None:
    plan = make_plan(NET)
    layout = make_layout(plan)
    #  w1 65 → 128, w2 128; arena 128; unique 7 + 50; the largest of 100, 300, 200
    assert [(r.kind, r.start, r.nbytes) for r in layout.regions] == [
        (RegionKind.CONSTANTS, 0, 256),
        (RegionKind.ACTIVATIONS, 256, 128),
        (RegionKind.UNIQUE, 384, 57),
        (RegionKind.SHARED, 441, 300),
    ]
    assert layout.nbytes == 741
    constants, arena, unique, shared = layout.regions
    assert constants.entries == (Entry("w1", 0, 65), Entry("w2", 128, 128))
    assert [(e.name, e.nbytes) for e in arena.entries if e.offset == 64] == [("b", 64), ("d", 10)]
    assert unique.entries == (Entry("conv1", 0, 7), Entry("topk", 7, 50))
    assert shared.entries == (Entry("conv1", 0, 100), Entry("conv2", 0, 300), Entry("topk", 0, 200))


def test_what_is_empty_is_no_region() -> None:
    plan = make_plan(make_problem([0, 1], [2, 3], [5, 6]))
    layout = make_layout(plan)
    assert [region.kind for region in layout.regions] == [RegionKind.ACTIVATIONS]
    assert layout.nbytes == 11
    assert make_layout(make_plan(make_problem([], [], []))).nbytes == 0


def test_a_workspace_has_no_negative_bytes() -> None:
    with pytest.raises(InputError, match="op 'f', workspace: found -1 bytes"):
        check_graph(make_graph([Op("f", "f", (), ("a",), workspace=Workspace(unique=-1))], {"a": 1}))


def test_scratch_of_ops_that_run_at_once_lies_side_by_side() -> None:
    ops = [
        Op("a", "a", ("x",), ("A",), workspace=Workspace(shared=100)),
        Op("b", "b", ("x",), ("B",), workspace=Workspace(shared=200)),
        Op("c", "c", ("A", "B"), ("C",), workspace=Workspace(shared=250)),
    ]
    net = make_graph(ops, {"x": 1, "A": 1, "B": 1, "C": 1}, inputs=("x",), outputs=("C",))
    assert shared_workspace(net) == (250, (Entry("a", 0, 100), Entry("b", 0, 200), Entry("c", 0, 250)))
    together = multi_stream(net, 2)
    assert shared_workspace(net, together) == (
        300,
        (Entry("a", 0, 100), Entry("b", 100, 200), Entry("c", 0, 250)),
    )
    assert make_layout(make_plan(to_problem(net, together))).regions[-1].nbytes == 300
