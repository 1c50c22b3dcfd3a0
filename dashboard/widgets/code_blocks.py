"""What to write in the user's own code for the same effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import streamlit as st
from memplan_dashboard.session.messages import plain

from memplan_engine.advice.values import CodeChange


def show_code(changes: Sequence[CodeChange], most: int | None = None) -> None:
    """A block for each line of code that changes, which has a button to copy it; those beyond `most` folded
    away."""
    if changes:
        st.caption("In your code:")
    _blocks(changes[:most])
    if most is not None and len(changes) > most:
        with st.expander(f"{len(changes) - most} more"):
            _blocks(changes[most:])


def _blocks(changes: Sequence[CodeChange]) -> None:
    for change in changes:
        where = str(change.source or change.ops[0].op)
        times = f", {change.times} ×" if change.times > 1 else ""
        module = f" ({change.module}{times})" if change.module else times
        st.markdown(plain(f"{where}{module}"))
        if change.diff:
            st.code("\n".join(change.diff), language="diff", wrap_lines=True)
        else:
            st.code("\n".join(_lines(change)), language="python", wrap_lines=True)


def _lines(change: CodeChange) -> Iterator[str]:
    """Python, with the parts of the line that it stands for as comments."""
    for each in change.ops:
        yield each.instead
        yield from (f"# {expression}" for expression in each.expressions)
