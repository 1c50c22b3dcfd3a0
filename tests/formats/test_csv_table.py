"""Delimited text as columns: widths, quotes, and the limits to the character."""

from __future__ import annotations

import pytest

from memplan_engine.errors import InputError
from memplan_engine.formats.csv_tables import csv_table
from memplan_engine.formats.csv_tables.csv_table import quoted, read_header, read_rows


def columns(text: str) -> dict[str, list[str]]:
    return {name: list(column) for name, column in read_rows(read_header("a.csv", text)).columns.items()}


QUOTED = {
    "none": "a,b\n1,2\n3,4\n",
    "some": 'a,b\n"1",2\n3,4\n',
    "one in each row": 'a,b\n"1",2\n3,"4"\n',
    "all": '"a","b"\n"1","2"\n"3","4"\n',
    "behind a space": 'a, b\n"1", "2"\n3,"4"\n',
}


@pytest.mark.parametrize("quotes", QUOTED)
def test_quotes_are_no_part_of_a_field(quotes: str) -> None:
    assert columns(QUOTED[quotes]) == {"a": ["1", "3"], "b": ["2", "4"]}


@pytest.mark.parametrize("field", ["x", '"x"', '"x,y"'])
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("found", [1, 2, 4, 5, 6, 8])
def test_rows_have_as_many_fields_as_the_header(field: str, rows: int, found: int) -> None:
    """All rows alike, so that none stands out but from the header."""
    line = ",".join([field] * found)
    with pytest.raises(InputError) as caught:
        columns("a,b,c\n# a comment\n" + f"{line}\n" * rows)
    assert str(caught.value) == f"a.csv: line 3: found {found} fields, expected 3, as in the header"
    right = ",".join([field] * 3)
    assert columns("a,b,c\n" + f"{right}\n" * rows) == dict.fromkeys("abc", [field.strip('"')] * rows)


def test_long_fields_are_cut_where_they_are_shown() -> None:
    assert quoted("x" * 39) == f"'{'x' * 39}'"
    assert quoted("x" * 40) == f"'{'x' * 40}'"
    assert quoted("x" * 41) == f"'{'x' * 39}…'"
    assert quoted("") == "nothing"


def test_as_many_lines_as_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_table, "MAX_ROWS", 3)
    assert columns("a\n1\n2\n3") == {"a": ["1", "2", "3"]}
    with pytest.raises(InputError, match=r"^a\.csv: found 4 lines, expected at most 3$"):
        columns("a\n1\n2\n3\n")
