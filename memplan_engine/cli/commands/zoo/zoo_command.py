"""`memplan zoo`: many models in many variants, planned into a store of history."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from memplan_engine.cli.app import app
from memplan_engine.cli.options import ALL_ROWS, AS_JSON, SEED
from memplan_engine.cli.output import show, tell
from memplan_engine.errors import INTERRUPTED, InputError
from memplan_engine.history.git.git_commit import commit_run, stamped
from memplan_engine.history.history_values import HistoryRun
from memplan_engine.history.measuring import NODES
from memplan_engine.history.opening import open_history
from memplan_engine.history.store_place import find_store
from memplan_engine.reporters.zoo.zoo_tables import zoo_summary, zoo_tables
from memplan_engine.system import count_cores
from memplan_engine.zoo.local_workers import LocalWorkers, Workers
from memplan_engine.zoo.manifest import read_zoo
from memplan_engine.zoo.zoo_cache import ZooCache, usual_folder
from memplan_engine.zoo.zoo_run import SECONDS, ZooCounts, run_zoo
from memplan_engine.zoo.zoo_values import Manifest

MANIFEST = Annotated[Path, typer.Argument(help="Models and axes, a TOML file.", show_default=False)]
HISTORY = Annotated[
    str | None,
    typer.Option(
        "--store",
        help="Store of history: a file, or postgresql://… (default: MEMPLAN_HISTORY, else "
        ".memplan/history.db in the repository).",
        show_default=False,
    ),
]
JOBS = Annotated[
    int | None,
    typer.Option(
        help="Variants at a time on this machine (default: one for each core).", min=1, show_default=False
    ),
]
SCHEDULER = Annotated[
    str | None,
    typer.Option(
        help="Scheduler of a Dask cluster that does the work, as tcp://host:8786.", show_default=False
    ),
]
CACHE = Annotated[
    Path | None,
    typer.Option(
        help="Folder of what was worked out before (default: in your own cache).", show_default=False
    ),
]
NODES_A_PLAN = Annotated[int, typer.Option("--nodes", help="What a search may visit for a plan.", min=0)]
SECONDS_A_VARIANT = Annotated[float, typer.Option("--seconds", help="Time limit for each variant.")]


@app.command()
def zoo(
    manifest: MANIFEST,
    store: HISTORY = None,
    jobs: JOBS = None,
    scheduler: SCHEDULER = None,
    cache: CACHE = None,
    nodes: NODES_A_PLAN = NODES,
    seed: SEED = 0,
    seconds: SECONDS_A_VARIANT = SECONDS,
    every_row: ALL_ROWS = False,
    as_json: AS_JSON = False,
) -> None:
    """Plan each variant of the models of MANIFEST, and record them in a store of history.

    Variants that were worked out before, from the same files with the same versions, come from a cache; an
    interrupted run goes on where it was. Exit code: 1 where a variant failed, 130 after Ctrl-C.
    """
    read = read_zoo(manifest)
    if not seconds > 0:
        raise InputError("--seconds", "", f"{seconds:g}", "more than 0")
    if scheduler is not None and jobs is not None:
        raise InputError("--jobs", "", str(jobs), "a run without --scheduler: a cluster has its own workers")
    workers = _workers(scheduler, jobs)
    run, place = _run_of(read), find_store(store, to_write=True)
    with open_history(place) as history, _progress() as watch:
        kept = ZooCache(usual_folder() if cache is None else cache)
        result = run_zoo(
            read, history, run, workers, cache=kept, nodes=nodes, seed=seed, seconds=seconds,
            watch=watch, tell=tell,
        )  # fmt: skip
    show(as_json, lambda: zoo_summary(result), lambda: zoo_tables(result, every_row))
    for remark in result.remarks:
        tell(remark)
    if not result.complete:
        raise typer.Exit(INTERRUPTED)
    if result.failed:
        raise typer.Exit(1)


def _workers(scheduler: str | None, jobs: int | None) -> Workers:
    if scheduler is None:
        return LocalWorkers(count_cores() if jobs is None else jobs)
    from memplan_engine.zoo.dask_workers import DaskWorkers

    return DaskWorkers(scheduler)


def _run_of(manifest: Manifest) -> HistoryRun:
    """The run that records the commit of the manifest's folder; one without a commit where there is none."""
    folder = manifest.path.resolve().parent
    try:
        return commit_run(folder, project=manifest.project)
    except InputError:
        tell(f"{folder}: in no repository with a commit, points are recorded without one")
        return stamped(HistoryRun(manifest.project or folder.name))


@contextmanager
def _progress() -> Iterator[Callable[[ZooCounts], None]]:
    """Gives what is told how far it is: a bar on a terminal, gone in the end; elsewhere nothing."""
    if not sys.stderr.isatty():
        yield lambda counts: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[of_these]}", style="dim"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        number = bar.add_task("variants", total=None, of_these="")

        def watch(counts: ZooCounts) -> None:
            words = [(counts.cached, "from the cache"), (counts.failed, "failed")]
            of_these = ", ".join(f"{count:,} {word}" for count, word in words if count)
            bar.update(number, total=counts.total, completed=counts.done, of_these=of_these)

        yield watch
