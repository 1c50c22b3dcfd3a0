"""A training graph by phase, and beside another partition of the same model: for machines, what `--json`
prints; for people, as Rich tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.table import Table

from memplan_engine.analysis.buffer_names import labels_of
from memplan_engine.analysis.claims import claim_summary
from memplan_engine.analysis.training_phases import (
    MinCutDifference,
    PhasePeak,
    Saved,
    TrainingMemory,
    min_cut_difference,
    phase_peaks,
    saved_storages,
)
from memplan_engine.graph import Graph
from memplan_engine.lifetimes import to_problem
from memplan_engine.problem import Problem
from memplan_engine.reporters.rich_tables import MOST_ROWS, in_graph, make_table, more, named, numbers
from memplan_engine.units import format_bytes


@dataclass(frozen=True, slots=True)
class PhaseMemory:
    """A training graph by phase, and its `difference` to the graph of `other` where one was given."""

    problem: Problem
    graph: Graph
    peaks: tuple[PhasePeak, ...]
    saved: tuple[Saved, ...]
    other: Problem | None = None
    difference: MinCutDifference | None = None


def memory_by_phase(problem: Problem, other: Graph | None = None) -> PhaseMemory:
    """The phases of the graph behind `problem`, and what an `other` partition of the same model changes.

    Raises
    ------
    InputError: ops without phases, or two graphs of different models.
    """
    peaks = phase_peaks(problem)
    assert problem.origin
    graph = problem.origin.graph
    known = PhaseMemory(problem, graph, peaks, saved_storages(graph))
    if other is None:
        return known
    return replace(known, other=to_problem(other), difference=min_cut_difference(graph, other))


def phases_summary(memory: PhaseMemory) -> dict[str, Any]:
    """The peak of each phase and what is saved for backward, bytes; `difference` is null where no other
    graph was given."""
    return {
        "graph": memory.graph.name,
        **claim_summary(memory.problem),
        "phases": [
            {
                "phase": str(peak.phase),
                "steps": peak.steps,
                "peak_bytes": peak.peak_bytes,
                "peak_step": peak.peak_step,
            }
            for peak in memory.peaks
        ],
        "saved_bytes": sum(each.nbytes for each in memory.saved),
        "saved": [{"name": each.name, "bytes": each.nbytes} for each in memory.saved],
        "difference": None if memory.difference is None else asdict(memory.difference),
    }


def phases_tables(memory: PhaseMemory, every_row: bool = False) -> list[Table]:
    """The phases, what is saved, and the difference to the other graph."""
    rows = (
        (str(peak.phase), f"{peak.steps:,}", format_bytes(peak.peak_bytes), f"{peak.peak_step:,}")
        for peak in memory.peaks
    )
    columns = ("phase", *numbers("steps", "peak live bytes", "at step"))
    tables = [make_table(columns, rows, memory.graph.name)]
    if memory.difference is None or memory.other is None:
        return [*tables, _saved("saved for backward", memory.saved, memory.problem, every_row)]
    only = (
        (memory.problem, memory.difference.only_default),
        (memory.other, memory.difference.only_min_cut),
    )
    tables.append(_partitions(memory.graph.name, memory.other.name, memory.difference))
    return [
        *tables,
        *(_saved(f"saved by {by.name} only", saved, by, every_row) for by, saved in only),
    ]


def _saved(title: str, saved: Sequence[Saved], by: Problem, every_row: bool) -> Table:
    labels = labels_of(by)
    shown = saved if every_row else saved[:MOST_ROWS]
    title += f": {len(saved):,} storages, {format_bytes(sum(each.nbytes for each in saved))}"
    rows = (
        (*named(labels.get(each.name, each.name), each.name), format_bytes(each.nbytes)) for each in shown
    )
    return make_table(("storage", *in_graph(), *numbers("size")), rows, title, more(saved, shown))


def _partitions(mine: str, theirs: str, difference: MinCutDifference) -> Table:
    sides = (
        (mine, difference.default, difference.recomputed_by_default, ()),
        (theirs, difference.min_cut, difference.recomputed, difference.moved_to_backward),
    )
    rows = (_side(*side) for side in sides)
    headings = ("saved", "peak live bytes", "at step", "recomputed", "moved to backward")
    return make_table(("graph", *numbers(*headings), "phase"), rows, "partitions of one model")


def _side(
    name: str, memory: TrainingMemory, recomputed: Sequence[str], moved: Sequence[str]
) -> tuple[str, ...]:
    return (
        name,
        format_bytes(memory.saved_bytes),
        format_bytes(memory.peak_bytes),
        f"{memory.peak_step:,}",
        f"{len(recomputed):,}",
        f"{len(moved):,}",
        str(memory.peak_phase or ""),
    )
