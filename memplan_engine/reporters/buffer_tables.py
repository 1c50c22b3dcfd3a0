"""Every buffer of a plan, and the objects that they share: for machines, what `--json` prints; for people, as
Rich tables."""

from __future__ import annotations

from typing import Any, Literal

from rich.table import Table

from memplan_engine.analysis.buffer_names import buffer_names
from memplan_engine.analysis.claims import claim_summary
from memplan_engine.analysis.positional import object_table
from memplan_engine.analysis.provenance import OP_PROPERTIES, find_provenance
from memplan_engine.plan import Plan
from memplan_engine.reporters.rich_tables import (
    MOST_ROWS,
    in_graph,
    make_table,
    modules,
    more,
    named,
    numbers,
    paths,
)
from memplan_engine.units import format_bytes, format_percent

Sort = Literal["size", "start", "offset"]


def _rows(plan: Plan, sort: Sort) -> list[dict[str, Any]]:
    """A row a buffer: exact bytes, half-open steps, and what the graph says of it."""
    problem, origins = plan.problem, find_provenance(plan.problem)
    names, labels = problem.names, buffer_names(problem)
    columns = (names, labels, problem.size, plan.offsets, problem.start, problem.end, origins)
    rows = [
        {
            "name": name,
            "label": label,
            "bytes": int(size),
            "offset": int(offset),
            "start": int(start),
            "end": int(end),
            "kind": origin.kind,
            **{told.name: told.of(origin.maker) for told in OP_PROPERTIES},
            "source": str(origin.source or ""),
        }
        for name, label, size, offset, start, end, origin in zip(*columns, strict=True)
    ]
    if sort == "size":
        return sorted(rows, key=lambda row: -row["bytes"])
    return sorted(rows, key=lambda row: row[sort])


def buffers_summary(plan: Plan, sort: Sort = "size") -> dict[str, Any]:
    """All buffers with their offsets, bytes and half-open steps, and any shared objects."""
    return {
        "graph": plan.problem.name,
        **claim_summary(plan.problem),
        "strategy": plan.strategy,
        "arena_bytes": plan.arena_bytes,
        "buffers": _rows(plan, sort),
        **({"objects": _objects(plan)} if plan.objects is not None else {}),
    }


def _objects(plan: Plan) -> list[dict[str, Any]]:
    return [
        {
            "object": row.object,
            "offset": row.offset,
            "bytes": row.nbytes,
            "busy_steps": row.busy_steps,
            "buffers": list(row.buffers),
        }
        for row in object_table(plan)
    ]


def buffers_tables(plan: Plan, sort: Sort = "size", every_row: bool = False) -> list[Table]:
    """A row a buffer, MOST_ROWS of them unless `every_row`, and the shared objects where there are any."""
    rows = _rows(plan, sort)
    shown = rows if every_row else rows[:MOST_ROWS]
    told = [each for each in OP_PROPERTIES if any(row[each.name] for row in rows)]
    sourced = any(row["source"] for row in rows)
    kinds = any(row["kind"] != "buffer" for row in rows)
    headings = ("size", "offset", "steps")
    cells = (
        (
            *named(row["label"], row["name"]),
            format_bytes(row["bytes"]),
            f"{row['offset']:,}",
            _steps(row["start"], row["end"] - 1),
            *[row["kind"]] * kinds,
            *(each.words(row[each.name]) for each in told),
            *[row["source"]] * sourced,
        )
        for row in shown
    )
    columns = (
        "buffer",
        *in_graph(),
        *numbers(*headings),
        *modules(*["kind"] * kinds, *(each.label for each in told)),
        *paths(*["source"] * sourced),
    )
    title = f"{plan.problem.name}: {len(rows):,} buffers by {plan.strategy}"
    tables = [make_table(columns, cells, title, more(rows, shown))]
    return tables if plan.objects is None else [*tables, _objects_table(plan, every_row)]


def _steps(first: int, last: int) -> str:
    return f"{first:,}–{last:,}" if first < last else f"{first:,}"


def _objects_table(plan: Plan, every_row: bool) -> Table:
    rows, steps = object_table(plan), max(plan.problem.steps, 1)
    shown = rows if every_row else rows[:MOST_ROWS]
    cells = (
        (
            str(row.object),
            format_bytes(row.nbytes),
            f"{row.offset:,}",
            format_percent(row.busy_steps / steps),
            f"{len(row.buffers):,}",
            ", ".join(row.buffers),
        )
        for row in shown
    )
    columns = (*numbers("object", "size", "offset", "busy", "buffers"), "in time order")
    return make_table(columns, cells, "shared objects", more(rows, shown))
