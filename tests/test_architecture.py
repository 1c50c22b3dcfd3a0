"""Holds DESIGN.md's "who may import whom", and the house rules that a parser can check."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from browser_support import ROOT

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for folder in ("memplan_engine", "dashboard")
    for path in sorted((ROOT / folder).rglob("*.py"))
}
ENGINE = [name for name in MODULES if name.split(".")[0] == "memplan_engine"]
DASHBOARD = [name for name in MODULES if name.split(".")[0] == "dashboard"]
KERNELS = [name for name in ENGINE if name.startswith("memplan_engine.kernels.")]
STRATEGIES = [name for name in ENGINE if name.startswith("memplan_engine.strategies")]
PAGES = [name for name in DASHBOARD if name.startswith("dashboard.views.")]
RUNTIME = [name for name in ENGINE if name.startswith("memplan_engine.runtime")]
FIGURES = [name for name in DASHBOARD if name.startswith("dashboard.figures.")]
HEAVY = {"torch", "onnx", "transformers", "safetensors"}
DRAWING = {"plotly", "PIL"}
MAX_FILE_LINES, MAX_FUNCTION_LINES = 400, 60

each_module = pytest.mark.parametrize("module", sorted(MODULES))


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"), filename=module)


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def import_nodes(node: ast.AST, lazy: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports below `node` that can run; without `lazy`, those that run when it is imported."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif is_type_checking(child):
            for branch in child.orelse:  # type: ignore[attr-defined]
                yield from import_nodes(ast.Module([branch], []), lazy)
        elif lazy or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from import_nodes(child, lazy)


def imported(module: str, lazy: bool = True) -> set[str]:
    """Return the full names of what `module` imports: of our own the modules, of others what is written."""
    names = set()
    for node in import_nodes(tree(module), lazy):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
            continue
        base = absolute(module, node)
        for alias in node.names:
            inner = f"{base}.{alias.name}"
            names.add(inner if inner in MODULES else base)
    return names


def absolute(module: str, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    package = module.split(".") if MODULES[module].name == "__init__.py" else module.split(".")[:-1]
    return ".".join([*package[: len(package) - node.level + 1], *([node.module] if node.module else [])])


def top_levels(module: str, lazy: bool = True) -> set[str]:
    return {name.split(".")[0] for name in imported(module, lazy)}


def reachable(modules: set[str]) -> set[str]:
    """Return our own modules that `modules` reach through imports, themselves included.

    A package's __init__ is left out unless it is imported by name: that Python runs it says nothing of use.
    """
    seen: set[str] = set()
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if module in MODULES and module not in seen:
            seen.add(module)
            waiting += imported(module)
    return seen


def below(names: set[str], *packages: str) -> set[str]:
    return {name for name in names if any(name == p or name.startswith(f"{p}.") for p in packages)}


@pytest.mark.parametrize("module", ENGINE)
def test_the_engine_knows_no_user_interface(module: str) -> None:
    assert top_levels(module) & {"streamlit", "pandas", "altair", "dashboard"} == set()


@pytest.mark.parametrize("module", ENGINE)
def test_what_draws_is_imported_in_functions_of_the_exporters_only(module: str) -> None:
    assert top_levels(module, lazy=False) & DRAWING == set()
    if not below({module}, "memplan_engine.exporters"):
        assert top_levels(module) & DRAWING == set()


@pytest.mark.parametrize("module", ENGINE)
def test_torch_and_onnx_only_in_functions_and_only_of_what_works_on_their_graphs(module: str) -> None:
    if module not in RUNTIME:
        assert top_levels(module, lazy=False) & HEAVY == set()
    if not below({module}, *(f"memplan_engine.{name}" for name in ("importers", "fx_estimator", "runtime"))):
        assert top_levels(module) & HEAVY == set()


@pytest.mark.parametrize("module", sorted(set(MODULES) - set(RUNTIME)))
def test_the_runtime_which_needs_torch_is_imported_in_functions_only(module: str) -> None:
    assert below(imported(module, lazy=False), "memplan_engine.runtime") == set()


@pytest.mark.parametrize("module", KERNELS)
def test_kernels_take_arrays_and_know_nothing_else(module: str) -> None:
    assert top_levels(module) - {"numpy", "numba", "math", "typing", "__future__", "memplan_engine"} == set()
    own = below(imported(module), "memplan_engine")
    assert own == below(own, "memplan_engine.kernels")


@pytest.mark.parametrize("module", STRATEGIES)
def test_strategies_do_not_know_where_problems_come_from_or_plans_go(module: str) -> None:
    outside = ("importers", "exporters", "cli", "validate", "runtime")
    assert below(imported(module), *(f"memplan_engine.{name}" for name in outside)) == set()


def kernels_of(modules: set[str]) -> set[str]:
    """Return the kernels that `modules` import, and those which these import in turn."""
    used = set().union(*(imported(module) for module in modules))
    return reachable(below(used, "memplan_engine.kernels"))


def test_the_validator_shares_no_code_with_the_strategies() -> None:
    """A mistake in shared code would hide itself: the validator and the kernels it runs on stand alone."""
    checking = {"memplan_engine.validate"}
    assert below(reachable(checking), "memplan_engine.strategies") == set()
    assert "memplan_engine.kernels.place" in kernels_of(set(STRATEGIES))
    # Type aliases for arrays and numba signatures hold no logic.
    shared = kernels_of(checking) & kernels_of(set(STRATEGIES))
    assert shared - {"memplan_engine.kernels", "memplan_engine.kernels.types"} == set()


def test_the_checker_of_reuse_shares_no_code_with_the_transforms() -> None:
    rooms = {
        "checker": ("check", "contents", "places", "races", "same_graph"),
        "transforms": ("in_place", "concat", "touches", "blocks", "windows"),
    }
    checker, transforms = ({f"memplan_engine.reuse.{name}" for name in names} for names in rooms.values())
    assert checker | transforms <= set(MODULES)
    assert not reachable(checker) & transforms


@pytest.mark.parametrize("module", PAGES or [pytest.param("", marks=pytest.mark.skip("no pages yet"))])
def test_pages_do_not_import_each_other(module: str) -> None:
    assert below(imported(module), "dashboard.views") <= {"dashboard.views"}
    assert below(imported(module), "dashboard.app", "memplan_engine.cli") == set()


@pytest.mark.parametrize("module", FIGURES or [pytest.param("", marks=pytest.mark.skip("no figures yet"))])
def test_figures_draw_and_know_no_page(module: str) -> None:
    assert "streamlit" not in top_levels(module)
    own = below(imported(module), "dashboard")
    assert own == below(own, "dashboard.figures")


def test_nothing_imports_the_app_or_a_page_but_the_app() -> None:
    users = {
        module
        for module in MODULES
        if module != "dashboard.app" and not module.startswith("dashboard.views")
        and below(imported(module), "dashboard.views", "dashboard.app")
    }  # fmt: skip
    assert users == set()


def test_no_file_of_the_dashboard_shadows_the_standard_library() -> None:
    """`streamlit run` puts the dashboard's folder first on the import path."""
    names = {path.stem for path in (ROOT / "dashboard").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert names & (sys.stdlib_module_names - {"__init__"}) == set()


@each_module
def test_nothing_read_or_shown_can_run_code(module: str) -> None:
    assert top_levels(module) & {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"} == set()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            assert name not in ("eval", "exec"), f"{module}:{node.lineno} calls {name}"
            assert "unsafe_allow_html" not in keywords, f"{module}:{node.lineno}"
            assert "unsafe_allow_javascript" not in keywords, f"{module}:{node.lineno}"
            assert keywords.get("allow_pickle", "False") == "False", f"{module}:{node.lineno}"
            if name == "torch.load":
                assert keywords.get("weights_only") == "True", f"{module}:{node.lineno}"


SCRIPTS = sorted(path for folder in ("dashboard", "memplan_engine") for path in (ROOT / folder).rglob("*.js"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_scripts_show_user_text_as_text_only(script: Path) -> None:
    """Streamlit's v2 components are not sandboxed: a buffer's name must never become markup."""
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|\bimport\("
    assert re.findall(forbidden, script.read_text(encoding="utf-8")) == []


@each_module
def test_files_and_functions_are_short(module: str) -> None:
    lines = MODULES[module].read_text(encoding="utf-8").count("\n")
    assert lines <= MAX_FILE_LINES, f"{module} has {lines} lines"
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= MAX_FUNCTION_LINES, f"{module}.{node.name} has {length} lines"


@pytest.mark.parametrize("module", ENGINE)
def test_everything_public_in_the_engine_says_what_it_is(module: str) -> None:
    body = tree(module).body
    assert ast.get_docstring(tree(module)) or not body, f"{module} has no docstring"
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{module}.{node.name} has no docstring"


@each_module
def test_no_error_is_swallowed(module: str) -> None:
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.ExceptHandler):
            caught = ast.unparse(node.type) if node.type else "everything"
            silent = all(isinstance(line, ast.Pass) for line in node.body)
            broad = caught in ("everything", "Exception", "BaseException")
            assert not (broad and silent), f"{module}:{node.lineno} swallows {caught}"


def run_without(packages: set[str], statement: str) -> None:
    """Run `statement` in a Python in which `packages` cannot be imported."""
    hide = f"import sys; sys.modules.update(dict.fromkeys({sorted(packages)!r})); "
    done = subprocess.run(
        [sys.executable, "-c", hide + statement], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_engine_imports_without_the_extras() -> None:
    """Every module of it, in one process in which no optional package exists."""
    run_without(
        HEAVY | DRAWING | {"streamlit", "pandas", "regex"},
        "; ".join(
            f"import {module}"
            for module in ENGINE
            if module not in RUNTIME and not module.endswith("__main__")
        ),
    )


def test_importing_the_engine_is_light() -> None:
    run_without(
        set(),
        "import memplan_engine; "
        f"heavy = {sorted(HEAVY | DRAWING | {'streamlit', 'pandas'})!r}; "
        "found = [name for name in heavy if name in sys.modules]; "
        "sys.exit(f'loaded with the engine: {found}' if found else 0)",
    )


def test_the_checks_see_what_they_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser's own test: relative, nested, type-only and lazy imports are told apart."""
    sample = tmp_path / "sample.py"
    sample.write_text(
        "from __future__ import annotations\n"
        "from typing import TYPE_CHECKING\n"
        "from . import kernels\n"
        "from .kernels.types import Int\n"
        "from memplan_engine import errors\n"
        "if TYPE_CHECKING:\n    import pandas\nelse:\n    import json\n"
        "try:\n    import onnx\nexcept ImportError:\n    onnx = None\n"
        "def f():\n    import torch.export\n"
        "class C:\n    import plotly\n"
    )
    monkeypatch.setitem(MODULES, "memplan_engine.sample_of_imports", sample)
    at_import = imported("memplan_engine.sample_of_imports", lazy=False)
    assert at_import == {
        "__future__", "typing", "memplan_engine.kernels", "memplan_engine.kernels.types",
        "memplan_engine.errors", "json", "onnx", "plotly",
    }  # fmt: skip
    assert imported("memplan_engine.sample_of_imports") - at_import == {"torch.export"}


def test_no_public_name_hides_a_module() -> None:
    """`import memplan_engine.validate as v` must give the module, so no function may bear its name."""
    import memplan_engine

    modules = {name.split(".")[1] for name in ENGINE if name.count(".") == 1}
    assert modules & set(memplan_engine.__all__) == set()
