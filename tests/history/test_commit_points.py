"""A factory at each of many commits: captured in work trees, skipped where it does not build; and searches
that are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from memplan_engine.errors import InputError
from memplan_engine.history.commit_points import FactoryRecipe
from memplan_engine.history.opening import open_history
from tests import ROOT
from tests.support.repository import Repository

KILLS = 24
Memplan = Callable[..., tuple[int, str, str]]
NET = """
import torch
from parts import Block

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(64) for _ in range(4)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x

def net(batch=16):
    return Net().eval(), (torch.zeros(batch, 64),)
"""
LEAN = """
import torch

class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = torch.nn.Linear(width, 2 * width)
        self.down = torch.nn.Linear(2 * width, width)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))
"""
WIDE = LEAN.replace("2 * width", "5 * width")
BROKEN = "import torch\nraise RuntimeError('half of a refactoring')\n"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A model whose blocks become wider in the fifth of seven commits; the third does not build, the fourth
    has another comment, the last is as the sixth."""
    monkeypatch.delenv("MEMPLAN_HISTORY", raising=False)
    made = Repository(tmp_path / "zoo")
    for parts in (LEAN, LEAN, BROKEN, f"# smaller\n{LEAN}", WIDE, f"# larger\n{WIDE}", f"# larger\n{WIDE}"):
        made.commit(net=NET, parts=parts)
    return made


def commits(repository: Repository) -> list[str]:
    return repository.git("log", "--reverse", "--format=%H").split()


def worktrees_of(repository: Repository) -> int:
    return len(repository.git("worktree", "list").splitlines())


def test_commits_are_recorded_and_the_one_to_blame_is_found(
    memplan: Memplan, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository.folder)
    line = commits(repository)
    # What is checked out is no part of it.
    (repository.folder / "parts.py").write_text(BROKEN)
    code, out, err = memplan("history", "bisect", "HEAD~6", "HEAD", "-j", "2", "--json", "--", "net.py:net")
    assert code == 0, err
    found = json.loads(out)
    assert (found["change"]["commit"], found["change"]["before"]) == (line[4], line[3])
    # What goes into relu and what comes out: 16 rows of 128 floats each, then of 320.
    assert (found["figure"], found["whole_demand_delta"], found["share"]) == ("demand", 2 * 16 * 192 * 4, 1.0)
    assert found["change"]["code"].strip() == "return self.down(torch.relu(self.up(x)))"
    assert found["change"]["line"] == "parts.py:11"
    assert found["commits"] == 7
    assert (found["looked_at"] <= 6) or found["skipped"]

    code, out, err = memplan("history", "record", "net.py:net", "--range", "HEAD", "-j", "2")
    assert (code, out) == (0, "")
    told = {row.split()[1]: row for row in err.splitlines()[:-1]}
    assert set(told) == {commit[:12] for commit in line}
    assert "half of a refactoring" in told[line[2][:12]]
    assert "recorded before" in told[line[4][:12]]
    assert err.splitlines()[-1].startswith("6 commits of net in ")
    assert err.splitlines()[-1].endswith(", 1 commit skipped")
    with open_history(".memplan/history.db", read_only=True) as history:
        points = history.points()
        assert {point.run.branch for point in points} == {"trunk"}
        by_commit = {point.run.commit: point for point in points}
        assert len(points) == len(by_commit) == 6
        assert by_commit[line[0]].fingerprints == by_commit[line[1]].fingerprints
        # Lines moved, the model did not.
        first, fourth = by_commit[line[0]].fingerprints, by_commit[line[3]].fingerprints
        assert (first.structure, first.graph != fourth.graph) == (fourth.structure, True)
        ops = history.graph(fourth.graph).ops
        assert {op.source.file for op in ops if op.source} <= {"parts.py", "net.py"}
    code, out, _ = memplan("history", "blame")
    assert code == 0
    assert out.splitlines()[0].startswith(f"{line[4][:12]}  ")
    assert "bisect" not in out
    assert worktrees_of(repository) == 1
    assert repository.git("status", "--porcelain") == "M parts.py"

    # A factory that is not of the commits, and a model that is not of the repository.
    outside = repository.folder.parent / "own.py"
    outside.write_text("import torch\n\ndef own():\n    return torch.nn.Linear(2, 2), (torch.zeros(1, 2),)\n")
    code, _, err = memplan("history", "record", f"{outside}:own", "--range", "HEAD~1..HEAD")
    assert code == 2
    assert "no module that is a file of the commit, expected modules of the commit: --path names" in err
    outside.write_text("from net import net\n\ndef own():\n    return net(8)\n")
    code, _, err = memplan("history", "record", f"{outside}:own", "--range", "HEAD~1..HEAD")
    assert (code, err.splitlines()[-1].startswith("1 commit of own")) == (0, True)


