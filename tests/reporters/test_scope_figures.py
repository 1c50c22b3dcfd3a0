"""Every figure names its scope: what `--json` and the tables of each verb say, and the curve that has the
scratch of ops in it, in every picture."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT

EXAMPLES = ROOT / "example_graphs"
SMALL = EXAMPLES / "small.py"
SOURCES = {
    "mobilenet_v2.json": "with_temporaries",
    "squeezenet.onnx": "graph",
    "teaching_best_fit.csv": "buffers",
    "cuda_snapshot.pickle": "eager",
    "seen.json": "eager",
}
VERBS = (
    ("plan", "--strategy", "greedy_by_size"),
    ("plan", "--capacity", "100"),
    ("compare", "--strategies", "greedy_by_size"),
    ("peak",),
    ("layout", "--strategy", "greedy_by_size"),
    ("replay",),
    ("replay", "--step", "1"),
    ("what-if", "--strategy", "greedy_by_size"),
    ("suggest", "--strategy", "greedy_by_size", "--seconds", "2"),
)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An observation of a small model."""
    from memplan_engine import observe, write_observation

    torch = pytest.importorskip("torch")
    path = tmp_path_factory.mktemp("seen") / "seen.json"
    write_observation(observe(torch.nn.Linear(4, 4), torch.ones(2, 4)), path)
    return path


def scopes(value: Any) -> set[str]:
    """The scopes that are named anywhere in `value`, whose optima all say of what they are."""
    if isinstance(value, list):
        return set().union(*map(scopes, value))
    if not isinstance(value, dict):
        return set()
    if "optimal" in value:
        assert value["optimal_for"], value
        assert value["scope"], value
    own = {value["scope"]} if "scope" in value else set()
    return own.union(*map(scopes, value.values()))


@pytest.mark.parametrize("source", SOURCES)
def test_every_verb_says_what_the_figures_of_a_source_count(memplan: Any, seen: Path, source: str) -> None:
    file = seen if source == seen.name else EXAMPLES / source
    for verb, *options in VERBS:
        told = json.loads(memplan(verb, str(file), *options, "--json")[1])
        assert scopes(told) == {SOURCES[source]}, (verb, options)
    assert memplan("plan", str(file), "--strategy", "greedy_by_size", "-o", "plan.json")[0] == 0
    for line in (("validate", "plan.json"), ("diff", "plan.json", "plan.json")):
        assert scopes(json.loads(memplan(*line, "--json")[1])) == {SOURCES[source]}, line


def test_optimal_never_stands_without_what_of(memplan: Any) -> None:
    for file in ("teaching_alignment.csv", "squeezenet.onnx", "mobilenet_v2.json"):
        for verb in ("plan", "compare", "what-if", "suggest"):
            told = memplan(verb, str(EXAMPLES / file))[1]
            assert "optimal" in told
            for before, after in pairwise(told.split("optimal")):
                named = before.endswith(("arena ", "not proved ")) or after.startswith(" for ")
                assert named, (file, verb, told)


@pytest.mark.parametrize("verb", ["replay", "values"])
@pytest.mark.parametrize("source", ["mobilenet_v2.json", "squeezenet.onnx"])
def test_tables_say_what_they_count(memplan: Any, verb: str, source: str) -> None:
    assert "counted: the graph's storages" in memplan(verb, str(EXAMPLES / source))[1]


