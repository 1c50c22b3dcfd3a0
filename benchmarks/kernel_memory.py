"""What kernels take, predicted without a run and measured by torch's profiler in another process.

    memplan calibrate -o calibration.json
    python benchmarks/kernel_memory.py [MODEL …] [--held-out] [--calibration calibration.json] [--training]

"measured" is the most bytes that torch's profiler (`profile_memory`) counts of one eager run beside what was
there before; the others are predictions beside it: "plain" of `observe_fake`, "formulas" of the same with the
calibration, "calls" with the model's own calls measured alone, as `memplan calibrate MODEL` does.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks.kernel_models import HELD_OUT, MODELS, UNTRAINED, Call  # noqa: E402

ALL = MODELS | HELD_OUT


def build(name: str) -> Call:
    """The model in eval mode, and its inputs."""
    torch.manual_seed(0)
    model, inputs = ALL[name]()
    return model.eval(), inputs


def loss_of(output: Any) -> torch.Tensor:
    """A loss, of whatever a model gives."""
    if getattr(output, "loss", None) is not None:
        return output.loss  # type: ignore[no-any-return]
    values: torch.Tensor = output if isinstance(output, torch.Tensor) else output.logits
    return values.float().pow(2).mean()


def profiled(run: Callable[[], Any]) -> int:
    """The most bytes that `run()` holds beside what was there, as torch's profiler counts them."""
    gc.collect()
    gc.disable()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as seen:
        result = run()
    del result
    kineto = seen.profiler.kineto_results  # type: ignore[union-attr]
    events = sorted((e.start_ns(), e.nbytes()) for e in kineto.events() if e.name() == "[memory]")
    most = held = 0
    for _, nbytes in events:
        held += nbytes
        most = max(most, held)
    return most


def measure(name: str, training: bool) -> int:
    """The measured peak of an inference, or of the second of two steps of SGD."""
    model, inputs = build(name)
    if not training:
        with torch.no_grad():
            return profiled(lambda: model(**inputs))
    optimizer = torch.optim.SGD(model.parameters())

    def step() -> torch.Tensor:
        loss = loss_of(model(**inputs))
        loss.backward()
        optimizer.step()
        return loss

    step()
    optimizer.zero_grad()
    return profiled(step)


def recipe_of(training: bool) -> Any:
    """The step that `measure` takes; None for an inference."""
    from memplan_engine.torch_capture.training.torch_recipe import Recipe

    return Recipe("sgd", loss=loss_of) if training else None


def predict(name: str, training: bool, calibration: Any) -> tuple[int, str]:
    """The predicted peak, and how good that is."""
    from memplan_engine import observe_fake
    from memplan_engine.recordings.observed_flow import flow_peak

    model, inputs = build(name)
    flow = observe_fake(
        model, (), inputs, recipe=recipe_of(training), name=name, calibration=calibration
    ).flow
    assert flow is not None
    return flow_peak(flow)[0], flow.calibration


def with_calls(name: str, training: bool, calibration: Any, errors: Counter[str]) -> Any:
    """The calibration with the model's own calls, as `memplan calibrate --onto` adds them. `errors` counts
    how good the formulas are for these: "inside" the calibrated shapes, "kept" the stated error."""
    from memplan_engine.calibration.fit_formula import Sample, error_of
    from memplan_engine.runtime.calibrate.model_calls import measure_calls
    from memplan_engine.runtime.recorder.fake_run import distinct_calls

    model, inputs = build(name)
    asked = distinct_calls(model, (), inputs, recipe=recipe_of(training), name=name)
    measured = measure_calls(asked)
    for text, why in measured.failed.items():
        print(f"  not measured alone: {text[:120]}: {why}")
    for text, taken in measured.nbytes.items():
        call = asked[text]
        formula = calibration.formula(call.found)
        errors["calls"] += 1
        if formula is not None and formula.covers(call.found.sizes) and formula.error is not None:
            off = error_of(formula.sums, Sample(call.found.sizes, taken, call.nbytes + taken))
            kinds = ("inside", "inside, taking something") if taken else ("inside",)
            for kind in kinds:
                errors[kind] += 1
                errors[f"kept, {kind}"] += off <= formula.error
                errors[f"within 3 %, {kind}"] += off <= 0.03
    return replace(calibration, calls=measured.nbytes)


def stated(words: str) -> str:
    """The limits that a prediction gives."""
    return next(part for part in words.split("; ") if part.startswith("peak "))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calibration", type=Path, help="of `memplan calibrate` (default: made now)")
    parser.add_argument("models", nargs="*")
    parser.add_argument("--held-out", action="store_true", help="models that no formula was made with")
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    names = options.models or list(HELD_OUT if options.held_out else MODELS)
    if options.training:
        names = [name for name in names if name not in UNTRAINED]
    if options.measure:
        for name in names:
            print(json.dumps({name: measure(name, options.training)}), flush=True)
        return
    command = [sys.executable, __file__, *names, "--measure"]
    command += ["--training"] * options.training
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    measured: dict[str, int] = {}
    for line in said.splitlines():
        if line.startswith("{"):
            measured |= json.loads(line)
    from memplan_engine.formats.memplan_json.calibration_format import load_calibration
    from memplan_engine.runtime.calibrate.measure_kernels import calibrate

    calibration = load_calibration(options.calibration) if options.calibration else calibrate()
    within = exact = 0
    errors: Counter[str] = Counter()
    print(f"{'model':20} {'measured':>12} {'plain':>8} {'formulas':>8} {'calls':>8}")
    for name in names:
        real = measured[name]
        plain, _ = predict(name, options.training, None)
        formulas, words = predict(name, options.training, calibration)
        calls, _ = predict(name, options.training, with_calls(name, options.training, calibration, errors))
        within += abs(formulas / real - 1) <= 0.03
        exact += abs(calls / real - 1) <= 0.03
        print(
            f"{name:20} {real:12,} {plain / real - 1:+8.1%} {formulas / real - 1:+8.1%} "
            f"{calls / real - 1:+8.2%}  {stated(words)}",
            flush=True,
        )
    print(f"within 3 %: {within} of {len(names)} by formulas, {exact} with the models' own calls")
    for kind, count in sorted(errors.items()):
        print(f"{count:8,}  {kind}")


if __name__ == "__main__":
    main()
