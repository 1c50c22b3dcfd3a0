"""What reuse saves, as Rich tables for people and as plain values for machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from memplan_engine.reporters.plan_tables import MOST_ROWS, plain_text
from memplan_engine.rewrites.reuse import Saving, kept_table, reasons, rewrites_table, savings_table
from memplan_engine.scope import scope_summary, scope_words
from memplan_engine.units import format_bytes, format_percent


def reuse_summary(rows: Sequence[Saving]) -> dict[str, Any]:
    """The ways with what they need, the ops rewritten by both together, and those left as they were."""
    both = rows[-1].reused
    graph = both.graph
    return {
        **scope_summary(graph.scope),
        "ways": savings_table(tuple(rows)),
        "rewritten": rewrites_table(both),
        "kept": kept_table(both),
    }


def reuse_tables(graph: str, rows: Sequence[Saving], every_row: bool = False) -> list[RenderableType]:
    """A row a way, then what both together rewrite, then the reasons for what they leave."""
    both = rows[-1].reused
    counts = plain_text(
        f"counted in the peak: {scope_words(both.graph.scope)}; the arena holds storages only"
    )
    return [_ways(graph, rows), counts, _rewrites(rewrites_table(both), every_row), _reasons(rows[-1])]


def _ways(graph: str, rows: Sequence[Saving]) -> Table:
    table = Table("way", title=plain_text(graph), title_justify="left")
    for heading in ("arena", "saved", "lower bound", "peak", "ops"):
        table.add_column(heading, justify="right")
    first = rows[0].arena
    for row in rows:
        saved = format_percent(1 - row.arena / first) if first else ""
        figures = (format_bytes(row.arena), saved, format_bytes(row.bound), format_bytes(row.peak))
        table.add_row(plain_text(row.name), *figures, f"{row.ops:,}" if row.ops else "")
    return table


def _rewrites(rewrites: Sequence[dict[str, Any]], every_row: bool) -> Table:
    table = Table("op rewritten", "kind", "way", "tensor", "lives in")
    table.add_column("size", justify="right")
    shown = rewrites if every_row else rewrites[:MOST_ROWS]
    for row in shown:
        names = (str(row["op"]), str(row["kind"]), str(row["way"]), *tenant_and_home(row))
        table.add_row(*map(plain_text, names), format_bytes(int(row["bytes"])))
    if len(shown) < len(rewrites):
        table.add_row(plain_text(f"and {len(rewrites) - len(shown)} more"), *[""] * 5, style="dim")
    return table


def tenant_and_home(row: dict[str, Any]) -> tuple[str, str]:
    """Which tensor no longer has bytes of its own, and in whose it lives."""
    if row["way"] == "concat":
        return str(row["tensor"]), f"{row['output']}, from byte {row['at']:,}"
    return str(row["output"]), str(row["tensor"])


def _reasons(row: Saving) -> Table:
    table = Table("left as it was, for")
    table.add_column("times", justify="right")
    for reason, count in reasons(row.reused).items():
        table.add_row(plain_text(reason), f"{count:,}")
    return table
