"""Which commit a folder is at, as git says; and what else a run is known by."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from memplan_engine.errors import InputError, MemplanError, one_line
from memplan_engine.history.history_values import HistoryRun, pairs

PACKAGES = ("memplan", "torch", "onnx", "transformers", "numpy")
"""Those whose versions change what is captured or planned."""
HOOK_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR")
_NO_REPOSITORY = "not a git repository"
_SECONDS = 60


def commit_run(folder: Path | str = ".", *, project: str = "", commit: str = "HEAD") -> HistoryRun:
    """The run that records the commit at which the repository around `folder` is.

    Parameters
    ----------
    project: what it is called; unless given as the remote `origin` ends, or as its folder.
    commit: another one, of which the files are then taken to be clean.

    Raises
    ------
    InputError: no repository, or no such commit. MemplanError: git is not installed, or does not answer.
    """
    folder = Path(folder)
    top = ask_git(folder, "rev-parse", "--show-toplevel")
    named, parents, when = ask_git(
        folder, "show", "-s", "--format=%H%n%P%n%ct", f"{commit}^{{commit}}"
    ).split("\n")
    here = commit == "HEAD"
    dirty = here and bool(ask_git(folder, "status", "--porcelain", "--untracked-files=no"))
    run = HistoryRun(
        project=project or _project(folder, Path(top)),
        commit=named,
        parent=parents.split(" ")[0],
        committed_at=max(0, int(when)),
        branch=current_branch(folder) if here else "",
        dirty=dirty,
    )
    return stamped(run)


def work_tree(folder: Path | str = ".") -> Path | None:
    """The top of the work tree that `folder` lies in, None where it lies in none.

    Raises
    ------
    InputError: a repository that git does not look into. MemplanError: as `ask_git`.
    """
    try:
        return Path(ask_git(Path(folder), "rev-parse", "--show-toplevel"))
    except InputError as error:
        if _NO_REPOSITORY in error.found:
            return None
        raise


def run_of(
    folder: Path | str = ".",
    *,
    project: str = "",
    commit: str = "",
    branch: str = "",
    committed_at: int | None = None,
) -> HistoryRun:
    """The run that records `commit`, or what is checked out around `folder`: as git says where there is a
    repository, else as it is given. `committed_at` is in seconds since 1970, UTC.

    Raises
    ------
    InputError: a repository without that commit, or without any. MemplanError: as `ask_git`.
    """
    if work_tree(folder) is None:
        check_commit(commit)
        named = project or Path(folder).resolve().name
        run = stamped(HistoryRun(named, commit=commit, branch=branch))
    else:
        run = commit_run(folder, project=project, commit=commit or "HEAD")
        run = replace(run, branch=branch or run.branch)
    return run if committed_at is None else replace(run, committed_at=committed_at)


def check_commit(name: str) -> None:
    """Raise InputError where `name`, which no repository has, does not mean the same commit everywhere."""
    if not re.fullmatch(r"[\w./+-]*", name) or name.rpartition("/")[2] == "HEAD":
        raise InputError("--commit", "", repr(name), "a hash or a tag: no repository here knows that commit")


def author_name(folder: Path | str = ".") -> str:
    """Who works in `folder`, as git has it; "" where nobody is named."""
    return ask_git(Path(folder), "config", "--default", "", "--get", "user.name")


def stamped(run: HistoryRun) -> HistoryRun:
    """`run` with the versions of the packages, the machine and the time of now, seconds since 1970, UTC."""
    versions: dict[str, object] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return replace(run, versions=pairs(versions), host=platform.node(), recorded_at=int(time.time()))


def _project(folder: Path, top: Path) -> str:
    origin = ask_git(folder, "config", "--default", "", "--get", "remote.origin.url")
    return origin.rstrip("/").removesuffix(".git").replace(":", "/").rpartition("/")[2] or top.name


def current_branch(folder: Path | str = ".") -> str:
    """The branch that is checked out; where CI checks out a commit alone, the one that it says."""
    branch = ask_git(Path(folder), "branch", "--show-current")
    return branch or os.environ.get("GITHUB_HEAD_REF") or os.environ.get("GITHUB_REF_NAME") or ""


def ask_git(folder: Path, *arguments: str) -> str:
    """What git says in `folder`, without the ends of its last line.

    Raises
    ------
    InputError: it refuses, with what it says. MemplanError: it is not installed, or does not answer.
    """
    command = ["git", "-C", str(folder), *arguments]
    # Its messages are read by people, and its locks are for those who write. Within a hook of git's,
    # variables say where the repository is, whatever folder is asked for.
    environment = {name: value for name, value in os.environ.items() if name not in HOOK_VARIABLES}
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_LFS_SKIP_SMUDGE": "1", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise MemplanError("which commit this is only git says: install it, or name the commit") from None
    except subprocess.TimeoutExpired:
        raise MemplanError(f"{folder}: git did not answer within {_SECONDS} s") from None
    if done.returncode:
        said = one_line(done.stderr).removeprefix("fatal: ") or f"code {done.returncode}"
        raise InputError(str(folder), "git", f"{said!r}", "a repository with that commit")
    return done.stdout.strip("\n")
