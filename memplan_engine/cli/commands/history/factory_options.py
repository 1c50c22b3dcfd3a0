"""The options of verbs that capture a factory at many commits, and what is told meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from memplan_engine.cli.output import tell
from memplan_engine.errors import InputError
from memplan_engine.history.commit_points import PLACES, CommitRecorder, CommitResult, FactoryRecipe
from memplan_engine.history.git.git_commit import commit_run, work_tree
from memplan_engine.history.git.worktrees import worktrees
from memplan_engine.history.measuring import NODES
from memplan_engine.preparation import Preparation
from memplan_engine.reporters.history.bisect_tables import result_words
from memplan_engine.system import count_cores

if TYPE_CHECKING:
    from memplan_engine.history.database.store import History

MODEL_NAME = Annotated[
    str,
    typer.Option("--model", help="What the model is called (default: as its graph).", show_default=False),
]
VARIANT_NAME = Annotated[
    str, typer.Option("--variant", help="What the variant is called: batch 8.", show_default=False)
]
NODE_LIMIT = Annotated[int, typer.Option("--nodes", min=0, help="Nodes that a search may visit.")]
TRAINING = Annotated[
    Literal["step", "joint"] | None,
    typer.Option(help="Of a factory: a whole training step, or the joint forward and backward."),
]
PATH = Annotated[
    list[str] | None,
    typer.Option(
        "--path",
        help="Folder in the repository to import modules from (default: its top, and src). Repeatable.",
        metavar="FOLDER",
        show_default=False,
    ),
]
JOBS = Annotated[int, typer.Option("-j", "--jobs", min=0, help="Commits at a time; 0 means one a core.")]
SECONDS_EACH = Annotated[
    float, typer.Option("--seconds", min=1, help="A capture that takes longer is skipped.")
]


def recipe_of(
    factory: str,
    how: Preparation,
    *,
    project: str = "",
    model: str = "",
    variant: str = "",
    strategy: str = "auto",
    nodes: int = NODES,
    seed: int = 0,
    training: str | None = None,
    places: list[str] | None = None,
    seconds: float = 600.0,
) -> FactoryRecipe:
    """What is captured and planned; without a repository the current folder is the top."""
    folder = Path.cwd()
    top = work_tree(folder)
    named = project or (commit_run(folder).project if top else folder.name)
    kept = tuple(places) if places else PLACES
    for place in kept:
        if os.path.isabs(place) or ".." in Path(place).parts:
            raise InputError("--path", "", repr(place), "a folder in the repository, as seen from its top")
    return FactoryRecipe(
        factory, folder, (top or folder).resolve(), named, model, variant, strategy, how, nodes, seed,
        training or "", {}, kept, seconds,
    )  # fmt: skip


@contextmanager
def recording(history: History, recipe: FactoryRecipe, jobs: int, branch: str) -> Iterator[CommitRecorder]:
    """What records commits, in work trees that are gone at the end."""
    with worktrees(recipe.top, jobs or count_cores()) as trees:
        yield CommitRecorder(history, recipe, trees, branch)


def tell_result(result: CommitResult, done: str) -> None:
    """One line of a commit: its figures, or why it is skipped."""
    tell(f"{done} {result_words(result)}")
