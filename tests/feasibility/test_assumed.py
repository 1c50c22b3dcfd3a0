"""Figures that rest on assumptions, or on the first steps of a script, against real runs that hold more."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from memplan_engine import (
    Scope,
    capture,
    find_peak,
    fit_graph,
    load,
    load_observation,
    make_plan,
    observation_graph,
    observe_fake,
    observed_peak,
    observed_problem,
    to_problem,
    write_json,
    write_observation,
)
from memplan_engine.allocator.answers import three_answers
from memplan_engine.analysis.claims import counted, doubt, verdict
from memplan_engine.devices.inference_answers import InferenceAnswer
from memplan_engine.errors import InputError
from memplan_engine.feasibility.decision import decide
from memplan_engine.recordings.observation import Observation
from memplan_engine.recordings.observed_flow import Flow
from memplan_engine.reporters.allocator.answer_tables import live_basis
from memplan_engine.runtime.recorder.fake_run import observe_whole
from memplan_engine.runtime.recorder.script_run import MOST_BATCHES, MOST_STEPS, loading_little
from memplan_engine.runtime.recorder.unknown_count import UnknownCount, UnknownNumber
from memplan_engine.symbolic.symbolic_problem import resolve
from memplan_engine.verdict import Reason, Verdict
from tests.support.measured import measure_call

MIB = 1 << 20
ROUTED = "what `topk` chooses at "


class Experts(nn.Module):
    """Each of 64 rows goes to one of four experts."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(16, 4)
        self.experts = nn.ModuleList(nn.Linear(16, 256) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        place = self.gate(x).topk(1, -1)[1].squeeze(-1)
        parts = [expert(x[place == number]).sum() for number, expert in enumerate(self.experts)]
        return torch.stack(parts)


def routed() -> tuple[nn.Module, torch.Tensor]:
    """Every row goes to the first expert."""
    torch.manual_seed(0)
    model, x = Experts().eval(), torch.rand(64, 16)
    with torch.no_grad():
        model.gate.weight.zero_()
        model.gate.bias.copy_(torch.tensor([1.0, 0, 0, 0]))
    return model, x


@pytest.fixture(scope="module")
def seen() -> Observation:
    model, x = routed()
    return observe_fake(model, (x,), name="experts")


def flow_of(observation: Observation) -> Flow:
    assert observation.flow is not None
    return observation.flow


def test_a_run_that_holds_more_than_was_assumed_was_not_said_to_fit(seen: Observation) -> None:
    model, x = routed()
    with torch.no_grad():
        real = measure_call(lambda: model(x), (list(model.parameters()), x))
    predicted, _ = observed_peak(seen)
    # The first expert takes 64 rows in place of 16.
    assert real >= predicted + 48 * 256 * 4
    problem = to_problem(observation_graph(seen), alignment=1)
    assert find_peak(problem).nbytes == predicted
    for capacity in (predicted, predicted - 1, real):
        found = decide(problem, capacity)
        assert (found.verdict, found.reason, found.whole) == (Verdict.UNDECIDED, Reason.ASSUMED, False)
    assert verdict(make_plan(problem)).endswith(" with assumed values")


def test_state_that_is_too_large_is_so_whatever_is_assumed(seen: Observation) -> None:
    graph = observation_graph(seen)
    state = sum(each.numel() * 4 for each in (*routed()[0].parameters(), routed()[1]))
    assert fit_graph(graph, state + MIB, only=()).reason is Reason.ASSUMED
    assert fit_graph(graph, state - 1, only=()).verdict is Verdict.DOES_NOT_FIT


def test_whatever_is_made_of_a_recording_keeps_its_doubts(seen: Observation, tmp_path: Path) -> None:
    (note,) = flow_of(seen).doubts
    assert note.startswith(ROUTED)
    write_observation(seen, tmp_path / "run.json")
    graph = load(tmp_path / "run.json")
    write_json(graph, tmp_path / "graph.json")
    write_json(make_plan(observed_problem(seen)), tmp_path / "plan.json")
    recorded = observed_problem(seen)
    assert (recorded.scope, doubt(recorded)) == (Scope.PREDICTED, Reason.ASSUMED)
    for problem in (to_problem(load(tmp_path / "graph.json")), load(tmp_path / "plan.json").problem):
        assert (problem.basis, doubt(problem)) == (recorded.basis, Reason.ASSUMED)
        assert f"assumed: {note} (a run may hold more or less)" in counted(problem)


def test_a_file_that_does_not_say_which_assumptions_may_fail_is_in_doubt(
    seen: Observation, tmp_path: Path
) -> None:
    sure = replace(seen, flow=replace(flow_of(seen), doubts=()))
    write_observation(sure, path := tmp_path / "run.json")
    assert flow_of(load_observation(path)).doubts == ()
    file = json.loads(path.read_text())
    del file["flow"]["doubts"]
    path.write_text(json.dumps(file))
    assert flow_of(load_observation(path)).doubts == flow_of(seen).assumed


def test_every_verb_is_undecided_and_says_why(memplan: Any, seen: Observation, tmp_path: Path) -> None:
    write_observation(seen, path := tmp_path / "run.json")
    (note,) = flow_of(seen).doubts
    for verb in ("plan", "fit", "what-if", "allocator"):
        for capacity in ("64MiB", "200KB") if verb != "fit" else ("64MiB",):
            code, out, _ = memplan(verb, path, "--capacity", capacity, "--json")
            said = json.loads(out)
            found, figures = said.get("fit") or said, said.get("plan") or said
            if verb != "plan":
                assert (found["verdict"], found["reason"]) == ("undecided", str(Reason.ASSUMED))
            assert (code, figures["doubts"]) == (3, [note]), (verb, capacity)
        assert note in " ".join(memplan(verb, path, "--capacity", "64MiB")[1].split()), verb
    for verb in ("peak", "layout"):
        assert json.loads(memplan(verb, path, "--json")[1])["doubts"] == [note]
        assert note in " ".join(memplan(verb, path)[1].split()), verb
    assert "exact" not in memplan("allocator", path, "--no-what-if")[1]


def test_live_bytes_are_exact_only_without_a_doubt(seen: Observation) -> None:
    flow = flow_of(seen)
    sure, compiled = replace(flow, doubts=()), replace(flow, compiled=True)
    words = [live_basis(three_answers(replace(seen, flow=each))) for each in (flow, sure, compiled)]
    assert words[1] == "exact"
    assert not any("exact" in each for each in (words[0], words[2]))
    answers = three_answers(seen, capacity=MIB)
    assert (answers.chosen.verdict, answers.chosen.reason) == (Verdict.UNDECIDED, Reason.ASSUMED)
    assert InferenceAnswer(None, None, answers, 1.0, 16).reason is Reason.ASSUMED  # type: ignore[arg-type]


def trained() -> None:
    """Two steps whose losses are logged, the second compared."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(2):
        loss = model(torch.rand(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item() if step else loss.item() + 0
        history = [value, value / 2 + 1]
        assert f"{sum(history):.2f} {round(value, 3)}" == "2.50 1.0"
        assert json.loads(json.dumps({"loss": value})) == {"loss": 1}
        assert pickle.loads(pickle.dumps(history)) == copy.deepcopy(history) == [1, 1.5]
        if step and 2 * value < 3:
            torch.zeros(4)


def test_a_number_is_doubted_once_a_branch_depends_on_it() -> None:
    flow = flow_of(observe_fake(trained))
    assert sum(each.startswith("the value of a tensor of shape ()") for each in flow.assumed) == 1
    (doubted,) = flow.doubts
    assert doubted.endswith(f"test_assumed.py:{trained.__code__.co_firstlineno + 14}, as 1")


def test_quotients_of_counts_are_followed_and_numbers_of_models_refused() -> None:
    heard: list[str] = []
    share = UnknownCount(1, "here", heard.append) / 2
    assert type(share) is UnknownNumber
    assert not heard
    assert share < 1
    assert heard == ["here"]
    assert type(copy.deepcopy(share)) is float
    with pytest.raises(InputError, match="a branch or a size depends on"):
        assert UnknownNumber(1.0, "there") < 2


def stepped(steps: int) -> Callable[[], Any]:
    """`steps` steps on 8 rows, then the results of all 33 batches of a loader in a list."""

    def run() -> Any:
        model = nn.Linear(4, 64)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.rand(8, 4)).sum().backward()
            optimizer.step()
        with torch.no_grad():
            return [model(x) for (x,) in DataLoader(TensorDataset(torch.rand(33, 1024, 4)))]

    return run


@pytest.mark.parametrize("steps", [2, MOST_STEPS])
def test_what_of_a_script_was_not_run_is_said_with_every_figure(
    steps: int, memplan: Any, tmp_path: Path
) -> None:
    """By hand: each result has 1,024 × 64 × 4 bytes, and a loader gives four batches."""
    with loading_little():
        observation = observe_whole(stepped(steps), "train.py", "", most_steps=MOST_STEPS)
    write_observation(observation, path := tmp_path / "run.json")
    flow = flow_of(load_observation(path))
    is_stopped = steps == MOST_STEPS
    assert (flow.stopped, flow.batches) == (is_stopped, 0 if is_stopped else MOST_BATCHES)
    assert (observed_peak(observation)[0] >= MOST_BATCHES * 1024 * 64 * 4) != is_stopped
    said = {
        True: "of the first 3 training steps: what the script does after that is not counted",
        False: "of a data loader with more than 4 batches the first 4",
    }
    # It is no reason for a doubt.
    assert doubt(to_problem(load(path))) is None
    options = {"plan": ("--strategy", "greedy_by_size"), "fit": ("--capacity", "1GiB")}
    # The others are not packed at their bound, and a fit searches.
    for verb in ("plan", "allocator", "peak", *["fit"] * is_stopped):
        words = " ".join(memplan(verb, path, *options.get(verb, ()))[1].split())
        assert (said[is_stopped] in words, said[not is_stopped] in words) == (True, False), verb


def test_a_loader_that_gave_all_its_batches_says_nothing() -> None:
    def run() -> None:
        for _ in DataLoader(TensorDataset(torch.rand(8 * MOST_BATCHES, 4)), batch_size=8):
            torch.zeros(1)

    with loading_little():
        assert flow_of(observe_whole(run, "eval.py", "", most_steps=MOST_STEPS)).batches == 0


def test_every_verb_says_at_which_sizes_its_figures_are(memplan: Any, tmp_path: Path) -> None:
    class Twice(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x * 2).relu()

    graph = capture(Twice(), (torch.rand(3, 5),), dynamic_shapes="x:0=batch,x:1=seq")
    write_json(graph, path := tmp_path / "g.json")
    for values, words in (
        ((), "at batch = 3, seq = 5 unless set (--symbol batch=… --symbol seq=…)"),
        (("batch=7",), "at batch = 7; at seq = 5 unless set (--symbol seq=…)"),
        (("batch=7", "seq=2"), "at batch = 7, seq = 2"),
    ):
        options = [part for value in values for part in ("--symbol", value)]
        for line in (
            ("plan",), ("peak",), ("layout",), ("buffers",), ("what-if", "--capacity", "1KiB"), ("reuse",),
            ("fit", "--capacity", "1KiB"), ("suggest",), ("compare", "--strategies", "naive"), ("values",),
        ):  # fmt: skip
            if line[0] in ("values",) and values:
                continue
            out = " ".join(memplan(line[0], path, *line[1:], *options)[1].split())
            assert f"; {words}" in out, (line, values, out)
        assert words in json.loads(memplan("peak", path, *options, "--json")[1])["counted"]
    # Capturing at given sizes is giving them.
    write_json(resolve(graph, {"batch": 7, "seq": 2}), path)
    assert counted(to_problem(load(path))).endswith("; at batch = 7, seq = 2")
