"""memplan JSON: compact, stable, read back byte-equal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from memplan_engine.graph import Graph
from memplan_engine.plan import Plan
from memplan_engine.problem import Problem
from memplan_engine.system import write_atomically

if TYPE_CHECKING:
    from memplan_engine.formats.memplan_json.graph_format import About


def write_json(value: Graph | Problem | Plan, path: Path | str, about: About | None = None) -> None:
    """Write `value` to `path`, atomically, a graph with its header `about`; raises InputError when that
    cannot be done."""
    write_atomically(path, dumps(value, about))


def dumps(value: Graph | Problem | Plan, about: About | None = None) -> bytes:
    """`value` as memplan JSON in UTF-8, with one line break at the end.

    Raises
    ------
    InputError: a plan with negative offsets, or a value with names that are no valid text.
    """
    # Here, not above: who writes another kind of file need not wait for pydantic.
    from memplan_engine.formats.memplan_json.graph_format import file_of
    from memplan_engine.formats.memplan_json.json_base import render
    from memplan_engine.formats.memplan_json.plan_format import file_of_plan
    from memplan_engine.formats.memplan_json.problem_format import file_of_problem

    if isinstance(value, Plan):
        return render(lambda: file_of_plan(value), value.problem.name)
    if isinstance(value, Problem):
        return render(lambda: file_of_problem(value), value.name)
    return render(lambda: file_of(value, about), value.name)
