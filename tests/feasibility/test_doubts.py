"""Graphs of which a run may hold more than is planned: nothing fits for certain."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from memplan_engine import (
    Scope,
    SolveLimits,
    capture,
    capture_step,
    capture_training,
    find_peak,
    fit_graph,
    load,
    load_program,
    observation_graph,
    observe_fake,
    observed_peak,
    to_problem,
    write_observation,
)
from memplan_engine.advice.advise import advise
from memplan_engine.analysis.claims import doubt, verdict
from memplan_engine.feasibility.decision import decide
from memplan_engine.formats.memplan_json.json_file import write_json
from memplan_engine.graph import Graph, Op, Symbol
from memplan_engine.planner import make_plan
from memplan_engine.verdict import Reason, Verdict
from tests.support.graphs import make_graph
from tests.support.waiting import HANG_SECONDS

SIZES = {"x": 64, "flag": 1, "y": 64, "z": 64}


def branches(kind: str = "If") -> Graph:
    """What runs inside `kind` is not in the graph."""
    ops = (Op("choose", kind, ("flag", "x"), ("y",)), Op("neg", "Neg", ("y",), ("z",)))
    return make_graph(ops, SIZES, inputs=("x", "flag"), outputs=("z",))


@pytest.mark.parametrize("kind", ["If", "Loop", "Scan", "SequenceMap"])
def test_what_runs_a_graph_of_its_own_is_in_doubt(kind: str) -> None:
    problem = to_problem(branches(kind))
    assert doubt(problem) is Reason.UNKNOWN_INSIDE
    assert doubt(to_problem(branches("Neg"))) is None
    # The buffers fit, and yet nobody knows whether the run does; what they alone need is proved.
    fitting, short = decide(problem, 128), decide(problem, 127)
    assert (fitting.placed, fitting.verdict, fitting.reason) == (
        Verdict.FITS, Verdict.UNDECIDED, Reason.UNKNOWN_INSIDE,
    )  # fmt: skip
    assert not fitting.whole
    assert (short.placed, short.verdict, short.reason) == (Verdict.DOES_NOT_FIT, Verdict.DOES_NOT_FIT, None)
    assert verdict(make_plan(problem)) == f"arena optimal outside {kind}"


def test_a_size_that_depends_on_the_data_is_in_doubt() -> None:
    graph = make_graph(
        (Op("pick", "NonZero", ("x",), ("y",)),), {"x": 8, "y": 0}, inputs=("x",), outputs=("y",)
    )
    known = doubt(to_problem(graph))
    unknown = with_formula(graph, "y", "8*u0", Symbol("u0", hint=None))
    assert (known, doubt(to_problem(unknown))) == (None, Reason.UNKNOWN_SIZES)


def with_formula(graph: Graph, storage: str, formula: str, symbol: Symbol) -> Graph:
    storages = tuple(
        replace(each, formula=formula) if each.name == storage else each for each in graph.storages
    )
    return replace(graph, storages=storages, symbols=(symbol,))


def test_stages_that_fit_are_undecided_and_a_proof_stays() -> None:
    state = SIZES["x"] + SIZES["flag"]
    fitted = fit_graph(branches(), state + 128)
    assert (fitted.verdict, fitted.reason) == (Verdict.UNDECIDED, Reason.UNKNOWN_INSIDE)
    refused = fit_graph(branches(), state - 1)
    assert (refused.verdict, refused.reason) == (Verdict.DOES_NOT_FIT, None)


def test_no_suggestion_fits_for_certain() -> None:
    """Written in place, the sum needs 64 B; what `If` runs may need more."""
    for kind, fits in (("If", None), ("MatMul", True)):
        found = advise(branches(kind), capacity=64, limits=SolveLimits(HANG_SECONDS)).suggestions
        assert (64, fits) in [(each.arena_bytes, each.fits) for each in found]
        assert {each.fits for each in found if each.arena_bytes > 64} <= {False}


def test_every_verb_says_at_least(memplan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_json(branches(), Path("g.json"))
    code, out, _ = memplan("plan", "g.json")
    assert code == 0
    assert "at least 128 B" in out
    assert "what is inside If is not counted" in out
    code, out, _ = memplan("plan", "g.json", "--capacity", "1KiB")
    assert (code, out.splitlines()[-1]) == (
        3, "undecided whether the arena fits in 1 KiB (1,024 B) (what is inside an op is not planned): "
        "what is planned takes 128 B",
    )  # fmt: skip
    code, out, _ = memplan("fit", "g.json", "--capacity", "1KiB", "--json")
    said = json.loads(out)
    assert (code, said["verdict"], said["reason"]) == (3, "undecided", str(Reason.UNKNOWN_INSIDE))
    code, out, _ = memplan("what-if", "g.json", "--capacity", "1KiB", "--json")
    said = json.loads(out)["fit"]
    assert (code, said["verdict"], said["reason"]) == (3, "undecided", str(Reason.UNKNOWN_INSIDE))
    code, out, _ = memplan("suggest", "g.json", "--capacity", "64")
    assert (code, "undecided" in out, "fits" in out) == (0, True, False)
    assert memplan("peak", "g.json")[1].startswith("Graph peak at least 128 B at ")


class Compiles(torch.nn.Module):
    """Has a part of itself compiled, as libraries do."""

    def __init__(self, compiles: bool) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(64, 256), torch.nn.Linear(256, 64)
        self.called = torch.compile(self.hidden) if compiles else self.hidden

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        return self.one(x).relu()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.two(self.called(x))
        return result


def test_the_python_of_a_compiled_run_decides_nothing(
    memplan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hidden tensors of 32 × 256 × 4 at once, of which a compiled run makes one."""
    monkeypatch.chdir(tmp_path)
    seen = observe_fake(Compiles(compiles=True), (torch.rand(32, 64),), name="net")
    write_observation(seen, "run.json")
    graph = load("run.json")
    problem = to_problem(graph, alignment=1)
    assert (problem.scope, doubt(problem)) == (Scope.UNCOMPILED, Reason.COMPILED)
    assert find_peak(problem).nbytes == observed_peak(seen)[0] == 2 * 32 * 256 * 4
    for capacity, placed in ((1 << 20, Verdict.FITS), (60_000, Verdict.DOES_NOT_FIT)):
        decision = decide(problem, capacity)
        assert (decision.placed, decision.verdict, decision.reason, decision.whole) == (
            placed, Verdict.UNDECIDED, Reason.COMPILED, False,
        )  # fmt: skip
        code, out, _ = memplan("plan", "run.json", "--capacity", capacity)
        assert (code, f"({Reason.COMPILED}): what is planned takes 64 KiB" in out) == (3, True)
        code, out, _ = memplan("allocator", "run.json", "--capacity", capacity, "--json")
        said = json.loads(out)
        assert (code, said["verdict"], said["reason"]) == (3, "undecided", str(Reason.COMPILED))
        code, out, _ = memplan("what-if", "run.json", "--capacity", capacity, "--json")
        said = json.loads(out)["fit"]
        assert (code, said["verdict"], said["reason"]) == (3, "undecided", str(Reason.COMPILED))
    code, out, _ = memplan("fit", "run.json", "--capacity", "1MiB", "--json")
    said = json.loads(out)
    assert (code, said["verdict"], said["reason"]) == (3, "undecided", str(Reason.COMPILED))
    # The weights are there in any run.
    code, out, _ = memplan("fit", "run.json", "--capacity", 100_000, "--json")
    assert (code, json.loads(out)["verdict"]) == (1, "does not fit")
    assert verdict(make_plan(problem)) == ""
    assert memplan("peak", "run.json")[1].startswith("Predicted eager peak of a compiled run 64 KiB at ")


