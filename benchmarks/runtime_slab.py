"""Real models inside their slab: bytes written in place, the bits of the result, and time beside eager.

    python benchmarks/runtime_slab.py [model …] [--full] [--threads N] [--runs N] [--markdown]

The models and steps of `runtime_models`, raw and functional, planned by `auto`. "in place" is the
share of the bytes made (returned ones left out) that policy `native` writes in the slab, "native" and "all"
whether the results have the interpreter's bits under each policy. Times are CPU seconds of one iteration,
"eager" is the model itself; each ratio is the median over `--runs` rounds with one run of each. A step has no
eager form of its own: there the interpreter stands for it.
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

from runtime_models import MODELS, STEPS, programs, show  # noqa: E402

HEADINGS = (
    "model",
    "graph",
    "storages",
    "in place",
    "slab bytes",
    "native",
    "all",
    "eager ms",
    "native / eager",
    "interpreter / eager",
)
WIDTHS = (17, 10, 9, 9, 13, 6, 6, 10, 14, 19)


def rows(names: list[str], full: bool, runs: int) -> Iterator[tuple[str, ...]]:
    """A row for each graph, as text."""
    import torch
    from torch.utils import _pytree as pytree

    from memplan_engine import SolveLimits, make_plan
    from memplan_engine.runtime.program import flat_outputs
    from memplan_engine.runtime.slab.insert_slab import insert_slab, slab_report

    def values_of(module: Any, inputs: list[Any]) -> list[Any]:
        # Steps write the weights: every run has its own.
        given = [value.detach().clone() if isinstance(value, torch.Tensor) else value for value in inputs]
        torch.manual_seed(0)
        with torch.no_grad():
            values = flat_outputs(module(*given))
        return [leaf for leaf in pytree.tree_leaves((values, given)) if isinstance(leaf, torch.Tensor)]

    for name in names:
        for kind, program, args, kwargs, model in programs(name, full):
            plan = make_plan(program.graph, limits=SolveLimits(5))
            native = insert_slab(program, plan)
            everything = insert_slab(program, plan, policy="all")
            inputs = program.inputs(args, kwargs)
            expected = values_of(torch.fx.Interpreter(program.module).run, inputs)
            bits = [
                len(found) == len(expected) and all(map(torch.equal, found, expected))
                for found in (values_of(module, inputs) for module in (native, everything))
            ]
            calls: dict[str, Callable[[], Any]] = {
                "native": lambda module=native, given=inputs: module(*given),  # type: ignore[misc]
                "interpreter": lambda module=program.module, given=inputs: torch.fx.Interpreter(module).run(  # type: ignore[misc]
                    *given
                ),
            }
            calls["eager"] = (lambda m=model, a=args, k=kwargs: m(*a, **k)) if model else calls["interpreter"]  # type: ignore[misc]
            times = rounds(calls, runs)
            report = slab_report(native)
            yield (
                name,
                kind,
                str(len(report.made)),
                f"{report.share:.1%}",
                f"{report.slab_bytes:,}",
                *("same" if same else "OTHER" for same in bits),
                f"{1e3 * statistics.median(times['eager']):.2f}",
                f"{ratio(times, 'native'):.2f}",
                f"{ratio(times, 'interpreter'):.2f}",
            )


def rounds(calls: dict[str, Callable[[], Any]], runs: int) -> dict[str, list[float]]:
    """CPU seconds of each of `calls`, one of each a round, after two rounds that do not count."""
    import torch

    times: dict[str, list[float]] = {name: [] for name in calls}
    with torch.no_grad():
        for turn in range(runs + 2):
            for name, call in calls.items():
                begun = time.process_time()
                call()
                if turn >= 2:
                    times[name].append(time.process_time() - begun)
    return times


def ratio(times: dict[str, list[float]], name: str) -> float:
    """The median over the rounds of `name` against eager."""
    return statistics.median(mine / eager for mine, eager in zip(times[name], times["eager"], strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description="Models in their slab: in place, same bits, how fast.")
    known = (*MODELS, *STEPS)
    parser.add_argument("models", nargs="*", metavar="model", help=f"of {', '.join(known)}")
    parser.add_argument("--full", action="store_true", help="the published sizes")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--runs", type=int, default=15, help="rounds that are timed")
    parser.add_argument("--markdown", action="store_true", help="a Markdown table")
    options = parser.parse_args()
    if unknown := set(options.models) - set(known):
        parser.error(f"no model {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    import torch

    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    show(HEADINGS, WIDTHS, options.markdown, True, left=(0, 1))
    for line in rows(options.models or list(known), options.full, options.runs):
        show(line, WIDTHS, options.markdown, False, left=(0, 1))


if __name__ == "__main__":
    main()
