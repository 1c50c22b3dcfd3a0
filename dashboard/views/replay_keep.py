"""Recomputation on the Replay page: what to keep of the forward pass is chosen by hand within a capacity, and
held against the cheapest schedule that is found and what is proved of all."""

from __future__ import annotations

import base64
from dataclasses import dataclass

import pandas as pd
import streamlit as st
from memplan_dashboard.charts import keep_picture, live_steps
from memplan_dashboard.session import state
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.fitting import graph_of
from memplan_dashboard.session.messages import plain, show_note
from memplan_dashboard.session.plan_facts import OF_DOCUMENT
from memplan_dashboard.widgets import lessons
from memplan_dashboard.widgets.controls import bound
from memplan_dashboard.widgets.kept_layers import KeptLayers, KeptStep, kept_layers, milliseconds
from memplan_dashboard.widgets.tables import show_table

from memplan_engine.plotting.svg_figure import escape
from memplan_engine.rewrites.recompute.recomputed import recompute
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.units import format_bytes, format_percent

MIB = 1 << 20
AT_FIRST = 0.65
"""The part of the bytes with all kept that a page is opened with: 20 of 31 MiB."""
SEARCH_SECONDS = 1.0
SAME = 1e-6
"""Seconds: a bound is rounded down to the nanosecond."""


@dataclass(frozen=True, slots=True)
class Cheapest:
    """The least that was found within a capacity: the ops `gone` whose results are made again, None where no
    schedule was found; and what is proved, seconds, None where none fits. The proof is at the op `at`, with a
    `price` in seconds a MiB."""

    gone: tuple[str, ...] | None
    bound: float | None
    at: str
    price: float


@st.cache_resource(max_entries=32, show_spinner="Looking for schedules …", hash_funcs=OF_DOCUMENT)
def _cheapest(document: Document, capacity: int) -> Cheapest:
    layers = _layers(document)
    assert layers is not None
    found = recompute(layers.graph, layers.times(), capacity, SolveLimits(SEARCH_SECONDS))
    own = {op.name for op in layers.graph.ops}
    gone = None
    if found.graph is not None:
        again = {op.name.removesuffix("_again") for op in found.graph.ops if op.name not in own}
        gone = tuple(name for name in layers.choices if name in again)
        step = layers.step(gone)
        # Put together another way it may not keep to the capacity.
        gone = gone if step.peak <= capacity and step.extra <= found.extra_seconds + SAME else None
    price = float(found.proof.price) * MIB * 1e-9
    return Cheapest(gone, found.bound_seconds, found.proof.op, price)


def is_offered(document: Document) -> bool:
    """Whether there is something to choose."""
    return _layers(document) is not None


def _layers(document: Document) -> KeptLayers | None:
    graph = graph_of(document)
    return None if graph is None else kept_layers(graph)


def show_keep(document: Document) -> None:
    """All of it."""
    layers = _layers(document)
    if layers is None:
        st.info("There is nothing to keep: this is no small training step. One is teaching: recompute.")
        return
    gone = _gone(layers)
    step, whole = layers.step(gone), layers.step(())
    with st.container(key="keep_head", horizontal=True, vertical_alignment="bottom", gap="medium"):
        capacity = _pick_capacity(layers, whole.peak)
        _pick_kept(layers, gone)
    cheapest = _cheapest(document, capacity)
    _figures(layers, step, cheapest, capacity)
    left, right = st.container(key="halves_keep").columns([1.25, 1], gap="medium")
    with left:
        _picture(layers, gone)
    with right:
        lines = (("capacity", capacity),)
        shown = live_steps.LiveSteps(step.names, step.live, len(step.names), lines)
        st.plotly_chart(live_steps.figure(shown), key="keep_live", config={"displayModeBar": False})
    _verdict(layers, step, cheapest, capacity)


def _gone(layers: KeptLayers) -> tuple[str, ...]:
    """What the address lets go of, as far as it makes sense."""
    named = [name for name in state.get("gone").split(",") if name]
    if strange := next((name for name in named if name not in layers.choices), ""):
        show_note(f"gone: found {strange[:40]!r}, expected some of {', '.join(layers.choices)}.")
    return tuple(name for name in layers.choices if name in named)


