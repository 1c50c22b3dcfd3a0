"""What watching costs: a run with the memory observer against the same run alone and under torch's profiler.

    python benchmarks/observer.py [model …] [--runs N] [--markdown]

Small configurations of models, in eager mode without gradients. "profiler, everything on" is torch.profiler
with memory, shapes, stacks, modules and flops; "profiler, memory" is torch.profiler with `profile_memory`
alone. All times are CPU time of this process, medians of runs in turn. "run" is until the model has returned;
"known" is until what was seen can be looked at: an Observation, or `prof.events()`. A factor is against the
run alone.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

WAYS = (
    "alone",
    "observer, allocator level",
    "observer, dispatch level",
    "observer, both levels",
    "observer, both levels, stacks",
    "profiler, memory",
    "profiler, everything on",
)

Way = Callable[[Callable[[], Any]], Any]
"""Runs the function that it is given, and has what it saw read."""


def ways() -> list[Way]:
    """WAYS, in their order."""
    from torch.profiler import ProfilerActivity, profile

    from memplan_engine.runtime.observer.observe_run import observe

    def observed(*levels: str, stacks: bool = False) -> Way:
        return lambda run: observe(run, levels=levels, stacks=stacks)

    def profiled(**options: Any) -> Way:
        def way(run: Callable[[], Any]) -> Any:
            with profile(activities=[ProfilerActivity.CPU], profile_memory=True, **options) as found:
                run()
            return found.events()

        return way

    both = ("dispatch", "allocator")
    everything = {"record_shapes": True, "with_stack": True, "with_modules": True, "with_flops": True}
    found: list[Way] = [lambda run: run(), observed("allocator"), observed("dispatch"), observed(*both)]
    return [*found, observed(*both, stacks=True), profiled(), profiled(**everything)]


def medians(model: Any, inputs: dict[str, Any], times: int) -> list[tuple[float, float]]:
    """CPU seconds of each way, until the model has returned and until what was seen is known; in turn, after
    one round to warm up."""
    import torch

    returned = 0.0

    def run() -> None:
        nonlocal returned
        model(**inputs)
        returned = time.process_time()

    found = ways()
    taken: list[list[tuple[float, float]]] = [[] for _ in found]
    for each in range(times + 1):
        for place, way in enumerate(found):
            start = time.process_time()
            with torch.no_grad():
                way(run)
            if each:
                taken[place].append((returned - start, time.process_time() - start))
    return [
        (statistics.median(row[0] for row in rows), statistics.median(row[1] for row in rows))
        for rows in taken
    ]


def rows(names: list[str], times: int, full: bool) -> Iterator[tuple[str, ...]]:
    """A row for each model and way, as text."""
    import torch
    from runtime_models import build

    from memplan_engine.runtime.observer.observe_run import observe

    for name in names:
        model, inputs, _ = build(name, full)
        found = medians(model, inputs, times)
        with torch.no_grad():
            ops = len(observe(model, **inputs, levels="dispatch").ops)
        alone = found[0][1]
        for way, (run, known) in zip(WAYS, found, strict=True):
            yield (
                name,
                str(ops),
                way,
                f"{1000 * run:.1f}",
                f"{run / alone:.2f}",
                f"{1000 * known:.1f}",
                f"{known / alone:.2f}",
                f"{(known - alone) / (found[-1][1] - alone):.3f}",
            )


HEADINGS = ("model", "ops", "way", "run ms", "× alone", "known ms", "× alone", "of everything on")


def main() -> None:
    from runtime_models import MODELS, show

    parser = argparse.ArgumentParser(description="What the memory observer costs.")
    parser.add_argument("models", nargs="*", metavar="model", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--full", action="store_true", help="the published sizes")
    parser.add_argument("--markdown", action="store_true", help="a Markdown table")
    options = parser.parse_args()
    if unknown := set(options.models) - set(MODELS):
        parser.error(f"no model {', '.join(sorted(unknown))}; there are: {', '.join(MODELS)}")
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    widths = (12, 5, 30, 8, 8, 9, 8, 17)
    lines = (HEADINGS, *rows(options.models or ["gpt2", "resnet50"], options.runs, options.full))
    for number, line in enumerate(lines):
        show(line, widths, options.markdown, number == 0, left=(0, 2))


if __name__ == "__main__":
    main()
