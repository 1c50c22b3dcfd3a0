"""What `pip install` and `make` rely on: packages, data files, pins, entry points."""

from __future__ import annotations

import ast
import importlib
import io
import re
import subprocess
import sys
import tomllib
from contextlib import redirect_stdout
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT_FOLDERS = PROJECT["tool"]["setuptools"]["package-dir"]
TOP_LEVEL = tuple(PROJECT_FOLDERS.values())


def normal(name: str) -> str:
    """Return a distribution's name in the form in which names compare."""
    return re.sub(r"[-_.]+", "-", name).lower()


def required_name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found, requirement
    return normal(found[0])


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    entries = [line.split("#")[0].strip() for line in lines]
    pairs = [entry.split("==") for entry in entries if entry]
    assert all(len(pair) == 2 for pair in pairs), "constraints.txt holds something else than name==version"
    return {normal(name): version for name, version in pairs}


def test_every_package_folder_is_listed() -> None:
    """They are named one by one in pyproject.toml: a forgotten one would be missing from the wheel only."""
    folders = {
        ".".join((package, *init.parent.relative_to(ROOT / folder).parts))
        for package, folder in PROJECT_FOLDERS.items()
        for init in (ROOT / folder).rglob("__init__.py")
    }
    assert folders == set(PROJECT["tool"]["setuptools"]["packages"])


def test_nothing_is_installed_under_a_name_that_others_use() -> None:
    assert all(package.startswith("memplan_") for package in PROJECT_FOLDERS)


def test_every_module_lies_in_a_package() -> None:
    lost = [
        str(module.relative_to(ROOT))
        for top in TOP_LEVEL
        for module in (ROOT / top).rglob("*.py")
        if not (module.parent / "__init__.py").exists()
    ]
    assert lost == []


