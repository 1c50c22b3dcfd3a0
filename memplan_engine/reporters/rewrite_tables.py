"""What a rewrite did between two plans of the same ops: a sentence, a table, plain values for machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from memplan_engine.analysis.buffer_names import names_of_ops
from memplan_engine.diffing.regression import Diff
from memplan_engine.diffing.rewritten import RewrittenOp, Rewrote, rewritten_ops
from memplan_engine.plan import Plan
from memplan_engine.reporters.rich_tables import MOST_ROWS, in_graph, make_table, named, numbers, paths
from memplan_engine.units import count_of, format_bytes


def rewritten_of(diff: Diff) -> tuple[RewrittenOp, ...]:
    """The ops that a rewrite changed between both sides."""
    return rewritten_ops(diff.base, diff.head)


def rewrite_sentence(diff: Diff, rows: Sequence[RewrittenOp]) -> str:
    """ "the same 466 ops, rewritten: 16 moved, 98 written in place"; "" where nothing is."""
    if not rows or diff.head.problem.origin is None:
        return ""
    counts = ((what, sum(row.what is what for row in rows)) for what in Rewrote)
    told = ", ".join(f"{count:,} {what}" for what, count in counts if count)
    return f"the same {count_of(len(diff.head.problem.origin.graph.ops), 'op')}, rewritten: {told}"


def rewrite_rows(head: Plan, rows: Sequence[RewrittenOp]) -> list[dict[str, str | int]]:
    """A row an op: what became of it, its name, its step before and after, what it makes, where it stands."""
    origin = head.problem.origin
    labels = names_of_ops(origin.graph) if origin else {}
    return [
        {
            "what": str(row.what),
            "op": labels.get(row.op.name, row.op.name),
            "in graph": row.op.name,
            "kind": row.op.kind,
            "step before": row.before,
            "step after": row.after,
            "bytes": row.nbytes,
            "source": str(row.op.source or ""),
        }
        for row in rows
    ]


def rewrite_table(diff: Diff, rows: Sequence[RewrittenOp], every_row: bool = False) -> Table:
    """The rows, the first of them unless `every_row`; those beyond are counted."""
    shown = rewrite_rows(diff.head, rows if every_row else rows[:MOST_ROWS])
    lines = (
        (
            str(row["what"]),
            *named(str(row["op"]), str(row["in graph"])),
            f"{row['step before']:,} → {row['step after']:,}",
            format_bytes(int(row["bytes"])),
            str(row["source"]),
        )
        for row in shown
    )
    columns = ("", "op", *in_graph(), *numbers("step", "makes"), *paths("source"))
    table = make_table(columns, lines, "what the rewrite did, by op")
    if len(rows) > len(shown):
        table.add_row(f"and {len(rows) - len(shown):,} more")
    return table


def rewrite_summary(rows: Sequence[RewrittenOp]) -> list[dict[str, Any]]:
    """The same for machines; bytes exact."""
    return [
        {
            "what": row.what.name.lower(),
            "op": row.op.name,
            "kind": row.op.kind,
            "base_step": row.before,
            "head_step": row.after,
            "tensor": row.tensor,
            "bytes": row.nbytes,
            "source": str(row.op.source or ""),
        }
        for row in rows
    ]
