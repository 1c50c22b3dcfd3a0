"""Peak memory of training steps: PyTorch's published estimate, ours by storages, and what a real run takes.

    python benchmarks/fx_estimator.py [model …] [--markdown]

Small configurations of models from transformers, in training mode, with a loss; forward and backward graphs
by AOTAutograd, with its default partition and its min-cut. Measured are the storages live while
`fx.Interpreter` runs both graphs on real tensors, by torch's own count of who holds them; "torch 2.13" is the
installed estimator with its device filter off, on what memplan says of the pair, for there it fails itself.
"Equal" tells for how many entries, two for each op, storages with unread values held equal the
measurement. Bytes are exact; in brackets is what they differ from the measured ones.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

HEADINGS = (
    "model",
    "partition",
    "nodes",
    "published",
    "torch 2.13",
    "storages, freed",
    "storages, held",
    "measured",
    "equal entries",
    "estimate s",
)


def rows(models: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """One row for each model and partition, as text."""
    import torch

    from memplan_engine.fx_estimator import StorageAliasing, estimate_training, get_peak_memory
    from memplan_engine.lifetimes import Unread
    from tests.support.fx_measured import measure_pair
    from tests.support.fx_models import PARTITIONS, small, trace_pair

    for name in models:
        for partition in PARTITIONS:
            torch.manual_seed(0)
            pair = trace_pair(*small(name), partition)
            forward, backward, measured = measure_pair(pair.forward, pair.backward, pair.inputs)
            graphs = pair.forward.graph, pair.backward.graph
            published = get_peak_memory(*graphs)
            freed = get_peak_memory(*graphs, aliasing=StorageAliasing(), unread=Unread.FREED)
            start = time.perf_counter()
            held = estimate_training(*graphs, aliasing=StorageAliasing())
            seconds = time.perf_counter() - start
            entries = [*held.forward, *(held.baseline + entry for entry in held.backward)]
            same = sum(a == b for a, b in zip(entries, [*forward, *backward], strict=True))
            torch_peak = installed_peak(*graphs, held)
            yield (
                name,
                partition,
                str(sum(len(graph.nodes) for graph in graphs)),
                *(against(peak, measured) for peak in (published, torch_peak, freed, held.peak)),
                f"{measured:,}",
                f"{same} of {len(entries)}",
                f"{seconds:.2f}",
            )


def against(peak: int, measured: int) -> str:
    """A peak in bytes, and by how much it misses."""
    return f"{peak:,} ({f'{peak / measured - 1:+.1%}' if peak != measured else 'equal'})"


def installed_peak(forward: Any, backward: Any, estimate: Any) -> int:
    """What the installed torch makes of two graphs."""
    from torch._inductor.fx_passes import memory_estimator as installed

    from memplan_engine.fx_estimator import is_not_primal

    installed.device_filter = lambda device: True
    first = installed.build_memory_profile(forward, is_not_primal)
    second = installed.build_memory_profile(
        backward, lambda node: is_not_primal(node) and node.name not in estimate.held
    )
    return max(*first, *(estimate.baseline + entry for entry in second))


def show(lines: Iterable[Sequence[str]], markdown: bool) -> None:
    """Print a table as it fills; numbers to the right."""
    widths = (10, 9, 6, 18, 18, 18, 18, 10, 14, 10)
    for line in lines:
        cells = [
            text.ljust(width) if place < 2 else text.rjust(width)
            for place, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        print(
            f"| {' | '.join(text.strip() for text in cells)} |" if markdown else "  ".join(cells), flush=True
        )


def main() -> None:
    from tests.support.fx_models import MODELS

    parser = argparse.ArgumentParser(description="Estimated and measured peaks of training steps.")
    parser.add_argument("models", nargs="*", metavar="model", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--markdown", action="store_true", help="a Markdown table")
    options = parser.parse_args()
    if unknown := set(options.models) - set(MODELS):
        parser.error(f"no model {', '.join(sorted(unknown))}; there are: {', '.join(MODELS)}")
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    show([HEADINGS], options.markdown)
    if options.markdown:
        print("|---" * len(HEADINGS) + "|")
    show(rows(options.models or MODELS), options.markdown)


if __name__ == "__main__":
    main()
