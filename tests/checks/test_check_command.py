"""`memplan check`: ceilings, another commit, growth, and what is written of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from memplan_engine import make_plan
from memplan_engine.checks.checked_graphs import ModelSource
from memplan_engine.checks.checking import CheckRequest, check_models
from memplan_engine.checks.model_check import ModelCheck
from memplan_engine.diffing.regression import Limit
from memplan_engine.errors import InputError
from memplan_engine.files import write
from memplan_engine.reporters.checks.badges import badge_file
from memplan_engine.reporters.checks.check_markdown import check_markdown
from tests.support.chains import chain
from tests.support.repositories import git

Run = Callable[..., tuple[int, str, str]]
NET = """
import torch
def net():
    return torch.nn.Sequential(torch.nn.Linear(8, {width}), torch.nn.ReLU()), (torch.zeros(4, 8),)
"""


@pytest.fixture
def repository(memplan: Run, tmp_path: Path) -> Path:
    """Two commits: a graph of 5 KiB, then one of 6 KiB; a second graph that only the last one has."""
    (tmp_path / "nets").mkdir()
    git(tmp_path, "init", "-q")
    write(chain(1024, 3072, 2048), tmp_path / "nets" / "a.json")
    (tmp_path / "net.py").write_text(NET.format(width=16))
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    write(chain(1024, 3072, 3072), tmp_path / "nets" / "a.json")
    write(chain(1024, 1024), tmp_path / "nets" / "b.json")
    (tmp_path / "net.py").write_text(NET.format(width=64))
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "second")
    return tmp_path


def test_ceilings_decide_the_exit_code(memplan: Run, tmp_path: Path) -> None:
    write(chain(1024, 3072, 2048), tmp_path / "a.json")
    assert memplan("check", "a.json", "--max-arena", "5KiB", "--max-peak", 5120)[0] == 0
    code, out, _ = memplan("check", "a.json", "--max-arena", "5119")
    assert code == 1
    assert "a.json: arena 5 KiB (5,120 B) is 1 B above the most allowed, 5 KiB (5,119 B)" in out
    assert "layer.1 · mul 3 KiB (60 %), net.py:1" in out
    code, out, _ = memplan("check", "a.json", "--json")
    (model,) = json.loads(out)["models"]
    assert (code, model["arena_bytes"], model["peak_bytes"], model["passed"]) == (0, 5120, 5120, True)


def test_another_commit_is_compared_and_left_as_it_is(
    memplan: Run, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    monkeypatch.chdir(repository / "nets")
    code, out, _ = memplan("check", "a.json", "b.json", "--base", "HEAD~1", "--json", "--fail-above", "1KiB")
    a, b = json.loads(out)["models"]
    assert (code, a["passed"], a["arena_bytes"], a["diff"]["base"]["arena_bytes"]) == (0, True, 6144, 5120)
    assert b["diff"] is None
    assert b["sentences"] == ["not compared: b.json: no such file, expected the path of a file"]

    code, out, _ = memplan("check", "a.json", "--base", "HEAD~1", "--fail-above", "0")
    assert code == 1
    assert "regression: +1 KiB is above the limit of 0 B" in out
    assert "layer.2 · mul (net.py:2) is larger: uint8 [2048] → uint8 [3072]" in out
    assert memplan("check", "a.json", "--base", "HEAD", "--fail-above", "0")[0] == 0
    assert memplan("check", "a.json", "--base", "HEAD~1")[0] == 0
    assert len(git(repository, "worktree", "list").splitlines()) == 1
    assert git(repository, "status", "--porcelain", "--untracked-files=no") == ""


def test_a_base_without_the_model_has_a_new_one_and_a_damaged_base_fails_where_growth_is_asked_for(
    memplan: Run, repository: Path
) -> None:
    (repository / "nets" / "a.json").write_text("{")
    git(repository, "commit", "-qam", "damaged")
    write(chain(1024, 1024), repository / "nets" / "a.json")
    code, out, _ = memplan("check", "nets/b.json", "--base", "HEAD~2", "--fail-above", "0")
    assert code == 0
    assert re.search(r"not compared +│ new +│", out)
    code, out, _ = memplan("check", "nets/a.json", "--base", "HEAD")
    assert code == 0
    assert "nets/a.json: not compared: a.json" in out
    code, out, err = memplan("check", "nets/a.json", "--base", "HEAD", "--fail-above", "0")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "nets/a.json: no graph of it at HEAD: a.json" in err
    assert "mend it there, name another base, or ask for no limit of its growth" in err


@pytest.mark.parametrize(
    ("factory", "file", "found", "new"),
    [
        ("net.py:net", "net.py", "SyntaxError: invalid syntax", False),
        ("net.py:net", "net.py", "no 'net' in it", True),
        ("net.py:net", "other.py", "FileNotFoundError: no such file: net.py", True),
        ("shop.nets:net", "shop/nets.py", "ModuleNotFoundError: No module named 'gone'", False),
        ("shop.nets:net", "src/shop/nets/__init__.py", "ModuleNotFoundError: No module named 'gone'", False),
        ("shop.nets:net", "shop/other.py", "ModuleNotFoundError: No module named 'shop.nets'", True),
        ("shop.nets:Nets.net", "shop/nets.py", "no 'Nets.net' in it", True),
    ],
)
def test_a_factory_is_new_where_its_file_or_function_is_not(
    tmp_path: Path, factory: str, file: str, found: str, new: bool
) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).touch()
    error = InputError(f"factory {factory}", "module", found, "a module that can be imported")
    assert ModelSource(factory, True).is_new(tmp_path, error) == new


@pytest.mark.slow
def test_a_factory_is_captured_as_it_was(memplan: Run, repository: Path) -> None:
    (repository / "net.py").write_text(NET.format(width=64) + "other = net\n")
    arguments = "check", "net.py:net", "net.py:other", "--base", "HEAD~1", "--json"
    code, out, _ = memplan(*arguments, "--fail-above", "2KiB")
    net, other = json.loads(out)["models"]
    # 4 × 64 floats for the layer and as many for its activation, not 4 × 16.
    assert (code, net["arena_bytes"], net["diff"]["base"]["arena_bytes"]) == (0, 2048, 512)
    assert "no 'other' in it" in other["sentences"][0]


def test_one_model_is_compared_with_a_file(memplan: Run, repository: Path) -> None:
    write(chain(1024, 1024), repository / "before.json")
    code, out, _ = memplan("check", "nets/a.json", "--base", "before.json", "--fail-above", "0", "--json")
    (model,) = json.loads(out)["models"]
    assert (code, model["arena_bytes"], model["diff"]["base"]["arena_bytes"]) == (1, 6144, 2048)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nets/a.json", "--fail-above", "0"], "--fail-above: found no --base, expected one"),
        (["nets/a.json", "--max-arena", "5KuB"], "--max-arena: found '5KuB', expected bytes below 2^63"),
        (
            ["nets/a.json", "--base", "nosuch"],
            "git: no such commit, 'nosuch', expected a commit that is here",
        ),
        (["nets/a.json", "--base=--all"], "git: no such commit, '--all', expected a commit that is here"),
        (["nets/a.json", "nets/b.json", "--base", "nets/b.json"], "found a file and 2 models"),
        (["list.csv"], "list.csv: found a problem, expected a graph"),
        (["nosuch.json"], "nosuch.json: no such file"),
        (["nets/a.json", "--max-reserved", "1"], "found a graph, expected a module or a factory"),
        (["nets/a.json", "-o", "report.txt"], "the suffix '.txt', expected .md or .json"),
        (["nosuch.json", "--badges", "net.py"], "net.py: found "),
        (["nosuch.json", "--badges", "net.py/badges"], "net.py, which is no folder, expected a folder, or "),
        (["nets/a.json", "--badges", "/proc/badges"], "/proc/badges: found No such file or directory"),
    ],
)
def test_what_cannot_be_checked_is_one_line(
    memplan: Run, repository: Path, arguments: list[str], told: str
) -> None:
    code, _, err = memplan("check", *arguments)
    assert code == 2
    assert told in err
    assert err.count("\n") == 1


def test_a_comment_has_a_row_a_model_and_keeps_within_its_room() -> None:
    base, head = make_plan(chain(1024, 3072, 2048)), make_plan(chain(1024, 3072, 3072))
    grown = [ModelCheck(f"model_{place}|<b>", head, base=base, limit=Limit()) for place in range(150)]
    markdown = check_markdown(grown, "compared with 1f0c")
    lines = markdown.splitlines()
    assert lines[0] == "### Memory: 150 of 150 models fail"
    cell = "<code>model_0&#124;&lt;b&gt;</code>"
    assert lines[4] == f"| {cell} | 6 KiB | 6 KiB | +1 KiB (+20.0 %) | 🔴 grew |"
    assert "and 50 more models" in lines
    assert lines[-1] == "<sub>memplan check; compared with 1f0c</sub>"
    assert 50_000 < len(markdown) <= 60_000
    assert markdown.count("<details>") == markdown.count("</details>") > 0
    unchanged = check_markdown([ModelCheck("a", base, base=base, limit=Limit())])
    assert unchanged.splitlines()[0] == "### Memory: 1 model, no change"
    assert "| 🟢 fits |" in unchanged
    assert "<details>" not in unchanged


def test_badges_are_what_shields_io_reads(memplan: Run, tmp_path: Path) -> None:
    write(chain(1024, 3072, 2048), tmp_path / "a.json")
    for options, color in (("", "blue"), ("--max-arena=5KiB", "brightgreen"), ("--max-arena=1", "red")):
        memplan("check", "a.json", "--badges", "new/badges", *options.split())
        assert json.loads((tmp_path / "new" / "badges" / "a.json.json").read_text()) == {
            "schemaVersion": 1, "label": "a.json arena", "message": "5 KiB", "color": color,
        }  # fmt: skip
    assert badge_file("shop.models:decoder") == "shop.models-decoder.json"
    strange = {badge_file(name) for name in ("a(batch=1)", "a(batch 1)", "../a", "x" * 300)}
    assert len(strange) == 4
    assert all("/" not in name and not name.startswith(".") and len(name) < 80 for name in strange)


def test_a_graph_that_did_not_change_is_planned_once(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checked,) = check_models(CheckRequest([ModelSource("nets/b.json", False)], base="HEAD"), repository)
    assert checked.base is checked.plan
