"""The widgets that several pages share; each keeps its choice in `state`, and so in the URL."""

from __future__ import annotations

import streamlit as st

from dashboard import documents, state
from dashboard.colours import COLOURINGS
from dashboard.documents import Document
from memplan_engine import strategies

IMPORTED = "imported"


def pick_document() -> None:
    """The document; changing it drops the selection and what was said of the last file."""
    known = documents.catalogue()
    current = state.get("doc")
    if current not in known:
        known = {current: current.partition(":")[2], **known}
    _keep("doc_widget", current, list(known))
    st.selectbox("Graph", list(known), format_func=known.__getitem__, key="doc_widget", on_change=_document)


def pick_strategy(document: Document) -> str:
    """The strategy; a file that brought its own plan offers that first."""
    names = _strategy_names(document)
    current = state.get("strategy")
    if current not in names:
        current = names[0]
    _keep("strategy_widget", current, names)
    st.selectbox(
        "Strategy",
        names,
        key="strategy_widget",
        on_change=_take,
        args=("strategy", "strategy_widget"),
        help="How buffers get their offsets. `memplan strategies` lists the sources.",
    )
    return current


def pick_strategies(document: Document) -> list[str]:
    """Two to four strategies to put side by side."""
    names = _strategy_names(document)
    chosen = [name for name in state.get("compare").split(",") if name in names][:4]
    for name in names:
        if len(chosen) >= 2:
            break
        if name not in chosen:
            chosen.append(name)
    _keep("compare_widget", chosen, None)
    st.multiselect(
        "Strategies, two to four",
        names,
        key="compare_widget",
        max_selections=4,
        on_change=_compared,
    )
    return chosen


def pick_colouring() -> str:
    """What the colours mean."""
    current = state.get("colour") if state.get("colour") in COLOURINGS else "op kind"
    _keep("colour_widget", current, list(COLOURINGS))
    st.selectbox(
        "Colour by", list(COLOURINGS), key="colour_widget", on_change=_take, args=("colour", "colour_widget")
    )
    return current


def pick_search() -> str:
    """A regular expression; what it does not find is dimmed."""
    _keep("find_widget", state.get("find"), None)
    st.text_input(
        "Find (regex)",
        key="find_widget",
        placeholder="attn|mlp",
        on_change=_take,
        args=("find", "find_widget"),
        help="In name, op kind and module path. The rest is dimmed.",
    )
    return state.get("find")


def pick_budget() -> int | None:
    """A budget in bytes, given in MiB; None when there is none."""
    try:
        current = min(max(float(state.get("budget")), 0.0), 2.0**40) or None
    except ValueError:
        current = None
    if current is not None and current != current:
        current = None
    _keep("budget_widget", current, None)
    st.number_input(
        "Budget, MiB",
        min_value=0.0,
        max_value=2.0**40,
        step=1.0,
        value=None,
        placeholder="none",
        key="budget_widget",
        on_change=_budget,
        help="Drawn as a dotted line.",
    )
    return None if current is None else round(current * 2**20)


def _strategy_names(document: Document) -> list[str]:
    return ([IMPORTED] if document.plan else []) + list(strategies())


def _keep(key: str, value: object, options: list[str] | None) -> None:
    """Set a widget to `value` when it is new or when something else has changed the choice."""
    if st.session_state.get(key) != value or (options is not None and value not in options):
        st.session_state[key] = value


def _take(name: str, key: str) -> None:
    state.choose(**{name: st.session_state[key] or ""})


def _compared() -> None:
    state.choose(compare=",".join(st.session_state.compare_widget))


def _budget() -> None:
    value = st.session_state.budget_widget
    state.choose(budget="" if not value else f"{value:g}")


def _document() -> None:
    state.choose(doc=st.session_state.doc_widget, selected="", dims="", alignment="", inputs="", as_plan="")
