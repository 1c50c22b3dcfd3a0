"""The widgets that change what is planned: streams, reuse, symbols, the part of a recording and more."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st
from memplan_dashboard.session import documents, state
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.messages import plain
from memplan_dashboard.session.state import MOST_DIM, pairs_text
from memplan_dashboard.widgets.controls import bound, chooses

from memplan_engine import Graph, MemplanError, Symbol
from memplan_engine.analysis.training_phases import has_optimizer
from memplan_engine.preparation import PLANNING_OPTIONS, PlanningOption, Preparation
from memplan_engine.symbolic.symbol_values import ends

WITH_WIDGET = tuple(option for option in PLANNING_OPTIONS.values() if option.label)


def pick_preparation(document: Document) -> None:
    """A popover with all that can be asked of a graph, or which part of a recording is shown; nothing for
    other lists of buffers and finished plans."""
    is_graph = can_prepare(document)
    if not is_graph and len(_parts(document.key)) < 2:
        return
    asked = is_graph * count_asked(document.options.how) + bool(document.options.part)
    label = f"Options ({asked})" if asked else "Options"
    with st.container(key="options"), st.popover(label, icon=":material/tune:", width="stretch"):
        keep_part(document)
        if is_graph:
            show_switches(document)


def can_prepare(document: Document) -> bool:
    """Whether `document` is a graph that can still be prepared in one way or another."""
    return document.graph is not None and document.plan is None


def count_asked(how: Preparation) -> int:
    """How many things are asked for beyond what there is without asking."""
    return sum(option.asked(how) for option in WITH_WIDGET)


def show_switches(document: Document, side: str = "") -> None:
    """The widgets; `side` stands before the names of what they choose."""
    how = document.options.how
    for option in WITH_WIDGET:
        if option.of_training and not (document.graph and has_optimizer(document.graph)):
            continue
        name, asked = f"{side}{option.parameter}", getattr(how, option.name)
        if option.most:
            st.number_input(
                option.label,
                min_value=1,
                max_value=option.most,
                step=1,
                value=None,
                placeholder=option.unset,
                help=option.told,
                **chooses(name, asked),
            )
        else:
            on = chooses(name, option.asked(how), text=partial(_switched, option))
            st.checkbox(option.label, help=option.told, **on)


def _switched(option: PlanningOption, on: bool) -> str:
    """On: the value that is not the default, of the two that there are."""
    if not on:
        return ""
    return "1" if option.kind is bool else next(str(each) for each in option.kind if each != option.default)


def keep_part(document: Document, side: str = "") -> None:
    """Which part of the recording is shown, which may be one that the list does not have, as the stream of a
    pool; another one drops the selection and the changes. Nothing where there is nothing to choose."""
    parts, current = _parts(document.key), document.options.part
    if len(parts) < 2:
        return
    st.selectbox(
        "Part of the recording",
        list(dict.fromkeys(("", *parts, current))),
        format_func=lambda part: parts.get(part, part) or "the device with the most bytes, all streams",
        help="Devices share no memory, streams only freed blocks; a private pool, such as a CUDA graph's, "
        "shares nothing with the default one.",
        **chooses(f"{side}part", current, selected="", changed="", what_if=""),
    )


def _parts(key: str) -> dict[str, str]:
    """A file that cannot be read is explained by whoever opens it."""
    try:
        return _known_parts(key, documents.version_of(key))
    except MemplanError:
        return {}


@st.cache_data(max_entries=16, show_spinner="Reading the recording …")
def _known_parts(key: str, version: tuple[int, int]) -> dict[str, str]:
    path = documents.path_of(key)
    shown = documents.is_recording(path) or documents.is_observed_graph(path)
    return documents.parts(path, version) if shown else {}


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
            help="Tensors of this size are not planned until it has a value.",
            **bound(key, current, take),
        )
        return
    low, high = (min(end, MOST_DIM) for end in ends(symbol))
    end_words = f" to {symbol.high:,}." if symbol.high is not None else " up, no upper limit known."
    st.slider(
        plain(f"{symbol} (hint {symbol.hint:,})"),
        low,
        max(high, low + 1),
        help=f"From {symbol.low:,}{end_words}",
        **bound(key, min(max(current or low, low), high), take),
    )
