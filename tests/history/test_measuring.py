"""What is recorded of a graph: the same on each machine, and what the plan says."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memplan_engine import cost_of, load, load_recording, make_plan
from memplan_engine.errors import InputError
from memplan_engine.formats.memplan_json.json_file import dumps
from memplan_engine.graph import Graph, Source
from memplan_engine.history.alarms import watch_series
from memplan_engine.history.git.git_commit import commit_run
from memplan_engine.history.graph_blobs import digest_of
from memplan_engine.history.history_values import HistoryRun
from memplan_engine.history.measuring import measure_graph, structure_of
from memplan_engine.history.opening import open_history
from memplan_engine.preparation import Preparation
from memplan_engine.recordings.observation import CHANGE, Level, Observation, ObservedOps
from tests import ROOT
from tests.support.repository import git
from tests.support.traced import Node, traced, transformer


def graph_of(name: str) -> Graph:
    graph = load(ROOT / "example_graphs" / name)
    assert isinstance(graph, Graph)
    return graph


def test_the_figures_are_those_of_the_plan() -> None:
    graph = graph_of("resnet50.json")
    measured = measure_graph(graph, project="proj", variant="batch 1")
    plan = make_plan(graph)
    figures = measured.figures
    assert (figures.arena, figures.bound, figures.bound_kind) == (
        plan.arena_bytes,
        plan.bound.nbytes,
        "load",
    )
    assert figures.demand + figures.loss == figures.arena
    assert figures.weights == sum(each.nbytes for each in graph.storages if each.role == "constant") > 10**7
    assert figures.peak_op in {op.name for op in graph.ops}
    assert (figures.eager, figures.reserved) == (None, None)
    assert measured.graph_json == dumps(graph)
    assert measured.fingerprints.graph == digest_of(dumps(graph))
    assert measured.fingerprints.problem == plan.problem.fingerprint
    series = measured.series
    assert (series.project, series.model, series.variant) == ("proj", graph.name, "batch 1")
    assert series.options == (("nodes", "20000"), ("seed", "0"))


def test_a_run_without_a_plan_gives_its_peak_and_what_was_reserved() -> None:
    graph = graph_of("teaching_order.json")
    (recording,) = load_recording(ROOT / "example_graphs" / "cuda_snapshot.pickle").recordings
    cost = cost_of(recording, "naive")
    figures = measure_graph(graph, eager=recording).figures
    assert (figures.eager, figures.reserved) == (cost.peak.live, cost.height.reserved)
    assert cost.peak.live < cost.height.reserved
    times = np.arange(4)
    ops = ObservedOps(("a", "b"), ("k", "k"), times[:2], times[1:3], np.full(2, -1))
    rows = np.array(
        [(0, 100, 512, 0, -1, -1, True), (1, 60, 1024, 1, -1, -1, True), (2, -100, 512, 1, -1, -1, False)],
        dtype=CHANGE,
    )
    observation = Observation("run", ops, {Level.ALLOCATOR: rows})
    figures = measure_graph(graph, eager=observation).figures
    assert (figures.eager, figures.reserved) == (160, None)


def test_what_is_asked_for_is_part_of_the_series(tmp_path: Path) -> None:
    graph = graph_of("teaching_order.json")
    plain = measure_graph(graph).series
    how = Preparation(alignment=256, in_place=True)
    other = measure_graph(graph, how=how, strategy="greedy_by_size", nodes=7, seed=3).series
    assert other.options == (("alignment", "256"), ("in_place", "True"), ("nodes", "7"), ("seed", "3"))
    assert other.strategy == "greedy_by_size"
    assert plain.digest != other.digest
    with pytest.raises(InputError, match="0 or more"):
        measure_graph(graph, nodes=-1)


SEARCHED = "gpt2_training_step.json"
RECORD = """
import os
import subprocess
import sys
from memplan_engine import load
from memplan_engine.history.measuring import measure_graph
found = measure_graph(load(sys.argv[1]), nodes=2_000)
print(found.fingerprints, found.figures, found.nodes, found.series.digest)
"""


def test_a_process_of_its_own_on_a_busy_core_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph whose plan is searched until the nodes are spent, by a process with other seeds of hashes."""
    path = ROOT / "example_graphs" / SEARCHED
    here = measure_graph(graph_of(SEARCHED), nodes=2_000)
    assert here.cut_short
    real, ticks = time.perf_counter, iter(range(10**9))
    monkeypatch.setattr(time, "perf_counter", lambda: real() * 20 + next(ticks) * 0.1)
    assert measure_graph(graph_of(SEARCHED), nodes=2_000) == here
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", RECORD, str(path)], cwd=ROOT, check=True, capture_output=True, text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )  # fmt: skip
        expected = f"{here.fingerprints} {here.figures} {here.nodes} {here.series.digest}\n"
        assert done.stdout == expected


