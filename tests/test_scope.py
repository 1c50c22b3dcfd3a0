"""What the figures of a plan count: temporaries inside ops, against real runs; what is left out, and how all
of it is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from memplan_engine import (
    Op,
    Problem,
    capture,
    capture_step,
    capture_training,
    find_peak,
    load,
    load_program,
    make_layout,
    make_plan,
    make_problem,
    observe,
    observed_problem,
    to_problem,
    write_json,
)
from memplan_engine.analysis.claims import beside, counted, left_out, optimal_for, verdict
from memplan_engine.control_flow import contract
from memplan_engine.profile import make_profile
from memplan_engine.scope import Scope
from memplan_engine.symbolic.symbolic_problem import resolve
from memplan_engine.units import exact, format_bytes
from tests import ROOT
from tests.support.graphs import make_graph
from tests.support.measured import PeakMode, measure_call, measure_graph_module


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.cells = kind(8, 16, batch_first=True)  # type: ignore[call-arg]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cells(x)[0]


def recurrent(kind: type[nn.RNNBase]) -> tuple[nn.Module, tuple[Any, ...]]:
    torch.manual_seed(0)
    return Recurrent(kind).eval(), (torch.rand(3, 5, 8),)


def bert() -> tuple[nn.Module, tuple[Any, ...]]:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.BertConfig(intermediate_size=32, max_position_embeddings=16, **sizes)
    return transformers.BertModel(config).eval(), (torch.arange(8).reshape(1, 8),)


BUILDS = {"gru": lambda: recurrent(nn.GRU), "lstm": lambda: recurrent(nn.LSTM), "bert": bert}


@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_the_peak_of_a_captured_graph_is_that_of_a_real_run(build: Callable[[], Any]) -> None:
    model, args = build()
    program = load_program(model, args)
    inputs = program.inputs(args)
    with PeakMode(inputs) as mode:
        measure_graph_module(program.module, inputs)
    graph = capture(model, args)
    problem = to_problem(graph, alignment=1)
    peak = find_peak(problem)
    assert (graph.scope, problem.scope, peak.scope) == (Scope.WITH_TEMPORARIES,) * 3
    assert peak.nbytes == mode.peak
    assert peak.nbytes == sum(part.nbytes for part in peak.contributors)
    profile = make_profile(problem, make_plan(problem).offsets)
    assert (profile.peak_step, profile.peak_bytes) == (peak.step, peak.nbytes)


def test_what_a_gru_holds_inside_is_most_of_its_memory() -> None:
    """The figures of one op by hand: the arena is what the graph returns, all else is temporaries."""
    model, args = recurrent(nn.GRU)
    problem = to_problem(capture(model, args), alignment=1)
    plan, peak = make_plan(problem), find_peak(problem)
    held = max(op.workspace.shared for op in problem.origin.graph.ops)
    assert plan.workspace_bytes == held > 2 * plan.arena_bytes
    assert plan.total_bytes == plan.arena_bytes + held
    (inside,) = (part for part in peak.contributors if part.buffer is None)
    assert (inside.name, inside.nbytes, inside.provenance.kind) == ("gru.workspace", held, "temporaries")
    assert (inside.provenance.producer, peak.workspace_bytes) == ("gru", held)
    # Beside the arena, in which nothing has moved.
    assert make_layout(plan).nbytes >= plan.total_bytes
    assert plan.arena_bytes == int((plan.offsets + problem.size).max())
    assert verdict(plan) == "arena optimal"
    assert beside(plan).startswith("temporaries inside ops need up to ")


class Mask(nn.Module):
    """The values above 0, each in a row of eight that is normed."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x[x > 0][:, None].expand(-1, 8).contiguous()
        return nn.functional.layer_norm(rows, (8,))


