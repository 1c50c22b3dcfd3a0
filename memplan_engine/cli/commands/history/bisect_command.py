"""`memplan history bisect`: the commit with which the memory came."""

from __future__ import annotations

from typing import Annotated

import typer

from memplan_engine.cli.app import app
from memplan_engine.cli.commands.history.factory_options import (
    JOBS,
    MODEL_NAME,
    NODE_LIMIT,
    PATH,
    SECONDS_EACH,
    TRAINING,
    VARIANT_NAME,
    recipe_of,
    recording,
    tell_result,
)
from memplan_engine.cli.commands.history.history_options import PROJECT, STORE, opened_to_write
from memplan_engine.cli.options import AS_JSON, SEED, STRATEGY, with_preparation
from memplan_engine.cli.output import show
from memplan_engine.errors import InputError
from memplan_engine.history.baselines import branch_of
from memplan_engine.history.bisecting import bisect_commits
from memplan_engine.history.blame import blame_change
from memplan_engine.history.commit_points import CommitResult
from memplan_engine.history.git.git_commit import work_tree
from memplan_engine.history.measuring import NODES
from memplan_engine.preparation import Preparation
from memplan_engine.reporters.history.bisect_tables import bisect_parts, bisect_summary

GOOD = Annotated[str, typer.Argument(help="A commit that needed less", show_default=False)]
BAD = Annotated[str, typer.Argument(help="A later commit that needs more", show_default=False)]
FACTORY = Annotated[
    str,
    typer.Argument(help="package.module:factory or file.py:factory, behind --", show_default=False),
]


@app.command(name="history bisect")
@with_preparation
def bisect(
    good: GOOD,
    bad: BAD,
    factory: FACTORY,
    how: Preparation,
    model: MODEL_NAME = "",
    variant: VARIANT_NAME = "",
    strategy: STRATEGY = "auto",
    training: TRAINING = None,
    jobs: JOBS = 0,
    places: PATH = None,
    seconds: SECONDS_EACH = 600.0,
    project: PROJECT = "",
    nodes: NODE_LIMIT = NODES,
    seed: SEED = 0,
    as_json: AS_JSON = False,
    store: STORE = None,
) -> None:
    """Find the commit between GOOD and BAD with which the most memory came, and its line of source.

    Commits are checked out in work trees of their own, in a temporary folder, several at a time; the
    repository is left as it is. The stretch that grew most is split until it is one commit. What cannot be
    captured is skipped, what is in the store already is not captured again. Ctrl-C keeps what is recorded.
    """
    if work_tree() is None:
        raise InputError("history bisect", "", "no such repository", "a folder in the work tree of one")
    recipe = recipe_of(
        factory, how, project=project, model=model, variant=variant, strategy=strategy, nodes=nodes,
        seed=seed, training=training, places=places, seconds=seconds,
    )  # fmt: skip
    count = 0

    def tell(result: CommitResult) -> None:
        nonlocal count
        count += 1
        tell_result(result, f"{count:>3}")

    with opened_to_write(store) as history:
        with recording(history, recipe, jobs, branch_of(recipe.top, bad)) as recorder:
            found = bisect_commits(recorder, good, bad, tell)
        blamed = blame_change(found.change, history.graph)
    show(as_json, lambda: bisect_summary(found, blamed), lambda: bisect_parts(found, blamed))
