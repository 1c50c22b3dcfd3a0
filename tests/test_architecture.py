"""Holds `rooms.ROOMS`, who may import whom, and the house rules that a parser can check."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from memplan_engine.system import parse_python
from tests import ROOT
from tests.rooms import ROOMS

FOLDERS = {"memplan_engine": ROOT / "memplan_engine", "memplan_dashboard": ROOT / "dashboard"}
MODULES = {
    ".".join((name, *path.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__"): path
    for name, folder in FOLDERS.items()
    for path in sorted(folder.rglob("*.py"))
}
ENGINE = [name for name in MODULES if name.split(".")[0] == "memplan_engine"]
DASHBOARD = [name for name in MODULES if name.split(".")[0] == "memplan_dashboard"]
KERNELS = [name for name in ENGINE if name.startswith("memplan_engine.kernels.")]
STRATEGIES = [name for name in ENGINE if name.startswith("memplan_engine.strategies")]
PAGES = [
    ".".join(("memplan_dashboard", *Path(ast.literal_eval(node.args[0])).with_suffix("").parts))
    for node in ast.walk(parse_python(MODULES["memplan_dashboard.app"].read_text(encoding="utf-8")))
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "st.Page"
]
RUNTIME = [
    name
    for name in ENGINE
    if name.startswith("memplan_engine.runtime") or name == "memplan_engine.torch_capture.torch_storages"
]
"""What needs torch when it is imported."""
EXEMPT = {"memplan_engine", "memplan_engine.__main__"}
"""They start everything else."""
MOST_FILES, MOST_FILES_OF_THE_ROOT = 24, 20
CHARTS = [name for name in DASHBOARD if name.startswith("memplan_dashboard.charts.")]
HEAVY = {"torch", "onnx", "transformers", "safetensors"}
DRAWING = {"plotly", "PIL"}
MAX_FILE_LINES, MAX_FUNCTION_LINES = 500, 75


@cache
def tree(module: str) -> ast.Module:
    return parse_python(MODULES[module].read_text(encoding="utf-8"))


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


@cache
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


@cache
def all_imported(module: str) -> set[str]:
    """Return the modules of our own that `module` imports in whatever way, for type checkers as well."""
    names = set()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = absolute(module, node)
            names |= {inner if (inner := f"{base}.{alias.name}") in MODULES else base for alias in node.names}
    return {name for name in names if name in MODULES} - {module}


def room_of(module: str) -> str:
    """Return the room of `module`: its folder; itself where it stands in a root."""
    folder = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
    room = module if folder in FOLDERS else folder
    return room.removeprefix("memplan_engine.")


def used_rooms() -> dict[str, set[str]]:
    """Return the other rooms that each room uses, without its own sub-folders."""
    used: dict[str, set[str]] = {}
    for module in set(MODULES) - EXEMPT:
        room = room_of(module)
        others = {room_of(name) for name in all_imported(module) - EXEMPT} - {room}
        used.setdefault(room, set()).update(each for each in others if not each.startswith(f"{room}."))
    return used


def test_each_room_uses_those_that_it_may_and_no_others() -> None:
    """Both ways: a rule that nothing needs would let something in that nobody looked at."""
    assert used_rooms() == {room: set(uses.split()) for room, uses in ROOMS.items()}


def test_rooms_use_those_above_them_only() -> None:
    order = list(ROOMS)
    upwards = {
        (room, each)
        for place, room in enumerate(order)
        for each in ROOMS[room].split()
        if each not in order[:place]
    }
    assert upwards == set()


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Lazy and type-only imports included."""
    graph = {module: all_imported(module) - EXEMPT for module in set(MODULES) - EXEMPT}
    assert len(list(TopologicalSorter(graph).static_order())) >= len(graph)


def test_who_is_asked_by_name_is_there_and_only_registries_ask() -> None:
    """`system.by_name` sees no arrow; what it is given is looked at here instead."""
    asking = {}
    for module in ENGINE:
        texts = (node.value for node in ast.walk(tree(module)) if isinstance(node, ast.Constant))
        names = {
            text
            for text in texts
            if isinstance(text, str) and re.fullmatch(r"memplan_engine[\w.]+:\w+", text)
        }
        if names:
            asking[module] = {name.partition(":")[0] for name in names} - set(MODULES)
    assert asking == {"memplan_engine.files": set(), "memplan_engine.plan": set()}


def test_rooms_are_small_and_no_name_is_everywhere() -> None:
    files: dict[str, list[str]] = {}
    names: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        files.setdefault(str(path.parent.relative_to(ROOT)), []).append(path.name)
        if path.name != "__init__.py":
            names.setdefault(path.stem, []).append(module)
    crowded = {folder for folder, found in files.items() if len(found) > MOST_FILES + 1}
    assert crowded == set()
    assert len(files["memplan_engine"]) <= MOST_FILES_OF_THE_ROOT
    assert len(files["dashboard"]) <= 5
    assert {name: found for name, found in names.items() if len(found) > 2} == {}
    assert [module for module in MODULES if module.split(".")[-1] in module.split(".")[:-1]] == []


