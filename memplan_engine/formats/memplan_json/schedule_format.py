"""The JSON of a schedule that a person gives: a step for every op, or ops on streams."""

from __future__ import annotations

from typing import Literal

from memplan_engine.errors import InputError
from memplan_engine.formats.memplan_json.json_base import Count, Strict
from memplan_engine.graph import Graph
from memplan_engine.schedule import Schedule, by_steps, by_streams


class ScheduleFile(Strict):
    """A file in the format memplan/schedule, version 1: either `steps`, op name → step, or `streams`, of
    which each runs its ops in the order given."""

    format: Literal["memplan/schedule"]
    version: Literal[1]
    steps: dict[str, Count] | None = None
    streams: tuple[tuple[str, ...], ...] | None = None


def schedule_from(file: ScheduleFile, graph: Graph, source: str) -> Schedule:
    """The checked schedule of `graph`; raises InputError naming the op that is wrong in `source`."""
    if (file.steps is None) == (file.streams is None):
        found = "neither" if file.steps is None else "both"
        raise InputError(source, "fields steps and streams", found, "one of them")
    if file.steps is not None:
        return by_steps(graph, file.steps, source)
    return by_streams(graph, file.streams or (), source)
