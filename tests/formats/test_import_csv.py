"""Buffer CSV: every spelling of the dialect, exact errors, and the way out again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memplan_engine import (
    FREE,
    Gap,
    ImportOptions,
    InputError,
    Plan,
    Problem,
    Rule,
    load,
    make_plan,
    make_problem,
    validate_plan,
)
from memplan_engine.files import write
from memplan_engine.formats.csv_tables.csv_reader import CsvImporter
from memplan_engine.formats.csv_tables.csv_table import not_whole
from memplan_engine.formats.csv_tables.csv_writer import to_csv, write_csv
from memplan_engine.graph import MAX_BYTES
from memplan_engine.problem import select
from memplan_engine.what_if.apply import apply
from memplan_engine.what_if.edits import Drop, Split
from tests.support.work import calls_of

AS_PLAN = ImportOptions(offsets_as_plan=True)


def read(tmp_path: Path, text: str | bytes, options: ImportOptions | None = None) -> Problem | Plan:
    path = tmp_path / "a.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    loaded = load(path, options)
    assert isinstance(loaded, Problem | Plan)
    return loaded


def problem(tmp_path: Path, text: str | bytes) -> Problem:
    loaded = read(tmp_path, text)
    assert isinstance(loaded, Problem)
    return loaded


def refusal(tmp_path: Path, text: str | bytes, options: ImportOptions | None = None) -> str:
    with pytest.raises(InputError) as caught:
        read(tmp_path, text, options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def columns(problem: Problem) -> list[tuple[str, int, int, int, int]]:
    return [(b.name, b.start, b.end, b.size, b.alignment) for b in (problem[i] for i in range(len(problem)))]


@pytest.mark.parametrize(
    ("header", "end"),
    [
        ("id,lower,upper,size", 3),
        ("buffer,start,upper,size", 3),
        ("buffer_id,begin,upper,size", 3),
        ("buffer_id,start,end,size", 4),
        ("ID, Lower ,UPPER,Size", 3),
    ],
)
def test_every_spelling_of_the_header(tmp_path: Path, header: str, end: int) -> None:
    loaded = problem(tmp_path, f"{header}\nb1,0,3,4\nb2,2,3,8\n")
    assert columns(loaded) == [("b1", 0, end, 4, 1), ("b2", 2, end, 8, 1)]
    assert (loaded.name, loaded.steps) == ("a", end)


def test_columns_in_any_order_and_a_hint_that_is_ignored(tmp_path: Path) -> None:
    loaded = problem(tmp_path, "hint,size,alignment,upper,id,lower\n-1,12,4,9,x,7\n")
    assert columns(loaded) == [("x", 7, 9, 12, 4)]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_delimiters_line_ends_and_byte_order_mark(
    tmp_path: Path, delimiter: str, newline: str, mark: bytes
) -> None:
    text = newline.join(["# a comment", "", "id,lower,upper,size", "a, 0 ,3,4", "# more", "", "é,1,2,8", ""])
    loaded = problem(tmp_path, mark + text.replace(",", delimiter).encode())
    assert columns(loaded) == [("a", 0, 3, 4, 1), ("é", 1, 2, 8, 1)]


def test_offsets_are_fixed_and_an_empty_one_is_free(tmp_path: Path) -> None:
    loaded = problem(tmp_path, "id,lower,upper,size,offset\na,0,3,4,8\nb,0,3,4, \nc,0,3,4,0\n")
    assert loaded.fixed.tolist() == [8, FREE, 0]


def test_gaps_with_and_without_a_window(tmp_path: Path) -> None:
    loaded = problem(tmp_path, "id,lower,upper,size,gaps\na,0,9,4,1-3 5-7@1:3\nb,0,9,4,\n")
    assert loaded.gaps == {0: (Gap(1, 3), Gap(5, 7, 1, 3))}


def test_gaps_of_a_file_with_inclusive_ends_are_inclusive(tmp_path: Path) -> None:
    """MiniMalloc adds the same 1 to the ends of gaps as to those of buffers."""
    loaded = problem(
        tmp_path, "buffer,start,end,size,gaps\na,0,8,4,1-2 5-6@1:3 8-8@2:2\nb,0,8,4,\nc,0,8,4, \n"
    )
    assert loaded[0].end == 9
    assert loaded.gaps == {0: (Gap(1, 3), Gap(5, 7, 1, 3), Gap(8, 9))}


def test_names_stand_before_ids_and_double_ones_carry_their_id(tmp_path: Path) -> None:
    loaded = problem(
        tmp_path, "id,lower,upper,size,name\n16,0,1,4,conv\n17,0,1,4,conv\n18,0,1,4,relu\n19,0,1,4,\n"
    )
    assert loaded.names == ("conv#16", "conv#17", "relu", "19")


def test_quoted_names_may_hold_the_delimiter(tmp_path: Path) -> None:
    loaded = problem(tmp_path, 'id,lower,upper,size\n"a, ""b""",0,1,4\nplain,0,1,8\n')
    assert loaded.names == ('a, "b"', "plain")