def test_no_file_is_called_as_a_library_that_it_imports() -> None:
    assert breaking(MODULES, lambda module: {module.split(".")[-1]} & top_levels(module)) == {}


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


def breaking(modules: Iterable[str], found: Callable[[str], object]) -> dict[str, object]:
    """Return those of `modules` for which `found` gives anything, with what it gives: nothing, so the tests
    say, of the modules that there are."""
    assert modules
    return {module: wrong for module in modules if (wrong := found(module))}


def below(names: set[str], *packages: str) -> set[str]:
    return {name for name in names if any(name == p or name.startswith(f"{p}.") for p in packages)}


def test_the_engine_knows_no_user_interface() -> None:
    shown = {"streamlit", "pandas", "altair", "memplan_dashboard"}
    assert breaking(ENGINE, lambda module: top_levels(module) & shown) == {}


def test_what_draws_is_imported_in_functions_of_plotting_only() -> None:
    assert breaking(ENGINE, lambda module: top_levels(module, lazy=False) & DRAWING) == {}
    others = set(ENGINE) - below(set(ENGINE), "memplan_engine.plotting")
    assert breaking(others, lambda module: top_levels(module) & DRAWING) == {}


def test_torch_and_onnx_only_in_functions_and_only_of_what_works_on_their_graphs() -> None:
    assert breaking(set(ENGINE) - set(RUNTIME), lambda m: top_levels(m, lazy=False) & HEAVY) == {}
    theirs = (
        f"memplan_engine.{name}"
        for name in ("torch_capture", "formats.onnx_model", "fx_estimator", "runtime")
    )
    others = set(ENGINE) - below(set(ENGINE), *theirs)
    assert breaking(others, lambda module: top_levels(module) & HEAVY) == {}


def test_the_runtime_which_needs_torch_is_imported_in_functions_only() -> None:
    # What stands beside the runtime needs torch as well, and may import it at once.
    others = set(MODULES) - set(RUNTIME)
    assert breaking(others, lambda m: below(imported(m, lazy=False), *RUNTIME)) == {}


def test_kernels_take_arrays_and_know_nothing_else() -> None:
    # Only these know of numba, and import it in functions: what is interpreted does not wait for it.
    machinery = {f"memplan_engine.kernels.{name}" for name in ("jit", "code_cache")}
    for module in machinery:
        assert "numba" in top_levels(module) - top_levels(module, lazy=False)
    kernels = set(KERNELS) - machinery
    known = {"numpy", "heapq", "math", "typing", "__future__", "memplan_engine"}
    assert breaking(kernels, lambda module: top_levels(module) - known) == {}

    # The cache of what is compiled follows these lines (`kernels/__init__.py`).
    line = re.compile(r"^ *(?:from|import) memplan_engine\b.*", re.MULTILINE)
    form = re.compile(r"from memplan_engine\.kernels\.[\w.]+ import .*")
    texts = {module: MODULES[module].read_text(encoding="utf-8") for module in KERNELS}
    assert (
        breaking(kernels, lambda m: [each for each in line.findall(texts[m]) if not form.fullmatch(each)])
        == {}
    )


def kernels_of(modules: set[str]) -> set[str]:
    """Return the kernels that `modules` import, and those which these import in turn."""
    used = set().union(*(imported(module) for module in modules))
    return reachable(below(used, "memplan_engine.kernels"))


def test_the_validator_shares_no_code_with_the_strategies() -> None:
    """A mistake in shared code would hide itself: the validator and the kernels it runs on stand alone."""
    checking = {name for name in ENGINE if name.startswith("memplan_engine.verify.")}
    assert below(reachable(checking), "memplan_engine.strategies") == set()
    assert "memplan_engine.kernels.constructive.place" in kernels_of(set(STRATEGIES))
    # Type aliases for arrays and what runs any kernel hold no logic of planning.
    harmless = {f"memplan_engine.kernels{name}" for name in ("", ".types", ".jit", ".code_cache")}
    assert (kernels_of(checking) & kernels_of(set(STRATEGIES))) - harmless == set()


def test_the_checker_of_reuse_shares_no_code_with_the_transforms() -> None:
    rooms = {
        "checker": ("check_reuse", "breaches"),
        "transforms": ("in_place", "concat", "reused"),
    }
    checker, transforms = (
        {f"memplan_engine.rewrites.reuse.{name}" for name in names} for names in rooms.values()
    )
    assert checker | transforms <= set(MODULES)
    assert not reachable(checker) & transforms


