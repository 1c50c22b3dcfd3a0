"""Of a model that is served: how many blocks its KV cache has room for."""

from __future__ import annotations

import pandas as pd
import streamlit as st
from memplan_dashboard.session import state
from memplan_dashboard.session.messages import plain
from memplan_dashboard.widgets.controls import chooses
from memplan_dashboard.widgets.tables import show_table

from memplan_engine.accelerators.presets import Accelerator
from memplan_engine.allocator.settings import parse_settings
from memplan_engine.devices.inference_answers import BLOCK_TOKENS, inference_answer
from memplan_engine.devices.rank_answers import DeviceAnswers
from memplan_engine.recordings.inference import inference_of
from memplan_engine.reporters.devices.inference_tables import NOTE, inference_headline, inference_rows
from memplan_engine.units import parse_bytes

MOST_TOKENS = 1 << 20
WHOLE = 100
"""Per cent."""


def _number(name: str, least: int, most: int, usual: int) -> int:
    """What the address says under `name`, `usual` where that is nothing that can be."""
    text = state.get(name)
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else usual
    return min(max(value, least), most)


def show_serving(answers: DeviceAnswers, gpu: Accelerator) -> None:
    """Weights, phases and what they leave to the cache; nothing for a run that is no serving."""
    runs = [each.run for each in answers.ranks]
    if inference_of(runs[0].observation) is None:
        return
    st.markdown("**KV cache** :gray[what weights and the larger of prefill and decode leave to it]")
    columns = st.container(key="controls_serving").columns([1, 1, 3], gap="small")
    block = _number("block", 1, MOST_TOKENS, BLOCK_TOKENS)
    percent = _number("utilization", 1, WHOLE, WHOLE)
    with columns[0]:
        st.number_input(
            "Tokens of a block",
            1,
            MOST_TOKENS,
            help=f"{BLOCK_TOKENS} is vLLM's block_size where nobody names one.",
            **chooses("block", block, text=lambda value: "" if value == BLOCK_TOKENS else str(value)),
        )
    with columns[1]:
        st.number_input(
            "Utilization, %",
            1,
            WHOLE,
            help="The part of the device's bytes that the server may use: vLLM's gpu_memory_utilization.",
            **chooses("utilization", percent, text=lambda value: "" if value == WHOLE else str(value)),
        )
    answer = inference_answer(
        runs,
        gpu,
        parse_settings(state.get("settings")),
        headroom=parse_bytes(state.get("headroom") or "0", "headroom"),
        utilization=percent / WHOLE,
        block_tokens=block,
    )
    assert answer is not None
    st.markdown(f"**{plain(inference_headline(answer))}**")
    rows = pd.DataFrame(inference_rows(answer), columns=["from the device to blocks", "bytes"])
    show_table(rows, {}, key="serving_table")
    st.caption(plain(f"Counted {NOTE}."))
