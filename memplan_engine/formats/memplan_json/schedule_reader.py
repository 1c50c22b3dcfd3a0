"""A schedule in memplan JSON, for a graph that is there already."""

from __future__ import annotations

from pathlib import Path

from memplan_engine.formats.memplan_json.json_base import check_head, parse
from memplan_engine.formats.memplan_json.schedule_format import ScheduleFile, schedule_from
from memplan_engine.formats.read_limits import read_text
from memplan_engine.graph import Graph
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
    check_head(text, source, "memplan/schedule")
    return schedule_from(parse(ScheduleFile, text, source), graph, source)
