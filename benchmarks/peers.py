"""Ours beside MiniMalloc, OmniMalloc and OR-tools CP-SAT, each in a process of its own.

    python benchmarks/peers.py [--seconds S] [--solvers NAME,…] [--minimalloc PATH] [--long] [--only GLOB,…]
                               [--seeds N] [--runs N] [--seed S] [--data FOLDER] [--memory GIB]

Two tables. Deciding: does it fit into the capacity (the published one; else the known optimum, or the lower
bound)? Minimising: the smallest arena within the time limit, over the optimum where that is known and over
the lower bound else. Below each are its families and the sums. With --runs N each solver runs with N seeds,
and every figure is the median (least–most); --seeds N draws N instances of each random family.

Each solve is pinned to as many cores as it may have threads: one unless a name says more, as `auto:2`. CPU
seconds are those of the call, with all its threads: without the interpreter's start, imports, loading our
kernels, or the making of each solver's own objects; MiniMalloc's are those of its whole process. A peer runs
with the settings that we found to be its best, not its defaults: `--solvers` names them, and the files of
benchmarks/solvers say why. The time limit is on wall time; how much of its core a solve had is said at the
end. The peak of memory is that of the whole process.

"Proven" is an arena that meets the lower bound, or a bound that the solver itself proved. "Knows no …": the
solver cannot be told of that. Every placement is checked by our validator, and every claim against the
others'; the exit code is 1 when one is wrong. `pip install 'memplan[bench]'` brings OR-tools and OmniMalloc;
MiniMalloc is built from its sources.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.families.instance import Instance  # noqa: E402
from benchmarks.instances import add_options, instances  # noqa: E402
from benchmarks.solvers import report  # noqa: E402
from benchmarks.solvers.catalogue import OURS, SOLVERS, Question, Solver  # noqa: E402
from benchmarks.solvers.judge import Result, disagreement, judge, unasked  # noqa: E402
from benchmarks.solvers.question import request_of  # noqa: E402
from benchmarks.solvers.run import ask  # noqa: E402
from memplan_engine.warm_up import compile_kernels  # noqa: E402

USUAL = tuple(name for name in SOLVERS if name != "cp_sat_minimise")
"""Minimising, CP-SAT proves next to nothing and takes all its time for it: with --long, or by name."""


def chosen(options: argparse.Namespace) -> list[tuple[Solver, int]]:
    """The solvers that can run, each with its threads; says which are left out and why."""
    names = options.solvers.split(",")
    picked = []
    for name in names:
        plain, _, threads = name.partition(":")
        if plain not in SOLVERS or (threads and not threads.isdigit()):
            sys.exit(
                f"no solver {name!r}; there are: {', '.join(SOLVERS)}, each perhaps with a number of threads"
            )
        missing = SOLVERS[plain].missing(options.minimalloc)
        if missing:
            print(missing)
        else:
            picked.append((SOLVERS[plain], int(threads or 1)))
    return picked


def solve_all(
    instance: Instance, solvers: list[tuple[Solver, int]], options: argparse.Namespace
) -> Iterator[list[Result]]:
    """The answers of `solvers`, one after the other, each with every seed, and checked."""
    limits = {"memory_bytes": int(options.memory * 2**30), "binary": options.minimalloc}
    request = request_of(instance, options.seconds, **limits)
    for solver, threads in solvers:
        if solver.cannot(instance.features):
            yield [unasked(instance, solver, threads)]
        elif len(instance.problem) <= solver.most:
            own = replace(request, threads=threads, workers=solver.workers)
            yield [
                judge(instance, solver, threads, ask(solver, replace(own, seed=seed)), seed)
                for seed in range(options.seed, options.seed + options.runs)
            ]


def table(
    question: Question, options: argparse.Namespace, solvers: list[tuple[Solver, int]]
) -> tuple[list[Result], list[str]]:
    """All answers to one question, printed, with their families and sums; and what is wrong with them."""
    asked = [(solver, threads) for solver, threads in solvers if solver.question is question]
    if not asked:
        return [], []
    print()
    report.show_headings(report.HEADINGS[question])
    results: list[Result] = []
    wrong: list[str] = []
    for instance in instances(options):
        answers: list[Result] = []
        for own in solve_all(instance, asked, options):
            ours = [each for each in answers if each.label == OURS[question]]
            report.show_row(report.cells(own, ours))
            answers += own
        wrong += complaints(answers)
        results += answers
    print()
    report.show_headings(report.FAMILIES[question])
    report.show_families(question, results)
    print()
    report.show_sums(question, results)
    return results, wrong


def complaints(answers: list[Result]) -> list[str]:
    """What is wrong with the answers to one instance, each by itself and all together."""
    wrong = [f"{each.label} on {each.instance.name}: {each.wrong}" for each in answers if each.wrong]
    clash = disagreement(answers)
    return [*wrong, f"{answers[0].instance.name}: {clash}"] if clash else wrong


def add_solver_options(parser: argparse.ArgumentParser) -> None:
    """The options that choose solvers and what each may spend."""
    parser.add_argument("--solvers", default="", metavar="NAME,…", help=f"of {', '.join(SOLVERS)}")
    parser.add_argument("--minimalloc", default="", metavar="PATH", help="MiniMalloc's binary")
    parser.add_argument("--seed", type=int, default=0, help="what the solvers draw from")
    parser.add_argument(
        "--runs", type=int, default=1, metavar="N", help="of each solver, with N seeds (default: 1)"
    )
    parser.add_argument(
        "--memory", type=float, default=4.0, metavar="GIB", help="for each solve (default: 4)"
    )


def options_from(arguments: list[str] | None = None) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    add_solver_options(parser)
    parser.add_argument("--seconds", type=float, help="wall time for each solve (default: 5; --long: 60)")
    options = parser.parse_args(arguments)
    options.seconds = options.seconds or (60.0 if options.long else 5.0)
    options.solvers = options.solvers or ",".join(SOLVERS if options.long else USUAL)
    return options


def main() -> None:
    """Print both tables."""
    options = options_from()
    compile_kernels()
    solvers = chosen(options)
    print(f"At most {options.seconds:g} s of wall time and {options.memory:g} GiB a solve.")
    for solver, threads in solvers:
        limit = f"; up to {solver.most:,} buffers" if solver.most < sys.maxsize else ""
        print(f"- {solver.name}: {solver.what}; threads: {threads}{limit}")
    results, wrong = [], []
    for question in Question:
        more, bad = table(question, options, solvers)
        results += more
        wrong += bad
    if not results:
        sys.exit(
            f"no instance {options.only!r} that these solvers are asked: see python -m benchmarks instances"
        )
    loading = [result.answer.loading for result in results if result.answer.loading]
    if loading:
        print(
            f"\nOurs, not counted above: imports and loading kernels, {statistics.median(loading):.2f} CPU s."
        )
    print(report.share_of_cores(results))
    if wrong:
        sys.exit("\n".join(["", "WRONG:", *wrong]))


if __name__ == "__main__":
    main()
