"""Lists of buffers: MiniMalloc's CSV dialect and its relatives."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from memplan_engine.banks.bank_text import bank_names, banks_from
from memplan_engine.banks.bank_values import Bank, Banks
from memplan_engine.errors import InputError
from memplan_engine.formats.csv_tables.csv_table import (
    Header,
    Table,
    find_header,
    not_whole,
    quoted,
    read_header,
    read_rows,
)
from memplan_engine.formats.importer import ImportOptions
from memplan_engine.formats.read_limits import read_text
from memplan_engine.graph import MAX_BYTES
from memplan_engine.plan import Plan
from memplan_engine.planner import adopt
from memplan_engine.problem import FREE, Gap, Ints, Problem, make_problem

_MEANING = {
    **dict.fromkeys(("id", "buffer", "buffer_id"), "id"),
    **dict.fromkeys(("lower", "start", "begin"), "lower"),
    **dict.fromkeys(("upper", "end"), "upper"),
    **{name: name for name in ("size", "alignment", "offset", "gaps", "name", "hint")},
    **{name: name for name in ("banks", "accessed", "bank")},
}
_REQUIRED = {"id": "id, buffer or buffer_id", "lower": "lower, start or begin", "upper": "upper or end"}
_KNOWN = (
    "id|buffer|buffer_id, lower|start|begin, upper|end, size, and perhaps alignment, offset, gaps, name, "
    "hint, banks, accessed, bank"
)
MAX_GAPS = 1_000_000
"""Of all rows together: 7 CPU seconds and 400 MB beside those of the rows."""
_GAP = re.compile(r"([0-9]{1,19})-([0-9]{1,19})(?:@([0-9]{1,19}):([0-9]{1,19}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class CsvImporter:
    """Reads `id,lower,upper,size` and the optional columns `alignment`, `offset`, `gaps`, `name`, `banks`,
    `accessed` and `bank`.

    A column `upper` is the first step after the buffer's life; a column `end` the last step in it (so are
    then the ends of gaps, as in MiniMalloc's older files). Sizes and offsets are bytes. An empty `offset`
    is free. `hint` is accepted and ignored. `banks` says where a buffer may live, "sram|dram" (empty:
    anywhere), and "?" behind one that it prefers; `bank`, which goes before it, where it does live. The banks
    are those that are named, from the fastest to the slowest, without capacities: who plans gives them.
    """

    name: str = "csv"
    description: str = "a list of buffers: id,lower,upper,size[,alignment,offset,gaps,name]"
    binds_dimensions: bool = False

    def recognises(self, head: bytes, path: Path) -> bool:
        """Whether the first line that is no comment has at least two of the columns that are needed."""
        if b"\0" in head:
            return False
        # The last line may be cut in the middle of a character; a header behind 4 KiB of comments is not.
        lines = head.decode("utf-8-sig", errors="replace").replace("\r", "\n").split("\n")
        _, names = find_header(lines)
        return len({_MEANING[name] for name in names if name in _MEANING} & {*_REQUIRED, "size"}) >= 2

    def load(self, path: Path, options: ImportOptions) -> Problem | Plan:
        """Read the file: a Problem, or with `options.offsets_as_plan` the Plan that its offsets are.

        Raises
        ------
        InputError: with the line and the field of the first thing that is wrong.
        """
        header = read_header(path.name, read_text(path))
        columns = _check_header(header)
        table = read_rows(header)
        if not table.lines:
            raise InputError(path.name, "", "a header and no rows", "at least one buffer")
        problem, offsets = _to_problem(table, columns, path.stem, options.offsets_as_plan)
        if not options.offsets_as_plan:
            return problem
        if "offset" not in columns:
            raise InputError(
                path.name, f"line {header.line}", "no column offset", "an offset for every buffer"
            )
        free = np.flatnonzero(offsets == FREE)
        if len(free):
            raise table.error(int(free[0]), "field offset", "nothing", "an offset for every buffer")
        high = np.flatnonzero(offsets > MAX_BYTES - problem.size)
        if len(high):
            row = int(high[0])
            raise table.error(row, "field offset", str(offsets[row]), "offset + size below 2^63")
        return adopt(problem, offsets)


def _check_header(header: Header) -> dict[str, str]:
    """Meaning → the file's own name of the column."""
    place = f"line {header.line}"
    unknown = [name for name in header.names if name not in _MEANING]
    if unknown:
        more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
        what = "an unknown column" if len(unknown) == 1 else "unknown columns"
        apart = "; commas, semicolons or tabs stand between them" if len(header.names) == 1 else ""
        found = f"{what} {', '.join(map(quoted, unknown[:5]))}{more}"
        raise InputError(header.source, place, found, f"columns {_KNOWN}{apart}")
    columns: dict[str, str] = {}
    for name in header.names:
        meaning = _MEANING[name]
        if meaning in columns:
            raise InputError(
                header.source, place, f"columns {columns[meaning]!r} and {name!r}", "only one of them"
            )
        columns[meaning] = name
    for meaning in (*_REQUIRED, "size"):
        if meaning not in columns:
            raise InputError(
                header.source, place, f"no column {_REQUIRED.get(meaning, meaning)}", f"columns {_KNOWN}"
            )
    return columns


