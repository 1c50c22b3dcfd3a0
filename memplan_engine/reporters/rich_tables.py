"""Tables and lines for a terminal, of texts that are shown as they stand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.table import Column, Table
from rich.text import Text

Heading = str | Column
MOST_ROWS = 25
"""Of a table, unless every row is asked for."""


def plain_text(value: str, style: str = "") -> Text:
    """`value` as it stands, without markup; names from a file must not reach the terminal as commands."""
    return Text("".join(c if c.isprintable() else " " for c in value), style)


def make_table(
    columns: Iterable[Heading],
    rows: Iterable[Sequence[str]],
    title: str = "",
    rest: Sequence[str] = (),
    caption: str = "",
    **look: Any,
) -> Table:
    """`rows` below the headings of `columns`; `rest` is a dim last row for what is left out. `look` is what
    Rich's tables take."""
    table = Table(*columns, title_justify="left", caption_justify="left", **look)
    table.title = plain_text(title) if title else None
    table.caption = plain_text(caption) if caption else None
    for row in rows:
        table.add_row(*map(plain_text, row))
    if rest:
        table.add_row(*map(plain_text, rest), style="dim")
    return table


def label_table(rows: Iterable[tuple[str, str] | tuple[str, str, str]]) -> Table:
    """Labels in bold, beside each its text, which may have a style."""
    table = Table(Column(style="bold"), Column(overflow="fold"), show_header=False, box=None, pad_edge=False)
    for label, *text in rows:
        table.add_row(label, plain_text(*text))
    return table


def numbers(*headings: str) -> list[Heading]:
    """Columns to the right."""
    return [Column(plain_text(heading), justify="right") for heading in headings]


def folded(*headings: str) -> list[Heading]:
    """Columns that break long words instead of cutting them."""
    return [Column(heading, overflow="fold") for heading in headings]


def more(rows: Sequence[Any], shown: Sequence[Any]) -> tuple[str, ...]:
    """The last row of a table that has room for those `shown` of `rows`."""
    return (f"and {len(rows) - len(shown):,} more",) if len(shown) < len(rows) else ()
