"""The tables of a comparison: a line for each solver and instance as it comes, families and sums at the end.

Where there are several seeds a figure is the median, and the least and the most stand behind it.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from benchmarks.solvers.catalogue import OURS, Question
from benchmarks.solvers.judge import Result

HEADINGS = {
    Question.DECIDE: (
        "instance", "buffers", "lower bound", "capacity", "solver", "CPU s", "ours / theirs",
        "verdict", "peak MiB",
    ),
    Question.MINIMISE: (
        "instance", "buffers", "lower bound", "solver", "CPU s", "ours / theirs",
        "arena", "arena / bound", "proven", "peak MiB",
    ),
}  # fmt: skip
FAMILIES = {
    Question.DECIDE: ("family", "buffers", "solver", "settled", "CPU s"),
    Question.MINIMISE: ("family", "buffers", "solver", "settled", "CPU s", "arena / bound"),
}
SUMS = (
    "solver",
    "asked",
    "settled",
    "CPU s",
    "settled by both",
    "ours there, s",
    "theirs, s",
    "ours / theirs",
)
FEW_CPU_S = 1.0
"""Shorter solves say nothing about how busy the machine was: starting threads and reading count for more."""


def show_headings(headings: Sequence[str]) -> None:
    """The head of a Markdown table."""
    print("| " + " | ".join(headings) + " |")
    print("|" + "-|" * len(headings))


def show_row(cells: Sequence[str]) -> None:
    """A row of it, at once."""
    print("| " + " | ".join(cells) + " |", flush=True)


def spread(values: Iterable[float], form: str = ".3f") -> str:
    """Median (least–most) of `values`, each in the format `form`; one figure when they look the same."""
    ordered = sorted(values)
    if not ordered:
        return "–"
    least, most = format(ordered[0], form), format(ordered[-1], form)
    middle = format(statistics.median(ordered), form)
    return middle if least == most else f"{middle} ({least}–{most})"


def whole(values: Iterable[int]) -> str:
    """The same of bytes or counts; the median is one of them, the lower one of two."""
    ordered = sorted(values)
    if not ordered:
        return "–"
    middle = f"{statistics.median_low(ordered):,}"
    return middle if ordered[0] == ordered[-1] else f"{middle} ({ordered[0]:,}–{ordered[-1]:,})"


def cells(results: Sequence[Result], ours: Sequence[Result]) -> list[str]:
    """One line: the answers of one solver to one instance, by seed, and ours to it, empty when it is ours."""
    first = results[0]
    instance = first.instance
    known = [instance.name, f"{len(instance.problem):,}", f"{instance.lower_bound:,}"]
    spent = [
        first.label,
        spread(result.answer.cpu for result in results if result.answer.cpu),
        ratio(ours, results) if ours else "",
    ]
    peak = max(result.answer.peak_bytes for result in results)
    last = [verdict(results), f"{peak / 2**20:,.0f}" if peak else ""]
    if first.solver.question is Question.DECIDE:
        return [*known, f"{instance.capacity:,}", *spent, *last]
    arenas = whole(result.arena for result in results if result.arena is not None)
    return [*known, *spent, arenas, above(results), *last]


def verdict(results: Sequence[Result]) -> str:
    """What was said, and how often where it was not always the same."""
    counts = Counter(result.said for result in results).most_common()
    return counts[0][0] if len(counts) == 1 else ", ".join(f"{said} ({count})" for said, count in counts)


def above(results: Iterable[Result]) -> str:
    """Arena over bound of those that have a placement, and how many those are when others have none."""
    ratios = [result.above for result in results]
    placed = [each for each in ratios if each is not None]
    few = f", {len(placed)} placed" if 0 < len(placed) < len(ratios) else ""
    return f"{spread(placed, '.4f')}{few}"


def ratio(ours: Sequence[Result], theirs: Sequence[Result]) -> str:
    """Our CPU seconds over theirs, medians; "<" where they did not get there, ">" where we did not, with
    every seed; else nothing."""
    settled = [all(result.decided for result in each) for each in (ours, theirs)]
    mine, other = (statistics.median(result.answer.cpu for result in each) for each in (ours, theirs))
    if not other or not any(settled):
        return ""
    sign = "" if all(settled) else "<" if settled[0] else ">"
    return f"{sign}{mine / other:.3g}"


def show_families(question: Question, results: Sequence[Result]) -> None:
    """A line for each family and solver: how many it settled, all seeds together, or what it knows nothing
    of."""
    for family, within in _grouped(results, lambda result: result.instance.family):
        buffers = whole({len(result.instance.problem) for result in within})
        for label, own in _grouped(within, lambda result: result.label):
            asked = [result for result in own if result.asked]
            settled = f"{sum(result.decided for result in asked)} of {len(asked)}"
            cpu = spread(result.answer.cpu for result in asked if result.answer.cpu)
            more = [above(asked)] if question is Question.MINIMISE else []
            show_row([str(family), buffers, str(label), settled if asked else verdict(own), cpu, *more])


def show_sums(question: Question, results: Sequence[Result]) -> None:
    """How many each solver settled, and the CPU seconds on those that it and ours did: sums over all
    instances, of each seed."""
    asked = [result for result in results if result.asked]
    ours = {(each.instance.name, each.seed): each for each in asked if each.label == OURS[question]}
    show_headings(SUMS)
    for label, own in _grouped(asked, lambda result: result.label):
        mine, theirs, both, settled, spent = [], [], [], [], []
        for _, run in _grouped(own, lambda result: result.seed):
            shared = [each for each in run if each.decided and _settled(ours.get(_key(each)))]
            mine.append(sum(ours[_key(each)].answer.cpu for each in shared))
            theirs.append(sum(each.answer.cpu for each in shared))
            both.append(len(shared))
            settled.append(sum(each.decided for each in run))
            spent.append(sum(each.answer.cpu for each in run))
        # Of those that were ended or died the time is not known.
        more = ">" if any(not each.answer.cpu for each in own) else ""
        counts = [f"{len(own) // len(spent)}", whole(settled), f"{more}{spread(spent, '.2f')}", whole(both)]
        over = f"{statistics.median(mine) / statistics.median(theirs):.3g}" if all(theirs) else ""
        show_row([str(label), *counts, spread(mine, ".2f"), spread(theirs, ".2f"), over])


def share_of_cores(results: Iterable[Result]) -> str:
    """How busy the machine was: the CPU over the wall seconds of the solves on one core that took a while."""
    shares = [
        min(1.0, result.answer.cpu / result.answer.wall)
        for result in results
        if result.threads == 1 and result.answer.wall > FEW_CPU_S
    ]
    return f"Solves of more than {FEW_CPU_S:g} s had {spread(shares, '.0%')} of their core." if shares else ""


def _grouped(
    results: Iterable[Result], key: Callable[[Result], str | int]
) -> list[tuple[str | int, list[Result]]]:
    groups: dict[str | int, list[Result]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)
    return list(groups.items())


def _key(result: Result) -> tuple[str, int]:
    return result.instance.name, result.seed


def _settled(result: Result | None) -> bool:
    return result is not None and result.decided
