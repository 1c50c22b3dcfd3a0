"""What the README and the docs say is tried, to the letter."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from memplan_engine import Problem, make_plan, make_problem
from memplan_engine.files import ImportOptions
from memplan_engine.strategies.base import Progress, SolveLimits

ROOT = Path(__file__).resolve().parents[1]
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


def test_the_python_example_runs() -> None:
    (example,) = [block for block in blocks(README, "python") if "capture(" in block]
    done = subprocess.run([sys.executable, "-c", example], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "1048576 1048576 True"


def test_the_strategy_of_the_docs_places_by_end(tmp_path: Path) -> None:
    module = written_as_told(tmp_path, "greedy_by_end", 0)
    problem = make_problem(start=[0, 1], end=[3, 2], size=[4, 8])
    plan = make_plan(problem, module.GREEDY_BY_END)
    assert plan.offsets.tolist() == [8, 0]
    assert plan.strategy == "greedy_by_end"


def test_the_strategy_of_the_docs_with_a_budget_uses_it(tmp_path: Path) -> None:
    """Without reuse the five take 10 bytes, their load is 4, and a budget that is spent leaves the first."""
    module = written_as_told(tmp_path, "random_orders", 1)
    problem = make_problem(start=[0, 0, 1, 1, 2], end=[1, 2, 3, 2, 3], size=[3, 1, 1, 2, 3])
    seen: list[Progress] = []
    budget = SolveLimits(seed=1, listener=seen.append)
    plan = make_plan(problem, module.RandomOrders(), budget=budget)
    assert plan.optimal
    assert [progress.arena_bytes for progress in seen][:2] == [None, 10]
    assert (seen[-1].arena_bytes, seen[-1].bound_bytes) == (4, 4)
    spent = SolveLimits()
    spent.cancel()
    assert make_plan(problem, module.RandomOrders(), budget=spent).arena_bytes == 10


def test_the_importer_of_the_docs_reads_its_lines(tmp_path: Path) -> None:
    importer = written_as_told(tmp_path, "lines_file", 2).LinesImporter()
    path = tmp_path / "some.txt"
    path.write_text("buffers\n0 2 16\n1 3 8\n", encoding="utf-8")
    assert importer.recognises(path.read_bytes(), path)
    loaded = importer.load(path, ImportOptions())
    assert isinstance(loaded, Problem)
    assert loaded.size.tolist() == [16, 8]


def test_every_file_the_readme_links_exists() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
