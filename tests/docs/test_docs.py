"""The examples in docs/ are run: commands print what is shown, Python blocks run in the order of the page."""

from __future__ import annotations

import doctest
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import ROOT

PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md") if path.name != "extending.md")
NAME = {"ids": lambda page: page.stem}
CHECKER = doctest.OutputChecker()
RUN_ELSEWHERE = {"dynamic_shapes", "fx_estimator"}
"""test_dynamic_shapes and test_fx_estimator_runs run every example of these and compare what it prints."""


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[tuple[str, str]]:
    """(command, what it is said to print) of every `$ …` in a console block."""
    found = []
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            found.append((command.split("  #")[0].strip(), printed))
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "example_graphs").symlink_to(ROOT / "example_graphs")
    return tmp_path


def plain(text: str) -> str:
    """Without the seconds, which differ, and the blanks at the ends of lines."""
    lines = (line.rstrip() for line in text.splitlines() if not line.startswith("planned in"))
    return "\n".join(lines).strip() + "\n"


SLOW = {"devices"}
"""Pages whose commands run several processes."""
WITH_COMMANDS = [
    pytest.param(page, marks=[pytest.mark.slow] * (page.stem in SLOW), id=page.stem)
    for page in PAGES
    if commands(page)
]


@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_commands_print_what_is_shown(
    page: Path, folder: Path, memplan: Callable[..., tuple[int, str, str]]
) -> None:
    """`...` stands for any text. In this process: what a process of its own adds is what test_cli_startup
    and the README's tests look at."""
    for command, shown in commands(page):
        program, *arguments = shlex.split(command)
        assert program == "memplan", command
        code, out, err = memplan(*arguments)
        printed = plain(out or err)
        if shown.strip():
            same = CHECKER.check_output(plain(shown), printed, doctest.ELLIPSIS)
            assert same, f"$ {command}\nshown:\n{shown}\nprinted:\n{printed}\n{err}"
        else:
            assert code == 0, f"$ {command}\n{err}"


RUN_HERE = [page for page in PAGES if blocks(page, "python") and page.stem not in RUN_ELSEWHERE]


@pytest.mark.parametrize("page", RUN_HERE, **NAME)
def test_python_examples_run(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, which has imported torch already."""
    monkeypatch.chdir(folder)
    program = compile("\n".join(blocks(page, "python")), str(page), "exec", dont_inherit=True)
    exec(program, {"__name__": "example"})


def test_every_page_and_picture_that_is_linked_exists() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"
