"""A schedule in memplan JSON, for a graph that is there already."""

from __future__ import annotations

from pathlib import Path

from memplan_engine.errors import InputError
from memplan_engine.formats.base import parse, parse_head
from memplan_engine.formats.schedule_format import ScheduleFile, schedule_from
from memplan_engine.graph import Graph
from memplan_engine.importers.limits import read_text
from memplan_engine.schedule import Schedule


def load_schedule(path: Path | str, graph: Graph) -> Schedule:
    """The schedule of `graph` in the file `path`.

    Raises
    ------
    InputError: no such file, no memplan/schedule, or a schedule that `graph` cannot run by.
    """
    path = Path(path)
    return schedule_from_text(read_text(path), graph, path.name)


def schedule_from_text(text: str, graph: Graph, source: str) -> Schedule:
    """As `load_schedule`, of JSON that `source` names in errors."""
    head = parse_head(text, source)
    if head.format != "memplan/schedule":
        raise InputError(source, "field format", repr(head.format), "memplan/schedule")
    if head.version != 1:
        raise InputError(source, "field version", str(head.version), "1, all that this memplan can read")
    return schedule_from(parse(ScheduleFile, text, source), graph, source)
