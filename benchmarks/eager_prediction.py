"""Predicted against measured: peaks of eager runs of forty models, inference and whole training steps.

    python benchmarks/eager_prediction.py [MODEL …] [--training sgd adam adamw [--halved]] [--markdown]

"predicted" is `observe_fake`, "measured" an eager run on the CPU that another process takes under a recorder
of its own (`eager_measured.py`); "cost" is the CPU time of the prediction over that of `torch.export`, each
after a first small model in its process, whose times are told by themselves. `torch.export` takes models
without the key/value caches that they return, predictions take them as they are.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]
INFERENCE = "inference"


@dataclass(frozen=True, slots=True)
class Row:
    """One model: peaks in bytes, and CPU seconds; `failure` and `not_exported` say why there is none."""

    model: str
    run: str
    measured: int
    predicted: int
    seconds: float
    export_seconds: float | None
    failure: str = ""
    not_exported: str = ""

    @property
    def equal(self) -> bool:
        """Whether both peaks are the same to the byte."""
        return self.measured == self.predicted

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted / self.measured


def measure(models: Sequence[str], run: str) -> dict[str, dict[str, Any]]:
    """What another process measures of `models`, by name; of inference also of FIRST."""
    script = ROOT / "benchmarks" / "eager_measured.py"
    options = [] if run == INFERENCE else ["--training", run]
    command = [sys.executable, str(script), *models, *options]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    return {row["model"]: row for row in rows}


def predict(name: str, run: str, measured: dict[str, Any]) -> Row:
    """The row of one model."""
    from benchmarks import eager_variants
    from memplan_engine.errors import InputError
    from memplan_engine.recordings.observation import observed_peak
    from memplan_engine.runtime.recorder.fake_run import observe_fake
    from memplan_engine.torch_capture.training.torch_recipe import Recipe

    recipe = None if run == INFERENCE else Recipe(run, loss=eager_variants.loss_of)
    model, inputs = eager_variants.build(name, trains=recipe is not None)
    began = time.process_time()
    nbytes, failure = 0, ""
    try:
        nbytes = observed_peak(observe_fake(model, (), inputs, recipe=recipe, name=name))[0]
    except InputError as error:
        failure = str(error)
    seconds = time.process_time() - began
    return Row(
        name,
        run,
        measured["peak_bytes"],
        nbytes,
        seconds,
        measured.get("export_seconds"),
        failure,
        measured.get("not_exported", ""),
    )


def predict_first() -> float:
    """The CPU seconds of the first prediction of this process."""
    from benchmarks.eager_export import first_model
    from memplan_engine.runtime.recorder.fake_run import observe_fake

    model, inputs = first_model()
    began = time.process_time()
    observe_fake(model, (), inputs)
    return time.process_time() - began


def table(rows: Sequence[Row], markdown: bool) -> list[str]:
    """`rows` as lines of text, and what they come to."""
    heads = ("model", "run", "measured", "predicted", "ratio", "cost")
    cells = [
        (
            row.model,
            row.run,
            f"{row.measured:,}",
            f"{row.predicted:,}" if not row.failure else "none",
            "equal" if row.equal else f"{row.ratio:.4f}",
            f"{row.seconds / row.export_seconds:.2f}" if row.export_seconds else "",
        )
        for row in rows
    ]
    if markdown:
        lines = [f"| {' | '.join(line)} |" for line in (heads, ("---",) * len(heads), *cells)]
    else:
        lines = [f"{a:24} {b:10} {c:>12} {d:>12} {e:>8} {f:>6}" for a, b, c, d, e, f in (heads, *cells)]
    lines += [f"{row.model} ({row.run}): {row.failure}" for row in rows if row.failure]
    lines += [f"{row.model}: torch.export: {row.not_exported}" for row in rows if row.not_exported]
    for run in dict.fromkeys(row.run for row in rows):
        those = [row for row in rows if row.run == run]
        within = sum(abs(row.ratio - 1) <= 0.02 for row in those)
        equal = sum(row.equal for row in those)
        lines.append(f"{run}: {equal} of {len(those)} equal to the byte, {within} within 2 %")
    costs = {row.model: row.seconds / row.export_seconds for row in rows if row.export_seconds}
    if costs:
        dearest = max(costs, key=costs.__getitem__)
        lines.append(
            f"cost: median {statistics.median(costs.values()):.2f}, most {costs[dearest]:.2f} ({dearest}) of "
            f"torch.export, {len(costs)} models"
        )
    return lines


def main() -> None:
    from benchmarks.eager_export import FIRST
    from benchmarks.eager_manifest import MODELS
    from benchmarks.eager_variants import CHECKPOINTED, HALVED, TRAINED

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--training", nargs="+", choices=("sgd", "adam", "adamw"), default=())
    parser.add_argument("--halved", action="store_true", help="with --training: in half precision")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    trained = HALVED if options.halved else [*TRAINED, *CHECKPOINTED]
    rows = []
    first = predict_first()
    for run in options.training or (INFERENCE,):
        models = options.models or (list(MODELS) if run == INFERENCE else trained)
        measured = measure(models, run)
        if FIRST in measured:
            export = measured[FIRST]["export_seconds"]
            print(f"{FIRST}: {first:.2f} s of CPU, torch.export {export:.2f} s")
        rows += [predict(name, run, measured[name]) for name in models]
    print("\n".join(table(rows, options.markdown)))


if __name__ == "__main__":
    main()
