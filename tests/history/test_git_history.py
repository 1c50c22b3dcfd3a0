"""The commits that a repository has: merges, force pushes, shallow clones, hooks; work trees, baselines."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from memplan_engine.errors import InputError
from memplan_engine.history.baselines import baseline_commit, baseline_points, branch_of, target_branch
from memplan_engine.history.database.store import History
from memplan_engine.history.git.git_commit import commit_run, run_of, work_tree
from memplan_engine.history.git.git_history import ancestors, commits_between, merge_base, tree_of
from memplan_engine.history.git.worktrees import worktrees
from memplan_engine.history.history_values import HistoryFigures, HistorySeries, NewPoint
from memplan_engine.history.store_place import find_store
from tests.support.repository import Repository, git

SERIES = HistorySeries("proj", "model")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    for name in ("GITHUB_BASE_REF", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "GITHUB_REF_NAME"):
        monkeypatch.delenv(name, raising=False)
    return Repository(tmp_path / "proj")


def point(size: int) -> NewPoint:
    return NewPoint(SERIES, HistoryFigures(size, size, size, "load"))


def test_commits_between_are_those_of_the_line_of_first_parents(repository: Repository) -> None:
    first, second = repository.commit(a="1"), repository.commit(a="2")
    repository.git("checkout", "-qb", "topic", first)
    topic = repository.commit(b="1")
    repository.git("checkout", "-q", "trunk")
    repository.git("merge", "-q", "--no-ff", "-m", "merge", "topic")
    merge, top = repository.git("rev-parse", "HEAD"), repository.folder
    last = repository.commit(a="3")
    assert commits_between(top, first, "trunk") == [second, merge, last]
    assert commits_between(top, last, "HEAD") == []
    # From within what was merged.
    assert commits_between(top, topic, "trunk") == [second, merge, last]
    assert ancestors(top, "HEAD", 2) == [last, merge, second]
    assert merge_base(top, second, topic) == first
    with pytest.raises(InputError, match=f"which {topic[:12]} does not come from, expected .* {first[:12]}"):
        commits_between(top, second, topic)
    with pytest.raises(InputError, match=f"{last[:12]}, which comes from {second[:12]}, expected .* swap"):
        commits_between(top, last, second)
    same = repository.commit("nothing")
    assert tree_of(top, same) == tree_of(top, last) != tree_of(top, first)


def test_a_commit_that_was_force_pushed_away_is_told(repository: Repository) -> None:
    base = repository.commit(a="1")
    with pytest.raises(InputError, match=r"no such commit, 'feedbeef', expected .* force-pushed away"):
        commits_between(repository.folder, "feedbeef", base)


def test_a_shallow_clone_is_told_to_become_a_whole_one(repository: Repository, tmp_path: Path) -> None:
    first = repository.commit(a="1")
    repository.commit(a="2")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth", "1", repository.folder.as_uri(), str(clone))
    with pytest.raises(InputError, match=r"no such commit.*`git fetch --unshallow`"):
        commits_between(clone, first, "HEAD")


def test_within_a_hook_git_is_asked_of_the_folder_that_is_meant(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = repository.commit(a="1")
    other = Repository(tmp_path / "other")
    other.commit(a="2")
    monkeypatch.setenv("GIT_DIR", str(other.folder / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other.folder))
    assert commit_run(repository.folder).commit == own


def test_the_store_is_in_the_repository_unless_another_is_named(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MEMPLAN_HISTORY", raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    inside = repository.folder / "deep"
    inside.mkdir()
    place = repository.folder.resolve() / ".memplan"
    assert find_store(folder=inside) == str(place / "history.db")
    assert not place.exists()
    assert find_store(folder=inside, to_write=True) == str(place / "history.db")
    (place / "history.db").write_text("x")
    assert repository.git("status", "--porcelain") == ""
    assert find_store("mine.db", folder=inside) == "mine.db"
    nowhere = tmp_path / "nowhere"
    nowhere.mkdir()
    with pytest.raises(InputError, match="this is no git repository, expected --store FILE, MEMPLAN_HISTORY"):
        find_store(folder=nowhere)
    monkeypatch.setenv("MEMPLAN_HISTORY", "postgresql://ann@host/team")
    assert find_store(folder=nowhere) == "postgresql://ann@host/team"
    assert work_tree(nowhere) is None
    run = run_of(nowhere, commit="abc", branch="main", committed_at=7)
    assert (run.project, run.commit, run.branch, run.committed_at) == ("nowhere", "abc", "main", 7)


def test_a_pull_request_is_compared_with_its_merge_base(
    repository: Repository, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = repository.folder
    first, second = repository.commit(a="1"), repository.commit(a="2")
    repository.git("checkout", "-qb", "topic")
    repository.commit(a="3")
    topic = commit_run(top, project="proj")
    repository.git("checkout", "-q", "trunk")
    third = repository.commit(a="4")
    assert target_branch(top) == ""
    # Without a branch to go to: the commit before.
    assert baseline_commit(topic, top) == second
    assert baseline_commit(topic, top, "trunk") == second
    assert baseline_commit(commit_run(top), top, "trunk") == second
    monkeypatch.setenv("GITHUB_BASE_REF", "trunk")
    assert target_branch(top) == "trunk"
    assert baseline_commit(topic, top) == second
    monkeypatch.setenv("GITHUB_BASE_REF", "gone")
    with pytest.raises(InputError, match=r"no such branch, 'gone', which CI says.*git fetch origin gone"):
        baseline_commit(topic, top)
    (top / "a.py").write_text("5")
    assert baseline_commit(commit_run(top), top, "trunk") == third

    # The nearest commit that has a point, not one of what came later or with changed files.
    for commit, size in ((first, 10), (third, 99)):
        history.record(commit_run(top, project="proj", commit=commit), [point(size)])
    history.record(commit_run(top, project="proj"), [point(77)])
    found = baseline_points(history, [SERIES, HistorySeries("proj", "other")], second, top)
    assert {series: each.figures.arena for series, each in found.items()} == {SERIES: 10}
    assert baseline_points(history, [SERIES], third, top)[SERIES].figures.arena == 99
    assert branch_of(top, "trunk") == "trunk"
    # A commit alone is of the branch that has it.
    assert branch_of(top, first) == "trunk"
    assert branch_of(top, "topic") == "topic"
    assert branch_of(top, "topic~0") == ""
    repository.git("stash", "-q")
    repository.git("checkout", "-q", "topic")
    monkeypatch.setenv("GITHUB_BASE_REF", "trunk")
    assert (branch_of(top, "HEAD~0"), branch_of(top, second)) == ("topic", "trunk")


def test_a_baseline_is_found_by_what_the_store_knows_where_git_knows_nothing(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    parent = ""
    for commit, size in (("a", 1), ("b", None), ("c", None)):
        run = run_of(tmp_path, project="proj", commit=commit)
        object.__setattr__(run, "parent", parent)
        history.record(run, [point(size)] if size else [])
        parent = commit
    assert baseline_points(history, [SERIES], "c", tmp_path)[SERIES].run.commit == "a"


def test_work_trees_have_the_files_of_their_commit_and_are_gone_afterwards(repository: Repository) -> None:
    one, two = repository.commit(a="1", b="1"), repository.commit(a="2")
    (repository.folder / ".git" / "hooks" / "post-checkout").write_text("#!/bin/sh\ntouch ran\n")
    (repository.folder / ".git" / "hooks" / "post-checkout").chmod(0o755)
    with worktrees(repository.folder, 1) as trees:
        with trees.at(one) as tree:
            assert (tree / "a.py").read_text() == "1"
            assert not tree.is_relative_to(repository.folder)
            (tree / "a.py").write_text("changed")
            (tree / "left.py").write_text("over")
        with trees.at(two) as again:
            assert again == tree
            assert (again / "a.py").read_text() == "2"
            assert {path.name for path in again.iterdir()} == {".git", "a.py", "b.py"}
        with pytest.raises(InputError), trees.at("feedbeef"):
            pass
    assert not tree.exists()
    assert len(repository.git("worktree", "list").splitlines()) == 1
    assert (repository.folder / "a.py").read_text() == "2"


def test_work_trees_of_a_process_that_was_killed_go_with_the_next_one(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    commit = repository.commit(a="1")
    left = tmp_path / "temporary" / "memplan-left"
    left.mkdir()
    (left / ".memplan-scratch").touch()
    repository.git("worktree", "add", "-q", "--detach", str(left / "tree0"), commit)
    os.utime(left, (1, 1))
    with worktrees(repository.folder, 1):
        assert not left.exists()
        assert len(repository.git("worktree", "list").splitlines()) == 1
