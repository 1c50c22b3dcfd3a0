"""Sliders for the symbols of a graph: rectangles and profile follow."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st
from memplan_dashboard.session import state
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.markdown_text import plain
from memplan_dashboard.session.url import MOST_DIM, pairs_text

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
    for place, symbol in enumerate(symbols):
        with columns[place % wide]:
            if symbol.hint is None:
                _field(symbol, symbols, values, side)
            else:
                _slider(symbol, symbols, values, side)


def _slider(symbol: Symbol, symbols: tuple[Symbol, ...], values: dict[str, int], side: str) -> None:
    key = f"{side}symbol_{symbol.name}"
    low, high = (min(end, MOST_DIM) for end in ends(symbol))
    current = min(max(values.get(symbol.name, symbol.hint or low), low), high)
    st.session_state[key] = current
    told = f"From {symbol.low:,}" + (
        f" to {symbol.high:,}." if symbol.high is not None else " on, no limit known."
    )
    st.slider(
        plain(f"{symbol.name} (hint {symbol.hint:,})"),
        low,
        max(high, low + 1),
        key=key,
        on_change=_taker(symbols, side),
        help=told,
    )


def _field(symbol: Symbol, symbols: tuple[Symbol, ...], values: dict[str, int], side: str) -> None:
    key = f"{side}symbol_{symbol.name}"
    st.session_state[key] = values.get(symbol.name)
    st.number_input(
        plain(f"{symbol.name} (depends on the data)"),
        min_value=symbol.low,
        max_value=symbol.high,
        value=None,
        step=1,
        key=key,
        placeholder="not planned",
        on_change=_taker(symbols, side),
        help="Tensors of this size are left out of the plan until it has a value.",
    )


def _taker(symbols: tuple[Symbol, ...], side: str) -> Callable[[], None]:
    def changed() -> None:
        known = {each.name: st.session_state.get(f"{side}symbol_{each.name}") for each in symbols}
        hints = {each.name: each.hint for each in symbols}
        kept = {name: value for name, value in known.items() if value is not None and value != hints[name]}
        state.choose(**{f"{side}symbols": pairs_text(tuple(kept.items()))})

    return changed
