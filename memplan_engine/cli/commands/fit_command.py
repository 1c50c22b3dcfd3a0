"""`memplan fit`: does a model fit, and by which rewrites?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from memplan_engine.advice.fit_stages import LOWERING, Fitted, fit_graph
from memplan_engine.advice.source_edits import Edited
from memplan_engine.advice.source_patch import Recaptured, SourcePatch, patch_of
from memplan_engine.advice.stage_changes import stage_changes
from memplan_engine.cli.app import app
from memplan_engine.cli.commands.capture_command import ACCUMULATE, CLIP, FOREACH, OPTIMIZER, step_options
from memplan_engine.cli.model_argument import is_factory
from memplan_engine.cli.options import (
    AS_JSON,
    SECONDS,
    SEED,
    THREADS,
    make_limits,
    open_file,
    with_preparation,
)
from memplan_engine.cli.output import check_targets, show, tell
from memplan_engine.cli.progress import solve_in_sight, stages
from memplan_engine.errors import InputError
from memplan_engine.files import recognise, write
from memplan_engine.formats.order_files import SUFFIXES, load_schedule, write_order
from memplan_engine.formats.read_limits import read_text
from memplan_engine.graph import Graph
from memplan_engine.preparation import Preparation
from memplan_engine.reporters.fit.fit_tables import fit_stages_summary, fit_stages_tables
from memplan_engine.system import write_atomically
from memplan_engine.units import parse_bytes
from memplan_engine.verdict import EXIT_CODES

MODEL = Annotated[
    str,
    typer.Argument(
        help="package.module:factory, file.py:factory, .pt2, ONNX, memplan JSON or an observation",
        show_default=False,
    ),
]
BYTES = Annotated[
    str | None,
    typer.Option(
        "--capacity", help="Bytes for weights, optimizer state, inputs and arena together, such as 24GiB."
    ),
]
ALL_STAGES = ",".join(LOWERING)
ONLY = Annotated[str, typer.Option(help="The stages that may be used, comma-separated.")]
TRAINING = Annotated[Literal["step"] | None, typer.Option(help="With a factory: a whole training step.")]
SCHEDULE = Annotated[
    Path | None, typer.Option(help="Use this order of the ops; search for none (.json or .csv).")
]
ORDER = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        help="Write the order of the ops: .json or .csv for `memplan run --schedule`, .onnx for an ONNX "
        "model with its nodes sorted.",
    ),
]
SAVE_PLAN = Annotated[
    Path | None, typer.Option(help="Write the best plan (.json or .csv); `memplan run --plan` runs it.")
]
PATCH = Annotated[
    Path | None,
    typer.Option(
        help="With file.py:factory: write the changes to its source as a patch, "
        "once a new capture confirms them (.patch)."
    ),
]


@app.command(name="fit")
@with_preparation(without=("streams", "schedule", "in_place", "concat", "early_updates", "reorder"))
def fit(
    model: MODEL,
    how: Preparation,
    capacity: BYTES = None,
    only: ONLY = ALL_STAGES,
    training: TRAINING = None,
    optimizer: OPTIMIZER = None,
    foreach: FOREACH = None,
    accumulate: ACCUMULATE = None,
    clip_grad_norm: CLIP = None,
    seconds: SECONDS = None,
    seed: SEED = 0,
    threads: THREADS = 0,
    schedule: SCHEDULE = None,
    output: ORDER = None,
    save_plan: SAVE_PLAN = None,
    patch: PATCH = None,
    as_json: AS_JSON = False,
) -> None:
    """Fit a model into a capacity: writes in place, order and gradients, cheapest first, until it fits.

    Exit code with --capacity: 0 fits, 1 proved not to, 3 undecided. A search takes at most --seconds (10).
    """
    limit = None if capacity is None else parse_bytes(capacity, "--capacity")
    chosen = [name.strip() for name in only.split(",") if name.strip()]
    source = Path(model) if Path(model).is_file() else None
    check_targets(SUFFIXES, source, output)
    _check_onnx(output, source)
    check_targets((".json", ".csv"), None, save_plan)
    check_targets((".patch", ".diff"), None, patch)
    if patch:
        _source_of_factory(model)
    step = step_options(training, optimizer, foreach, accumulate, clip_grad_norm)
    limits = make_limits("auto", seconds, seed, threads)
    with stages() as begin:
        graph, how = _graph(model, how, step, begin)
        fixed = None if schedule is None else load_schedule(schedule, graph)
        fitted, _ = solve_in_sight(
            lambda: fit_graph(graph, limit, chosen, how=how, limits=limits, schedule=fixed, tell=begin),
            limits,
            quiet=True,
        )
        changes = stage_changes(fitted, graph, how)
        change = _patch(model, fitted, step, seed, begin) if patch else None
    if patch and change and change.diff:
        write_atomically(patch, change.diff.encode())
    if output:
        write_order(fitted.best.graph, output, source)
    if save_plan:
        write(fitted.best.plan, save_plan)
    show(
        as_json,
        lambda: fit_stages_summary(fitted, changes) | ({"patch": change.summary()} if change else {}),
        lambda: fit_stages_tables(fitted, changes, change),
    )
    if save_plan and save_plan.suffix == ".json" and (source is None or source.suffix == ".pt2"):
        tell(f"next: memplan run {' '.join([model, *_said(step), '--plan', str(save_plan)])}")
    if fitted.verdict is not None:
        raise typer.Exit(EXIT_CODES[fitted.verdict])


def _source_of_factory(model: str) -> Path:
    """The file of a factory. Raises InputError for what is no file.py:factory."""
    file = Path(model.rpartition(":")[0])
    if file.suffix != ".py" or not file.is_file():
        raise InputError("--patch", "", repr(model), "file.py:factory, whose file can be changed")
    return file


def _patch(
    model: str, fitted: Fitted, step: dict[str, Any] | None, seed: int, begin: Callable[[str], None]
) -> SourcePatch:
    from memplan_engine.runtime.trial.recapture import recapture

    file = _source_of_factory(model)
    here, whole = Path.cwd(), file.resolve()
    path = whole.relative_to(here).as_posix() if whole.is_relative_to(here) else file.name

    def tried(edited: Edited) -> Recaptured:
        begin("capturing the changed source")
        return recapture(model, edited.text, step, seed=seed, frees_gradients=edited.frees_gradients)

    return patch_of(read_text(file), path, fitted, tried)


def _said(step: dict[str, Any] | None) -> list[str]:
    """The options of a training step as they were given: who runs the plan has to give them, too."""
    if step is None:
        return []
    words = ["--training", "step"]
    for name, value in step.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            words += [f"--{flag}", str(value)]
    return words


def _check_onnx(output: Path | None, source: Path | None) -> None:
    """Raise InputError, before long work, for nodes to be sorted of what is no ONNX model."""
    if output is None or output.suffix.lower() != ".onnx":
        return
    if source is None or recognise(source).name != "onnx":
        expected = ".json or .csv: only an ONNX model has nodes to sort"
        raise InputError(str(output), "", "the suffix '.onnx'", expected)


def _graph(
    model: str, how: Preparation, step: dict[str, Any] | None, begin: Callable[[str], None]
) -> tuple[Graph, Preparation]:
    """The graph of a file, or of what a factory builds."""
    if is_factory(model, step):
        from memplan_engine.torch_capture import torch_factory

        if step is not None:
            return torch_factory.capture_training_factory(model, tell=begin, gradients="held", **step), how
        return torch_factory.capture_factory(model, tell=begin), how
    path = Path(model)
    begin("reading the file")
    loaded, how = open_file(path, how)
    if not isinstance(loaded, Graph):
        expected = "a graph: buffers have no ops to reorder (`memplan plan --capacity` fits them)"
        raise InputError(path.name, "", f"a {type(loaded).__name__.lower()}", expected)
    return loaded, how
