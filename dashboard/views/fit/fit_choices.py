"""What can be asked of a fit: a capacity, which stages may be used, how long each search may take."""

from __future__ import annotations

import shlex

import streamlit as st
from memplan_dashboard.background.fit_job import FitAsked
from memplan_dashboard.session import fitting, state
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.fitting import SEARCH_SECONDS
from memplan_dashboard.session.state import bytes_text, mebibytes_text
from memplan_dashboard.widgets import controls
from memplan_dashboard.widgets.controls import bound, chooses
from memplan_dashboard.widgets.planning_options import pick_symbols

from memplan_engine.accelerators.presets import PRESETS
from memplan_engine.advice.fit_stages import LOWERING, StageName
from memplan_engine.preparation import arguments_of

NO_DEVICE = "no device"
LABELS = {
    StageName.IN_PLACE: (
        "In place, zero-copy concat",
        "Elementwise ops may write over an input that dies with them; what a concatenation joins is made "
        "inside its result.",
    ),
    StageName.REORDER: (
        "Another order of the ops",
        "The one with the fewest live bytes; data, writes, random numbers and effects keep their order.",
    ),
    StageName.GRADIENTS: (
        "Gradients freed early",
        "Of a training step: each gradient goes when the optimizer has read it.",
    ),
}
"""Of each stage that may be used, what it is called and what it does."""


def pick_fit(document: Document) -> int | None:
    """The widgets of the page; gives the capacity in bytes, None for none."""
    columns = controls.row([2.4, 1.2, 1.6, 1.2])
    with columns[0]:
        controls.pick_document()
    with columns[1]:
        capacity = controls.pick_capacity("fit_capacity", "Capacity")
    with columns[2]:
        _pick_device(capacity)
    with columns[3]:
        st.selectbox(
            "Each search up to",
            list(SEARCH_SECONDS),
            format_func=SEARCH_SECONDS.__getitem__,
            help="A stage has one search for the order of the ops, and one for the places in the arena. A "
            "proof ends it.",
            **chooses("fit_limit", f"{fitting.limit_seconds():g}"),
        )
    pick_symbols(document)
    _pick_stages()
    return capacity


def _pick_device(capacity: int | None) -> None:
    """A device whose usable bytes become the capacity."""
    usable = {name: gpu.usable_bytes for name, gpu in PRESETS.items()}
    # The address holds the capacity as a fraction of MiB.
    current = next((name for name, nbytes in usable.items() if nbytes == capacity), NO_DEVICE)

    def take(name: str) -> None:
        state.choose(capacity=mebibytes_text(usable[name] / 2**20) if name in usable else "")

    st.selectbox(
        "Or that of",
        [NO_DEVICE, *usable],
        format_func=lambda name: name if name == NO_DEVICE else f"{name}, {usable[name] / 2**30:.2f} GiB",
        help="Usable bytes of the whole device, as PyTorch's error messages report them. A process holds "
        "some of them beside its tensors: its context and kernels.",
        **bound("fit_device", current, take),
    )


def _pick_stages() -> None:
    chosen = fitting.stages_asked()

    def take(_: bool) -> None:
        picked = tuple(name for name in LOWERING if st.session_state[f"stage_{name}"])
        state.choose(stages=fitting.stages_text(picked))

    with st.container(key="fit_stages", horizontal=True, vertical_alignment="center", gap="medium"):
        st.caption("May be used", width="content")
        for name in LOWERING:
            label, told = LABELS[name]
            st.checkbox(label, help=told, **bound(f"stage_{name}", name in chosen, take), width="content")


def wrong_stages() -> str:
    """What the address asks for that is no stage; "" if nothing."""
    named = [name for name in state.get("stages").split(",") if name and name != "none"]
    strange = next((name for name in named if name not in LOWERING), "")
    return f"stages: found {strange[:40]!r}, expected some of {', '.join(LOWERING)}." if strange else ""


def command_of(asked: FitAsked, label: str, capacity: int | None) -> str:
    """What to type for the same on the command line, with the order and the plan written."""
    words = ["memplan", "fit", label, *arguments_of(asked.how)]
    if capacity:
        words += ["--capacity", bytes_text(capacity).replace(" ", "")]
    if asked.only != LOWERING:
        words += ["--only", ",".join(asked.only)]
    if asked.seconds is not None and asked.seconds != float(state.PARAMETERS["fit_limit"]):
        words += ["--seconds", f"{asked.seconds:g}"]
    return shlex.join([*words, "-o", "order.json", "--save-plan", "plan.json"])