def test_lines_that_move_are_another_graph_of_the_same_structure() -> None:
    graph = graph_of("teaching_order.json")
    moved = replace(
        graph, ops=tuple(replace(op, source=Source("model.py", place)) for place, op in enumerate(graph.ops))
    )
    assert digest_of(dumps(moved)) != digest_of(dumps(graph))
    assert structure_of(moved) == structure_of(graph)
    renamed = replace(graph, ops=(replace(graph.ops[0], kind="other"), *graph.ops[1:]))
    assert structure_of(renamed) != structure_of(graph)


def test_a_run_is_known_by_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_HEAD_REF", "GITHUB_REF_NAME"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "model zoo"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "model.py").write_text("1\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    first = commit_run(folder)
    assert first.commit == git(folder, "rev-parse", "HEAD")
    assert (first.parent, first.committed_at, first.branch) == ("", 1_700_000_000, "trunk")
    assert (first.project, first.dirty) == ("model zoo", False)
    assert dict(first.versions)["python"] == sys.version.split()[0]
    assert abs(first.recorded_at - time.time()) < 100

    (folder / "model.py").write_text("2\n")
    (folder / "notes.txt").write_text("no part of it\n")
    assert commit_run(folder / ".").dirty
    git(folder, "commit", "-qam", "second", when=1_700_000_500)
    git(folder, "remote", "add", "origin", "git@example.org:team/zoo.git")
    second = commit_run(folder)
    assert (second.parent, second.dirty, second.project) == (first.commit, False, "zoo")
    assert second.committed_at == 1_700_000_500
    assert commit_run(folder, project="mine").project == "mine"
    earlier = commit_run(folder, commit="HEAD~1")
    assert (earlier.commit, earlier.dirty, earlier.branch) == (first.commit, False, "")
    git(folder, "checkout", "-q", "--detach")
    monkeypatch.setenv("GITHUB_REF_NAME", "main")
    assert commit_run(folder).branch == "main"
    with pytest.raises(InputError, match="a repository with that commit"):
        commit_run(folder, commit="nosuch")


def test_a_folder_without_a_repository_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(InputError, match="not a git repository"):
        commit_run(tmp_path)


@pytest.mark.slow
def test_a_thousand_recordings_of_the_same_graphs_raise_no_alarm(tmp_path: Path) -> None:
    """Of graphs of every kind, in whatever order, some with other lines of source, searches included."""
    draw, names = random.Random(22), [f"net {number}" for number in range(40)]
    graphs = [traced(nodes, name=name)[0] for nodes, name in zip(drawn_nodes(draw), names, strict=True)]
    with open_history(tmp_path / "history.db") as history:
        for commit in range(1000 // len(graphs)):
            parent = f"{commit - 1:04x}" if commit else ""
            run = HistoryRun("proj", f"{commit:04x}", parent, branch="main")
            points = []
            for graph in draw.sample(graphs, len(graphs)):
                moved = tuple(
                    replace(op, source=op.source and replace(op.source, line=op.source.line + commit))
                    for op in graph.ops
                )
                points.append(measure_graph(replace(graph, ops=moved), project="proj", nodes=500))
            history.record(run, points)
        found = watch_series(history, history.series())
    assert sum(len(each.points) for each in found) == 1000
    assert [each.latest.series.label for each in found if each.changes or each.alarming] == []
    assert len({each.latest.figures.nbytes for each in found}) > 30
    assert any(point.nodes for each in found for point in each.points)


def drawn_nodes(draw: random.Random) -> list[list[Node]]:
    """40 graphs: transformers, and ops that read what there is at random."""
    several = [transformer(layers, 64 * layers) for layers in range(1, 5)]
    while len(several) < 40:
        nodes: list[Node] = []
        for number in range(draw.randrange(5, 60)):
            reads = draw.sample([node.id for node in nodes], min(len(nodes), draw.randrange(1, 4)))
            nodes.append(
                Node(str(number), draw.choice(["mm", "add", "cat"]), draw.randrange(1, 5000), tuple(reads))
            )
        several.append(nodes)
    return several
