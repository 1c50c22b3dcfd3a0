"""Tables and lines for a terminal, of texts that are shown as they stand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from textwrap import wrap
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from memplan_engine.units import shorten_path

Heading = str | Column
MOST_ROWS = 25
"""Of a table, unless every row is asked for."""
UNLIMITED = 10_000
"""Letters in a line, more than any table has."""
BROKEN = "\n("
LEAST_TEXT = 14
"""Letters of a column of text: with fewer, names of modules are broken into three lines and more."""


def plain_text(value: str, style: str = "") -> Text:
    """`value` as it stands, without markup; names from a file must not reach the terminal as commands."""
    return Text("".join(c if c.isprintable() else " " for c in value), style)


class PathText:
    """A path, or a module's, that loses its first parts where there is too little room."""

    def __init__(self, path: str, sign: str = "/") -> None:
        self.path = plain_text(path).plain
        self.sign = sign

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        wide = min(cell_len(self.path), options.max_width)
        return Measurement(wide, wide)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(shorten_path(self.path, options.max_width, self.sign), no_wrap=True, overflow="crop")


@dataclass
class PathColumn(Column):
    """A column of PathText, whose parts are separated by `sign`; left out where it says nothing."""

    sign: str = "/"


class ModuleColumn(PathColumn):
    """A column of modules, which names have in front of them as well."""

    def __init__(self, header: str) -> None:
        super().__init__(header, sign=".")


class SparseColumn(Column):
    """A column that is left out where it says nothing."""


def named(label: str, name: str) -> tuple[str, str]:
    """The cells of what people know as `label`, and, in the column `in_graph` behind it, of its own `name`
    where that is another."""
    return label, name if name != label else ""


def in_graph() -> list[Heading]:
    """The column of names in the graph."""
    return [SparseColumn("in graph", overflow="fold")]


def paths(*headings: str) -> list[Heading]:
    """Columns of paths, which are shortened from the left."""
    return [PathColumn(heading) for heading in headings]


def modules(*headings: str) -> list[Heading]:
    """Columns of dotted names, which are shortened from the left."""
    return [ModuleColumn(heading) for heading in headings]


class FittedTable(Table):
    """Where it is too wide it has no lines between columns, headings of numbers are broken and text gets less
    room. Numbers stay whole; what stands in brackets behind them may go into the next line. Where text would
    have less than LEAST_TEXT letters a column, names in the graph are left out, and after them modules."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.__rich_measure__(console, options.update(width=UNLIMITED)).maximum > options.max_width:
            self.box, self.show_edge, self.pad_edge, self.padding = SIMPLE_HEAD, False, False, (0, 1, 0, 0)
            for column in self.columns:
                if column.justify == "right":
                    _keep_whole(column)
            for spare in (SparseColumn, ModuleColumn):
                if self._least_width() > options.max_width:
                    self.columns = [column for column in self.columns if not isinstance(column, spare)]
            for index, column in enumerate(self.columns):
                column._index = index
        yield from super().__rich_console__(console, options)

    def _least_width(self) -> int:
        """With whole numbers, and LEAST_TEXT letters for each text that is as long."""
        texts = [column for column in self.columns if column.justify != "right"]
        longest = [
            max(cell_len(str(column.header)), *(cell_len(_plain(cell)) for cell in column.cells), 0)
            for column in texts
        ]
        whole = sum(column.min_width or 0 for column in self.columns if column.justify == "right")
        return whole + sum(min(width, LEAST_TEXT) for width in longest) + len(self.columns) - 1


def _plain(cell: RenderableType) -> str:
    return cell.path if isinstance(cell, PathText) else str(cell)


def _keep_whole(column: Column) -> None:
    cells, heading = list(map(str, column.cells)), str(column.header)
    parts = [part for cell in cells for part in cell.replace(" (", BROKEN).splitlines()]
    column.min_width = max(map(cell_len, [*parts, *heading.split(), ""]))
    column.no_wrap = len(parts) <= len(cells)
    if column.no_wrap:
        column.header = "\n".join(wrap(heading, column.min_width, break_long_words=False))


class NumberText:
    """A number, of which what stands in brackets goes into the next line where there is too little room."""

    def __init__(self, number: str) -> None:
        self.number = plain_text(number).plain

    def __str__(self) -> str:
        return self.number

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        least = max(map(cell_len, [*self.number.replace(" (", BROKEN).splitlines(), ""]))
        return Measurement(least, cell_len(self.number)).with_maximum(options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        fits = cell_len(self.number) <= options.max_width
        yield Text(self.number if fits else self.number.replace(" (", BROKEN), no_wrap=True)


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
    headings, rows = list(map(_column, columns)), list(rows)
    kept = [
        not isinstance(heading, SparseColumn | PathColumn) or any(row[at] for row in rows if len(row) > at)
        for at, heading in enumerate(headings)
    ]
    table = FittedTable(*compress(headings, kept), title_justify="left", caption_justify="left", **look)
    table.title = plain_text(title) if title else None
    table.caption = plain_text(caption) if caption else None
    for row, style in (*((row, "") for row in rows), *([(rest, "dim")] if rest else [])):
        table.add_row(*map(_cell, table.columns, compress(row, kept)), style=style)
    return table


def _column(heading: Heading) -> Column:
    """Of text that is too long nothing is lost: it goes on in the next line."""
    return Column(heading, overflow="fold") if isinstance(heading, str) else heading


def _cell(column: Column, value: str) -> PathText | NumberText | Text:
    if isinstance(column, PathColumn):
        return PathText(value, column.sign)
    return NumberText(value) if column.justify == "right" else plain_text(value)


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