@pytest.fixture
def told_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """Commits with the graphs base, base, head, head, a file each instead of a factory's capture; the current
    folder is their work tree."""

    def capture_at(recipe: FactoryRecipe, tree: Path, stop: object = None) -> bytes:
        if recipe.series.model != "net":
            raise InputError("factory", "", f"no such function, {recipe.series.model!r}", "net")
        return (
            ROOT / "example_graphs" / f"diff_kept_view_{(tree / 'side.py').read_text()}.json"
        ).read_bytes()

    for name in ("MEMPLAN_HISTORY", "GITHUB_BASE_REF", "GITHUB_REF_NAME", "GITHUB_HEAD_REF"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(FactoryRecipe, "capture_at", capture_at)
    monkeypatch.setattr(FactoryRecipe, "capture", lambda recipe: capture_at(recipe, recipe.top))
    made = Repository(tmp_path / "zoo")
    monkeypatch.chdir(made.folder)
    for side in ("base", "base", "head", "head"):
        made.commit(side=side)
    return made


def test_growth_within_a_range_fails_where_that_is_asked_for(
    memplan: Memplan, told_graphs: Repository
) -> None:
    recorded = "history", "record", "net.py:net", "--fail-on-growth", "-j", "1", "--range"
    assert memplan(*recorded, "HEAD~3..HEAD~2")[0] == 0
    assert memplan(*recorded, "HEAD", "--limit", "4MiB")[0] == 0
    assert memplan(*recorded, "HEAD")[0] == 1
    assert memplan("history", "trend", "net", "--fail-on-growth")[0] == 1
    code, _, err = memplan("history", "record", "net.py:nte", "--range", "HEAD~2..HEAD", "-j", "1")
    assert code == 2
    assert err.splitlines()[-1] == (
        "memplan: factory net.py:nte: found none of 2 commits at which it can be captured, expected a "
        "factory that one of them has"
    )
    code, _, err = memplan("history", "record", "net.py:net", "--range", "HEAD...HEAD~2")
    assert (code, "found 'HEAD...HEAD~2', expected two dots" in err) == (2, True)


def test_a_range_in_the_past_of_a_branch_is_of_that_branch(memplan: Memplan, told_graphs: Repository) -> None:
    assert memplan("history", "record", "net.py:net", "--range", "HEAD~3..HEAD~2", "-j", "1")[0] == 0
    assert memplan("history", "record", "net.py:net")[0] == 0
    code, out, _ = memplan("history", "trend", "net")
    assert code == 0
    assert out.splitlines()[1].startswith("2 commits on trunk, ")


def test_a_factory_is_recorded_for_no_other_commit_than_its_own(
    memplan: Memplan, told_graphs: Repository
) -> None:
    first, head = commits(told_graphs)[0], commits(told_graphs)[-1]
    code, _, err = memplan("history", "record", "net.py:net", "--commit", first[:9])
    assert code == 2
    assert f"--commit: found {first[:12]}, while a factory" in err
    assert f"expected --range {first[:12]}~..{first[:12]}" in err
    (told_graphs.folder / "side.py").write_text("base")
    code, out, _ = memplan("history", "record", "net.py:net", "--commit", head)
    # Its files were changed.
    assert (code, f": {head[:12]}+" in out) == (0, True)
    for verb in ("record net.py:net --commit nope", "baseline --commit nope"):
        code, _, err = memplan("history", *verb.split())
        assert (code, "no such commit, 'nope', expected a commit that is here" in err) == (2, True)
    Repository(told_graphs.folder / "new")
    os.chdir(told_graphs.folder / "new")
    code, _, err = memplan("history", "record", "net.py:net")
    assert (code, "no such commit: it has none yet" in err) == (2, True)


@pytest.mark.slow
def test_searches_that_are_killed_lose_nothing_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "zoo")
    for width in [1000] * 9 + [5000] * 5:
        repository.commit(net="", parts=str(width))
    temporary, store = tmp_path / "temporary", tmp_path / "history.db"
    temporary.mkdir()
    script = Path(__file__).with_name("killed_bisect.py")
    done = subprocess.run(
        [sys.executable, str(script), str(repository.folder), str(store), str(temporary), str(KILLS), "22"],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    step = commits(repository)[9]
    assert (told["killed"], told["found"], told["left"]) == (KILLS, [step, step], [0, 0])
    # What is there stays, once each, until the store is taken away.
    before: list[str] = []
    for there in told["points"]:
        assert len(there) == len(set(there))
        assert not there or there[: len(before)] == before
        before = there
    assert len({len(there) for there in told["points"]}) > 3


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_search_that_is_asked_to_end_leaves_no_work_tree(
    repository: Repository, tmp_path: Path, ending: signal.Signals
) -> None:
    line = [sys.executable, "-m", "memplan_engine", "history", "bisect", "HEAD~6", "HEAD", "--", "net.py:net"]
    with subprocess.Popen(
        line, cwd=repository.folder, env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
    ) as running:  # fmt: skip
        assert running.stderr is not None
        # The first commit is there.
        assert "arena" in running.stderr.readline()
        os.kill(running.pid, ending)
        running.communicate(timeout=60)
    assert running.returncode == 128 + ending
    assert worktrees_of(repository) == 1
    assert list(tmp_path.glob("memplan-*")) == []
    with open_history(repository.folder / ".memplan" / "history.db") as history:
        assert 1 <= len(history.points()) < 6
