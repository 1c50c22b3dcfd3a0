"""Tables, and those whose selected row is what is selected elsewhere, whichever of them is clicked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

MOST_ROWS = 5_000
"""A table has no more rows: browsers take no more at once."""
WHOLE = st.column_config.NumberColumn(format="localized")
SHARE = st.column_config.ProgressColumn(format="percent", min_value=0, max_value=1)


def show_table(
    rows: pd.DataFrame, columns: Mapping[str, Any] | None = None, key: str | None = None, most: int = 460
) -> None:
    """Show `rows`, as high as they are up to `most` pixels, with the settings of some `columns`."""
    st.dataframe(rows, key=key, hide_index=True, height=_height(rows, most), column_config=columns)


def named(heading: str, names: Sequence[str], labels: Mapping[str, str]) -> dict[str, list[str]]:
    """The column `heading` of names as people know them, by `labels`, and "in graph" where one differs."""
    shown = [labels.get(name, name) for name in names]
    return {heading: shown} | ({"in graph": list(names)} if shown != list(names) else {})


def whole(*names: str) -> dict[str, Any]:
    """Columns of whole numbers, as bytes are."""
    return dict.fromkeys(names, WHOLE)


def selectable(
    rows: pd.DataFrame,
    things: Sequence[int | None],
    selected: int | None,
    name: str,
    scope: str,
    choose: Callable[[int | None], None],
    columns: Mapping[str, Any],
) -> None:
    """Show `rows`, one for each of `things` (None for rows that are only headings); `choose` hears what is
    clicked. `name` is the table's own, `scope` changes with what it is about."""
    place = things.index(selected) if selected is not None and selected in things else None
    key = _key(name, place, scope)

    def clicked() -> None:
        picked = st.session_state[key].selection.rows
        row = picked[0] if picked and picked[0] < len(things) else None
        st.session_state[f"row_{name}"] = row
        choose(None if row is None else things[row])

    st.dataframe(
        rows,
        key=key,
        hide_index=True,
        height=_height(rows, 460),
        on_select=clicked,
        selection_mode="single-row",
        selection_default=None if place is None else {"selection": {"rows": [place]}},
        column_config=dict(columns),
    )


def _height(rows: pd.DataFrame, most: int) -> int:
    return min(most, 38 + 35 * max(1, len(rows)))


def _key(name: str, place: int | None, scope: str) -> str:
    """A table keeps what was clicked in it; a new key makes it take a selection that comes from elsewhere."""
    times = st.session_state.setdefault(f"times_{name}", 0)
    if st.session_state.get(f"row_{name}") != place:
        times += 1
        st.session_state[f"row_{name}"], st.session_state[f"times_{name}"] = place, times
    return f"table_{name}_{times}_{scope}"
