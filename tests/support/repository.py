"""Repositories of git that tests make: commits with files, at times of their own."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path


def git(folder: Path, *arguments: str, when: int = 1_700_000_000) -> str:
    """What git says in `folder`; commits are of `when`, seconds since 1970."""
    dates = {"GIT_AUTHOR_DATE": f"{when} +0000", "GIT_COMMITTER_DATE": f"{when} +0000"}
    names = ["-c", "user.name=ann", "-c", "user.email=ann@example.org", "-c", "init.defaultBranch=trunk"]
    done = subprocess.run(
        ["git", "-C", str(folder), *names, *arguments], check=True, capture_output=True, text=True,
        env={**os.environ, **dates, "GIT_CONFIG_GLOBAL": os.devnull},
    )  # fmt: skip
    return done.stdout.strip()


@dataclass
class Repository:
    """A new repository in `folder`, on the branch trunk."""

    folder: Path
    clock: int = 1_700_000_000

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        git(self.folder, "init", "-q")

    def commit(self, message: str = "", **files: str) -> str:
        """The hash of a commit with `files`, by their names without ".py"; a minute after the one before."""
        for name, text in files.items():
            (self.folder / f"{name}.py").write_text(text)
        git(self.folder, "add", "-A")
        self.clock += 60
        git(self.folder, "commit", "-q", "--allow-empty", "-m", message or "change", when=self.clock)
        return self.git("rev-parse", "HEAD")

    def git(self, *arguments: str) -> str:
        """What git says."""
        return git(self.folder, *arguments, when=self.clock)