def test_pages_do_not_import_each_other() -> None:
    assert breaking(PAGES, lambda m: imported(m) & set(PAGES)) == {}


def test_charts_draw_and_know_no_page() -> None:
    def known(module: str) -> set[str]:
        own = below(imported(module), "memplan_dashboard")
        return own - below(own, "memplan_dashboard.charts") | (top_levels(module) & {"streamlit"})

    assert breaking(CHARTS, known) == {}


def test_no_file_of_the_dashboard_shadows_the_standard_library() -> None:
    """`streamlit run` puts the dashboard's folder first on the import path."""
    names = {path.stem for path in (ROOT / "dashboard").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert names & (sys.stdlib_module_names - {"__init__"}) == set()


def test_nothing_read_or_shown_can_run_code() -> None:
    unpicklers = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
    # Machine code runs: what is read of it is our own, and unchanged, which is seen before it is unpickled.
    # Messages between processes of one script are objects of its own, in a folder of theirs: it runs anyway.
    others = set(MODULES) - {"memplan_engine.kernels.code_cache", "memplan_engine.runtime.ranks.mailbox"}
    assert breaking(others, lambda module: top_levels(module) & unpicklers) == {}
    assert breaking(MODULES, lambda module: running_code(tree(module))) == {}


def running_code(parsed: ast.Module) -> list[str]:
    """Return the calls that could run code which a file or a name brings along."""
    wrong = []
    for node in ast.walk(parsed):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if (
                name in ("eval", "exec")
                or {"unsafe_allow_html", "unsafe_allow_javascript"} & keywords.keys()
                or keywords.get("allow_pickle", "False") != "False"
                or (name == "torch.load" and keywords.get("weights_only") != "True")
            ):
                wrong.append(f"line {node.lineno}: {ast.unparse(node)}")
    return wrong


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("eval('1')", True), ("exec(text)", True), ("st.markdown(t, unsafe_allow_html=True)", True),
        ("st.html(t, unsafe_allow_javascript=True)", True), ("np.load(f, allow_pickle=True)", True),
        ("torch.load(f)", True), ("np.load(f, allow_pickle=False)", False),
        ("torch.load(f, weights_only=True)", False), ("model.eval()", False),
    ],
)  # fmt: skip
def test_the_check_sees_code_that_would_run(code: str, wrong: bool) -> None:
    assert bool(running_code(ast.parse(f"def f():\n    {code}"))) == wrong


SCRIPTS = sorted(path for folder in ("dashboard", "memplan_engine") for path in (ROOT / folder).rglob("*.js"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_scripts_show_user_text_as_text_only(script: Path) -> None:
    """Streamlit's v2 components are not sandboxed: a buffer's name must never become markup."""
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|\bimport\("
    assert re.findall(forbidden, script.read_text(encoding="utf-8")) == []


def test_files_and_functions_are_short() -> None:
    def long(module: str) -> dict[str, int]:
        lines = {"the file": MODULES[module].read_text(encoding="utf-8").count("\n")}
        functions = {
            node.name: (node.end_lineno or 0) - node.lineno + 1
            for node in ast.walk(tree(module))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        too_long = {name: length for name, length in functions.items() if length > MAX_FUNCTION_LINES}
        return too_long | {name: length for name, length in lines.items() if length > MAX_FILE_LINES}

    assert breaking(MODULES, long) == {}


def test_everything_public_in_the_engine_says_what_it_is() -> None:
    def silent(module: str) -> list[str]:
        body = tree(module).body
        named = [node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        # The kinds of calls of a function that says below what it is.
        kinds = [
            node for node in named if [ast.unparse(each) for each in node.decorator_list] == ["overload"]
        ]
        public = [node for node in named if not node.name.startswith("_") and node not in kinds]
        said = bool(ast.get_docstring(tree(module)) or not body)
        return [node.name for node in public if not ast.get_docstring(node)] + ["the file"] * (not said)

    assert breaking(ENGINE, silent) == {}


def test_no_error_is_swallowed() -> None:
    def swallowing(module: str) -> list[str]:
        wrong = []
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.ExceptHandler):
                caught = ast.unparse(node.type) if node.type else "everything"
                silent = all(isinstance(line, ast.Pass) for line in node.body)
                if silent and caught in ("everything", "Exception", "BaseException"):
                    wrong.append(f"line {node.lineno}: {caught}")
        return wrong

    assert breaking(MODULES, swallowing) == {}


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

    rooms = {MODULES[name].parent.name for name in ENGINE} | {
        name.split(".")[1] for name in ENGINE if name.count(".") == 1
    }
    assert rooms & set(memplan_engine.__all__) == set()  # type: ignore[attr-defined]