def test_eager_code_of_the_same_form_is_in_no_doubt() -> None:
    seen = observe_fake(Compiles(compiles=False), (torch.rand(32, 64),))
    assert doubt(to_problem(observation_graph(seen))) is None


class Eager(torch.nn.Module):
    """A model of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(64, 256), torch.nn.Linear(256, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.two(self.one(x).relu())
        return result


class Part(Eager):
    """Its first layer is compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.one = torch.compile(self.one)  # type: ignore[assignment]


class Itself(Eager):
    """Compiles itself when it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.compile()


@torch.compile
def rectified(x: torch.Tensor) -> torch.Tensor:
    return x.relu()


class Function(Eager):
    """Calls a function that is compiled."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.two(rectified(self.one(x)))
        return result


@pytest.mark.parametrize("make", [Eager, Part, Itself, Function])
def test_a_captured_graph_of_a_compiled_model_decides_nothing(make: type[Eager]) -> None:
    """The graphs are those of the eager model, which is in no doubt."""
    model, x = make(), (torch.rand(32, 64),)
    graphs = [
        capture(model, x),
        capture_step(model, x, loss=torch.sum),
        capture_training(model, x, loss=torch.sum).joint,
        load_program(model, x).graph,
    ]
    assert [op.kind for op in graphs[0].ops] == ["aten.linear", "aten.relu", "aten.linear"]
    assert [doubt(to_problem(each)) for each in graphs] == [
        Reason.COMPILED if make is not Eager else None
    ] * 4


FACTORY = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = torch.compile(nn.Sequential(nn.Linear(64, 256), nn.ReLU()))
    def forward(self, x):
        return self.part(x).sum()

def make():
    return Net(), (torch.rand(32, 64),)
"""


def test_verbs_that_capture_a_compiled_model_are_undecided(memplan: Any, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(FACTORY)
    code, out, _ = memplan("fit", "net.py:make", "--capacity", "1GiB", "--json")
    said = json.loads(out)
    assert (code, said["verdict"], said["reason"]) == (3, "undecided", str(Reason.COMPILED))
    assert memplan("capture", "net.py:make", "-o", "g.json")[0] == 0
    code, out, _ = memplan("plan", "g.json", "--capacity", "1GiB")
    assert (code, f"({Reason.COMPILED})" in out, "optimal" in out) == (3, True, False)
    assert memplan("peak", "g.json")[1].startswith("Graph peak of a compiled run 64 KiB at ")
