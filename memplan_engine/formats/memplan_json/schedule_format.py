"""The JSON of a schedule that a person gives: a step for every op, or ops on streams."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import FailFast

from memplan_engine.errors import InputError
from memplan_engine.formats.memplan_json.json_base import Count, Names, Strict, check_head, parse
from memplan_engine.graph import Graph
from memplan_engine.schedule import Schedule, by_steps, by_streams
from memplan_engine.system import write_atomically


class ScheduleFile(Strict):
    """A file in the format memplan/schedule, version 1: either `steps`, op name → step, or `streams`, of
    which each runs its ops in the order given."""

    format: Literal["memplan/schedule"]
    version: Literal[1]
    steps: dict[str, Count] | None = None
    streams: Annotated[tuple[Names, ...] | None, FailFast()] = None


def schedule_from(file: ScheduleFile, graph: Graph, source: str) -> Schedule:
    """The checked schedule of `graph`; raises InputError naming the op that is wrong in `source`."""
    if (file.steps is None) == (file.streams is None):
        found = "neither" if file.steps is None else "both"
        raise InputError(source, "fields steps and streams", found, "one of them")
    if file.steps is not None:
        return by_steps(graph, file.steps, source)
    return by_streams(graph, file.streams or (), source)


def write_json_order(graph: Graph, path: Path | str) -> None:
    """Write the order of the ops of `graph`, one op a step, atomically; `load_schedule` reads it back."""
    write_atomically(path, order_bytes(graph))


def order_bytes(graph: Graph) -> bytes:
    """The same as JSON in UTF-8."""
    steps = {op.name: step for step, op in enumerate(graph.ops)}
    file = ScheduleFile(format="memplan/schedule", version=1, steps=steps)
    return (file.model_dump_json(indent=1, exclude_none=True) + "\n").encode()


def schedule_from_text(text: str, graph: Graph, source: str) -> Schedule:
    """As `load_schedule`, of JSON that `source` names in errors."""
    check_head(text, source, "memplan/schedule")
    file = parse(ScheduleFile, text, source)
    _check_names(text, source)
    return schedule_from(file, graph, source)


def _check_names(text: str, source: str) -> None:
    """Raise InputError for an op that has two steps: of a name that is there twice JSON keeps the last."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        counts = Counter(name for name, _ in pairs)
        for name, count in counts.items():
            if count > 1:
                raise InputError(source, "", f"{name!r} {count} times", "every op once")
        return dict(pairs)

    json.loads(text, object_pairs_hook=once)
