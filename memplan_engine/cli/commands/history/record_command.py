"""`memplan history record`: figures and graphs of this commit, or of many, into the store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

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
)
from memplan_engine.cli.commands.history.history_options import (
    AGAINST,
    BRANCH_NAME,
    COMMIT_NAME,
    FAIL_ON_GROWTH,
    LIMIT,
    PROJECT,
    STORE,
    TIME,
    fail_on_growth,
    limit_of,
    opened_to_write,
    seconds_of,
    write_text,
)
from memplan_engine.cli.commands.history.record_sources import (
    commit_of_sources,
    measured_sources,
    record_range,
    refuse_beside_range,
)
from memplan_engine.cli.options import KEPT_STRATEGY, SEED, with_preparation
from memplan_engine.cli.output import as_text, put, tell
from memplan_engine.history.baselines import Comparison, compare_with_baseline
from memplan_engine.history.commit_points import note_commits_before
from memplan_engine.history.git.git_commit import run_of
from memplan_engine.history.measuring import NODES
from memplan_engine.preparation import Preparation
from memplan_engine.reporters.history.history_tables import comparison_table
from memplan_engine.reporters.history.point_formats import FORMATS
from memplan_engine.strategies import get_strategy
from memplan_engine.system import write_target

Format = Literal["text", "json", "gha-benchmark", "bmf", "junit", "otava-csv"]
SOURCES = Annotated[
    list[str],
    typer.Argument(
        help="Graphs, plans, buffers, observations, recordings, or factories: file.py:function",
        show_default=False,
    ),
]
EAGER = Annotated[
    Path | None, typer.Option(help="A run without a plan, whose peak is kept beside.", show_default=False)
]
RANGE = Annotated[
    str,
    typer.Option(
        "--range",
        help="Record a factory at each of these commits instead: v1.0..HEAD, or HEAD for all up to it.",
        metavar="COMMITS",
        show_default=False,
    ),
]
FORMAT = Annotated[Format, typer.Option("--format", help="How the points are printed.")]
OUTPUT = Annotated[
    Path | None, typer.Option("-o", "--output", help="Write them to a file instead of stdout.")
]


@app.command(name="history record")
@with_preparation
def record(
    sources: SOURCES,
    how: Preparation,
    model: MODEL_NAME = "",
    variant: VARIANT_NAME = "",
    strategy: KEPT_STRATEGY = None,
    training: TRAINING = None,
    eager: EAGER = None,
    commits: RANGE = "",
    jobs: JOBS = 0,
    places: PATH = None,
    seconds: SECONDS_EACH = 600.0,
    project: PROJECT = "",
    commit: COMMIT_NAME = "",
    branch: BRANCH_NAME = "",
    time: TIME = "",
    nodes: NODE_LIMIT = NODES,
    seed: SEED = 0,
    written_as: FORMAT = "text",
    output: OUTPUT = None,
    fail: FAIL_ON_GROWTH = False,
    limit: LIMIT = None,
    against: AGAINST = "",
    store: STORE = None,
) -> None:
    """Record graphs, plans, observations or factories at a commit, or a factory at each of many commits.

    What is planned for a history is planned on one thread, with a limit in nodes: it is the same on each
    machine. With --range commits are checked out in work trees of their own, outside of the repository; those
    that cannot be captured are skipped and told of, those that are in the store are not captured again.
    """
    allowed, at = limit_of(limit), seconds_of(time) if time else None
    get_strategy(strategy or "auto")
    if commits:
        refuse_beside_range(
            eager=eager, commit=commit, time=time, output=output, against=against, format=written_as != "text"
        )
    if output:
        write_target(output)
    run = run_of(project=project, commit=commit_of_sources(sources, commit), branch=branch, committed_at=at)
    recipe = recipe_of(
        "", how, project=run.project, model=model, variant=variant, strategy=strategy or "auto", nodes=nodes,
        seed=seed, training=training, places=places, seconds=seconds,
    )  # fmt: skip
    if commits:
        fail_on_growth(fail, record_range(sources, commits, recipe, jobs, branch, store, allowed))
        return
    points = measured_sources(sources, recipe, strategy, eager)
    with opened_to_write(store) as history:
        note_commits_before(history, run)
        recorded = history.record(run, points)
        compared = compare_with_baseline(history, recorded.points, against=against, limit=allowed)
        title = f"{history.name}: {recorded.run.label}"
    for remark in (*recorded.remarks, *(_alone(compared) if fail else ())):
        tell(remark)
    _show(compared, written_as, title, output)
    if fail and any(each.grew for each in compared):
        raise typer.Exit(1)


def _alone(compared: list[Comparison]) -> list[str]:
    labels = [each.point.series.label for each in compared if each.baseline is None]
    return [f"{label}: nothing was recorded to compare it with" for label in labels]


def _show(compared: list[Comparison], written_as: Format, title: str, output: Path | None) -> None:
    if written_as == "text":
        text = as_text([comparison_table(compared, title)])
    else:
        text = FORMATS[written_as](compared)
    if output:
        write_text(output, text)
    else:
        put(text)
