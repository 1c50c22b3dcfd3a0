"""The static runtime with dynamic shapes: a buffer that grows, sizes that are checked; and its benchmark."""

from __future__ import annotations

import io
import logging
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from torch import nn

from memplan_engine import InputError, StaticRuntime, load_program
from memplan_engine.runtime.program import graph_of_module
from memplan_engine.runtime.slab.operators import aligned
from memplan_engine.runtime.static.static_export import specialise
from memplan_engine.runtime.static.static_reports import Benchmark, Grown, NodeTime, Replan
from tests.support.runtime import Blocks, Calls, Pixels, same_bits

DIMS = "x:0=rows[2:64],x:1=columns[2:32]"


class Sums(nn.Module):
    """x · 2, its exponential, a mask that depends on the sizes alone, a copy in another order."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        made = (x * 2).exp()
        turned = made.t().contiguous()
        mask = torch.ones(x.shape[1], x.shape[0]).triu()
        return {"masked": turned * mask + 1, "flat": made.reshape(-1).sin().cos()}


def inputs(rows: int, columns: int) -> torch.Tensor:
    return torch.linspace(-1, 1, rows * columns).reshape(rows, columns)


@pytest.fixture(scope="module")
def sums() -> StaticRuntime:
    return StaticRuntime(Sums(), (inputs(3, 5),), dynamic_shapes=DIMS, name="sums")


def test_a_larger_input_plans_anew_and_a_smaller_one_does_not(caplog: pytest.LogCaptureFixture) -> None:
    """Storages of rows × 4 floats; two are live at once. Smaller inputs lie in the places of the larger."""
    model = Calls(lambda _, x: x.exp().sin().cos() + 1)
    runtime = StaticRuntime(
        model, (torch.ones(4, 4),), dynamic_shapes="args.0:0=rows[2:100]", name="rows", strategy="naive"
    )
    with caplog.at_level(logging.WARNING, "memplan_engine"):
        for rows, nbytes, replans in (
            (4, 192, 0),
            (4, 192, 0),
            (2, 192, 0),
            (8, 384, 1),
            (4, 384, 1),
            (20, 960, 2),
            (8, 960, 2),
            (19, 960, 2),
        ):
            x = torch.rand(rows, 4)
            assert torch.equal(runtime(x), model(x))
            assert (runtime.memory_report().buffer_bytes, len(runtime.replans)) == (nbytes, replans)
            assert runtime.memory_report().replans == replans
    names = ("exp", "sin", "cos")
    assert runtime.replans == (
        Replan(4, 192, 384, tuple(Grown(name, 64, 128) for name in names), (("args_0", (8, 4)),)),
        Replan(6, 384, 960, tuple(Grown(name, 128, 320) for name in names), (("args_0", (20, 4)),)),
    )
    said = [record.getMessage() for record in caplog.records if "static_runtime" in record.name]
    assert said == [
        "rows: run 4 (args_0 (8, 4)): 3 storages grew, planned anew, buffer 192 B → 384 B",
        "rows: run 6 (args_0 (20, 4)): 3 storages grew, planned anew, buffer 384 B → 960 B",
    ]
    # 2 × 4 floats at the offsets of 20 × 4.
    small = torch.rand(2, 4)
    runtime(small)
    runtime(small)
    placed = [r.result for r in runtime.records if r.out]
    assert [runtime.tape.registers[index].storage_offset() for index in placed] == [0, 80, 160]
    assert [tuple(runtime.tape.registers[index].shape) for index in placed] == [(2, 4)] * 3


SIZES = st.lists(st.tuples(st.integers(2, 9), st.integers(2, 7)), min_size=1, max_size=4)


@given(sizes=SIZES)
def test_growth_and_shrinking_in_any_order(sums: StaticRuntime, sizes: list[tuple[int, int]]) -> None:
    """The same bits; the buffer has the largest size seen of every storage, and everything lies inside of its
    storage's place."""
    for rows, columns in sizes:
        before = {name: slot.nbytes for name, slot in sums.slots.slots.items()}
        replans, first = len(sums.replans), sums.runs == 0
        x = inputs(rows, columns)
        assert same_bits(sums(x), sums.module(x))
        nbytes = 4 * rows * columns
        after = {name: slot.nbytes for name, slot in sums.slots.slots.items()}
        assert after == {name: max(before.get(name, 0), nbytes) for name in after}
        assert (len(sums.replans) > replans) is (after != before and not first)
        assert sums.plan is not None
        assert sums.memory_report().buffer_bytes == aligned(sums.plan.arena_bytes)
        ends = {
            offset: offset + after[name]
            for name, offset in zip(sums.plan.problem.names, sums.plan.offsets.tolist(), strict=True)
        }
        for record in sums.records:
            if record.out:
                made = sums.tape.registers[record.result]
                start = 4 * made.storage_offset()
                assert start + made.nbytes <= ends[start]
    assert set(sums.slots.slots) == {"mul", "exp", "contiguous", "mul_2", "sin"}


