"""`memplan calibrate`: what kernels take for themselves on this machine, as a file of formulas."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memplan_engine.cli.app import app
from memplan_engine.cli.options import ALL_ROWS, AS_JSON
from memplan_engine.cli.output import check_targets, show
from memplan_engine.cli.progress import stages


@app.command()
def calibrate(
    output: Annotated[Path, typer.Option("-o", "--output", help="Calibration file to write (.json).")],
    as_json: AS_JSON = False,
    all_rows: ALL_ROWS = False,
) -> None:
    """Measure what kernels take for themselves on this machine, for predictions without a run.

    Some 1,600 calls of operators run on the CPU, half a minute on two cores, and formulas of the sizes of
    their tensors are fitted to what torch's allocator was asked for. `--calibration FILE` of `memplan observe
    --fake`, `plan` and `peak` then adds it. The file holds for this machine, this torch and this number of
    threads. Ctrl-C ends it, and nothing is written.
    """
    from memplan_engine.torch_capture.torch_fake import require_torch

    require_torch("measuring kernels")
    check_targets((".json",), None, output)
    from memplan_engine.formats.memplan_json.calibration_format import write_calibration
    from memplan_engine.reporters.graph_tables import calibration_summary, calibration_tables
    from memplan_engine.runtime.calibrate.measure_kernels import calibrate as measured

    with stages() as tell:
        calibration = measured(tell)
    write_calibration(calibration, output)
    show(as_json, lambda: calibration_summary(calibration), lambda: calibration_tables(calibration, all_rows))
