"""`memplan observe`: a model runs as it is, and every allocation is noted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from memplan_engine.cli.app import app
from memplan_engine.cli.commands.capture_command import (
    ACCUMULATE,
    CLIP,
    FACTORY,
    FOREACH,
    OPTIMIZER,
    step_options,
)
from memplan_engine.cli.commands.run_command import steps
from memplan_engine.cli.options import AS_JSON, SEED
from memplan_engine.cli.output import check_targets, show


@app.command()
def observe(
    factory: FACTORY,
    training: Annotated[Literal["step"] | None, typer.Option(help="A whole step with its optimizer.")] = None,
    optimizer: OPTIMIZER = None,
    foreach: FOREACH = None,
    accumulate: ACCUMULATE = None,
    clip_grad_norm: CLIP = None,
    seed: SEED = 0,
    trace: Annotated[Path | None, typer.Option(help="Write the run for Perfetto, .json.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write every allocation, .json: `memplan plan` reads it."),
    ] = None,
    as_json: AS_JSON = False,
    all_rows: Annotated[bool, typer.Option("--all", help="Show every row.")] = False,
) -> None:
    """Run a model eagerly and note every allocation: also of a model that cannot be exported.

    The factory is that of `memplan capture`; the model runs on the CPU, with random weights where it makes
    them. What is written with -o can be planned, drawn and compared like any recording.
    """
    from memplan_engine.torch_capture.torch_fake import require_torch

    require_torch("observing a model")
    step = step_options(training, optimizer, foreach, accumulate, clip_grad_norm)
    check_targets((".json",), None, trace, output)
    from memplan_engine.formats.memplan_json.observation_writer import (
        write_observation,
        write_observation_trace,
    )
    from memplan_engine.reporters.observation_tables import observation_summary, observation_tables
    from memplan_engine.runtime.observer.observe_run import observe_model
    from memplan_engine.torch_capture.torch_factory import build_factory

    with steps() as tell:
        tell("building the model")
        built = build_factory(factory, seed=seed)
        tell("observing a run")
        recipe = None if step is None else built.recipe(step)
        name = factory.rpartition(":")[2]
        observation = observe_model(built.model, built.args, built.kwargs, recipe=recipe, name=name)
    if trace:
        write_observation_trace(observation, trace)
    if output:
        write_observation(observation, output)
    show(as_json, lambda: observation_summary(observation), lambda: observation_tables(observation, all_rows))