class Routed(nn.Module):
    """Each row goes to one of two experts."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(8, 2), nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out, best = torch.zeros_like(x), self.gate(x).argmax(-1)
        for number, expert in enumerate(self.experts):
            rows = (best == number).nonzero().squeeze(-1)
            out = out.index_add(0, rows, expert(x.index_select(0, rows)))
        return out


def mask() -> tuple[nn.Module, torch.Tensor, dict[str, int]]:
    x = torch.ones(16)
    x[:5] = -1
    return Mask(), x, {"u0": 11}


def routed() -> tuple[nn.Module, torch.Tensor, dict[str, int]]:
    torch.manual_seed(1)
    model, x = Routed().eval(), torch.rand(6, 8)
    first = int((model.gate(x).argmax(-1) == 0).sum())
    return model, x, {"u0": first, "u1": 6 - first}


@pytest.mark.parametrize("build", [mask, routed])
def test_sizes_that_depend_on_the_data_count_once_they_have_values(build: Callable[[], Any]) -> None:
    model, x, values = build()
    graph = capture(model, (x,))
    with torch.no_grad():
        measured = measure_call(lambda: model(x), (list(model.parameters()), x))
    without = make_plan(to_problem(graph, alignment=1))
    assert find_peak(without.problem).nbytes < measured
    assert verdict(without) == "arena optimal for known sizes"
    assert optimal_for(without.problem) == "the graph's storages of known size"
    assert all(f"--symbol {name}=…" in left_out(without.problem) for name in values)
    assert "memplan observe" in left_out(without.problem)
    problem = to_problem(resolve(graph, values), alignment=1)
    planned = find_peak(problem).nbytes
    assert left_out(problem) == ""
    assert problem.scope is Scope.WITH_TEMPORARIES
    # The eager run keeps what Python's variables hold; the graph lets it go.
    assert 0.75 * measured <= planned <= measured


def test_temporaries_are_formulas_where_sizes_are() -> None:
    """What is worked out at other sizes is what is captured at them."""
    model, _ = recurrent(nn.GRU)
    graph = capture(model, (torch.rand(3, 5, 8),), dynamic_shapes="x:0=batch")
    other = capture(model, (torch.rand(7, 5, 8),))
    resolved = resolve(graph, {"batch": 7})
    assert resolved.scope is other.scope is Scope.WITH_TEMPORARIES
    shared = [{op.name: op.workspace.shared for op in each.ops} for each in (resolved, other)]
    assert shared[0] == shared[1]
    assert shared[0]["gru"] > 0
    assert resolve(resolved, {"batch": 3}) == graph


def test_what_is_known_at_the_hints_only_is_not_known_elsewhere(tmp_path: Path) -> None:
    file = {
        "format": "memplan/graph", "version": 1, "scope": "with_temporaries",
        "inputs": ["x"], "outputs": ["y"], "symbols": [{"name": "n", "hint": 2}], "tensors": [
            {"name": "x", "nbytes": 8}, {"name": "y", "nbytes": 8, "shape": [2], "formulas": ["n"]},
        ],
        "storages": [{"name": "x", "nbytes": 8}, {"name": "y", "nbytes": 8, "formula": "4*n"}],
        "ops": [{"name": "f", "kind": "aten.f", "inputs": ["x"], "outputs": ["y"],
                 "workspace": {"shared": 100, "formula": None}}],
    }  # fmt: skip
    (tmp_path / "g.json").write_text(json.dumps(file))
    graph = load(tmp_path / "g.json")
    at_hints, elsewhere = (to_problem(resolve(graph, {"n": n}), alignment=1) for n in (2, 3))
    assert (find_peak(at_hints).nbytes, at_hints.scope) == (108, Scope.WITH_TEMPORARIES)
    assert (find_peak(elsewhere).nbytes, elsewhere.scope) == (12, Scope.GRAPH)
    assert "temporaries inside ops are unknown" in counted(elsewhere)


def test_the_scope_of_each_source(tmp_path: Path) -> None:
    model, args = recurrent(nn.GRU)
    seen = observed_problem(observe(model, *args))
    listed = make_problem([0], [1], [4])
    step = capture_step(nn.Linear(2, 2), (torch.ones(1, 2),), loss=torch.sum)
    old = load(ROOT / "example_graphs" / "teaching_view.json")
    scopes = [problem.scope for problem in (seen, listed, to_problem(step), to_problem(old))]
    assert scopes == [Scope.EAGER, Scope.BUFFERS, Scope.WITH_TEMPORARIES, Scope.GRAPH]
    assert load(ROOT / "example_graphs" / "squeezenet.onnx").scope is Scope.GRAPH
    for number, problem in enumerate((seen, listed, to_problem(step))):
        path = tmp_path / f"{number}.json"
        write_json(make_plan(problem, "greedy_by_size"), path)
        assert load(path).problem.scope is problem.scope


def test_a_file_from_before_there_were_scopes_still_reads(tmp_path: Path) -> None:
    problem: Problem = to_problem(load(ROOT / "example_graphs" / "gpt2.json"))
    write_json(make_plan(problem, "greedy_by_size"), tmp_path / "plan.json")
    file = json.loads((tmp_path / "plan.json").read_text())
    del file["problem"]["origin"]["graph"]["scope"]
    (tmp_path / "old.json").write_text(json.dumps(file))
    assert load(tmp_path / "old.json").problem.scope is Scope.GRAPH


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.exp().neg(), lambda x: x.neg(), (x,))


def test_ops_whose_insides_nobody_saw_are_named() -> None:
    cells = make_graph([Op("l", "LSTM", ("x",), ("y",))], {"x": 8, "y": 8}, inputs=("x",), outputs=("y",))
    assert counted(to_problem(cells)).endswith(
        "; temporaries inside ops are unknown, those of LSTM may be several times as large"
    )
    graph = capture(Branches(), (torch.ones(4),))
    assert "inside" not in counted(to_problem(graph)).rpartition(";")[2]
    alone = contract(graph, {})
    assert counted(to_problem(alone)).endswith("; the insides of cond are not planned")


FACTORY = """
import torch
from torch import nn

