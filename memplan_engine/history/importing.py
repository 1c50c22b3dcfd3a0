"""What was kept before there was a store: plans and graphs in files, each of a commit; and other stores."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from memplan_engine.errors import InputError
from memplan_engine.files import load
from memplan_engine.history.git.git_commit import check_commit, commit_run, stamped, work_tree
from memplan_engine.history.history_values import HistoryRun, NewPoint
from memplan_engine.history.measuring import measure_loaded

SQLITE = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True)
class OldFile:
    """A graph or a plan at `path`, of `commit`, made at `committed_at` (seconds since 1970, UTC; None where
    git is to say, or nobody knows)."""

    path: Path
    commit: str = ""
    committed_at: int | None = None


def is_store(path: Path) -> bool:
    """Whether the file at `path` is a database of SQLite's."""
    try:
        with path.open("rb") as file:
            return file.read(len(SQLITE)) == SQLITE
    except OSError:
        return False


def measure_old(
    old: OldFile,
    folder: Path | str = ".",
    *,
    project: str = "",
    model: str = "",
    variant: str = "",
    branch: str = "",
    parent: str = "",
) -> tuple[HistoryRun, NewPoint]:
    """The run and the point of `old`. Where the repository around `folder` has the commit, git says what came
    before it and when it was made; else `parent` is what came before.

    Raises
    ------
    InputError: a file that holds neither; what `measure_loaded` raises.
    """
    run = _run_of(old, folder, project, parent)
    point = measure_loaded(load(old.path), project=run.project, model=model, variant=variant)
    return replace(run, branch=branch or run.branch), point


def _run_of(old: OldFile, folder: Path | str, project: str, parent: str) -> HistoryRun:
    top = work_tree(folder)
    named = project or (top.name if top else Path(folder).resolve().name)
    run = stamped(HistoryRun(named, old.commit, parent))
    if top and old.commit:
        # One of another repository, or that was force-pushed away, is taken as it is given.
        with suppress(InputError):
            run = commit_run(top, project=project, commit=old.commit)
    if run.commit == old.commit:
        check_commit(old.commit)
    # What it was made with nobody knows any more.
    run = replace(run, versions=(), host="")
    return run if old.committed_at is None else replace(run, committed_at=old.committed_at)
