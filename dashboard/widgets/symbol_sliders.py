"""Sliders for the symbols of a graph: rectangles and profile follow."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st
from memplan_dashboard.session import state
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.messages import plain
from memplan_dashboard.session.url import MOST_DIM, pairs_text
from memplan_dashboard.widgets.controls import bound

from memplan_engine import Graph, Symbol
from memplan_engine.symbolic.symbol_values import ends

MOST_COLUMNS = 4


def symbols_of(document: Document) -> tuple[Symbol, ...]:
    """The symbols of what was read, () when it has none."""
    return document.loaded.symbols if isinstance(document.loaded, Graph) else ()


def pick_symbols(document: Document, side: str = "") -> None:
    """A slider for each symbol, at its value or its hint; a field for a size that depends on the data. With
    `side`, which stands before the name of what they choose, one below the other."""
    symbols = symbols_of(document)
    if not symbols:
        return
    values = dict(document.options.how.symbols)
    wide = 1 if side else min(MOST_COLUMNS, len(symbols))
    columns = st.container(key=f"figures_symbols{side}").columns(wide, gap="medium")

    def take(_: object) -> None:
        picked = {each: st.session_state.get(f"{side}symbol_{each.name}") for each in symbols}
        kept = [(each.name, value) for each, value in picked.items() if value not in (None, each.hint)]
        state.choose(**{f"{side}symbols": pairs_text(tuple(kept))})

    for place, symbol in enumerate(symbols):
        with columns[place % wide]:
            _pick(symbol, values.get(symbol.name, symbol.hint), f"{side}symbol_{symbol.name}", take)


def _pick(symbol: Symbol, current: int | None, key: str, take: Callable[[object], None]) -> None:
    if symbol.hint is None:
        st.number_input(
            plain(f"{symbol.name} (depends on the data)"),
            min_value=symbol.low,
            max_value=symbol.high,
            value=None,
            step=1,
            placeholder="not planned",
            help="Tensors of this size are left out of the plan until it has a value.",
            **bound(key, current, take),
        )
        return
    low, high = (min(end, MOST_DIM) for end in ends(symbol))
    end_words = f" to {symbol.high:,}." if symbol.high is not None else " on, no limit known."
    st.slider(
        plain(f"{symbol.name} (hint {symbol.hint:,})"),
        low,
        max(high, low + 1),
        help=f"From {symbol.low:,}{end_words}",
        **bound(key, min(max(current or low, low), high), take),
    )
