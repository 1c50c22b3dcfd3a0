"""What a graph says of itself, as Rich tables for people and as plain values for machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from memplan_engine.analysis.managed_values import ManagedValue, Reason, summarise
from memplan_engine.formats.memplan_json.graph_format import EstimateEntry
from memplan_engine.fx_estimator.fx_estimates import COUNTED
from memplan_engine.reporters.plan_tables import MOST_ROWS, plain_text
from memplan_engine.scope import Scope, scope_summary
from memplan_engine.units import format_bytes

MANAGED = "the graph's storages, one by one; temporaries inside ops have no value of their own"
UNLISTED = (Reason.CONSTANT, Reason.GRAPH_INPUT, Reason.ALIAS)


def values_summary(values: Sequence[ManagedValue]) -> dict[str, Any]:
    """Every value with its reason, and what stays outside a plan by reason; bytes."""
    return {
        **scope_summary(Scope.GRAPH, MANAGED),
        "managed": sum(value.managed for value in values),
        "managed_bytes": sum(value.nbytes for value in values if value.managed),
        "outside": [
            {"reason": part.reason.name.lower(), "storages": part.storages, "bytes": part.nbytes}
            for part in summarise(values)
        ],
        "values": [
            {
                "tensor": value.tensor,
                "managed": value.managed,
                "reason": value.reason.name.lower(),
                "bytes": value.nbytes,
                "explanation": value.explanation,
            }
            for value in values
        ],
    }


def values_tables(graph: str, values: Sequence[ManagedValue], every_row: bool) -> list[RenderableType]:
    """Reasons with their counts, then the values that are not managed, largest first; inputs, constants and
    aliases, whose reasons need no list, only when `every_row`."""
    managed = [value for value in values if value.managed]
    size = format_bytes(sum(value.nbytes for value in managed))
    title = f"{graph}: {len(managed)} of {len(values)} values can be planned, {size}"
    reasons = Table("reason", title=plain_text(title), title_justify="left")
    for heading in ("values", "bytes"):
        reasons.add_column(heading, justify="right")
    for reason in Reason:
        own = [value for value in values if value.reason is reason]
        if own:
            total = format_bytes(sum(value.nbytes for value in own))
            reasons.add_row(plain_text(reason), f"{len(own):,}", total)
    listed = [v for v in values if not v.managed and (every_row or v.reason not in UNLISTED)]
    left = sorted(listed, key=lambda value: -value.nbytes)
    rows = Table("not planned", "why")
    rows.add_column("size", justify="right")
    for value in left if every_row else left[:MOST_ROWS]:
        rows.add_row(plain_text(value.tensor), plain_text(value.explanation), format_bytes(value.nbytes))
    if len(left) > MOST_ROWS and not every_row:
        rows.add_row(plain_text(f"and {len(left) - MOST_ROWS} more"), "", "", style="dim")
    return [reasons, *([rows] if left else []), plain_text(f"counted: {MANAGED}")]


def estimates_table(title: str, found: Sequence[EstimateEntry]) -> Table:
    """A row a rule: forward peak, baseline and backward peak."""
    table = Table("aliasing rule", "values that nobody reads", title=plain_text(title), title_justify="left")
    for heading in ("forward peak", "baseline", "backward peak", "peak", "bytes"):
        table.add_column(heading, justify="right")
    for each in found:
        sizes = (each.forward_peak, each.baseline, each.backward_peak, each.peak)
        table.add_row(each.rule, each.unread, *map(format_bytes, sizes), f"{each.peak:,}")
    table.caption, table.caption_justify = plain_text(f"counted: {COUNTED}"), "left"
    return table
