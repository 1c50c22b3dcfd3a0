"""The static runtime on real models: bytes of its buffer, and milliseconds beside eager and the interpreter.

    python benchmarks/static_runtime.py [model …] [--full] [--runs N] [--markdown]

Models from transformers with random weights, small configurations unless `--full`, one thread. "slots" is the
buffer with a slot of its own for each storage, "auto" the buffer as planned; "in buffer" the share of the
bytes made (of those not returned) that operators write there. Times are medians of interleaved runs with the
buffer kept (`cleanup_activations=False`); "of eager" is their time over eager's, and "released" the same with
the buffer released after each run.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

HEADINGS = (
    "model",
    "nodes",
    "in buffer",
    "slots",
    "auto",
    "saved",
    "ms",
    "eager, ms",
    "interpreter, ms",
    "of eager",
    "released",
    "result",
)


def row(name: str, full: bool, runs: int) -> list[str]:
    """The figures of one model."""
    import torch
    from runtime_models import build

    from memplan_engine import StaticRuntime
    from memplan_engine.runtime.trial.equality import compare_results
    from memplan_engine.units import format_bytes, format_percent

    model, inputs, _ = build(name, full)
    runtime = StaticRuntime(model, inputs, strategy="auto", cleanup_activations=False, name=name)
    released = StaticRuntime(model, inputs, strategy="auto", name=name)
    program = runtime.export.program
    same = {str(compare_results(program.interpret((), inputs), runtime(**inputs), "it")) for _ in range(3)}
    with torch.no_grad():
        same.add(str(compare_results(model(**inputs), runtime(**inputs), "it")).replace("eager", "it"))
    kept, other = (each.benchmark(inputs, warmup=3, runs=runs) for each in (runtime, released))
    report = runtime.memory_report()
    return [
        name,
        str(len(runtime.records)),
        format_percent(report.share),
        format_bytes(report.slots_bytes),
        format_bytes(report.buffer_bytes),
        format_percent(report.saved_share),
        f"{kept.ms:.2f}",
        f"{kept.eager_ms:.2f}",
        f"{kept.interpreter_ms:.2f}",
        f"{kept.against_eager:.2f}",
        f"{other.against_eager:.2f}",
        "bit for bit" if same == {"bitwise equal to it"} else "; ".join(same),
    ]


def main(arguments: list[str] | None = None) -> int:
    """Print a row for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--markdown", action="store_true")
    options: Any = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    import torch
    from runtime_models import MODELS

    torch.set_num_threads(1)
    separator = " | " if options.markdown else "  "
    print(separator.join(HEADINGS))
    if options.markdown:
        print("|".join("-" * len(HEADINGS)))
    for name in options.models or MODELS:
        print(separator.join(row(name, options.full, options.runs)), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
