"""An observed run as plain values for machines, as Rich renderables for people."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.table import Table

from memplan_engine.analysis.peak import find_peak
from memplan_engine.recordings.observation import (
    NO_OP,
    Level,
    Observation,
    observed_live,
    observed_peak,
    older,
)
from memplan_engine.recordings.recorded_problem import observed_problem
from memplan_engine.reporters.plan_tables import peak_table
from memplan_engine.reporters.rich_tables import plain_text
from memplan_engine.scope import Scope, scope_summary
from memplan_engine.units import exact, format_seconds

LEVELS = {
    Level.DISPATCH: "tensors",
    Level.ALLOCATOR: "allocator",
}
SCOPE = {
    Level.DISPATCH: "storages of tensors that operators gave back",
    Level.ALLOCATOR: "all that was asked of the allocator, with what kernels take for themselves",
}


def observation_summary(observation: Observation) -> dict[str, Any]:
    """The run in figures; bytes are exact integers and count what the run made, not weights and inputs."""
    ops = observation.ops
    lives = {level: observed_live(observation, level) for level in observation.levels}
    columns = {f"{level}_bytes": live.during.tolist() for level, live in lives.items()}
    return {
        "name": observation.name,
        **scope_summary(Scope.EAGER),
        "seconds": observation.nanoseconds / 1e9,
        "peaks": [_peak(observation, level) for level in lives],
        "ops": [
            {"name": name, "kind": kind, **{key: values[row] for key, values in columns.items()}}
            for row, (name, kind) in enumerate(zip(ops.names, ops.kinds, strict=True))
        ],
    }


def _peak(observation: Observation, level: Level) -> dict[str, Any]:
    nbytes, op = observed_peak(observation, level)
    rows = observation.at(level)
    return {
        "level": str(level),
        "counted": SCOPE[level],
        "peak_bytes": nbytes,
        "op": None if op == NO_OP else observation.ops.names[op],
        "after_bytes": int(rows["size"][~older(rows)].sum()),
    }


def observation_tables(observation: Observation, all_rows: bool = False) -> list[RenderableType]:
    """Peaks at each level, and what the higher of them is made of."""
    table = Table.grid(padding=(0, 2))
    table.add_row("run", plain_text(f"{observation.name}, {len(observation.ops)} operators"))
    for peak in [_peak(observation, level) for level in reversed(observation.levels)]:
        level = Level(peak["level"])
        at = f" during {peak['op']}" if peak["op"] else ""
        table.add_row(f"{LEVELS[level]} peak", plain_text(f"{exact(peak['peak_bytes'])}{at}: {SCOPE[level]}"))
    after = _peak(observation, Level.DISPATCH)["after_bytes"]
    table.add_row(
        "at the end", plain_text(f"{exact(after)} of tensors still there, what is returned among them")
    )
    table.add_row("not counted", "what was there before: weights, inputs")
    seconds = format_seconds(observation.nanoseconds / 1e9)
    table.add_row("observed in", f"{seconds}, with the observer watching")
    problem = observed_problem(observation)
    return [table, peak_table(find_peak(problem), problem.name, all_rows)] if len(problem) else [table]