def test_a_run_says_what_is_predicted_and_what_is_measured(memplan: Any, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from memplan_engine import load_run

    path = tmp_path / "run.json"
    code, out, _ = memplan("run", f"{SMALL}:perceptron", "--json", "-o", str(path))
    assert code == 0
    told = json.loads(out)
    assert (told["scope"], told["measured_scope"]) == ("with_temporaries", "eager")
    assert "the temporaries inside its ops" in told["counted"]
    assert "run of the captured graph allocated; a whole eager run needs" in told["measured_counted"]
    assert load_run(path).plan is not None
    assert told["measured_counted"] in " ".join(memplan("run", f"{SMALL}:perceptron")[1].split())
    assert load_run(path).scope == "with_temporaries"


def test_a_run_that_was_only_observed_predicts_nothing(seen: Path) -> None:
    from memplan_engine import load_run
    from memplan_engine.formats.memplan_json.run_format import run_summary
    from memplan_engine.reporters.run_tables import counted_sentence

    run = load_run(seen)
    assert (run.scope, run_summary(run)["scope"]) == ("eager", "eager")
    assert counted_sentence(run) == "what one real run allocated"


def test_estimates_and_observations_say_what_they_count(memplan: Any) -> None:
    pytest.importorskip("torch")
    line = ("estimate", f"{SMALL}:perceptron")
    found = json.loads(memplan(*line, "--json")[1])
    assert {entry["scope"] for entry in found} == {"graph"}
    assert all("inputs and parameters among them" in entry["counted"] for entry in found)
    assert all(entry["peak"] == max(entry["forward_peak"], entry["backward_peak"]) for entry in found)
    assert "temporaries inside ops are not counted" in " ".join(memplan(*line)[1].split())
    seen = json.loads(memplan("observe", f"{SMALL}:perceptron", "--json")[1])
    assert (seen["scope"], seen["counted"]) == ("eager", "what one real run allocated")
    assert len({peak["counted"] for peak in seen["peaks"]}) == 2


DYNAMIC = {"gpt2_dynamic.json": "with_temporaries", "transformer_dynamic.onnx": "graph"}


@pytest.mark.parametrize("source", DYNAMIC)
def test_sizes_at_given_values_have_the_temporaries_in_them(memplan: Any, source: str) -> None:
    """What `symbols`, `sweep` and `buckets` say at a value is what `plan` says there."""
    file = str(EXAMPLES / source)
    planned = {
        value: json.loads(
            memplan("plan", file, "--symbol", f"batch={value}", "--strategy", "greedy_by_size", "--json")[1]
        )
        for value in (1, 3)
    }
    known = DYNAMIC[source] == "with_temporaries"
    assert (planned[1]["workspace_bytes"] < planned[3]["workspace_bytes"]) == known
    told = json.loads(memplan("symbols", file, "--symbol", "batch=3", "--json")[1])
    assert told["scope"] == DYNAMIC[source]
    assert told["workspace_bytes"] == planned[3]["workspace_bytes"]
    assert told["total_bytes"] == told["memory_bytes"] + told["workspace_bytes"]
    assert told["held_peak_bytes"] == planned[3]["peak_bytes"]
    line: tuple[str, ...] = ("sweep", file, "batch", "--values", "1,3", "--strategy", "greedy_by_size")
    told = json.loads(memplan(*line, "--json")[1])
    assert told["scope"] == DYNAMIC[source]
    assert told["workspace"] == [planned[value]["workspace_bytes"] for value in (1, 3)]
    assert told["arena"] == [planned[value]["arena_bytes"] for value in (1, 3)]
    assert ("with workspace" in memplan(*line)[1]) == known
    line = ("buckets", file, "batch", "1,3", "--strategy", "greedy_by_size")
    told = json.loads(memplan(*line, "--json")[1])
    assert told["scope"] == DYNAMIC[source]
    assert [bucket["workspace_bytes"] for bucket in told["buckets"]] == [
        planned[value]["workspace_bytes"] for value in (1, 3)
    ]
    assert ("with workspace" in memplan(*line)[1]) == known


def test_what_is_known_at_the_hint_only_is_left_out_of_a_sweep(tmp_path: Path) -> None:
    from memplan_engine import load
    from memplan_engine.symbolic.one_symbol import sweep

    file = {
        "format": "memplan/graph", "version": 1, "scope": "with_temporaries",
        "inputs": ["x"], "outputs": ["y"], "symbols": [{"name": "n", "hint": 2, "high": 8}], "tensors": [
            {"name": "x", "nbytes": 8}, {"name": "y", "nbytes": 8, "shape": [2], "formulas": ["n"]},
        ],
        "storages": [{"name": "x", "nbytes": 8}, {"name": "y", "nbytes": 8, "formula": "4*n"}],
        "ops": [{"name": "f", "kind": "aten.f", "inputs": ["x"], "outputs": ["y"],
                 "workspace": {"shared": 100, "formula": None}}],
    }  # fmt: skip
    (tmp_path / "g.json").write_text(json.dumps(file))
    made = sweep(load(tmp_path / "g.json"), "n", [1, 2, 3])
    assert (str(made.scope), made.workspace) == ("graph", (0, 0, 0))
