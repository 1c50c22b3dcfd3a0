"""memplan JSON of graphs, problems and plans: compact, stable, read back byte-equal."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memplan_engine.errors import InputError
from memplan_engine.formats.importer import ImportOptions, Loaded
from memplan_engine.formats.read_limits import read_text
from memplan_engine.graph import Graph
from memplan_engine.plan import Plan
from memplan_engine.problem import Problem
from memplan_engine.system import write_atomically

if TYPE_CHECKING:
    from memplan_engine.formats.memplan_json.graph_format import About


_FORMATS = "memplan/graph, memplan/problem or memplan/plan"


@dataclass(frozen=True, slots=True)
class JsonImporter:
    """Reads the formats that `memplan_engine.formats` describes, version 1."""

    name: str = "json"
    description: str = "memplan JSON: a graph, a problem or a plan"
    binds_dimensions: bool = False

    def recognises(self, head: bytes, path: Path) -> bool:
        """Whether the first character is an opening brace."""
        return head.removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"{"

    def load(self, path: Path, options: ImportOptions) -> Loaded:
        """Read the file; raises InputError with the path of the first field that is wrong."""
        return loads(read_text(path), path.name)


def loads(text: str, source: str) -> Loaded:
    """Read memplan JSON; `source` names it in errors."""
    # Here, not above: who opens another kind of file need not wait for pydantic.
    from memplan_engine.formats.memplan_json.consistency import check_consistency
    from memplan_engine.formats.memplan_json.graph_format import GraphFile, graph_from
    from memplan_engine.formats.memplan_json.json_base import ONE_VERSION, parse, parse_head
    from memplan_engine.formats.memplan_json.plan_format import PlanFile, plan_from
    from memplan_engine.formats.memplan_json.problem_format import ProblemFile, problem_from

    head = parse_head(text, source)
    if head.version != 1 and head.format.startswith("memplan/"):
        raise InputError(source, "field version", str(head.version), ONE_VERSION)
    match head.format:
        case "memplan/graph":
            return check_consistency(graph_from(parse(GraphFile, text, source), source), source)
        case "memplan/problem":
            return _checked(problem_from(parse(ProblemFile, text, source), source), source)
        case "memplan/plan":
            plan = plan_from(parse(PlanFile, text, source), source)
            _checked(plan.problem, source)
            return plan
        case "memplan/run":
            expected = f"{_FORMATS}; the page Run shows it"
            raise InputError(source, "field format", "'memplan/run', a run of `memplan run -o`", expected)
    raise InputError(source, "field format", repr(head.format), _FORMATS)


def _checked(problem: Problem, source: str) -> Problem:
    """`problem`, whose graph, if it has one, is consistent."""
    from memplan_engine.formats.memplan_json.consistency import check_consistency

    if problem.origin is not None:
        check_consistency(problem.origin.graph, source)
    return problem


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
