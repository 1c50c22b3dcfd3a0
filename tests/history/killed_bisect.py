"""Searches over commits that are killed, again and again: a process of its own, which forks them.

killed_bisect.py REPOSITORY STORE TEMPORARY KILLS SEED
What is captured is made up: the width that `parts.py` of the commit says, after some milliseconds. It prints
how many were killed, which points the store had after each, what the first search found and the last, and how
many work trees and temporary folders are left after that.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from memplan_engine.formats.memplan_json.json_file import dumps
from memplan_engine.history.bisecting import bisect_commits
from memplan_engine.history.commit_points import CommitRecorder, FactoryRecipe
from memplan_engine.history.git.git_commit import ask_git
from memplan_engine.history.git.worktrees import worktrees
from memplan_engine.history.opening import open_history
from memplan_engine.runtime.scripts import factory_capture
from memplan_engine.runtime.scripts.factory_capture import FactoryRequest
from tests.support.traced import Node, traced

SOONER = 0.7


def captured(request: FactoryRequest, seconds: float, stop: threading.Event | None = None) -> bytes:
    time.sleep(0.01)
    width = int((request.top / "parts.py").read_text())
    return dumps(traced([Node("a", "linear", width), Node("b", "relu", width, ("a",))])[0])


def search(top: Path, store: str) -> str:
    recipe = FactoryRecipe("net.py:net", top, top, project="zoo")
    with open_history(store) as history, worktrees(top, 2) as trees:
        recorder = CommitRecorder(history, recipe, trees, "trunk")
        first = ask_git(top, "rev-list", "--max-parents=0", "HEAD")
        return bisect_commits(recorder, first, "HEAD").change.after.run.commit


def main(top: Path, store: str, temporary: Path, kills: int, seed: int) -> None:
    tempfile.tempdir = str(temporary)
    factory_capture.capture_apart = captured
    begun = time.monotonic()
    found = [search(top, store)]
    life = SOONER * (time.monotonic() - begun)
    Path(store).unlink()
    draw, killed, counts = random.Random(seed), 0, []
    while killed < kills:
        child = os.fork()
        if child == 0:
            search(top, store)
            os._exit(0)
        time.sleep(draw.uniform(0, life))
        os.kill(child, signal.SIGKILL)
        killed += os.waitpid(child, 0)[1] == signal.SIGKILL
        with open_history(store) as history:
            counts.append([point.run.commit for point in history.points()])
        if draw.random() < 0.7:
            for path in Path(store).parent.glob(f"{Path(store).name}*"):
                path.unlink()
            counts.append([])
    for folder in temporary.glob("memplan-*"):
        os.utime(folder, (1, 1))
    found.append(search(top, store))
    trees = len(ask_git(top, "worktree", "list").splitlines()) - 1
    left = [trees, len(list(temporary.glob("memplan-*")))]
    print(json.dumps({"killed": killed, "points": counts, "found": found, "left": left}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
