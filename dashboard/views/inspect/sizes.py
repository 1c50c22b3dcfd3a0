"""Symbolic sizes: the arena over one symbol, whether the offsets hold over the range, and buckets."""

from __future__ import annotations

import pandas as pd
import streamlit as st
from memplan_dashboard.charts import size_curve
from memplan_dashboard.session import graph_facts, state
from memplan_dashboard.session.markdown_text import plain
from memplan_dashboard.session.plan_facts import Facts
from memplan_dashboard.session.url import MOST_DIM
from memplan_dashboard.widgets.symbol_sliders import symbols_of

from memplan_engine import MemplanError
from memplan_engine.scope import scope_words
from memplan_engine.symbolic import BucketTable, MemorySchema, Sweep, to_text
from memplan_engine.symbolic.partition import STRATEGY as PARTITION
from memplan_engine.units import format_bytes, format_percent

MOST_FORMULA = 400


def show_sizes(facts: Facts) -> None:
    """One symbol's curve, then the check over the whole range, the partition schema and buckets."""
    symbols = [symbol for symbol in symbols_of(facts.document) if symbol.hint is not None]
    if not symbols:
        st.info("The sizes of this graph depend on the data: there is no range to go through.")
        return
    names = [symbol.name for symbol in symbols]
    chosen = state.get("over") if state.get("over") in names else names[0]
    st.session_state.over_widget = chosen
    st.segmented_control(
        "Over",
        names,
        key="over_widget",
        on_change=lambda: state.choose(over=st.session_state.over_widget or ""),
    )
    try:
        _curve(facts, chosen)
        _range(facts)
        _schema(facts, graph_facts.schema_of_document(facts.document))
        _buckets(facts, chosen)
    except MemplanError as error:
        st.error(plain(error), icon=":material/error:")


def _curve(facts: Facts, symbol: str) -> None:
    made = graph_facts.sweep_of(facts.document, symbol, facts.plan.strategy)
    now = dict(facts.document.options.how.symbols).get(symbol, made.hint)
    others = ", ".join(f"{name} = {value:,}" for name, value in made.others)
    st.caption(
        plain(
            f"Arena by {made.strategy} over {symbol}{f' with {others}' if others else ''}. The partition "
            "plan is one assignment for all values, decided at the hint; the others are planned anew at "
            f"each. {_beside(made)}"
        )
    )
    if made.skipped:
        left_out = ", ".join(f"{value:,}" for value in made.skipped)
        st.caption(f"Left out, for a size is negative or not whole there: {left_out}.")
    st.plotly_chart(
        size_curve.figure(size_curve.data(made, now)), key="size_curve", config={"displayModeBar": False}
    )


def _beside(made: Sweep) -> str:
    """What ops hold at most beside these arenas, or that nobody knows."""
    if not any(made.workspace):
        return f"Counted: {scope_words(made.scope)}."
    most = max(made.workspace)
    value = made.values[made.workspace.index(most)]
    return f"What ops hold lies beside the arena: up to {format_bytes(most)}, at {made.symbol} = {value:,}."


def _range(facts: Facts) -> None:
    """Whether the offsets that are shown hold for other values."""
    report = graph_facts.range_of(facts)
    icon = ":material/verified:" if report.valid else ":material/warning:"
    (st.success if report.valid else st.warning)(plain(f"The offsets shown: {report.summary}"), icon=icon)
    if facts.plan.strategy == PARTITION and not report.valid:
        st.caption(
            "Which buffers share a partition holds for every value; the offsets move with the sizes of the "
            "partitions, so they are made anew for each."
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


def _schema(facts: Facts, schema: MemorySchema) -> None:
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


def _buckets(facts: Facts, symbol: str) -> None:
    text = st.text_input(
        f"Buckets of {symbol}: largest values",
        key="buckets_widget",
        placeholder="128, 256, 512",
        help="A plan is made at each and used for all values below it.",
    )
    highs = _numbers(text)
    if highs:
        _bucket_rows(graph_facts.buckets_of(facts.document, symbol, highs, facts.plan.strategy))


def _numbers(text: str) -> tuple[int, ...]:
    """Numbers with commas between; raises MemplanError naming what is none."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    for part in parts:
        if not (part.isascii() and part.isdigit() and len(part) < 12 and int(part) <= MOST_DIM):
            raise MemplanError(f"buckets: found {part[:40]!r}, expected whole numbers with commas between")
    return tuple(int(part) for part in parts)


def _bucket_rows(made: BucketTable) -> None:
    rows = made.buckets
    st.dataframe(
        pd.DataFrame(
            {
                made.symbol: [f"{bucket.low:,} to {bucket.high:,}" for bucket in rows],
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
        f"One arena for all buckets: {format_bytes(made.arena_bytes)}. One each: "
        f"{format_bytes(made.separate_bytes)}. The offsets themselves: {format_bytes(made.table_bytes)}."
    )