def _pick_capacity(layers: KeptLayers, most: int) -> int:
    """In MiB where these are whole numbers, else in parts of what all takes."""
    unit = MIB if most >= 8 * MIB else max(1, most // 32)
    high = -(-most // unit)
    asked = state.get("within")
    number = int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 9 else 0
    first = max(1, round(AT_FIRST * high))
    if asked and not 1 <= number <= high:
        show_note(f"within: found {asked[:40]!r}, expected 1 to {high}.")
    value = number if 1 <= number <= high else first
    with st.container(width=260):
        st.slider(
            "Capacity, MiB" if unit == MIB else f"Capacity, in {format_bytes(unit)}",
            1,
            high,
            **bound("keep_capacity", value, lambda each: state.choose(within=str(each) * (each != first))),
        )
    return value * unit


def _pick_kept(layers: KeptLayers, gone: tuple[str, ...]) -> None:
    def take(kept: list[str]) -> None:
        state.choose(gone=",".join(name for name in layers.choices if name not in kept))

    st.pills(
        "Kept for the backward pass",
        layers.choices,
        selection_mode="multi",
        format_func=lambda name: f"{name}: {', '.join(layers.told(name))}",
        **bound("keep_kept", [name for name in layers.choices if name not in gone], take),
    )


def _figures(layers: KeptLayers, step: KeptStep, cheapest: Cheapest, capacity: int) -> None:
    with st.container(key="figures", horizontal=True, vertical_alignment="center", gap="small"):
        fits = step.peak <= capacity
        words = f"peak {format_bytes(step.peak)} of {format_bytes(capacity)}"
        st.badge(plain(words), color="green" if fits else "red")
        share = format_percent(step.extra / layers.total if layers.total else 0.0)
        st.badge(plain(f"{milliseconds(step.extra)} run again, +{share}"), color="blue")
        st.badge(plain(f"all ops once {milliseconds(layers.total)}"), color="gray")
        if cheapest.bound is None:
            st.badge("no schedule has so few bytes: proved", color="gray")
        else:
            told = "No schedule within the capacity runs again for less, in whatever order"
            st.badge(plain(f"at least {_rounded(cheapest.bound)}: proved"), color="gray", help=told)


def _rounded(seconds: float) -> str:
    """A bound, which is rounded down to the ns, as people say it."""
    return milliseconds(seconds + 1e-9)


def _picture(layers: KeptLayers, gone: tuple[str, ...]) -> None:
    ops, kept = layers.drawn(), [name for name in layers.choices if name not in gone]
    drawn = keep_picture.svg(ops, kept, gone, dark=st.context.theme.type == "dark")
    source = f"data:image/svg+xml;base64,{base64.b64encode(drawn.encode()).decode()}"
    told = escape(keep_picture.sentence(ops, kept, gone))
    st.html(f'<img class="lesson-picture" src="{source}" alt="{told}">')


def _verdict(layers: KeptLayers, step: KeptStep, cheapest: Cheapest, capacity: int) -> None:
    """What the choice comes to, and why none is better."""
    size = format_bytes(capacity)
    if cheapest.bound is None:
        st.success(plain(f"No schedule keeps to {size}, whatever is kept and however often ops run: proved."))
        return
    if step.peak > capacity:
        more = format_bytes(step.peak - capacity)
        st.info(
            plain(f"{format_bytes(step.peak)} are {more} too many: let go of more, or of something else.")
        )
    elif step.extra > cheapest.bound + SAME:
        words = f"It fits, for {milliseconds(step.extra)}. Of every schedule no more is proved than "
        st.info(plain(f"{words}{_rounded(cheapest.bound)}: is there a cheaper choice?"))
    else:
        words = (
            f"{milliseconds(step.extra)} run again: no schedule within {size} runs again for less, proved."
        )
        st.success(plain(words))
        if not lessons.is_answered() and step.extra:
            lessons.take_answer(-1, len(step.names))
            # The answer stands above, and is drawn already without it.
            state.run_again()
        _proof(layers, cheapest, capacity)
        return
    _offer(cheapest)


def _offer(cheapest: Cheapest) -> None:
    """The way to the cheapest choice, and back to all."""
    with st.container(horizontal=True, gap="small", key="keep_ways"):
        st.button(
            "Show the cheapest found",
            key="keep_cheapest",
            icon=":material/visibility:",
            type="tertiary",
            disabled=cheapest.gone is None,
            on_click=state.choose,
            kwargs={"gone": ",".join(cheapest.gone or ())},
        )
        st.button(
            "Keep all",
            key="keep_all",
            icon=":material/restart_alt:",
            type="tertiary",
            on_click=state.choose,
            kwargs={"gone": ""},
        )


def _proof(layers: KeptLayers, cheapest: Cheapest, capacity: int) -> None:
    """The price at which the cheapest choice at one moment proves it."""
    if not cheapest.bound:
        return
    price, size = cheapest.price, format_bytes(capacity)
    paid = price * capacity / MIB
    st.markdown("**What the cut says**")
    st.markdown(
        plain(
            f"Whatever the schedule, look at the moment when {cheapest.at} runs first. What was made before "
            "and is read behind it is there, or is made again later. Let each MiB that is there cost "
            f"{milliseconds(price)}. The cheapest choice then is a minimum cut through the graph, and comes "
            f"to {_rounded(cheapest.bound + paid)}, of running again and of bytes. Within {size} the bytes "
            f"come to {milliseconds(paid)} at most. The rest, {_rounded(cheapest.bound)}, is always run "
            "again."
        )
    )
    rows = pd.DataFrame(
        {
            "result of": layers.choices,
            "kept, its bytes cost": [
                milliseconds(price * layers.made(name) / MIB) for name in layers.choices
            ],
            "made again, it takes": [milliseconds(layers.seconds[name]) for name in layers.choices],
        }
    )
    show_table(rows, key="keep_prices")
    st.caption("Where what an op reads is gone, too, that has to be made again first.")
