"""What a predicted run's calibration says of itself, in the words of `memplan observe --fake`."""

from __future__ import annotations

import streamlit as st
from memplan_dashboard.session.documents import Document, calibration_of
from memplan_dashboard.session.messages import plain


def show_calibration(document: Document, side: str = "") -> None:
    """How far the figures of kernels go, of one `side` of two; nothing without a calibration."""
    if told := calibration_of(document):
        st.caption(plain(f"{side} calibration: {told}".strip()))
