"""The tabs about a graph: which values can be planned, what reuse saves, and sizes that are symbols."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st
from memplan_dashboard.charts import size_curve
from memplan_dashboard.session import plan_facts, state
from memplan_dashboard.session.messages import errors_shown, plain
from memplan_dashboard.session.plan_facts import PlanFacts
from memplan_dashboard.session.state import MOST_DIM
from memplan_dashboard.widgets.controls import chooses
from memplan_dashboard.widgets.planning_options import symbols_of
from memplan_dashboard.widgets.tables import MOST_ROWS, named, show_table

from memplan_engine import Graph, MemplanError
from memplan_engine.analysis.buffer_names import names_of_ops, tensor_names
from memplan_engine.analysis.managed_values import ManagedValue, Reason, managed_values
from memplan_engine.reporters.graph_tables import tenant_and_home
from memplan_engine.rewrites.reuse import Saving, kept_table, rewrites_table
from memplan_engine.scope import scope_words
from memplan_engine.symbolic import BucketTable, MemorySchema, Sweep, to_text
from memplan_engine.symbolic.partition import STRATEGY as PARTITION
from memplan_engine.units import format_bytes, format_percent

ALL = "all of them"
MOST_FORMULA = 400
_REWRITTEN = {"op": "op", "way": "rewrite", "tenant": "tensor", "home": "stored in", "bytes": "size"}
_KEPT = {"op": "op", "tensor": "tensor", "reason": "reason", "other": "read by", "bytes": "size"}


def show_values(graph: Graph) -> None:
    """Static Runtime's rules on every tensor: reasons with their counts, then the values of one reason."""
    values = managed_values(graph)
    managed = sum(value.managed for value in values)
    size = format_bytes(sum(value.nbytes for value in values if value.managed))
    st.caption(plain(f"{managed:,} of {len(values):,} values can be planned, {size} of storages."))
    groups = {reason: [value for value in values if value.reason is reason] for reason in Reason}
    groups = {reason: own for reason, own in groups.items() if own}
    with st.container(key="halves_values"):
        left, right = st.columns([1, 1.6], gap="medium")
    with left:
        st.dataframe(_reasons(groups), hide_index=True)
    with right:
        names = [ALL, *(str(reason) for reason in groups)]
        chosen = st.selectbox("Show values", names, key="values_reason")
        shown = [value for value in values if chosen in (ALL, str(value.reason))]
        shown.sort(key=lambda value: -value.nbytes)
        if len(shown) > MOST_ROWS:
            st.caption(f"The largest {MOST_ROWS:,} of {len(shown):,}.")
        st.dataframe(_value_rows(graph, shown[:MOST_ROWS]), hide_index=True, height=360)


def _reasons(groups: dict[Reason, list[ManagedValue]]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            # Of views those are whose storage is.
            "planned": [
                "some" if reason is Reason.ALIAS else "all" if own[0].managed else "none"
                for reason, own in groups.items()
            ],
            "values": [len(own) for own in groups.values()],
            "size": [format_bytes(sum(value.nbytes for value in own)) for own in groups.values()],
            "reason": [str(reason) for reason in groups],
        }
    )


def _value_rows(graph: Graph, values: list[ManagedValue]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            **named("value", [value.tensor for value in values], tensor_names(graph)),
            "size": [format_bytes(value.nbytes) for value in values],
            "planned": [value.managed for value in values],
            "why": [value.explanation for value in values],
        }
    )


def show_reuse(facts: PlanFacts) -> None:
    """The four ways to run the graph, what is rewritten, and why the rest is not."""
    with errors_shown():
        rows = plan_facts.savings_of(facts.document)
        st.caption(
            "Both are off by default: switch them on in Options. An independent checker verifies each "
            "rewrite before it is planned."
        )
        st.dataframe(_ways(rows), hide_index=True)
        both = rows[-1].reused
        with st.container(key="halves_reuse"):
            left, right = st.columns(2, gap="medium")
        with left:
            rewrites = _people_know(both.graph, rewrites_table(both))
            homes = [dict(zip(("tenant", "home"), tenant_and_home(row), strict=True)) for row in rewrites]
            rewritten = [row | home for row, home in zip(rewrites, homes, strict=True)]
            _rewrites(f"{len(both.rewrites):,} rewritten with both", rewritten, _REWRITTEN)
        with right:
            kept = _people_know(both.graph, kept_table(both))
            _rewrites(f"{len(both.kept):,} not rewritten", kept, _KEPT)


