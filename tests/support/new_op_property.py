"""What becomes of three properties of an op that `graph.py` alone declares, as JSON: that of the docs, a
number, and one that people are not told of. Each is a line more in it, written in before it is imported. To
be run in a process of its own, with a path to write to."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import memplan_engine

LAST = "    out_variant: bool | None = None\n"
DOCS = Path("docs/extending.md").read_text(encoding="utf-8")
NEW = f"""    {next(line.strip() for line in DOCS.splitlines() if "OpProperty(" in line)}
    flops: Annotated[int, OpProperty("FLOPs", "{{:,}}".format)] = 0
    deterministic: bool | None = None
"""


def declare() -> None:
    """`memplan_engine.graph` with the new fields."""
    spec = importlib.util.find_spec("memplan_engine.graph")
    assert spec
    assert spec.origin
    source = Path(spec.origin).read_text(encoding="utf-8")
    assert source.count(LAST) == 1
    memplan_engine.graph = sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    exec(compile(source.replace(LAST, LAST + NEW), spec.origin, "exec"), module.__dict__)


def example(named=True):
    """x [n] → add → h → mul, which may be written in place → y; both ops have all that an op may have."""
    from memplan_engine.graph import Graph, Op, Role, Source, Storage, Symbol, Tensor, Workspace

    said = {"overload": "Tensor", "flops": 4096, "deterministic": False} if named else {}
    roles = {"x": Role.INPUT, "h": Role.ACTIVATION, "y": Role.OUTPUT}
    line = Source("net.py", 3, "x + x")
    return Graph(
        "net",
        tuple(Storage(name, 64, role, formula="4*n") for name, role in roles.items()),
        tuple(Tensor(name, (16,), "float32", 64, name, formulas=("n",)) for name in roles),
        (
            Op("add", "aten.add", ("x",), ("h",), (), "body", line, Workspace(8), **said),
            Op("mul", "aten.mul", ("h",), ("y",), (), "body", line, Workspace(8), **said),
        ),
        ("x",),
        ("y",),
        symbols=(Symbol("n", hint=16),),
    )


def files_and_rewrites(graph):
    """The ops of a graph written, read, and changed in each way."""
    from memplan_engine.analysis.workspaces import with_workspaces, workspaces_as_tensors
    from memplan_engine.formats.memplan_json.json_file import dumps, loads
    from memplan_engine.lifetimes import to_problem
    from memplan_engine.rewrites.reuse import reuse
    from memplan_engine.schedule import sequential
    from memplan_engine.symbolic.symbolic_problem import resolve

    small = resolve(graph, {"n": 4})
    ways = {
        "file": loads(dumps(graph).decode(), "net"),
        "file of a problem": loads(dumps(to_problem(graph)).decode(), "net").origin.graph,
        "resolved": small,
        "in place": reuse(graph, sequential(graph), in_place=True).graph,
        "with workspaces": with_workspaces(graph, {"add": 3}),
        "workspaces as tensors": workspaces_as_tensors(graph),
    }
    assert ways["file"] == graph
    assert small.ops[0].workspace == graph.ops[0].workspace
    assert ways["in place"] != graph
    return {way: [(op.overload, op.flops, op.deterministic) for op in each.ops] for way, each in ways.items()}


def tables(graph, unnamed):
    """What tables, facts for machines and the report say."""
    from memplan_engine.analysis.peak import find_peak
    from memplan_engine.diffing.regression import diff
    from memplan_engine.planner import make_plan
    from memplan_engine.reporters.diff_tables import diff_summary
    from memplan_engine.reporters.html.report_html import to_html
    from memplan_engine.reporters.plan_tables import peak_summary, peak_table

    plan, other = make_plan(graph, "greedy_by_size"), make_plan(unnamed, "greedy_by_size")
    peak, pages = find_peak(plan.problem), (to_html(plan), to_html(other))
    changed = diff_summary(diff(other, plan))["modules"][0]["buffers"][0]
    return {
        "peak": [
            (each["name"], each["overload"], each["flops"])
            for each in peak_summary(peak, plan.problem)["contributors"]
        ],
        "headings": [str(column.header) for column in peak_table(peak, "net").columns],
        "cells": [[str(cell) for cell in column.cells] for column in peak_table(peak, "net").columns[6:8]],
        "diff": {key: changed[key] for key in ("overload", "flops")},
        "report": [page.count(f">{label}</th>") for page in pages for label in ("overload", "FLOPs")],
        "report cells": pages[0].count('<td class="name">4,096</td>'),
    }


def hover_facts(graph):
    """What the chart of a report says of a buffer that the pointer is on."""
    from memplan_engine.planner import as_problem
    from memplan_engine.plotting.columns import Columns
    from memplan_engine.reporters.html.report_data import _facts

    return [text for column in _facts(as_problem(graph), Columns()) for text in column["values"]]


def page(graph, path):
    """The lines of the details, and the columns of both tables, of the file at `path`."""
    from memplan_dashboard.widgets.panes_of import panes_of

    from memplan_engine.formats.memplan_json.json_file import write_json
    from memplan_engine.lifetimes import to_problem
    from tests.support.apptest import open_app

    write_json(graph, path)
    sys.argv[1:] = [path]
    shown, properties = open_app(), panes_of(to_problem(graph)).ops.properties
    return {
        "details": [texts[0] for _, texts in properties],
        "labels": [label for label, _ in properties],
        "peak": shown.dataframe[0].value[["overload", "FLOPs"]].values.tolist(),
        "all": open_app(tab="All buffers").dataframe[0].value[["overload", "FLOPs"]].values.tolist(),
    }


if __name__ == "__main__":
    declare()
    graph, unnamed = example(), example(named=False)
    places = {
        "ops": files_and_rewrites(graph),
        "tables": tables(graph, unnamed),
        "hover": hover_facts(graph),
        "page": page(graph, sys.argv[1]),
    }
    print(json.dumps(places))