def test_offsets_as_a_plan_may_be_wrong_and_validate_says_so(tmp_path: Path) -> None:
    text = "id,lower,upper,size,alignment,offset\na,0,3,4,4,0\nb,1,2,4,4,2\nc,3,4,4,4,4\n"
    plan = read(tmp_path, text, AS_PLAN)
    assert isinstance(plan, Plan)
    assert (plan.strategy, plan.offsets.tolist(), plan.arena_bytes, plan.bound.nbytes) == (
        "imported",
        [0, 2, 4],
        8,
        8,
    )
    assert (plan.problem.fixed == FREE).all()
    assert {v.rule for v in validate_plan(plan).violations} == {Rule.ALIGNMENT, Rule.OVERLAP}
    assert refusal(tmp_path, text) == (
        "a.csv: line 3, buffer 'b': found offset 2, expected a multiple of alignment 4"
    )


def test_a_plan_needs_all_its_offsets(tmp_path: Path) -> None:
    assert "line 1: found no column offset" in refusal(tmp_path, "id,lower,upper,size\na,0,1,4\n", AS_PLAN)
    text = "id,lower,upper,size,offset\na,0,1,4,0\nb,0,1,4,\n"
    assert "line 3, field offset: found nothing" in refusal(tmp_path, text, AS_PLAN)
    text = "id,lower,upper,size,offset\na,0,1,8,9223372036854775800\n"
    assert "offset + size below 2^63" in refusal(tmp_path, text, AS_PLAN)


def test_numbers_up_to_the_last_below_2_to_the_63(tmp_path: Path) -> None:
    last = 2**63 - 1
    read_as_plan = read(tmp_path, f"id,lower,upper,size,offset\na,0,1,1,{last - 1}\n", AS_PLAN)
    assert isinstance(read_as_plan, Plan)
    assert read_as_plan.arena_bytes == last
    zeros = "0" * 30
    whole = problem(tmp_path, f"id,lower,upper,size,gaps\na,0,{zeros}{last},{last - 1},2-{last}\n")
    assert columns(whole) == [("a", 0, last, last - 1, 1)]
    assert whole.gaps == {0: (Gap(2, last),)}
    inclusive = problem(tmp_path, f"id,start,end,size,gaps\na,0,{last - 1},4,5-{last - 2}\n")
    assert inclusive.gaps == {0: (Gap(5, last - 1),)}
    message = refusal(tmp_path, f"id,start,end,size,gaps\na,0,9,4,5-{last}\n")
    assert message.endswith(f"found '5-{last}', expected gaps as lo-hi or lo-hi@winlo:winhi, below 2^63")
    assert [not_whole(text) for text in (str(last), zeros + str(last), str(last + 1), "1" + "0" * 19)] == [
        "", "", "a whole number below 2^63", "a whole number below 2^63"
    ]  # fmt: skip


@pytest.mark.parametrize(("more", "told"), [("", ""), (",f", " and 1 more"), (",f,g", " and 2 more")])
def test_of_many_unknown_columns_five_are_named(tmp_path: Path, more: str, told: str) -> None:
    message = refusal(tmp_path, f"id,lower,upper,size,a,b,c,d,e{more}\n")
    assert f"found unknown columns 'a', 'b', 'c', 'd', 'e'{told}, expected columns" in message


