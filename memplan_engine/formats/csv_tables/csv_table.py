"""A delimited text with a header, as columns: fast where all is well, exact about what is not."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from memplan_engine.errors import InputError
from memplan_engine.graph import MAX_BYTES
from memplan_engine.problem import Ints

DELIMITERS = ",;\t"
MAX_ROWS = 1_500_000
"""With quotes and something in every cell 1.35 GB and 8 CPU seconds."""
MAX_HEADER = 4096
"""Characters: all columns that there are have 75."""
MAX_DIGITS = 1000
"""Leading zeros and all; Python itself refuses more than 4,300."""
_WHOLE = re.compile(r"-?[0-9]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Header:
    """The names of the columns, lower case, on the 1-based `line` of all `lines` of the file `source`."""

    source: str
    line: int
    names: tuple[str, ...]
    lines: Sequence[str]


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of text by their names in the file, lower case; `lines[row]` is the row's 1-based line."""

    source: str
    columns: dict[str, Sequence[str]]
    lines: Sequence[int]

    def whole_numbers(self, column: str, empty: str = "") -> Ints:
        """The column as int64, `empty` in the place of fields that are empty; raises InputError with the line
        of the first field that is no whole number from 0 to 2^63−1."""
        fields = self.columns[column]
        if empty:
            fields = [field if field.strip() else empty for field in fields]
        if not _all_digits(fields):
            fields = [field.strip() for field in fields]
        if not _all_digits(fields):
            self._refuse(column, fields)
        try:
            return np.array(list(map(int, fields)), dtype=np.int64)
        except (ValueError, OverflowError):
            self._refuse(column, fields)
            raise

    def error(self, row: int, place: str, found: str, expected: str) -> InputError:
        """An InputError at a row; `place` says where in it."""
        return InputError(self.source, f"line {self.lines[row]}, {place}", found, expected)

    def _refuse(self, column: str, fields: Sequence[str]) -> None:
        for row, field in enumerate(fields):
            wrong = not_whole(field)
            if wrong:
                raise self.error(row, f"field {column}", quoted(field), wrong)


def not_whole(field: str) -> str:
    """What `field` should have been, or "" when it is a whole number from 0 to 2^63−1."""
    if not _WHOLE.fullmatch(field):
        return "a whole number"
    if field[0] == "-":
        return "0 or more"
    digits = field.lstrip("0")
    if len(digits) > 19 or int(digits or "0") > MAX_BYTES:
        return "a whole number below 2^63"
    return f"a whole number of at most {MAX_DIGITS:,} digits" if len(field) > MAX_DIGITS else ""


def quoted(field: str) -> str:
    """`field` as it is shown in an error: quoted and not too long."""
    return "nothing" if not field else repr(field if len(field) <= 40 else field[:39] + "…")


def find_header(lines: Sequence[str]) -> tuple[int, list[str]]:
    """The index of the first line that is neither blank nor a comment, and its fields, lower case; none where
    it is longer than MAX_HEADER."""
    for index, line in enumerate(lines):
        if line.strip() and not line.startswith("#"):
            delimiter = max(DELIMITERS, key=line.count)
            if len(line) > MAX_HEADER:
                return index, []
            return index, [field.strip().strip('"').strip().lower() for field in line.split(delimiter)]
    return len(lines), []


def read_header(source: str, text: str) -> Header:
    """Find the header of `text`; commas, semicolons and tabs are recognised.

    Blank lines and lines that begin with # are skipped.

    Raises
    ------
    InputError: no header, a column twice or without a name, or too many rows.
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.count("\n") > MAX_ROWS:
        raise InputError(source, "", f"{text.count(chr(10)):,} lines", f"at most {MAX_ROWS:,}")
    lines = text.split("\n")
    at, names = find_header(lines)
    if at < len(lines) and len(lines[at]) > MAX_HEADER:
        found = f"a header of {len(lines[at]):,} characters"
        raise InputError(source, f"line {at + 1}", found, f"at most {MAX_HEADER:,}")
    if not names:
        raise InputError(source, "", "no header", "a line with the names of the columns")
    if "" in names:
        where = f"line {at + 1}, column {names.index('') + 1} of {len(names)}"
        expected = "one for every column, and no separator behind the last"
        raise InputError(source, where, "no name", expected)
    for name, times in Counter(names).items():
        if times > 1:
            count = "twice" if times == 2 else f"{times} times"
            raise InputError(source, f"line {at + 1}", f"column {quoted(name)} {count}", "each column once")
    return Header(source, at + 1, tuple(names), lines)


def read_rows(header: Header) -> Table:
    """The columns below `header`; quotes are as in RFC 4180, but no line breaks inside them.

    Raises
    ------
    InputError: a row with too few or too many fields, or an open quote.
    """
    lines, below = header.lines, header.line
    delimiter = max(DELIMITERS, key=lines[below - 1].count)
    kept = [i for i in range(below, len(lines)) if lines[i] and lines[i][0] != "#" and lines[i].strip()]
    rows = [lines[i] for i in kept]
    table = Table(header.source, {}, [i + 1 for i in kept])
    split = _split_quoted if any('"' in row for row in rows) else _split_plain
    table.columns.update(zip(header.names, split(table, rows, delimiter, len(header.names)), strict=True))
    return table


def _split_plain(table: Table, rows: list[str], delimiter: str, width: int) -> list[list[str]]:
    if set(map(str.count, rows, repeat(delimiter))) - {width - 1}:
        for row, line in enumerate(rows):
            _check_width(table, row, line.count(delimiter) + 1, width)
    fields = delimiter.join(rows).split(delimiter) if rows else []
    return [fields[column::width] for column in range(width)]


def _split_quoted(table: Table, rows: list[str], delimiter: str, width: int) -> list[list[str]]:
    columns: list[list[str]] = [[] for _ in range(width)]
    reader = csv.reader(rows, delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        for row, fields in enumerate(reader):
            if reader.line_num != row + 1:
                raise csv.Error("unexpected end of data")
            _check_width(table, row, len(fields), width)
            for column, field in zip(columns, fields, strict=True):
                column.append(field)
    except csv.Error as error:
        raise table.error(len(columns[0]), "quotes", str(error), "pairs of quotes on one line") from None
    return columns


def _check_width(table: Table, row: int, found: int, width: int) -> None:
    if found != width:
        raise InputError(
            table.source, f"line {table.lines[row]}", f"{found} fields", f"{width}, as in the header"
        )


def _all_digits(fields: Sequence[str]) -> bool:
    joined = "".join(fields)
    return joined.isascii() and joined.isdigit()