def data_files() -> list[Path]:
    """Return the packages' files, without Python and what git ignores."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "--", *TOP_LEVEL]
    try:
        listed = subprocess.run(
            command, cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [Path(name) for name in listed if not name.endswith(".py") and (ROOT / name).is_file()]


def test_every_data_file_is_shipped() -> None:
    shipped = PROJECT["tool"]["setuptools"]["package-data"]
    files = data_files()
    assert Path("memplan_engine/py.typed") in files

    matched = {
        path.relative_to(ROOT)
        for package, patterns in shipped.items()
        for pattern in patterns
        for path in (ROOT / PROJECT_FOLDERS[package]).glob(pattern)
    }
    assert [str(file) for file in files if file not in matched] == []


def test_every_requirement_is_pinned() -> None:
    extras, groups = PROJECT["project"]["optional-dependencies"], PROJECT["dependency-groups"]
    lists = [PROJECT["project"]["dependencies"], *extras.values(), *groups.values()]
    wanted = [name for names in lists for name in names if isinstance(name, str)]
    names = {required_name(requirement) for requirement in wanted} - {"memplan"}
    assert "numpy" in names
    assert names - pins().keys() == set()
    assert "setuptools" in pins(), "the build would take whatever setuptools is newest"


def test_the_groups_are_the_tools_of_the_extras() -> None:
    extras, groups = PROJECT["project"]["optional-dependencies"], PROJECT["dependency-groups"]
    for name in ("test", "docs"):
        assert groups[name] == [tool for tool in extras[name] if required_name(tool) != "memplan"]
    assert [each["include-group"] for each in groups["dev"] if isinstance(each, dict)] == ["test", "docs"]


def test_the_version_is_cited() -> None:
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {PROJECT['project']['version']}\n" in citation
    assert f"\nlicense: {PROJECT['project']['license']}\n" in citation


def test_what_runs_before_a_commit_is_what_make_lint_runs() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    entries = {entry.split()[0] for entry in re.findall(r"entry: \.venv/bin/([^,]+),", hooks)}
    lint = (ROOT / "Makefile").read_text().split("\nlint: ")[1].split("\n\n")[0]
    assert entries == set(re.findall(r"\$\(BIN\)/(\w+)", lint)) == {"ruff", "mypy"}


def test_every_change_is_of_a_kind_that_the_changelog_has() -> None:
    kinds = {kind["directory"] for kind in PROJECT["tool"]["towncrier"]["type"]}
    names = [path.name for path in (ROOT / "changes").iterdir() if path.name != ".gitkeep"]
    assert [name for name in names if not re.fullmatch(rf"\+?[\w-]+\.({'|'.join(kinds)})\.md", name)] == []
    assert PROJECT["tool"]["towncrier"]["start_string"] in (ROOT / "CHANGELOG.md").read_text()


def test_ci_runs_every_target_that_a_change_has_to_pass() -> None:
    ran = re.findall(r"^make ([\w-]+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert ran == ["test", "test-slice", "lint", "docs", "wheel"]
    printed = subprocess.run(["make"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert set(ran) <= set(re.findall(r"^ *make ([\w-]+)", printed, re.MULTILINE))
    assert "- run: .ci/run\n" in (ROOT / ".github" / "workflows" / "ci.yml").read_text()


def test_every_test_is_in_one_of_the_two_tiers() -> None:
    """Only the markers leave a test out of a tier."""
    makefile = (ROOT / "Makefile").read_text()
    tier = r"^(test[\w-]*):.*\n\t\$\(PYTEST\)(?: --hypothesis-profile=thorough)? -m (.*) \$\(ARGS\)$"
    tiers = re.findall(tier, makefile, re.MULTILINE)
    assert tiers == [
        ("test", '"not slow"'),
        ("test-slow", '"slow or hypothesis"'),
        ("test-slice", "slow @tests/slow_slice.txt"),
    ]
    (pytest_line,) = re.findall(r"^PYTEST := (.*)$", makefile, re.MULTILINE)
    options = PROJECT["tool"]["pytest"]["ini_options"]
    assert options["testpaths"] == ["tests"]
    left_out = re.compile(r" (-k|-m (?!pytest)|--(deselect|ignore)|tests?/)|norecursedirs|python_files")
    assert not left_out.search(f" {pytest_line} {options['addopts']} {' '.join(options)}")

    def collected(*marks: str) -> set[str]:
        command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider"]
        printed = subprocess.run(
            [*command, "tests/feasibility/test_decide.py", *marks],
            cwd=ROOT, check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        return set(re.findall("^.*::.*$", printed, re.MULTILINE))

    quick, slow = collected("-m", "not slow"), collected("-m", "slow")
    assert quick
    assert slow
    assert not quick & slow
    assert quick | slow == collected()
    # pytest looks into the files of these names only.
    strays = [
        f"{path.name}: {node.name}"
        for path in (ROOT / "tests").rglob("*.py")
        if not path.name.startswith("test_")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name.lower().startswith("test")
    ]
    assert strays == []


def test_the_commands_module_of_the_wheel_exists() -> None:
    module, function = PROJECT["project"]["scripts"]["memplan"].split(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_examples_lists_the_data_files() -> None:
    memplan_examples = importlib.import_module("memplan_examples")
    expected = sorted(
        path
        for path in (ROOT / "example_graphs").rglob("*")
        if path.suffix in (".json", ".csv", ".onnx", ".pt2", ".pickle")
    )
    assert memplan_examples.examples() == tuple(expected)


def test_make_alone_lists_the_two_commands() -> None:
    printed = subprocess.run(["make"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert re.search(r"^ *make run +\S", printed, re.MULTILINE)
    assert re.search(r"^ *make test +\S", printed, re.MULTILINE)


@pytest.mark.parametrize(
    "script", [".ci/run", *(f"scripts/{s.name}" for s in (ROOT / "scripts").glob("*.sh"))]
)
def test_scripts_run_and_stop_at_the_first_error(script: str) -> None:
    path = ROOT / script
    assert path.stat().st_mode & 0o111, f"{script} is not executable"
    assert "\nset -euo pipefail\n" in path.read_text()
    subprocess.run(["bash", "-n", str(path)], check=True)


@pytest.fixture
def lock(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`scripts/lock.py`, for which no index has any package."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    module = importlib.import_module("lock")
    nothing = SimpleNamespace(run=lambda *_, **__: subprocess.CompletedProcess([], 1, stdout=""))
    monkeypatch.setattr(module, "subprocess", nothing)
    return module


def locked(lock: ModuleType, *extras: str) -> dict[str, str]:
    """Return what `make` installs for memplan with these extras: package → version."""
    with redirect_stdout(io.StringIO()) as out:
        assert lock.main([*extras]) == 0
    printed = out.getvalue()
    assert re.fullmatch(r"(\S+==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+\n)+", printed)
    pairs = [line.split(" ")[0].split("==") for line in printed.splitlines() if "==" in line]
    return {name: version.partition("+")[0] for name, version in pairs}


def test_the_lock_holds_the_constraints(lock: ModuleType) -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    assert locked(lock, *extras).items() <= pins().items()
    assert "streamlit" not in locked(lock, "torch")
    for few, more in pairwise(((), ("torch",), ("all",), ("test",))):
        assert locked(lock, *few).items() < locked(lock, *more).items()


def test_of_two_builds_the_one_without_cuda_is_taken_where_there_is_one(
    lock: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = {"torch==2.13.0", "torch==2.13.0+cpu", "numpy==2.0"}
    assert locked - {"numpy==2.0"} <= lock.pins((ROOT / "requirements.lock").read_text()).keys()

    def chosen(offered: str) -> list[str]:
        done = subprocess.CompletedProcess([], 0, stdout=f"Available versions: {offered}")
        monkeypatch.setattr(lock.subprocess, "run", lambda *_, **__: done)
        return sorted(build for build in locked if lock.chosen_build(build, locked) == build)

    assert chosen("2.14.0, 2.13.0+cpu, 2.13.0") == ["numpy==2.0", "torch==2.13.0+cpu"]
    assert chosen("2.14.0, 2.13.0") == ["numpy==2.0", "torch==2.13.0"]


def test_the_lock_has_all_that_the_installed_packages_need(lock: ModuleType) -> None:
    """`make` installs without looking at what needs what: nothing may be missing."""
    for extra in ("torch", "dashboard", "test"):
        needed = lock.closure("memplan", {extra})
        assert {"numpy", "llvmlite"} < needed
        assert needed - set(locked(lock, extra)) == set(), "run `make lock`"


def test_the_licence_of_every_locked_package_is_listed(lock: ModuleType) -> None:
    table = (ROOT / "docs" / "licences.md").read_text()
    rows = re.findall(r"(?m)^\| (\S+) \| (\S+) \| ([^|]+) \| [^|]+ \|$", table)
    extras = PROJECT["project"]["optional-dependencies"]
    assert {name: version for name, version, _ in rows if name != "package"} == locked(lock, *extras)
    assert all(licence.strip() for _, _, licence in rows)
