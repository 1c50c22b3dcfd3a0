"""The instances that the benchmarks pack: what they are and how large.

    python benchmarks/instances.py [--long] [--seeds N] [--only GLOB,…] [--data FOLDER]

Perfect packings (the optimum is LOAD at every step), instances on which a rule of thumb fails (the optimum is
known), random ones, ones with alignments, gaps and fixed offsets (the optimum is known of those that are cut
out of a perfect packing), the graphs that this project ships, and every list of buffers below FOLDER
(../shared/data). Given the same seed, they are the same everywhere.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.families import adversarial, constrained, drawn, found, perfect  # noqa: E402
from benchmarks.families.instance import Instance  # noqa: E402
from benchmarks.solvers.report import show_headings, show_row  # noqa: E402
from memplan_engine.planner import make_plan  # noqa: E402

HEADINGS = ("instance", "buffers", "steps", "lower bound", "optimum / bound", "greedy by size / bound")
LONG_COUNTS = (1_000, 10_000, 100_000)
FEWEST_CAPTURED = 200


def instances(options: argparse.Namespace) -> Iterator[Instance]:
    """Those that `options` ask for: `data`, `seeds`, `only` and `long`."""
    everything: Iterable[Iterable[Instance]] = (
        found.published(options.data),
        (each for each in found.captured() if options.long or len(each.problem) >= FEWEST_CAPTURED),
        _adversarial(),
        _seeded(options.seeds, options.long),
    )
    for family in everything:
        yield from (each for each in family if _asked_for(each.name, options.only))


def _asked_for(name: str, globs: str) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs.split(","))


def _adversarial() -> Iterator[Instance]:
    yield adversarial.path(20)
    yield adversarial.caterpillar(20)
    yield adversarial.caterpillar(5, stack=8)
    yield adversarial.fragmenting(4)
    yield adversarial.no_way_out(20)
    yield adversarial.in_turn(adversarial.caterpillar(10), adversarial.fragmenting(3), adversarial.path(10))


def _seeded(seeds: int, long: bool) -> Iterator[Instance]:
    for seed in range(seeds):
        yield perfect.guillotine(200, seed)
        yield perfect.guillotine(200, seed, even=True)
        yield perfect.pinwheel(200, seed)
        yield from _constrained(seed)
        yield drawn.two_sizes(3_000, seed)
        for count in LONG_COUNTS if long else LONG_COUNTS[:1]:
            yield perfect.guillotine(count, seed)
            yield drawn.mixed(count, seed)
            yield drawn.mixed(count, seed, long_lived=0.1)
            yield drawn.training(count // 6, seed)


def _constrained(seed: int) -> Iterator[Instance]:
    for count in (200, 2_000):
        yield constrained.aligned(count, seed)
        yield constrained.gapped(count, seed)
    yield constrained.aligned_perfect(200, seed)
    yield constrained.gapped_perfect(200, seed)
    yield constrained.windowed_perfect(200, seed)
    for count in (8, 11, 14):
        yield constrained.windowed(count, seed)
    for count in (300, 1_500):
        yield constrained.fixed(count, seed)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that choose instances."""
    parser.add_argument("--long", action="store_true", help="the large ones and all captured graphs, too")
    parser.add_argument(
        "--seeds", type=int, default=1, metavar="N", help="of each random instance (default: 1)"
    )
    parser.add_argument(
        "--only", default="*", metavar="GLOB,…", help="instances by name, such as 'gaps/*,fixed/*'"
    )
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", metavar="FOLDER")


def main() -> None:
    """Print them as a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser)
    show_headings(HEADINGS)
    for each in instances(parser.parse_args()):
        known = "" if each.optimum is None else f"{each.optimum / each.lower_bound:.4f}"
        greedy = make_plan(each.problem, "greedy_by_size").arena_bytes / each.bound
        sizes = (f"{len(each.problem):,}", f"{each.problem.steps:,}", f"{each.lower_bound:,}")
        show_row([each.name, *sizes, known, f"{greedy:.4f}"])


if __name__ == "__main__":
    main()