WHOLE = "expected a whole number"
BAD_ROWS = {
    "a,0,3,abc": f"line 3, field size: found 'abc', {WHOLE}",
    "a,0,3,": f"line 3, field size: found nothing, {WHOLE}",
    "a,0,3,NaN": f"line 3, field size: found 'NaN', {WHOLE}",
    "a,0,3,1.5": f"line 3, field size: found '1.5', {WHOLE}",
    "a,0,3,1e3": f"line 3, field size: found '1e3', {WHOLE}",
    "a,0,3,1_000": f"line 3, field size: found '1_000', {WHOLE}",
    "a,0,3,+4": f"line 3, field size: found '+4', {WHOLE}",
    "a,0,3,٣": f"line 3, field size: found '٣', {WHOLE}",
    "a,0,3,-4": "line 3, field size: found '-4', expected 0 or more",
    "a,-1,3,4": "line 3, field lower: found '-1', expected 0 or more",
    "a,0,3,9223372036854775808": "line 3, field size: found '9223372036854775808', expected a whole",
    f"a,0,3,{'9' * 5000}": f"line 3, field size: found '{'9' * 39}…', expected a whole number below 2^63",
    "a,5,3,4": "line 3, buffer 'a': found end 3 (half-open) with start 5, expected an end after the start",
    "a,3,3,4": "line 3, buffer 'a': found end 3 (half-open) with start 3, expected an end after the start",
    "a,0,3": "line 3: found 3 fields, expected 4, as in the header",
    "a,0,3,4,5": "line 3: found 5 fields, expected 4, as in the header",
    ",0,3,4": "line 3, field id: found nothing, expected an id",
    "ok,0,3,4": "line 3, field id: found 'ok', already on line 2, expected unique ids",
    '"a,0,3,4': "line 3, quotes: found unexpected end of data",
    f"a,0,3,{MAX_BYTES}": "column size: found sizes, alignments and offsets that sum to 9223372036854775814",
}


@pytest.mark.parametrize("row", BAD_ROWS)
def test_bad_rows_are_named_by_line_and_field(tmp_path: Path, row: str) -> None:
    # More sound rows behind it: the fault is found where it is, not at the end.
    message = refusal(tmp_path, f"id,lower,upper,size\nok,0,1,2\n{row}\nlater,0,1,2\n")
    assert message.startswith(f"a.csv: {BAD_ROWS[row]}")


BAD_OPTIONAL = {
    ("alignment", "0"): "line 3, buffer 'a': found alignment 0, expected 1 or more",
    ("alignment", "x"): f"line 3, field alignment: found 'x', {WHOLE}",
    ("offset", "-1"): "line 3, field offset: found '-1', expected 0 or more",
    ("offset", "0x10"): f"line 3, field offset: found '0x10', {WHOLE}",
    ("gaps", "1"): "line 3, field gaps: found '1', expected gaps as lo-hi or lo-hi@winlo:winhi",
    ("gaps", "1-2@3"): "line 3, field gaps: found '1-2@3'",
    ("gaps", "1-9999999999999999999"): "line 3, field gaps: found '1-9999999999999999999'",
    ("gaps", "2-5"): "line 3, buffer 'a': found gap 2-5, expected gaps inside the lifetime 0-3",
    ("gaps", "2-1"): "line 3, buffer 'a': found gap 2-1",
    ("gaps", "0-2 1-3"): "line 3, buffer 'a': found gap 1-3",
    ("gaps", "1-2@0:9"): "line 3, buffer 'a': found gap window 0:9, expected a window within 0:4",
}


@pytest.mark.parametrize(("column", "field"), BAD_OPTIONAL)
def test_bad_optional_fields_are_named(tmp_path: Path, column: str, field: str) -> None:
    good = {"alignment": "1", "offset": "", "gaps": ""}[column]
    message = refusal(tmp_path, f"id,lower,upper,size,{column}\nok,0,1,2,{good}\na,0,3,4,{field}\n")
    assert message.startswith(f"a.csv: {BAD_OPTIONAL[column, field]}")


