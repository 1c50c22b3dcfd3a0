"""memplan JSON of graphs, problems and plans: compact, stable, read back byte-equal."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memplan_engine.banked.banked_plan import BankedPlan
from memplan_engine.errors import InputError
from memplan_engine.formats.importer import HEAD_BYTES, ImportOptions, Loaded, says_format
from memplan_engine.formats.read_limits import read_head, read_text
from memplan_engine.graph import Graph
from memplan_engine.plan import Plan
from memplan_engine.problem import Problem
from memplan_engine.system import write_atomically

if TYPE_CHECKING:
    from memplan_engine.formats.memplan_json.graph_format import About
    from memplan_engine.formats.memplan_json.json_base import Head


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
        return loads(read_text(path), path.name, options.bank)


def loads(text: str, source: str, bank: str | None = None) -> Loaded:
    """Read memplan JSON; `source` names it in errors. Of a plan over several banks `bank` is the one whose
    plan is given."""
    # Here, not above: who opens another kind of file need not wait for pydantic.
    from memplan_engine.formats.memplan_json.consistency import check_consistency
    from memplan_engine.formats.memplan_json.graph_format import GraphFile, graph_from
    from memplan_engine.formats.memplan_json.json_base import ONE_VERSION, parse, parse_head
    from memplan_engine.formats.memplan_json.plan_format import PlanFile, plan_from
    from memplan_engine.formats.memplan_json.problem_format import ProblemFile, problem_from

    head = parse_head(text, source)
    if _is_banked(head):
        return _plan_of(read_banked(text, source), bank, source)
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


def _is_banked(head: Head) -> bool:
    return head.format == "memplan/plan" and head.version == 2


def load_banked(path: Path | str) -> BankedPlan | None:
    """The plan over several banks that `path` holds, None where it holds something else; raises InputError
    where it is not sound."""
    path = Path(path)
    # A recording of gigabytes is JSON as well, and must not be read for this.
    if not says_format(read_head(path, HEAD_BYTES), "memplan/plan"):
        return None
    from memplan_engine.formats.memplan_json.json_base import parse_head

    text = read_text(path)
    return read_banked(text, path.name) if _is_banked(parse_head(text, path.name)) else None


def read_banked(text: str, source: str) -> BankedPlan:
    """Read a plan over several banks; raises InputError with the path of the first field that is wrong."""
    from memplan_engine.formats.memplan_json.banks.banks_format import BankedPlanFile, banked_from
    from memplan_engine.formats.memplan_json.json_base import parse

    banked = banked_from(parse(BankedPlanFile, text, source), source)
    _checked(banked.problem, source)
    return banked


def _plan_of(banked: BankedPlan, bank: str | None, source: str) -> Plan:
    names = banked.banks.names
    if bank not in names:
        found = f"a plan over the banks {', '.join(names)}" if bank is None else f"the bank {bank[:40]!r}"
        raise InputError(source, "", found, f"one of its banks: --in-bank {' or '.join(names)}")
    return banked.plans[names.index(bank)]


def _checked(problem: Problem, source: str) -> Problem:
    """`problem`, whose graph, if it has one, is consistent."""
    from memplan_engine.formats.memplan_json.consistency import check_consistency

    if problem.origin is not None:
        check_consistency(problem.origin.graph, source)
    return problem


def write_json(
    value: Graph | Problem | Plan | BankedPlan, path: Path | str, about: About | None = None
) -> None:
    """Write `value` to `path`, atomically, a graph with its header `about`; raises InputError when that
    cannot be done."""
    write_atomically(path, dumps(value, about))


def dumps(value: Graph | Problem | Plan | BankedPlan, about: About | None = None) -> bytes:
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

    if isinstance(value, BankedPlan):
        from memplan_engine.formats.memplan_json.banks.banks_format import file_of_banked

        return render(lambda: file_of_banked(value), value.problem.name)
    if isinstance(value, Plan):
        return render(lambda: file_of_plan(value), value.problem.name)
    if isinstance(value, Problem):
        return render(lambda: file_of_problem(value), value.name)
    return render(lambda: file_of(value, about), value.name)
