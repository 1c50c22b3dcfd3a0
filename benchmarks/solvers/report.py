"""The tables of a comparison: a line for each answer as it comes, and the sums at the end."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.solvers.catalogue import OURS, Question
from benchmarks.solvers.judge import Result

HEADINGS = {
    Question.DECIDE: (
        "instance", "buffers", "LOAD", "capacity", "solver", "CPU s", "ours / theirs",
        "verdict", "peak MiB",
    ),
    Question.MINIMISE: (
        "instance", "buffers", "LOAD", "solver", "CPU s", "ours / theirs",
        "arena / bound", "proven", "peak MiB",
    ),
}  # fmt: skip
SUMS = (
    "solver",
    "instances",
    "settled",
    "CPU s",
    "settled by both",
    "ours there, s",
    "theirs, s",
    "ours / theirs",
)


def show_headings(headings: Sequence[str]) -> None:
    """The head of a Markdown table."""
    print("| " + " | ".join(headings) + " |")
    print("|" + "-|" * len(headings))


def show_row(cells: Sequence[str]) -> None:
    """A row of it, at once."""
    print("| " + " | ".join(cells) + " |", flush=True)


def cells(result: Result, ours: Result | None) -> list[str]:
    """One line of the table."""
    instance, answer = result.instance, result.answer
    known = [instance.name, f"{len(instance.problem):,}", f"{instance.load:,}"]
    spent = [
        result.label,
        f"{answer.cpu:.3f}" if answer.cpu else "–",
        "" if ours is None else ratio(ours, result),
    ]
    peak = f"{answer.peak_bytes / 2**20:,.0f}" if answer.peak_bytes else ""
    if result.solver.question is Question.DECIDE:
        return [*known, f"{instance.capacity:,}", *spent, result.said, peak]
    return [*known, *spent, result.above, result.said, peak]


def ratio(ours: Result, theirs: Result) -> str:
    """Our CPU seconds over theirs; "<" where they did not get there, ">" where we did not; else nothing."""
    if not theirs.answer.cpu or not (ours.decided or theirs.decided):
        return ""
    sign = "" if ours.decided and theirs.decided else "<" if ours.decided else ">"
    return f"{sign}{ours.answer.cpu / theirs.answer.cpu:.3g}"


def show_sums(question: Question, results: list[Result]) -> None:
    """How many each solver settled, and the CPU seconds on those that it and ours did."""
    ours = {result.instance.name: result for result in results if result.label == OURS[question]}
    show_headings(SUMS)
    for label in dict.fromkeys(result.label for result in results):
        own = [result for result in results if result.label == label]
        both = [result for result in own if result.decided and _settled(ours.get(result.instance.name))]
        mine = sum(ours[result.instance.name].answer.cpu for result in both)
        theirs = sum(result.answer.cpu for result in both)
        settled = sum(result.decided for result in own)
        # Of those that were ended or died the time is not known.
        more = ">" if any(not result.answer.cpu for result in own) else ""
        spent = f"{more}{sum(result.answer.cpu for result in own):.2f}"
        times = [f"{len(both)}", f"{mine:.2f}", f"{theirs:.2f}", f"{mine / theirs:.3g}" if theirs else ""]
        show_row([label, f"{len(own)}", f"{settled}", spent, *times])


def _settled(result: Result | None) -> bool:
    return result is not None and result.decided
