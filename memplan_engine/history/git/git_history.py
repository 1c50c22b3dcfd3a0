"""The commits of a repository, as far as it has them: a clone may be shallow, and history rewritten."""

from __future__ import annotations

import hashlib
from pathlib import Path

from memplan_engine.errors import InputError
from memplan_engine.history.git.git_commit import ask_git
from memplan_engine.history.history_values import HistoryRun

KEY_LETTERS = 32
SHALLOW = "a whole clone: `git fetch --unshallow` makes it one"


def commit_of(folder: Path, name: str) -> str:
    """The hash of the commit that `name` names; raises InputError where there is none."""
    return ask_git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")


def merge_base(folder: Path, name: str, other: str) -> str:
    """The last commit that `name` and `other` have in common.

    Raises
    ------
    InputError: none, or none that a shallow clone has; no such commit.
    """
    pair = known_commit(folder, name), known_commit(folder, other)
    try:
        return ask_git(folder, "merge-base", *pair)
    except InputError:
        expected = SHALLOW if is_shallow(folder) else "two commits of one history"
        found = f"no commit that {name} and {other} have in common"
        raise InputError(str(folder), "git", found, expected) from None


def known_commit(folder: Path, name: str) -> str:
    """The hash of `name`; raises InputError that says what may have become of it."""
    try:
        return commit_of(folder, name)
    except InputError:
        if name == "HEAD":
            raise InputError(str(folder), "git", "no such commit: it has none yet", "a first one") from None
        expected = "a commit that is here: fetch it; one that was force-pushed away is in nobody's clone"
        expected = SHALLOW if is_shallow(folder) else expected
        raise InputError(str(folder), "git", f"no such commit, {name!r}", expected) from None


def commits_between(folder: Path, base: str, head: str) -> list[str]:
    """The commits after `base` up to `head` on the line of first parents, the oldest first: what was merged
    counts as its merge.

    Raises
    ------
    InputError: `base` is no ancestor of `head`, or not of what a shallow clone has.
    """
    common, base, head = (
        merge_base(folder, base, head),
        known_commit(folder, base),
        known_commit(folder, head),
    )
    if common == head != base:
        expected = "the earlier commit first: swap them"
        raise InputError(str(folder), "git", f"{base[:12]}, which comes from {head[:12]}", expected)
    if common != base:
        expected = f"one that {head[:12]} comes from, such as {common[:12]}, which both have in common"
        raise InputError(str(folder), "git", f"{base[:12]}, which {head[:12]} does not come from", expected)
    return ask_git(folder, "rev-list", "--first-parent", "--reverse", head, f"^{base}").split()


def ancestors(folder: Path, name: str, most: int) -> list[str]:
    """`name` and up to `most` commits before it on the line of first parents, the nearest first."""
    head = known_commit(folder, name)
    return ask_git(folder, "rev-list", "--first-parent", f"--max-count={most + 1}", head).split()


def line_runs(folder: Path, project: str, name: str, most: int) -> list[HistoryRun]:
    """Runs of `project` for `name` and up to `most` commits before it on the line of first parents, so that a
    store knows their order; each has the same key whenever it is asked for."""
    form = "--format=%H%x09%P%x09%ct"
    told = ask_git(
        folder, "log", "--first-parent", f"--max-count={most + 1}", form, known_commit(folder, name)
    )
    runs = []
    for row in told.splitlines():
        commit, parents, when = row.split("\t")
        key = hashlib.sha256(f"line {project} {commit}".encode("utf-8", "replace")).hexdigest()[:KEY_LETTERS]
        parent = parents.partition(" ")[0]
        runs.append(HistoryRun(project, commit, parent, max(0, int(when)), key=key))
    return runs


def is_ancestor(folder: Path, name: str, other: str) -> bool:
    """Whether `name` is `other`, or a commit before it, as far as the clone has them."""
    try:
        ask_git(folder, "merge-base", "--is-ancestor", name, other)
    except InputError:
        return False
    return True


def tree_of(folder: Path, commit: str) -> str:
    """The hash of the files of `commit`: two commits with the same have the same files."""
    return ask_git(folder, "rev-parse", f"{commit}^{{tree}}")


def is_shallow(folder: Path) -> bool:
    """Whether the clone has not all commits."""
    return ask_git(folder, "rev-parse", "--is-shallow-repository") == "true"
