"""What the README and the docs say is tried, to the letter."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from threading import Thread
from types import ModuleType

import pytest
from memplan_dashboard.session import state
from streamlit.testing.v1 import AppTest

from memplan_engine import (
    InputError,
    Op,
    Plan,
    Problem,
    files,
    make_plan,
    make_problem,
    recorded_plan,
    sequential,
    to_problem,
)
from memplan_engine.advice.advise import advise
from memplan_engine.files import ImportOptions
from memplan_engine.plotting import strip_lines
from memplan_engine.preparation import Preparation
from memplan_engine.profile import make_profile
from memplan_engine.reporters.html.report_html import to_html
from memplan_engine.strategies.base import Progress, SolveLimits
from tests import ROOT
from tests.support.apptest import check
from tests.support.graphs import make_graph
from tests.support.scratch_graphs import scratch_plan
from tests.support.waiting import HANG_SECONDS

README = (ROOT / "README.md").read_text(encoding="utf-8")
EXTENDING = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def written_as_told(folder: Path, name: str, block: int) -> ModuleType:
    """The file that the docs tell one to write, as a module."""
    path = folder / f"{name}.py"
    path.write_text(blocks(EXTENDING, "python")[block], encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def without_seconds(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if not line.startswith("planned in")]


def test_the_command_line_example_prints_what_the_readme_shows() -> None:
    shown = re.search(r"\$ memplan plan example_graphs/gpt2.json\n(.*?)\n\$", README, re.DOTALL)
    assert shown
    line = [sys.executable, "-m", "memplan_engine", "plan", "example_graphs/gpt2.json"]
    printed = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert without_seconds(printed) == without_seconds(shown[1])


def test_the_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = [block for block in blocks(README, "python") if "capture(" in block]
    exec(compile(example, "README.md", "exec", dont_inherit=True), {"__name__": "example"})
    assert capsys.readouterr().out.splitlines()[0] == "1048576 1048576 True"


def test_the_strategy_of_the_docs_places_by_end(tmp_path: Path) -> None:
    module = written_as_told(tmp_path, "greedy_by_end", 0)
    problem = make_problem(start=[0, 1], end=[3, 2], size=[4, 8])
    plan = make_plan(problem, module.GREEDY_BY_END)
    assert plan.offsets.tolist() == [8, 0]
    assert plan.strategy == "greedy_by_end"


def test_the_strategy_of_the_docs_with_limits_uses_them(tmp_path: Path) -> None:
    """Without reuse the five take 10 bytes, their load is 4, and limits that are spent leave the first."""
    module = written_as_told(tmp_path, "random_orders", 1)
    problem = make_problem(start=[0, 0, 1, 1, 2], end=[1, 2, 3, 2, 3], size=[3, 1, 1, 2, 3])
    seen: list[Progress] = []
    limits = SolveLimits(seed=1, listener=seen.append)
    plan = make_plan(problem, module.RandomOrders(), limits=limits)
    assert plan.optimal
    assert [progress.arena_bytes for progress in seen][:2] == [None, 10]
    assert (seen[-1].arena_bytes, seen[-1].bound_bytes) == (4, 4)
    spent = SolveLimits()
    spent.cancel()
    assert make_plan(problem, module.RandomOrders(), limits=spent).arena_bytes == 10


def test_the_importer_of_the_docs_reads_its_lines(tmp_path: Path) -> None:
    importer = written_as_told(tmp_path, "lines_file", 2).LinesImporter()
    path = tmp_path / "some.txt"
    path.write_text("buffers\n0 2 16\n1 3 8\n", encoding="utf-8")
    assert importer.recognises(path.read_bytes(), path)
    loaded = importer.load(path, ImportOptions())
    assert isinstance(loaded, Problem)
    assert loaded.size.tolist() == [16, 8]


def test_the_recording_of_the_docs_opens_as_others_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two blocks side by side, then one in the place of the first."""
    importer = written_as_told(tmp_path, "malloc_log", 3).MallocLogImporter()
    monkeypatch.setattr(files, "importers", lambda: (importer,))
    path = tmp_path / "some.log"
    path.write_text("malloc 0 512\nmalloc 512 1024\nfree 0 512\nmalloc 0 512\n", encoding="utf-8")
    plan = files.load(path, ImportOptions(offsets_as_plan=True))
    assert isinstance(plan, Plan)
    assert plan.problem.size.tolist() == [512, 1024, 512]
    assert plan.offsets.tolist() == [0, 512, 0]
    (recording,) = files.load_recording(path).recordings
    assert recorded_plan(recording).offsets.tolist() == [0, 512, 0]
    path.write_text("malloc 0 512\nrealloc 0 512\n", encoding="utf-8")
    with pytest.raises(InputError, match="line 2"):
        files.load_recording(path)


