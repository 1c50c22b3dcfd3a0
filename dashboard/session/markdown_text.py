"""Text of files and people, made safe for Streamlit's Markdown."""

from __future__ import annotations

import re

NOTHING_TO_PLACE = "There is nothing to place: every tensor is a constant, an input or empty."

_MARKS = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:^&])")


def plain(text: object) -> str:
    """`text` so that Markdown shows it as it stands, on one line."""
    return _MARKS.sub(r"\\\1", " ".join(str(text).split()))