class Mask(nn.Module):
    def forward(self, x):
        return x[x > 0].exp()

class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.GRU(8, 16, batch_first=True)
    def forward(self, x):
        return self.cells(x)[0]

def mask():
    return Mask(), (torch.ones(16),)

def cells():
    return Cells().eval(), (torch.ones(3, 5, 8),)
"""


def test_capture_says_at_once_what_is_left_out_and_takes_its_value(memplan: Any, tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(FACTORY)
    code, _, err = memplan("capture", "models.py:mask", "-o", "mask.json")
    assert code == 0
    assert err.splitlines() == [
        "mask.json: 3 ops, 1 buffer",
        "mask.json: not planned: 2 storages whose size depends on the data: u0 has no value; set one "
        "(--symbol u0=…), or plan a recorded run (memplan observe)",
        "next: memplan peak mask.json",
    ]
    assert memplan("capture", "models.py:mask", "-o", "known.json", "--symbol", "u0=11")[2] == (
        "known.json: 3 ops, 3 buffers\nnext: memplan peak known.json\n"
    )
    given, captured = (
        json.loads(memplan("plan", *line, "--json")[1])
        for line in (("mask.json", "--symbol", "u0=11"), ("known.json",))
    )
    assert given == captured | {"seconds": given["seconds"]}
    assert given["unknown_sizes"] == []
    wrong = memplan("capture", "models.py:mask", "-o", "none.json", "--symbol", "batch=2")
    assert wrong[0] == 2
    assert wrong[2].count("\n") == 1
    assert "symbol 'batch': found an unknown symbol, expected one of u0" in wrong[2]
    assert not Path("none.json").exists()


def test_every_verb_names_what_it_counts(memplan: Any, tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(FACTORY)
    assert memplan("capture", "models.py:cells", "-o", "cells.json")[0] == 0
    found = json.loads(memplan("plan", "cells.json", "--json")[1])
    most = found["workspace_bytes"]
    assert found["total_bytes"] == found["arena_bytes"] + most >= found["peak_bytes"] > most
    assert (found["optimal"], found["optimal_for"]) == (True, "the graph's storages")
    for line in (
        ("peak", "cells.json"), ("layout", "cells.json"), ("reuse", "cells.json"),
        ("what-if", "cells.json", "--drop", "zeros"), ("diff", "cells.json", "cells.json"),
    ):  # fmt: skip
        told, written = memplan(*line)[1], json.loads(memplan(*line, "--json")[1])
        assert "the temporaries inside its ops" in told, line
        assert "with_temporaries" in json.dumps(written), line
    compared = json.loads(memplan("compare", "cells.json", "--strategies", "naive", "--json")[1])
    assert compared[0]["scope"] == "with_temporaries"
    assert "with workspace" in memplan("compare", "cells.json")[1]
    arena = str(found["arena_bytes"])
    for line in (("plan", "cells.json", "--capacity", arena), ("what-if", "cells.json", "--capacity", arena)):
        code, out, _ = memplan(*line)
        assert code == 0
        told = " ".join(out.split())
        assert f"the arena fits in {exact(found['arena_bytes'])}, 0 B to spare; outside it: temp" in told, (
            line
        )
        assert f"reserved side by side {exact(found['total_bytes'])}, more than that)" in told, line
        assert told.endswith(f"; weights, {format_bytes(found['constants_bytes'])}"), line
    enough = memplan("plan", "cells.json", "--capacity", str(found["total_bytes"]))[1]
    assert f"reserved side by side {exact(found['total_bytes'])})" in " ".join(enough.split())


def test_saved_programs_and_training_graphs_know_their_temporaries(tmp_path: Path) -> None:
    model, args = recurrent(nn.GRU)
    torch.export.save(torch.export.export(model, args), tmp_path / "cells.pt2")
    saved, captured = load(tmp_path / "cells.pt2"), capture(model, args)
    assert saved.scope is Scope.WITH_TEMPORARIES
    assert [op.workspace for op in saved.ops] == [op.workspace for op in captured.ops]
    halves = capture_training(
        nn.Sequential(nn.Linear(8, 4), nn.LayerNorm(4)), (torch.ones(2, 8),), loss=torch.sum
    )
    scopes = {graph.scope for graph in (halves.forward, halves.backward, halves.joint)}
    assert scopes == {Scope.WITH_TEMPORARIES}
