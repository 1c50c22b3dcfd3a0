"""git, as nobody has configured it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def git(folder: Path, *arguments: str) -> str:
    """Return what `git arguments` prints in `folder`."""
    names = ["-c", "user.name=ann", "-c", "user.email=ann@example.org", "-c", "init.defaultBranch=main"]
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    line = ["git", "-C", str(folder), *names, *arguments]
    return subprocess.run(line, check=True, capture_output=True, text=True, env=environment).stdout.strip()
