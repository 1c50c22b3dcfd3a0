"""Commits checked out beside each other, in a temporary folder outside of the repository."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from memplan_engine.history.git.git_commit import ask_git

QUIET = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "advice.detachedHead=false")
"""Nothing of the repository runs because of a checkout of ours."""


@dataclass(slots=True)
class Worktrees:
    """Up to `count` work trees of the repository at `top`, below `folder`, each for one commit at a time."""

    top: Path
    folder: Path
    count: int
    _free: queue.SimpleQueue[Path] = field(default_factory=queue.SimpleQueue)
    _made: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def at(self, commit: str) -> Iterator[Path]:
        """A work tree with the files of `commit` and no others, for as long as it is needed; waits for one.

        Raises
        ------
        InputError: git cannot check it out.
        """
        place = self._take(commit)
        try:
            ask_git(place, *QUIET, "checkout", "--quiet", "--force", "--detach", commit)
            ask_git(place, *QUIET, "clean", "-ffdxq")
            yield place
        finally:
            self._free.put(place)

    def _take(self, commit: str) -> Path:
        with contextlib.suppress(queue.Empty):
            return self._free.get_nowait()
        with self._lock:
            if self._made < self.count:
                place = self.folder / f"tree{self._made}"
                add = (
                    "worktree",
                    "add",
                    "--quiet",
                    "--force",
                    "--no-checkout",
                    "--detach",
                    str(place),
                    commit,
                )
                ask_git(self.top, *QUIET, *add)
                self._made += 1
                return place
        return self._free.get()


@contextlib.contextmanager
def worktrees(top: Path, count: int) -> Iterator[Worktrees]:
    """Work trees of the repository at `top`, gone at the end. Those of processes that were killed go first.

    Raises
    ------
    InputError: no folder for temporary files, or git that does not let go of one.
    """
    from memplan_engine.runtime.scratch import scratch_folder

    try:
        with scratch_folder() as folder:
            _prune(top)
            yield Worktrees(top, folder.resolve(), count)
    finally:
        _prune(top)


def _prune(top: Path) -> None:
    """Have git forget work trees whose folders are gone."""
    ask_git(top, "worktree", "prune")