def _people_know(graph: Graph, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with each op and tensor by the name that people know."""
    ops, tensors = names_of_ops(graph), tensor_names(graph)
    labels = {"op": ops, "tensor": tensors, "output": tensors, "other": {**tensors, **ops}}
    return [
        {key: labels[key].get(value, value) if key in labels else value for key, value in row.items()}
        for row in rows
    ]


def _ways(rows: tuple[Saving, ...]) -> pd.DataFrame:
    first = rows[0].arena
    return pd.DataFrame(
        {
            "way": [row.name for row in rows],
            "arena": [format_bytes(row.arena) for row in rows],
            "saved": [format_bytes(first - row.arena) for row in rows],
            "lower bound": [format_bytes(row.bound) for row in rows],
            "peak": [format_bytes(row.peak) for row in rows],
            "ops rewritten": [row.ops for row in rows],
        }
    )


def _rewrites(title: str, rows: list[dict[str, object]], columns: dict[str, str]) -> None:
    st.caption(title if len(rows) <= MOST_ROWS else f"{title}; the first {MOST_ROWS:,}")
    frame = pd.DataFrame(rows[:MOST_ROWS], columns=list(columns)).rename(columns=columns)
    frame["size"] = [format_bytes(int(size)) for size in frame["size"]]
    show_table(frame, most=420)


def show_sizes(facts: PlanFacts) -> None:
    """One symbol's curve, then the check over the whole range, the partition schema and buckets."""
    symbols = [symbol for symbol in symbols_of(facts.document) if symbol.hint is not None]
    if not symbols:
        st.info("The sizes in this graph are data-dependent: there is no range to sweep.")
        return
    names = [symbol.name for symbol in symbols]
    chosen = state.get("over") if state.get("over") in names else names[0]
    st.segmented_control("Over", names, **chooses("over", chosen))
    with errors_shown():
        _curve(facts, chosen)
        _range(facts)
        _schema(facts, plan_facts.schema_of_document(facts.document))
        _buckets(facts, chosen)


def _curve(facts: PlanFacts, symbol: str) -> None:
    swept = plan_facts.sweep_of(facts.document, symbol, facts.plan.strategy)
    now = dict(facts.document.options.how.symbols).get(symbol, swept.hint)
    others = ", ".join(f"{name} = {value:,}" for name, value in swept.others)
    st.caption(
        plain(
            f"Arena by {swept.strategy} over {symbol}{f' with {others}' if others else ''}. The "
            "partition plan is one assignment for all values, made at the hint; the others are "
            f"replanned at each value. {_beside(swept)}"
        )
    )
    if swept.skipped:
        left_out = ", ".join(f"{value:,}" for value in swept.skipped)
        st.caption(f"Skipped, because a size is negative or fractional there: {left_out}.")
    st.plotly_chart(
        size_curve.figure(size_curve.data(swept, now)), key="size_curve", config={"displayModeBar": False}
    )


def _beside(swept: Sweep) -> str:
    """What ops hold at most beside these arenas, or that nobody knows."""
    if not any(swept.workspace):
        return f"Counted: {scope_words(swept.scope)}."
    most = max(swept.workspace)
    value = swept.values[swept.workspace.index(most)]
    at = f"{swept.symbol} = {value:,}"
    return f"Temporaries and workspaces lie outside the arena: up to {format_bytes(most)}, at {at}."


def _range(facts: PlanFacts) -> None:
    """Whether the offsets that are shown hold for other values."""
    report = plan_facts.range_of(facts)
    icon = ":material/verified:" if report.valid else ":material/warning:"
    (st.success if report.valid else st.warning)(plain(f"The offsets shown: {report.summary}"), icon=icon)
    if facts.plan.strategy == PARTITION and not report.valid:
        st.caption(
            "The partitions hold for every value; their offsets change with their sizes and are "
            "recomputed for each."
        )
    limits = dict(report.limits)
    st.dataframe(
        pd.DataFrame(
            {
                "symbol": [name for name, _, _ in report.ranges],
                "from": [low for _, low, _ in report.ranges],
                "to": [high for _, _, high in report.ranges],
                "offsets fail from": [
                    "nowhere" if limits.get(name) is None else f"{limits[name]:,}"
                    for name, _, _ in report.ranges
                ],
            }
        ),
        hide_index=True,
    )


def _schema(facts: PlanFacts, schema: MemorySchema) -> None:
    at = dict(facts.document.options.how.symbols)
    size, usage = schema.memory_bytes(at), schema.usage(at)
    title = f"Partition plan: {format_bytes(size)} here, of which the peak uses {format_percent(usage)}"
    with st.expander(title):
        st.text(f"peak = {_short(to_text(schema.peak_size()))} bytes")
        columns = (schema.partitions, schema.size_by_partition(), schema.sizes_at(at))
        rows = list(zip(*columns, strict=True))
        st.dataframe(
            pd.DataFrame(
                {
                    "partition": range(len(rows)),
                    "buffers": [len(members) for members, _, _ in rows],
                    "size, bytes": [_short(to_text(formula)) for _, formula, _ in rows],
                    "here": [format_bytes(here) for _, _, here in rows],
                }
            ),
            hide_index=True,
        )


def _short(text: str) -> str:
    return text if len(text) <= MOST_FORMULA else f"{text[: MOST_FORMULA - 1]}…"


def _buckets(facts: PlanFacts, symbol: str) -> None:
    text = st.text_input(
        f"Buckets of {symbol}: upper limits",
        key="buckets_widget",
        placeholder="128, 256, 512",
        help="A plan is made at each limit and used for all values up to it.",
    )
    highs = _numbers(text)
    if highs:
        _bucket_rows(plan_facts.buckets_of(facts.document, symbol, highs, facts.plan.strategy))


def _numbers(text: str) -> tuple[int, ...]:
    """Numbers with commas between; raises MemplanError naming what is none."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    for part in parts:
        if not (part.isascii() and part.isdigit() and len(part) < 12 and int(part) <= MOST_DIM):
            raise MemplanError(f"buckets: found {part[:40]!r}, expected whole numbers separated by commas")
    return tuple(int(part) for part in parts)


def _bucket_rows(table: BucketTable) -> None:
    rows = table.buckets
    st.dataframe(
        pd.DataFrame(
            {
                table.symbol: [f"{bucket.low:,} to {bucket.high:,}" for bucket in rows],
                "arena": [format_bytes(bucket.arena_bytes) for bucket in rows],
                "mean waste": [format_bytes(round(bucket.mean_waste)) for bucket in rows],
                "worst waste": [format_bytes(bucket.worst_waste) for bucket in rows],
                "worst at": [bucket.worst_at for bucket in rows],
                "offsets": [str(bucket.report.proof) if bucket.report.valid else "fail" for bucket in rows],
            }
        ),
        hide_index=True,
    )
    st.caption(
        f"One arena for all buckets: {format_bytes(table.arena_bytes)}. One each: "
        f"{format_bytes(table.separate_bytes)}. The offsets themselves: {format_bytes(table.table_bytes)}."
    )