def _to_problem(table: Table, columns: dict[str, str], name: str, as_plan: bool) -> tuple[Problem, Ints]:
    """The problem and its offsets (FREE where there is none); with `as_plan` the problem fixes none."""
    ids = [field.strip() for field in table.columns[columns["id"]]]
    _check_ids(table, columns["id"], ids)
    inclusive = int(columns["upper"] == "end")
    end = table.whole_numbers(columns["upper"])
    if inclusive and (end == MAX_BYTES).any():
        raise table.error(int(end.argmax()), "field end", str(MAX_BYTES), "a whole number below 2^63 - 1")
    gaps = _gaps(table, inclusive) if "gaps" in columns else {}
    offsets = _offsets(table) if "offset" in columns else np.full(len(ids), FREE, dtype=np.int64)
    try:
        problem = make_problem(
            table.whole_numbers(columns["lower"]),
            end + inclusive,
            table.whole_numbers("size"),
            names=ids,
            alignment=table.whole_numbers("alignment", empty="1") if "alignment" in columns else 1,
            fixed=None if as_plan else offsets,
            gaps=gaps,
            name=name,
            banks=_banks(table, columns),
        )
    except InputError as error:
        raise _with_line(table, ids, error) from None
    if "name" in columns:
        problem = replace(problem, names=_distinct(table.columns["name"], ids), ids=tuple(ids))
    return problem, offsets


def _banks(table: Table, columns: dict[str, str]) -> Banks | None:
    """The banks that the rows name, in the order in which they are named; None where none is."""
    if not {"banks", "bank"} & columns.keys():
        return None
    empty = [""] * len(table.lines)
    homes, choices = ([text.strip() for text in table.columns.get(key, empty)] for key in ("bank", "banks"))
    named = (name for text in (*choices, *homes) for name in bank_names(text))
    names = list(dict.fromkeys(named))
    if not names:
        return None
    return banks_from(
        [Bank(name) for name in names],
        table.whole_numbers("size"),
        [home or choice for home, choice in zip(homes, choices, strict=True)],
        table.whole_numbers("accessed") if "accessed" in columns else None,
        table.source,
        lambda row: f"line {table.lines[row]}, field banks",
    )


def _check_ids(table: Table, field: str, ids: list[str]) -> None:
    if "" in ids:
        raise table.error(ids.index(""), f"field {field}", "nothing", "an id")
    if len(set(ids)) == len(ids):
        return
    first: dict[str, int] = {}
    for row, name in enumerate(ids):
        if first.setdefault(name, row) != row:
            raise table.error(
                row,
                f"field {field}",
                f"{quoted(name)}, already on line {table.lines[first[name]]}",
                "unique ids",
            )


def _distinct(fields: Sequence[str], ids: list[str]) -> tuple[str, ...]:
    """The names, with the id behind those that occur more than once; the ids if that does not help."""
    names = [field.strip() or own for field, own in zip(fields, ids, strict=True)]
    counts = Counter(names)
    names = [f"{n}#{own}" if counts[n] > 1 else n for n, own in zip(names, ids, strict=True)]
    return tuple(names if len(set(names)) == len(names) else ids)


def _offsets(table: Table) -> Ints:
    fields = [field.strip() for field in table.columns["offset"]]
    if "" not in fields:
        return table.whole_numbers("offset")
    given = [row for row, field in enumerate(fields) if field]
    for row in given:
        wrong = not_whole(fields[row])
        if wrong:
            raise table.error(row, "field offset", quoted(fields[row]), wrong)
    offsets = np.full(len(fields), FREE, dtype=np.int64)
    offsets[given] = [int(fields[row]) for row in given]
    return offsets


def _gaps(table: Table, inclusive: int) -> dict[int, tuple[Gap, ...]]:
    gaps: dict[int, tuple[Gap, ...]] = {}
    count = sum(field.count("-") for field in table.columns["gaps"])
    if count > MAX_GAPS:
        raise InputError(table.source, "field gaps", f"{count:,} gaps", f"at most {MAX_GAPS:,}")
    for row, field in enumerate(table.columns["gaps"]):
        if texts := field.split():
            gaps[row] = tuple(_gap(table, row, text, inclusive) for text in texts)
    return gaps


def _gap(table: Table, row: int, text: str, inclusive: int) -> Gap:
    match = _GAP.fullmatch(text)
    numbers = [int(group or 0) for group in match.groups()] if match else []
    if not numbers or max(numbers) > MAX_BYTES - inclusive:
        raise table.error(row, "field gaps", quoted(text), "gaps as lo-hi or lo-hi@winlo:winhi, below 2^63")
    start, end, low, high = numbers
    return Gap(start, end + inclusive, *((low, high) if low != high else ()))


def _with_line(table: Table, ids: list[str], error: InputError) -> InputError:
    """`error` of make_problem, which names a buffer, with the line of that buffer."""
    place = error.place
    if place.startswith("buffer "):
        row = next(row for row, name in enumerate(ids) if place == f"buffer {name!r}")
        place = f"line {table.lines[row]}, {place}"
    return InputError(table.source, place, error.found, error.expected)
