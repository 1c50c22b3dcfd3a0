"""What pages say: text of files and people made safe for Streamlit's Markdown, and errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from memplan_engine import MemplanError

NOTHING_TO_PLACE = "There is nothing to place: every tensor is a constant, an input or empty."

_MARKS = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:^&])")

_TURNS = re.compile("[\u202a-\u202e\u2066-\u2069]")


def plain(text: object) -> str:
    """`text` so that Markdown shows it as it stands, on one line; without marks that turn the direction of
    all that follows."""
    return _MARKS.sub(r"\\\1", " ".join(_TURNS.sub("", str(text)).split()))


def file_name(text: str) -> str:
    """`text` as every file system takes it."""
    return re.sub(r"[^\w.+-]", "_", text)[:80] or "plan"


def show_error(error: object) -> None:
    """Show an error, or what is said of it."""
    st.error(plain(error), icon=":material/error:")


def show_note(note: str) -> None:
    """Say what of the address was not followed; nothing for ""."""
    if note:
        st.warning(plain(note), icon=":material/info:")


@contextmanager
def errors_shown(of: str = "") -> Iterator[None]:
    """Show a MemplanError in place of the rest of the block, after what it is an error `of`."""
    try:
        yield
    except MemplanError as error:
        show_error(f"{of}: {error}" if of else error)
