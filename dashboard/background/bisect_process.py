"""A search over commits in a process of its own: reads what is asked, tells of each commit, gives sentences.

Started as `python -m memplan_dashboard.background.bisect_process` by `bisect_job`. It runs the code of a
repository, and only a factory that whoever started the server has named. Never imports Streamlit.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from memplan_dashboard.background.bisect_job import BisectAsked
from memplan_dashboard.background.server_pipes import first_message, open_pipes, send
from rich.text import Text

from memplan_engine.errors import InputError, MemplanError
from memplan_engine.history.bisecting import bisect_commits
from memplan_engine.history.blame import blame_change
from memplan_engine.history.commit_points import CommitRecorder, CommitResult, FactoryRecipe
from memplan_engine.history.git.git_commit import work_tree
from memplan_engine.history.git.worktrees import worktrees
from memplan_engine.history.measuring import NODES, preparation_of
from memplan_engine.history.opening import open_history
from memplan_engine.reporters.history.bisect_tables import bisect_parts, result_words
from memplan_engine.system import count_cores


def recipe_of(asked: BisectAsked) -> FactoryRecipe:
    """What is captured at each commit.

    Raises
    ------
    InputError: no repository, or a factory whose points would be of another series.
    """
    folder = Path(asked.folder)
    top = work_tree(folder)
    if top is None:
        raise InputError(asked.folder, "", "no repository", "a folder in the work tree of one")
    told = dict(asked.options)
    recipe = FactoryRecipe(
        asked.factory, folder, top.resolve(), asked.project, asked.model, asked.variant, asked.strategy,
        preparation_of(asked.series), int(told.get("nodes", NODES)), int(told.get("seed", 0)), asked.training,
    )  # fmt: skip
    if recipe.series != asked.series:
        expected = f"one that makes {asked.series.label}, planned as it was recorded"
        raise InputError(f"factory {asked.factory}", "", f"points of {recipe.series.label}", expected)
    return recipe


def bisect(asked: BisectAsked, tell: Callable[[str], None]) -> list[str]:
    """What came of it, a sentence each; raises MemplanError."""
    recipe = recipe_of(asked)
    count = 0

    def told(result: CommitResult) -> None:
        nonlocal count
        count += 1
        tell(f"{count} looked at, the last {result_words(result)}")

    with open_history(asked.location) as history:
        tell(f"capturing {asked.good[:7]} and {asked.bad[:7]}")
        with worktrees(recipe.top, count_cores()) as trees:
            recorder = CommitRecorder(history, recipe, trees, asked.branch)
            found = bisect_commits(recorder, asked.good, asked.bad, told)
        parts = bisect_parts(found, blame_change(found.change, history.graph))
    return [part.plain.strip() for part in parts if isinstance(part, Text)]


def _end_with(commands: BinaryIO) -> None:
    """When the input ends, whoever asks is gone: end as when asked to."""
    commands.read(1)
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Search for what comes in."""
    commands, answers = open_pipes()
    values, _ = first_message(commands)
    # So that work trees are removed.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(1))
    threading.Thread(target=_end_with, args=(commands,), daemon=True).start()
    try:
        sentences = bisect(
            BisectAsked(**values), lambda part: send(answers, {"kind": "progress", "part": part})
        )
        send(answers, {"kind": "done", "sentences": sentences})
    except MemplanError as error:
        send(answers, {"kind": "error", "message": str(error)})


if __name__ == "__main__":
    main()
