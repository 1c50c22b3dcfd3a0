"""Which values of a graph can be planned, and why each other one cannot."""

from __future__ import annotations

import pandas as pd
import streamlit as st
from memplan_dashboard.session.markdown_text import plain

from memplan_engine import Graph
from memplan_engine.analysis.managed_values import ManagedValue, Reason, managed_values
from memplan_engine.units import format_bytes

MOST_ROWS = 5_000
ALL = "all of them"


def show_values(graph: Graph) -> None:
    """Static Runtime's rules on every tensor: reasons with their counts, then the values of one reason."""
    values = managed_values(graph)
    managed = sum(value.managed for value in values)
    size = format_bytes(sum(value.nbytes for value in values if value.managed))
    st.caption(plain(f"{managed:,} of {len(values):,} values can be planned, {size} of storages."))
    groups = {reason: [v for v in values if v.reason is reason] for reason in Reason}
    groups = {reason: own for reason, own in groups.items() if own}
    with st.container(key="halves_values"):
        left, right = st.columns([1, 1.6], gap="medium")
    with left:
        st.dataframe(_reasons(groups), hide_index=True)
    with right:
        names = [ALL, *(str(reason) for reason in groups)]
        chosen = st.selectbox("Values for this reason", names, key="values_reason")
        shown = [value for value in values if chosen in (ALL, str(value.reason))]
        shown.sort(key=lambda value: -value.nbytes)
        if len(shown) > MOST_ROWS:
            st.caption(f"The largest {MOST_ROWS:,} of {len(shown):,}.")
        st.dataframe(_rows(shown[:MOST_ROWS]), hide_index=True, height=360)


def _reasons(groups: dict[Reason, list[ManagedValue]]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "planned": [
                own[0].managed if reason is not Reason.ALIAS else None for reason, own in groups.items()
            ],
            "values": [len(own) for own in groups.values()],
            "size": [format_bytes(sum(value.nbytes for value in own)) for own in groups.values()],
            "reason": [str(reason) for reason in groups],
        }
    )


def _rows(values: list[ManagedValue]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "value": [value.tensor for value in values],
            "size": [format_bytes(value.nbytes) for value in values],
            "planned": [value.managed for value in values],
            "why": [value.explanation for value in values],
        }
    )
