"""The widgets that several pages share; each keeps its choice in `state`, and so in the URL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

import streamlit as st
from memplan_dashboard.session import documents, state
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.messages import show_error
from memplan_dashboard.session.state import bytes_text, mebibytes_text, parse_mebibytes
from memplan_dashboard.widgets.scrolling import scroll_if_asked

from memplan_engine import MemplanError, Problem
from memplan_engine.accelerators.presets import PRESETS
from memplan_engine.analysis.training_phases import is_training
from memplan_engine.planner import strategies_for
from memplan_engine.plotting.colouring import COLOURINGS
from memplan_engine.plotting.figure_style import default_name
from memplan_engine.recordings.recorded_problem import RECORDED
from memplan_engine.strategies import known_strategies
from memplan_engine.units import parse_bytes

IMPORTED = "imported"
NO_DEVICE = "no device"
MOST_PANELS = 4
FAULT = "capacity_fault_{}"
"""By choice, what was typed as a capacity, and why it is none."""
QUIET: dict[str, Any] = {"delta_color": "off", "delta_arrow": "off"}
"""What a metric takes for a note below it that is neither good nor bad."""


def trend(nbytes: int) -> dict[str, Any]:
    """What a metric takes for a note that says by how many bytes something grew: fewer are better. Streamlit
    knows hyphens alone for signs."""
    if not nbytes:
        return QUIET
    return {"delta_color": "red" if nbytes > 0 else "green", "delta_arrow": "up" if nbytes > 0 else "down"}


def row(weights: Sequence[float]) -> list[AbstractContextManager[object]]:
    """The columns for a row of widgets; where the window is narrow they wrap."""
    return list(st.container(key="controls").columns(list(weights), gap="small"))


def bound(key: str, value: object, take: Callable[[Any], None]) -> dict[str, Any]:
    """What a widget takes to show `value`, on whichever page that was chosen (Streamlit forgets a widget when
    the page changes), and to give `take` what is picked."""
    st.session_state[key] = value
    return {"key": key, "on_change": lambda: take(st.session_state[key])}


def chooses(
    name: str, value: object, key: str = "", text: Callable[[Any], str] | None = None, **others: str
) -> dict[str, Any]:
    """What a widget takes to show `value` and to write what is picked to the choice `name`, as `text` gives
    it; `others` are choices that change with it. The key is "NAME_widget" unless given."""

    def take(picked: Any) -> None:
        state.choose(**{name: text(picked) if text else str(picked or ""), **others})

    return bound(key or f"{name}_widget", value, take)


def pick_key(
    label: str, known: Mapping[str, str], current: str, key: str, take: Callable[[str], None]
) -> None:
    """One of `known`, key → label; the `current` one is among them even where it is not known."""
    if current not in known:
        known = {current: current.partition(":")[2] or current, **known}
    st.selectbox(label, list(known), format_func=known.__getitem__, **bound(key, current, take))


def show_tabs(key: str, parts: Mapping[str, Callable[[], None]]) -> None:
    """A tab for each part, which fills it while it is open; the address has the open one, unless it is the
    first."""
    names, asked = list(parts), state.get("tab")
    current = asked if asked in parts else names[0]
    tabs = st.tabs(names, **chooses("tab", current, key, lambda tab: "" if tab == names[0] else tab))
    for tab, show in zip(tabs, parts.values(), strict=True):
        if tab.open:
            with tab:
                show()
    scroll_if_asked(key)


def pick_document() -> None:
    """The document; changing it drops the selection and what was said of the last file."""
    pick_key("Graph", documents.catalogue(), state.get("doc"), "doc_widget", state.choose_document)


def pick_strategy(document: Document) -> str:
    """The strategy; a file that brought its own plan offers that first."""
    current = current_strategy(document)
    st.selectbox(
        "Strategy",
        strategy_names(document),
        format_func=strategy_label(document),
        help="How offsets are assigned. `memplan strategies` lists the sources.",
        **chooses("strategy", current),
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
    st.multiselect(
        "Strategies, two to four",
        names,
        format_func=strategy_label(document),
        max_selections=MOST_PANELS,
        placeholder="pick two to four",
        **chooses("compare", chosen, text=",".join),
    )
    return chosen


def current_colouring(document: Document) -> str:
    """What the colours mean: phases of a training step, else what suits the graph, unless something was
    picked."""
    if (picked := state.get("colour")) in COLOURINGS:
        return picked
    in_phases = document.graph is not None and is_training(document.graph)
    return "phase" if in_phases else default_name(document.problem)


def pick_colouring(document: Document) -> str:
    """The control for `current_colouring`."""
    current = current_colouring(document)
    st.selectbox("Colour by", list(COLOURINGS), **chooses("colour", current))
    return current


def pick_capacity(
    key: str = "capacity_widget", label: str = "Fits in", choice: str = "capacity", example: str = "512KiB"
) -> int | None:
    """A capacity in bytes, typed as 24GiB or 512KiB; None when there is none. A page's second field has a
    `key` of its own; `choice` is what the address calls it."""
    mebibytes = parse_mebibytes(state.get(choice))
    capacity = None if mebibytes is None else round(mebibytes * 2**20)
    typed, fault = st.session_state.get(FAULT.format(choice), ("", "")) if capacity is None else ("", "")
    st.text_input(
        label,
        placeholder=example,
        max_chars=40,
        help="A capacity, such as 24GiB, 512KiB, 100MB (10^8) or a number of bytes: drawn as a dotted line, "
        "and compared with the plan.",
        **bound(key, typed or bytes_text(capacity), lambda text: _take_capacity(text, choice)),
    )
    if fault:
        show_error(fault)
    return capacity


def _take_capacity(text: str, choice: str) -> None:
    st.session_state.pop(FAULT.format(choice), None)
    try:
        nbytes = parse_bytes(text.strip(), "capacity") if text.strip() else 0
    except MemplanError as error:
        st.session_state[FAULT.format(choice)] = (text, str(error))
        nbytes = 0
    state.choose(**{choice: mebibytes_text(nbytes / 2**20)})


def pick_capacity_of_device(capacity: int | None, choice: str, key: str) -> None:
    """A device whose usable bytes become the capacity of `choice`, which is `capacity` now."""
    usable = {name: gpu.usable_bytes for name, gpu in PRESETS.items()}
    # The address holds the capacity as a fraction of MiB.
    current = next((name for name, nbytes in usable.items() if nbytes == capacity), NO_DEVICE)

    def take(name: str) -> None:
        state.choose(**{choice: mebibytes_text(usable[name] / 2**20) if name in usable else ""})

    st.selectbox(
        "Capacity of device",
        [NO_DEVICE, *usable],
        format_func=lambda name: name if name == NO_DEVICE else f"{name}, {usable[name] / 2**30:.2f} GiB",
        help="Usable bytes of the whole device, as PyTorch's error messages report them. A process holds "
        "some of them beside its tensors: its context and kernels.",
        **bound(key, current, take),
    )


def select(problem: Problem) -> Callable[[int | None], None]:
    """What hears of the buffer of `problem` that is selected, by its index, None for none."""
    return lambda index: state.choose(selected="" if index is None else problem.names[index])


def marked_steps(problem: Problem) -> tuple[int | None, int | None]:
    """The steps that the address marks; none where it makes no sense, of which `wrong_marks` tells."""
    with suppress(MemplanError):
        return state.parse_marks(state.get("at"), problem.steps)
    return None, None


def wrong_marks(problem: Problem) -> str:
    """What is wrong with the steps that the address marks; "" if nothing."""
    try:
        state.parse_marks(state.get("at"), problem.steps)
    except MemplanError as error:
        return str(error)
    return ""


def mark(marks: tuple[int | None, int | None]) -> None:
    """Keep the steps that are marked in the address."""
    state.choose(at=state.marks_text(marks))


def strategy_names(document: Document) -> list[str]:
    """What can be chosen for `document`."""
    return ([IMPORTED] if document.plan else []) + list(strategies_for(document.problem))


def strategy_label(document: Document) -> Callable[[str], str]:
    """How a strategy is called: what a recording brought is what was recorded."""
    brought = RECORDED if document.plan and document.plan.strategy == RECORDED else IMPORTED
    return lambda name: brought if name == IMPORTED else name


def current_strategy(document: Document) -> str:
    """The strategy of choice."""
    return strategy_or_first(document, state.get("strategy"))


def strategy_or_first(document: Document, chosen: str) -> str:
    """`chosen`; the first strategy that there is where that makes no sense for `document`."""
    names = strategy_names(document)
    return chosen if chosen in names else names[0]


def wrong_strategy(document: Document) -> str:
    """What is wrong with the strategy that the address asks for; "" if nothing. A file's own plan is asked
    for only where a file had one: the next file's plan takes its place without a word."""
    asked = state.get("strategy")
    if not asked or asked == IMPORTED or asked in known_strategies():
        return ""
    return not_listed("strategy", asked, f"This is {strategy_label(document)(current_strategy(document))}.")


def wrong_strategies() -> str:
    """What is wrong with the strategies that the address wants side by side; "" if nothing."""
    wanted = list(filter(None, state.get("compare").split(",")))
    strange = [name for name in wanted if name != IMPORTED and name not in known_strategies()]
    return not_listed("compare", strange[0]) if strange else ""


def not_listed(parameter: str, asked: str, instead: str = "") -> str:
    """What is said of a strategy in the address that there is not."""
    return f"{parameter}: found {asked[:40]!r}, expected one of those in the list. {instead}".strip()


def pick_settings() -> None:
    """The allocator's settings, kept in the address."""
    st.text_input(
        "PYTORCH_CUDA_ALLOC_CONF",
        placeholder="expandable_segments:True",
        help="Allocator settings, as in the environment variable; leave it empty for PyTorch's defaults.",
        **chooses("settings", state.get("settings")),
    )


def pick_headroom() -> None:
    """How much of a device has to stay free, kept in the address."""
    st.text_input(
        "Headroom",
        placeholder="0",
        help="Memory that has to stay free, such as 2GiB.",
        **chooses("headroom", state.get("headroom")),
    )