def test_the_rewrite_of_the_docs_makes_lives_shorter(tmp_path: Path) -> None:
    """Two values of 64 bytes and what is reduced from each: both at once, or one after the other."""
    module = written_as_told(tmp_path, "late", 4)
    ops = [
        Op("a", "make", (), ("x",)),
        Op("b", "make", (), ("y",)),
        Op("c", "sum", ("x",), ("u",)),
        Op("d", "sum", ("y",), ("v",)),
        Op("e", "add", ("u", "v"), ("w",)),
    ]
    graph = make_graph(ops, {"x": 64, "y": 64, "u": 1, "v": 1, "w": 1}, outputs=("w",))
    late = module.as_late_as_possible(graph)
    assert late.step_of_op == (0, 2, 1, 3, 4)
    before, after = (make_plan(to_problem(graph, order, alignment=1)) for order in (sequential(graph), late))
    assert (before.arena_bytes, after.arena_bytes) == (129, 66)


def test_the_suggestion_of_the_docs_is_planned(tmp_path: Path) -> None:
    """Of 64 bytes that come in and 64 that go out, those that come in are the caller's."""
    propose = written_as_told(tmp_path, "caller_inputs", 5).propose_caller_inputs
    graph = make_graph([Op("a", "scan", ("x",), ("y",))], {"x": 64, "y": 64}, inputs=("x",), outputs=("y",))
    (best,) = advise(graph, Preparation(plan_inputs=True), proposers=(propose,)).suggestions
    assert (best.title, best.saved_bytes, best.arena_bytes) == ("Leave the inputs to the caller", 64, 64)
    assert advise(graph, proposers=(propose,)).suggestions == ()


def test_the_page_of_the_docs_shows_the_largest_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "start_compiling", lambda: Thread())  # That is not the page's.
    page = blocks(EXTENDING, "python")[6].replace("from __future__ import annotations\n", "")
    begin = "from memplan_dashboard.session import state\nstate.restore()\n"
    app = check(AppTest.from_string(begin + page, default_timeout=HANG_SECONDS).run())
    assert [metric.value for metric in app.metric] == ["51 MiB"]
    assert app.markdown[0].value.endswith("12 MiB")
    assert len(app.markdown) == 10


def test_the_curve_of_the_docs_is_what_is_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three steps the last makes what is returned, 10 bytes; a list of buffers returns nothing."""
    curve = written_as_told(tmp_path, "returned", 8).returned_line
    monkeypatch.setattr(strip_lines, "SOURCES", (*strip_lines.SOURCES, curve))
    assert '"label":"returned"' in to_html(scratch_plan())
    plain = make_plan(make_problem([0, 1], [2, 3], [10, 20]), "naive")
    assert '"label":"returned"' not in to_html(plain)
    plan = scratch_plan()
    line = curve(plan, make_profile(plan.problem, plan.offsets), 100)
    assert (line.start.tolist(), line.nbytes.tolist(), line.exact) == ([0, 1, 2], [0, 0, 10], True)
    assert len(curve(plan, make_profile(plan.problem, plan.offsets), 2).start) <= 2


def test_every_file_the_readme_links_exists() -> None:
    for page in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text(encoding="utf-8")):
            assert (ROOT / target).exists(), f"{page}: {target}"
    for target in re.findall(r"\]\(([^)#]+)\)", EXTENDING):
        assert (ROOT / "docs" / target).exists(), target
