"""`memplan calibrate`: what kernels take for themselves on this machine: formulas, and calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memplan_engine.cli.app import app
from memplan_engine.cli.commands.capture_command import (
    ACCUMULATE,
    CLIP,
    FOREACH,
    OPTIMIZER,
    step_options,
)
from memplan_engine.cli.commands.run_command import TRAINING
from memplan_engine.cli.options import ALL_ROWS, AS_JSON, SEED
from memplan_engine.cli.output import check_targets, show
from memplan_engine.cli.progress import stages
from memplan_engine.errors import InputError

if TYPE_CHECKING:
    from memplan_engine.calibration.kernel_table import Calibration
    from memplan_engine.runtime.calibrate.model_calls import MeasuredCalls

Tell = Callable[[str], None]


@app.command()
def calibrate(
    output: Annotated[Path, typer.Option("-o", "--output", help="Calibration file to write (.json).")],
    models: Annotated[
        list[str] | None,
        typer.Argument(help="package.module:factory, whose own calls are measured", show_default=False),
    ] = None,
    onto: Annotated[
        Path | None,
        typer.Option(help="Keep this calibration's formulas, and add the models' calls.", show_default=False),
    ] = None,
    training: TRAINING = None,
    optimizer: OPTIMIZER = None,
    foreach: FOREACH = None,
    accumulate: ACCUMULATE = None,
    clip_grad_norm: CLIP = None,
    seed: SEED = 0,
    as_json: AS_JSON = False,
    all_rows: ALL_ROWS = False,
) -> None:
    """Measure the kernels' own scratch on this machine, for predictions without a run.

    Some 9,000 calls of operators run on the CPU, in all floating types, for three or four minutes, and
    formulas of the sizes of their tensors are fitted to what torch's allocator was asked for. Of each of the
    models every distinct call is then run alone, and kept as it is: predictions for it are exact.
    `--calibration FILE` of `memplan observe --fake`, `plan` and `peak` adds it all. The file holds for
    this machine, this torch and this number of threads. Ctrl-C ends it, and nothing is written.
    """
    from memplan_engine.torch_capture.torch_fake import require_torch

    require_torch("measuring kernels")
    step = step_options(training, optimizer, foreach, accumulate, clip_grad_norm)
    check_targets((".json",), None, output)
    if not models and (onto is not None or step is not None):
        name = "--onto" if onto is not None else "--training"
        raise InputError(name, "", "no model", "package.module:factory, whose calls are added")
    from memplan_engine.formats.memplan_json.calibration_format import write_calibration
    from memplan_engine.reporters.graph_tables import calibration_summary, calibration_tables
    from memplan_engine.runtime.calibrate.measure_kernels import calibrate as measured

    with stages() as tell:
        known = None if onto is None else _known(onto)
        asked: dict[str, Any] = {}
        for model in models or ():
            asked |= _calls(model, step, seed, tell)
        calibration = known or measured(tell)
        added = _measured(asked, tell)
        calibration = replace(calibration, calls={**calibration.calls, **added.nbytes})
    write_calibration(calibration, output)
    show(
        as_json,
        lambda: calibration_summary(calibration, added.failed),
        lambda: calibration_tables(calibration, added.failed, all_rows),
    )


def _known(path: Path) -> Calibration:
    """The calibration to be added to, which must be of this machine as it is now."""
    from memplan_engine.formats.memplan_json.calibration_format import load_calibration
    from memplan_engine.runtime.calibrate.seen_call import this_machine
    from memplan_engine.runtime.target import check_calibration

    known, here = load_calibration(path), this_machine()
    check_calibration(known, "cpu", path.name)
    other = known.machine.unlike(here)
    if other:
        raise InputError(path.name, "field machine", other, "a calibration of this machine as it runs now")
    return known


def _calls(model: str, step: dict[str, Any] | None, seed: int, tell: Tell) -> dict[str, Any]:
    """The distinct calls of the factory's model, by text."""
    from memplan_engine.runtime.recorder.fake_run import distinct_calls
    from memplan_engine.torch_capture.torch_factory import build_factory

    tell(f"building {model}")
    built = build_factory(model, seed=seed, weights=False)
    tell(f"recording the calls of {model} on fake tensors")
    recipe = None if step is None else built.recipe(step)
    return distinct_calls(built.model, built.args, built.kwargs, recipe=recipe, name=model)


def _measured(asked: dict[str, Any], tell: Tell) -> MeasuredCalls:
    from memplan_engine.runtime.calibrate.model_calls import measure_calls

    return measure_calls(asked, tell)