BAD_HEADERS = {
    "id,lower,upper,size,color,taste": "line 1: found unknown columns 'color', 'taste', expected columns",
    "id,lower,upper": "line 1: found no column size, expected columns id|buffer|buffer_id",
    "lower,upper,size": "line 1: found no column id, buffer or buffer_id",
    "id,upper,size": "line 1: found no column lower, start or begin",
    "id,start,size": "line 1: found no column upper or end",
    "id,lower,upper,upper,size": "line 1: found column 'upper' twice, expected each column once",
    "id,lower,upper,upper,upper,size": "line 1: found column 'upper' 3 times, expected each column once",
    "id,lower,upper,size,": "line 1, column 5 of 5: found no name, expected one for every column, and no "
    "separator behind the last",
    "id,,upper,size,": "line 1, column 2 of 5: found no name, expected one for every column",
    "id,lower,upper,end,size": "line 1: found columns 'upper' and 'end', expected only one of them",
    "id|lower|upper|size": "line 1: found an unknown column 'id|lower|upper|size', expected columns "
    "id|buffer|buffer_id, lower|start|begin, upper|end, size, and perhaps alignment, offset, gaps, name, "
    "hint; commas, semicolons or tabs stand between them",
    "hello": "line 1: found an unknown column 'hello', expected columns id|buffer|buffer_id",
}


@pytest.mark.parametrize("header", BAD_HEADERS)
def test_bad_headers(tmp_path: Path, header: str) -> None:
    assert refusal(tmp_path, f"{header}\n1,2,3,4,5,6\n").startswith(f"a.csv: {BAD_HEADERS[header]}")


def test_files_without_rows_and_without_anything(tmp_path: Path) -> None:
    assert refusal(tmp_path, "id,lower,upper,size\n").startswith("a.csv: found a header and no rows")
    assert refusal(tmp_path, "# only a comment\n\n").startswith("a.csv: found no header")
    assert "found an empty file" in refusal(tmp_path, "")


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    message = refusal(tmp_path, b"id,lower,upper,size\na,0,1,2\n\xff,0,1,2\n")
    assert message == "a.csv: line 3, byte 28: found 0xff, expected text in UTF-8"
    assert refusal(tmp_path, "id,lower,upper,size\na,0,1,2\n\0,0,1,2\n").startswith(
        "a.csv: line 3: found a NUL byte"
    )


def test_an_inclusive_end_at_the_limit(tmp_path: Path) -> None:
    assert "field end: found 9223372036854775807" in refusal(
        tmp_path, f"id,start,end,size\na,0,{2**63 - 1},4\n"
    )


def test_too_many_rows_are_refused_before_they_are_split(tmp_path: Path) -> None:
    message = refusal(tmp_path, b"id,lower,upper,size\n" + b",\n" * 1_500_001)
    assert message == "a.csv: found 1,500,002 lines, expected at most 1,500,000"


def test_thousands_of_rows_come_back_equal_in_a_few_calls_a_row(tmp_path: Path) -> None:
    n = 5_000
    start = np.arange(n)
    made = make_problem(start, start + 17, 64 * (start % 1000 + 1), alignment=64, name="a")
    write_csv(made, tmp_path / "a.csv")
    assert load(tmp_path / "a.csv") == made
    assert calls_of(lambda: load(tmp_path / "a.csv")) < 6 * n


def test_minimallocs_own_output_is_ours(tmp_path: Path) -> None:
    """The row format of MiniMalloc's README, its gaps included, is what the exporter writes."""
    made = make_problem(
        [0, 3, 0, 9],
        [3, 9, 9, 21],
        [4, 4, 4, 4],
        names=["b1", "b2", "b3", "b4"],
        alignment=[1, 2, 1, 1],
        gaps={3: (Gap(10, 12), Gap(14, 15, 1, 3))},
        fixed=[FREE, FREE, 8, FREE],
        name="a",
    )
    assert to_csv(made).decode() == (
        "id,lower,upper,size,alignment,gaps,offset\n"
        "b1,0,3,4,1,,\nb2,3,9,4,2,,\nb3,0,9,4,1,,8\nb4,9,21,4,1,10-12 14-15@1:3,\n"
    )
    write(made, tmp_path / "a.csv")
    assert load(tmp_path / "a.csv") == made


