"""The widgets that several pages share; each keeps its choice in `state`, and so in the URL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import streamlit as st
from memplan_dashboard.session import documents, state
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.markdown_text import plain
from memplan_dashboard.session.url import MOST_MEBIBYTES, parse_mebibytes

from memplan_engine.analysis.training_phases import is_training
from memplan_engine.planner import strategies_for
from memplan_engine.plotting.colouring import COLOURINGS
from memplan_engine.recordings.recorded_problem import RECORDED
from memplan_engine.strategies import known_strategies

IMPORTED = "imported"
MOST_PANELS = 4
MOST_PATTERN = 200


def row(weights: Sequence[float]) -> list[AbstractContextManager[object]]:
    """The columns for a row of widgets; where the window is narrow they wrap."""
    return list(st.container(key="controls").columns(list(weights), gap="small"))


def pick_document() -> None:
    """The document; changing it drops the selection and what was said of the last file."""
    known = documents.catalogue()
    current = state.get("doc")
    if current not in known:
        known = {current: current.partition(":")[2], **known}
    _keep("doc_widget", current)
    st.selectbox("Graph", list(known), format_func=known.__getitem__, key="doc_widget", on_change=_document)


def pick_strategy(document: Document) -> str:
    """The strategy; a file that brought its own plan offers that first."""
    names, current = strategy_names(document), current_strategy(document)
    _keep("strategy_widget", current)
    st.selectbox(
        "Strategy",
        names,
        format_func=strategy_label(document),
        key="strategy_widget",
        on_change=_taker("strategy", "strategy_widget"),
        help="How buffers get their offsets. `memplan strategies` lists the sources.",
    )
    return current


def pick_strategies(document: Document) -> list[str]:
    """The strategies to put side by side, up to four; a file's own plan is among them unless others were
    picked."""
    names = strategy_names(document)
    wanted = state.get("compare")
    if document.plan and wanted == state.PARAMETERS["compare"]:
        wanted = f"{IMPORTED},{wanted}"
    chosen = [name for name in dict.fromkeys(wanted.split(",")) if name in names][:MOST_PANELS]
    if wanted and not chosen:
        chosen = state.PARAMETERS["compare"].split(",")
    _keep("compare_widget", chosen)
    st.multiselect(
        "Strategies, two to four",
        names,
        format_func=strategy_label(document),
        key="compare_widget",
        max_selections=MOST_PANELS,
        placeholder="pick two to four",
        on_change=_compared,
    )
    return chosen


def pick_colouring(document: Document) -> str:
    """What the colours mean: op kinds where a graph is known, else sizes, unless something was picked."""
    current = state.get("colour")
    if current not in COLOURINGS:
        in_phases = document.graph is not None and is_training(document.graph)
        current = "phase" if in_phases else "op kind" if document.knows_kinds else "size"
    _keep("colour_widget", current)
    st.selectbox(
        "Colour by", list(COLOURINGS), key="colour_widget", on_change=_taker("colour", "colour_widget")
    )
    return current


def pick_search() -> str:
    """A regular expression; what it does not find is dimmed."""
    current = state.get("find")[:MOST_PATTERN]
    _keep("find_widget", current)
    st.text_input(
        "Find (regex)",
        key="find_widget",
        placeholder="attn|mlp",
        max_chars=MOST_PATTERN,
        on_change=_taker("find", "find_widget"),
        help="In name, op kind and module path. The rest is dimmed.",
    )
    return current


def pick_budget() -> int | None:
    """A budget in bytes, given in MiB; None when there is none."""
    current = parse_mebibytes(state.get("budget"))
    _keep("budget_widget", current)
    st.number_input(
        "SolveLimits, MiB",
        min_value=0.0,
        max_value=MOST_MEBIBYTES,
        step=1.0,
        value=None,
        placeholder="none",
        key="budget_widget",
        on_change=_budget,
        format="%g",
        help="Drawn as a dotted line.",
    )
    return None if current is None else round(current * 2**20)


def strategy_names(document: Document) -> list[str]:
    """What can be chosen for `document`."""
    return ([IMPORTED] if document.plan else []) + list(strategies_for(document.problem))


def strategy_label(document: Document) -> Callable[[str], str]:
    """How a strategy is called: what a recording brought is what was recorded."""
    brought = RECORDED if document.plan and document.plan.strategy == RECORDED else IMPORTED
    return lambda name: brought if name == IMPORTED else name


def current_strategy(document: Document) -> str:
    """The strategy of choice; the first that there is where the choice makes no sense for `document`."""
    names, chosen = strategy_names(document), state.get("strategy")
    return chosen if chosen in names else names[0]


def wrong_strategy(document: Document) -> str:
    """What is wrong with the strategy that the address asks for; "" if nothing. A file's own plan is asked
    for only where a file had one: the next file's plan takes its place without a word."""
    asked = state.get("strategy")
    if not asked or asked == IMPORTED or asked in known_strategies():
        return ""
    return _strange("strategy", asked, f"This is {strategy_label(document)(current_strategy(document))}.")


def wrong_strategies() -> str:
    """What is wrong with the strategies that the address wants side by side; "" if nothing."""
    wanted = list(filter(None, state.get("compare").split(",")))
    strange = [name for name in wanted if name != IMPORTED and name not in known_strategies()]
    return _strange("compare", strange[0]) if strange else ""


def show_note(note: str) -> None:
    """Say what of the address was not followed."""
    if note:
        st.warning(plain(note), icon=":material/info:")


def _strange(parameter: str, asked: str, instead: str = "") -> str:
    return f"{parameter}: found {asked[:40]!r}, expected one of those in the list. {instead}".strip()


def _keep(key: str, value: object) -> None:
    """Have a widget show the choice, on whichever page it was made: widgets forget when the page changes."""
    st.session_state[key] = value


def _taker(name: str, key: str) -> Callable[[], None]:
    return lambda: state.choose(**{name: st.session_state[key] or ""})


def _compared() -> None:
    state.choose(compare=",".join(st.session_state.compare_widget))


def _budget() -> None:
    value = st.session_state.budget_widget
    state.choose(budget=repr(value).removesuffix(".0") if value else "")


def _document() -> None:
    state.choose_document(st.session_state.doc_widget)
