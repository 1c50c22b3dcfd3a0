"""What can be asked of a fit: a capacity, which stages may be used, on whose times, how long each search may
take."""

from __future__ import annotations

import shlex

import streamlit as st
from memplan_dashboard.background.fit_job import FitAsked
from memplan_dashboard.session import fitting, state
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.fitting import SEARCH_SECONDS
from memplan_dashboard.session.state import bytes_text
from memplan_dashboard.widgets import controls
from memplan_dashboard.widgets.controls import bound, chooses
from memplan_dashboard.widgets.planning_options import pick_symbols

from memplan_engine.accelerators.presets import PRESETS, USUAL
from memplan_engine.fitting.fitted import CHOICES, LOWERING, StageName
from memplan_engine.preparation import arguments_of

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
    StageName.RECOMPUTE: (
        "Ops run again",
        "What is let go of is made again where it is needed: fewer bytes for more time, with a proof of how "
        "much more every schedule takes, for the times of the device.",
    ),
    StageName.CHUNK: (
        "In pieces: other last digits",
        "Regions run in pieces along a batch or a sequence. Results differ in their last digits, and nothing "
        "of it is proved.",
    ),
    StageName.OFFLOAD: (
        "Copies to the host",
        "Results wait in the memory of the host, copied each way beside the ops, at the speed of the "
        "device's link: modelled. Looked for once there is a capacity.",
    ),
}
"""Of each stage that may be used, what it is called and what it does."""


def pick_fit(document: Document) -> int | None:
    """The widgets of the page; gives the capacity in bytes, None for none."""
    columns = controls.row([2.2, 1.2, 1.6, 1.4, 1.2])
    with columns[0]:
        controls.pick_document()
    with columns[1]:
        capacity = controls.pick_capacity("fit_capacity_widget", "Capacity", "fit_capacity", "24GiB")
    with columns[2]:
        controls.pick_capacity_of_device(capacity, "fit_capacity", "fit_device")
    with columns[3]:
        _pick_times()
    with columns[4]:
        st.selectbox(
            "Time limit per search",
            list(SEARCH_SECONDS),
            format_func=SEARCH_SECONDS.__getitem__,
            help="A stage has one search for the order of the ops, and one for the places in the arena. A "
            "proof ends it.",
            **chooses("fit_limit", f"{fitting.limit_seconds():g}"),
        )
    pick_symbols(document)
    _pick_stages()
    return capacity


def _pick_times() -> None:
    """The device whose speed gives the times of ops."""
    st.selectbox(
        "Times as on",
        list(PRESETS),
        disabled=not {StageName.RECOMPUTE, StageName.OFFLOAD} & {*fitting.stages_asked()},
        help="What an op takes: the longer of its arithmetic at the device's rate and its bytes at the "
        "bandwidth, as its maker states them. For ops that run again, and copies to the host.",
        **chooses("gpu", fitting.device_asked(), "fit_times", lambda name: "" if name == USUAL else name),
    )


def _pick_stages() -> None:
    chosen = fitting.stages_asked()

    def take(_: bool) -> None:
        picked = tuple(name for name in CHOICES if st.session_state[f"stage_{name}"])
        state.choose(stages=fitting.stages_text(picked))

    with st.container(key="fit_stages", horizontal=True, vertical_alignment="center", gap="medium"):
        st.caption("Allow", width="content")
        for name in LABELS:
            label, told = LABELS[name]
            st.checkbox(label, help=told, **bound(f"stage_{name}", name in chosen, take), width="content")


def wrong_choices() -> str:
    """What the address asks for that is no stage or no device; "" if nothing."""
    named = [name for name in state.get("stages").split(",") if name and name != "none"]
    if strange := next((name for name in named if name not in CHOICES), ""):
        return f"stages: found {strange[:40]!r}, expected some of {', '.join(CHOICES)}."
    if (device := state.get("gpu")) and device not in PRESETS:
        return f"gpu: found {device[:40]!r}, expected one of {', '.join(PRESETS)}. This is {USUAL}."
    return ""


def command_of(asked: FitAsked, label: str, capacity: int | None) -> str:
    """What to type for the same on the command line, with the order and the plan written."""
    words = ["memplan", "fit", label, *arguments_of(asked.how)]
    if capacity:
        words += ["--capacity", bytes_text(capacity).replace(" ", "")]
    chosen = fitting.stages_asked()
    # Without a capacity the command line looks for no copies to the host either.
    if chosen != LOWERING and (capacity or chosen != fitting.USUAL_STAGES):
        words += ["--only", ",".join(chosen) or "none"]
    if asked.device not in ("", USUAL):
        words += ["--device", asked.device]
    if asked.seconds != float(state.PARAMETERS["fit_limit"]):
        words += ["--seconds", f"{asked.seconds:g}"]
    return shlex.join([*words, "-o", "order.json", "--save-plan", "plan.json"])
