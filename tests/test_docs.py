"""The examples in docs/ are run: commands print what is shown, Python blocks run in the order of the page."""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md") if path.name != "extending.md")
NAME = {"ids": lambda page: page.stem}
CHECKER = doctest.OutputChecker()


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


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], **NAME)
def test_commands_print_what_is_shown(page: Path, folder: Path) -> None:
    """`...` stands for any text."""
    for command, shown in commands(page):
        program, *arguments = shlex.split(command)
        assert program == "memplan", command
        line = [sys.executable, "-m", "memplan_engine", *arguments]
        done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=120)
        printed = plain(done.stdout or done.stderr)
        if shown.strip():
            same = CHECKER.check_output(plain(shown), printed, doctest.ELLIPSIS)
            assert same, f"$ {command}\nshown:\n{shown}\nprinted:\n{printed}\n{done.stderr}"
        else:
            assert done.returncode == 0, f"$ {command}\n{done.stderr}"


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], **NAME)
def test_python_examples_run(page: Path, folder: Path) -> None:
    program = "\n".join(blocks(page, "python"))
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, f"{page.name}\n{done.stderr}"


def test_every_page_and_picture_that_is_linked_exists() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"
