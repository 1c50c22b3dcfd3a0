"""The matrix of a zoo: a row for each model, a column for each variant, and what a click on a cell opens."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

import pandas as pd
import streamlit as st
from memplan_dashboard.session import state, stores, uploads
from memplan_dashboard.session.documents import Options
from memplan_dashboard.session.messages import plain, show_error
from memplan_dashboard.session.stores import StorePlace
from pandas.io.formats.style import Styler

from memplan_engine import MemplanError
from memplan_engine.history.history_values import HistoryPoint, HistorySeries
from memplan_engine.preparation import PLANNING_OPTIONS, Preparation
from memplan_engine.units import count_of, exact, format_bytes, format_signed
from memplan_engine.zoo.matrix import ZooCell, ZooMatrix

FULLEST = "fullest"
MODEL = "model"
PLAIN_VARIANT = "(as it is)"
"""The column of models without axes."""
TIGHT = 0.9
"""Of the capacity: what needs more has little room for what a process takes beside its tensors."""
MOST_COLUMNS = 400
"""Variants that are shown; the filter finds the others."""


class Shown(Enum):
    """What is printed in a cell."""

    OVER = "bytes over capacity"
    NEEDED = "bytes needed"
    ARENA = "arena"


def matching(points: Iterable[HistoryPoint], words: str) -> list[HistoryPoint]:
    """Those of `points` whose model or variant has each of `words`, whatever the case."""
    asked = words.lower().split()
    return [
        point
        for point in points
        if all(word in f"{point.series.model} {point.series.variant}".lower() for word in asked)
    ]


def show_headline(matrix: ZooMatrix, capacity: int | None, project: str) -> None:
    """What it comes to, in a sentence, then as chips."""
    count, over = len(matrix.cells), matrix.over(capacity)
    if capacity is None:
        told = f"{count_of(count, 'variant')} of {count_of(len(matrix.models), 'model')}"
    elif not over:
        told = f"All {count_of(count, 'variant')} fit in {format_bytes(capacity)}"
    else:
        told = f"{len(over):,} of {count_of(count, 'variant')} need more than {format_bytes(capacity)}"
    with st.container(key="headline"):
        st.subheader(f"{plain(told)} :gray[{plain(project)}]", anchor=False)
    if not count:
        return
    with st.container(key="figures", horizontal=True, vertical_alignment="center", gap="small"):
        fullest = max(matrix.cells.values(), key=lambda cell: cell.needed)
        st.badge(
            plain(f"fullest {fullest.series.label}: {format_bytes(fullest.needed)}"),
            color="blue",
            help=plain(f"Exact: {exact(fullest.needed)}"),
        )
        if capacity is not None:
            tight = [cell for cell in matrix.cells.values() if TIGHT * capacity < cell.needed <= capacity]
            st.badge(f"{len(over):,} over", color="red" if over else "gray")
            st.badge(f"{len(tight):,} within a tenth of it", color="orange" if tight else "gray")


def show_matrix(matrix: ZooMatrix, capacity: int | None, shown: Shown, store: StorePlace) -> None:
    """The matrix; a click on a cell opens its graph in Inspect."""
    variants = matrix.variants[:MOST_COLUMNS]
    if len(variants) < len(matrix.variants):
        st.caption(
            f"The first {len(variants):,} of {len(matrix.variants):,} variants: filter for the others."
        )
    labels = [variant or PLAIN_VARIANT for variant in variants]
    rows = [
        [
            matrix.fullest(model),
            *(_number(matrix.cells.get((model, each)), shown, capacity) for each in variants),
        ]
        for model in matrix.models
    ]
    table = pd.DataFrame(rows, index=pd.Index(matrix.models, name=MODEL), columns=[FULLEST, *labels])
    heat = pd.DataFrame(
        [["", *(_heat(matrix, model, each, capacity) for each in variants)] for model in matrix.models],
        index=table.index,
        columns=table.columns,
    )
    key = f"zoo_matrix_{shown.name}_{capacity}"

    def clicked() -> None:
        cells = st.session_state[key].selection.cells
        st.session_state.zoo_clicked = cells[0] if cells else None

    st.dataframe(
        _styled(table, heat, shown),
        key=key,
        height=min(640, 40 + 35 * max(1, len(rows))),
        on_select=clicked,
        selection_mode="single-cell",
        column_config={MODEL: st.column_config.TextColumn(pinned=True)},
        placeholder="",
    )
    st.caption(_legend(capacity))
    _open_chosen(matrix, labels, variants, store)


def _open_chosen(matrix: ZooMatrix, labels: list[str], variants: tuple[str, ...], store: StorePlace) -> None:
    """Open the cell that was clicked, or is picked by its name where nobody can click."""
    clicked = st.session_state.pop("zoo_clicked", None)
    if clicked is not None and clicked[1] in labels and clicked[0] < len(matrix.models):
        place = matrix.models[clicked[0]], variants[labels.index(clicked[1])]
        if place in matrix.cells:
            _open(matrix.cells[place], store)
    with st.container(key="controls_zoo_open", horizontal=True, vertical_alignment="bottom"):
        place = st.selectbox(
            "Variant",
            sorted(matrix.cells, key=lambda each: -matrix.cells[each].needed),
            format_func=lambda each: matrix.cells[each].series.label,
            key="zoo_variant",
        )
        if st.button("Open in Inspect", icon=":material/view_quilt:") and place is not None:
            _open(matrix.cells[place], store)


def _open(cell: ZooCell, store: StorePlace) -> None:
    """The graph of a cell in Inspect, planned as it was."""
    if not cell.fingerprints.graph:
        show_error(
            f"{cell.series.label}: found no graph in the store, expected one that was recorded with it"
        )
        return
    try:
        data = stores.graph_json(store, cell.fingerprints.graph)
        key, _ = uploads.keep(f"{cell.series.label}.json", data)
    except MemplanError as error:
        show_error(error)
        return
    options = Options(how=_how(cell.series))
    chosen = state.document_choices(key, options, strategy=cell.series.strategy)
    state.lead_on("views/inspect/inspect_page.py", **chosen)


def _how(series: HistorySeries) -> Preparation:
    """How the graphs of `series` became problems, as far as a page can ask for it."""
    asked: dict[str, Any] = {}
    for name, text in series.options:
        option = PLANNING_OPTIONS.get(name)
        if option is not None and option.parameter:
            number = int(text) if text.isascii() and text.isdigit() else text
            asked[name] = True if text == "True" else number if option.most else option.kind(text)
    return Preparation(**asked)


def _number(cell: ZooCell | None, shown: Shown, capacity: int | None) -> float | None:
    if cell is None:
        return None
    if shown is Shown.ARENA:
        return cell.figures.arena
    return cell.over(capacity) if shown is Shown.OVER else cell.needed


def _heat(matrix: ZooMatrix, model: str, variant: str, capacity: int | None) -> str:
    """A colour that lets the theme's own shine through: red beyond the capacity, the deeper the further,
    orange where it is tight; blue for the share of the capacity, or, without one, of what the fullest
    needs."""
    cell = matrix.cells.get((model, variant))
    if cell is None:
        return ""
    most = capacity or max(each.needed for each in matrix.cells.values())
    share = cell.needed / most if most else 0.0
    blue = share if capacity else share**0.5
    if capacity is None or share <= TIGHT:
        return f"background-color: rgba(64, 120, 220, {0.04 + 0.3 * min(blue, 1):.3f})"
    if share <= 1:
        return "background-color: rgba(230, 140, 20, 0.35)"
    return f"background-color: rgba(215, 50, 50, {min(0.3 + 0.25 * (share - 1), 0.65):.3f})"


def _styled(table: pd.DataFrame, heat: pd.DataFrame, shown: Shown) -> Styler:
    """Numbers that sort as numbers, printed as bytes, on the colours of `heat`."""
    write = format_signed if shown is Shown.OVER else format_bytes
    cells = {column: lambda value: write(int(value)) for column in table.columns[1:]}
    styler: Styler = table.style.format({FULLEST: lambda value: format_bytes(int(value)), **cells}, na_rep="")
    return styler.apply(lambda _: heat, axis=None)


def _legend(capacity: int | None) -> str:
    counted = "Counted are weights and state, arena and workspaces; of ranks what their allocator reserves. "
    if capacity is None:
        return f"{counted}The bluer, the nearer to the fullest. A cell opens Inspect."
    held = plain(format_bytes(capacity))
    return f"{counted}Red needs more than {held}, orange is within a tenth of it. A cell opens Inspect."