def test_only_so_many_shapes_are_kept(sums: StaticRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memplan_engine.runtime.static.static_runtime.SHAPES", 2)
    sums._shaped.clear()
    for rows in (2, 3, 4, 2):
        assert same_bits(sums(inputs(rows, 3)), sums.module(inputs(rows, 3)))
        assert len(sums._shaped) <= 2


def test_sizes_that_forward_would_not_take(sums: StaticRuntime) -> None:
    x = inputs(3, 5)
    for bad, message in (
        (inputs(65, 5), "sums: input 'x', dimension 0: found size 65, expected 2 to 64"),
        (inputs(3, 33), "sums: input 'x', dimension 1: found size 33, expected 2 to 32"),
        (x[0], "sums: input 'x': found 1 dimensions, expected 2, as captured"),
        (x.double(), "sums: input 'x': found dtype torch.float64"),
        (x.t(), "sums: input 'x': found strides (1, 5), expected strides (3, 1)"),
        (None, "sums: input 'x': found a NoneType, expected a tensor of torch.float32"),
    ):
        with pytest.raises(InputError) as caught:
            sums(bad)
        assert message in str(caught.value)
    pair = StaticRuntime(
        Calls(lambda _, x, y: x.exp() + torch.cat([y, y])),
        (torch.ones(8, 4), torch.ones(4, 4)),
        dynamic_shapes={
            "args": (
                {0: 2 * torch.export.Dim("half", min=2, max=9)},
                {0: torch.export.Dim("half", min=2, max=9)},
            )
        },
    )
    for half in (4, 2, 9):
        assert torch.equal(
            pair(torch.ones(2 * half, 4), torch.ones(half, 4)), torch.full((2 * half, 4), torch.e) + 1
        )
    for rows, half, message in (
        (9, 4, "dimension 0: found size 9, expected 2*"),
        (20, 10, "found size 10, expected 2 to 9"),
    ):
        with pytest.raises(InputError, match="dimension 0") as caught:
            pair(torch.ones(rows, 4), torch.ones(half, 4))
        assert message in str(caught.value)
    with pytest.raises(InputError, match="dynamic_shapes: found"):
        StaticRuntime(Calls(lambda linear, x: linear(x)), (torch.ones(4, 16),), dynamic_shapes="args.0:1=n")


@pytest.mark.parametrize("make", [Blocks, Pixels])
def test_a_settled_graph_is_the_graph_that_its_module_gives(make: Any) -> None:
    """Described in the same look that settles it, and not by another run."""
    x = torch.rand(2, 3, 8, 8) if make is Pixels else torch.rand(4, 16)
    program = load_program(make().eval(), (x,))
    flat = [*program.state, x]
    found = specialise(program.module, flat, len(program.state), "it")
    whole = [*program.state, *found.constants, x]
    expected = graph_of_module(found.module, whole, len(whole) - 1, "it")
    assert found.graph.ops == expected.ops
    assert (found.graph.storages, found.graph.tensors) == (expected.storages, expected.tensors)


def test_the_figures_of_a_benchmark_add_up() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.LayerNorm(16))
    x = torch.rand(4, 16)
    runtime = StaticRuntime(model, (x,), name="small")
    before = x.clone()
    found = runtime.benchmark((x,), warmup=1, runs=4)
    assert runtime.runs == 1 + 1 + 4
    assert torch.equal(x, before)
    assert [node.op for node in found.nodes] == ["linear", "relu", "linear_1", "tanh", "layer_norm"]
    calls = ["aten.linear", "aten.clamp_min", "aten.linear", "aten.tanh", "aten.layer_norm"]
    assert [node.call for node in found.nodes] == calls
    assert [node.out for node in found.nodes] == [True] * 4 + [False]
    kinds = {kind.kind: kind for kind in found.kinds}
    assert {kind: (one.count, one.out) for kind, one in kinds.items()} == {
        "aten.linear": (2, 2),
        "aten.relu": (1, 1),
        "aten.tanh": (1, 1),
        "aten.layer_norm": (1, 0),
    }
    assert sum(one.ms for one in found.kinds) == pytest.approx(found.nodes_ms)
    assert sum(one.share for one in found.kinds) == pytest.approx(1)
    assert kinds["aten.linear"].ms == pytest.approx(found.nodes[0].ms + found.nodes[2].ms)
    assert [one.ms for one in found.kinds] == sorted((one.ms for one in found.kinds), reverse=True)
    assert min(found.ms, found.eager_ms, found.interpreter_ms, found.setup_ms) > 0
    assert all(node.ms > 0 for node in found.nodes)
    assert found.against_eager == found.ms / found.eager_ms


def test_a_benchmark_as_a_table_by_hand() -> None:
    nodes = (
        NodeTime("a", "aten.mm", "aten.mm", True, 0.5),
        NodeTime("b", "aten.exp", "aten.exp", False, 0.5),
        NodeTime("c", "aten.mm", "aten.t", False, 0.25),
        NodeTime("c", "aten.mm", "aten.mm", True, 0.75),
    )
    found = Benchmark("small", 2, 5, 2.5, 5.0, 10.0, 0.25, nodes)
    assert (found.nodes_ms, found.against_eager, found.against_interpreter) == (2.0, 0.5, 0.25)
    assert [(k.kind, k.ms, k.share, k.count, k.out) for k in found.kinds] == [
        ("aten.mm", 1.5, 0.75, 2, 2),
        ("aten.exp", 0.5, 0.25, 1, 0),
    ]
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(found.table())
    console.print(found.table(nodes=True))
    text = console.export_text()
    assert "aten.mm  │ 1.5000 │ 75.0 % │   2 │   2" in text
    assert "c    │ 0.7500 │ 37.5 % │ aten.mm" in text
    folded = " ".join(text.split())
    assert "2.500 ms per iteration" in folded
    assert "(0.25 ×)" in folded