def test_ids_and_names_are_both_written_again(tmp_path: Path) -> None:
    """A plan can be joined with the file that it was made from, through JSON and through edits as well."""
    text = 'id,lower,upper,size,name\n16,0,1,4,conv\n17,0,1,8,"a, b"\n18,1,2,4,18\n'
    loaded = problem(tmp_path, text)
    assert (loaded.ids, to_csv(loaded).decode()) == (("16", "17", "18"), text)
    plan = make_plan(loaded, "greedy_by_size", alignment=2)
    write(plan, tmp_path / "plan.json")
    again = load(tmp_path / "plan.json")
    assert isinstance(again, Plan)
    rows = "16,0,1,4,2,8,conv", '17,0,1,8,2,0,"a, b"', "18,1,2,4,2,0,18"
    assert to_csv(again).decode().splitlines() == ["id,lower,upper,size,alignment,offset,name", *rows]
    edited = apply(loaded, [Split("conv", 2), Drop("18")])
    assert (edited.names, edited.ids) == (("conv#1", "conv#2", "a, b"), ("16#1", "16#2", "17"))
    assert select(loaded, np.array([2, 0])).ids == ("18", "16")


def test_parts_whose_ids_would_be_anothers_have_none(tmp_path: Path) -> None:
    loaded = problem(tmp_path, "id,lower,upper,size,name\n1,0,1,4,a\n1#1,0,1,4,b\n")
    assert apply(loaded, [Split("a", 2)]).ids is None


def test_a_plan_comes_back_as_the_same_plan(tmp_path: Path) -> None:
    text = "id,lower,upper,size,offset\na,0,3,4,0\nb,1,2,4,4\n"
    plan = read(tmp_path, text, AS_PLAN)
    assert isinstance(plan, Plan)
    assert to_csv(plan).decode() == text
    write(plan, tmp_path / "a.csv")
    assert load(tmp_path / "a.csv", AS_PLAN) == plan


NAME = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=6)


@given(
    st.lists(
        st.tuples(NAME, st.integers(0, 9), st.integers(1, 9), st.integers(0, 99)), min_size=1, max_size=8
    )
)
@example([("#1", 0, 1, 4), ('a"b', 0, 1, 4), ("c,d", 0, 1, 4), ("plain", 0, 1, 4)])
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, int, int, int]]
) -> None:
    named = {name: (start, start + length, size) for name, start, length, size in rows}
    start, end, size = zip(*named.values(), strict=True)
    made = make_problem(start, end, size, names=list(named), name="a")
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    write_csv(made, path)
    assert load(path) == made


@pytest.mark.parametrize("name", ["two\nlines", " padded", ""])
def test_names_that_a_csv_cannot_hold_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="a name that a CSV cannot hold"):
        write_csv(make_problem([0], [1], [4], names=[name]), tmp_path / "a.csv")
    assert not (tmp_path / "a.csv").exists()


def test_a_list_is_recognised_by_its_header_whatever_it_is_called() -> None:
    importer = CsvImporter()
    assert importer.recognises(b"# note\nbuffer;begin;end;size\n", Path("x.txt"))
    assert importer.recognises(b"id,lower\n", Path("x"))
    assert not importer.recognises(b"name,age\n", Path("x.csv"))
    assert not importer.recognises(b"id,lower,upper,size\n\0", Path("x.csv"))


def test_an_empty_alignment_is_one(tmp_path: Path) -> None:
    loaded = problem(tmp_path, "id,lower,upper,size,alignment\na,0,1,4,\nb,0,1,4,8\nc,0,1,4, \n")
    assert loaded.alignment.tolist() == [1, 8, 1]
