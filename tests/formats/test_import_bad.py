"""Files that hold nothing to plan: each gives a clear error before much is read, and nothing is written."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from memplan_examples import PATH

from memplan_engine import Graph, InputError, MemplanError, Problem, load, make_problem
from memplan_engine.files import importers, recognise, write
from memplan_engine.formats.memplan_json.json_file import dumps
from memplan_engine.formats.read_limits import read_bytes, read_head, read_text
from memplan_engine.system import write_atomically
from tests.support.work import calls_of, peak_bytes


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        load(path)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) <= 700
    assert path.name in message
    return message


def test_the_importers_in_their_order() -> None:
    assert [importer.name for importer in importers()] == [
        "pt2",
        "profiler",
        "observation",
        "json",
        "pickle",
        "onnx",
        "csv",
    ]


def told(read: Callable[[], object]) -> str:
    with pytest.raises(InputError) as caught:
        read()
    return str(caught.value)


def test_the_largest_file_that_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_bytes(path, 5) == b"12345"
    assert told(lambda: read_bytes(path, 4)) == "file: found a file of 5 bytes, expected at most 4"
    # Of text 512 MiB; a file of one byte more, none of which is on the disk, is refused before it is read.
    os.truncate(path, 512 * 2**20 + 1)
    assert (
        told(lambda: read_text(path))
        == "file: found a file of 536,870,913 bytes, expected at most 536,870,912"
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff", "file: line 1, byte 0: found 0xff, expected text in UTF-8"),
        (b"\na\xfe", "file: line 2, byte 2: found 0xfe, expected text in UTF-8"),
        (b"\0a", "file: line 1: found a NUL byte, expected text"),
        (b"\n\0", "file: line 2: found a NUL byte, expected text"),
    ],
)
def test_where_a_file_is_no_text(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    assert told(lambda: read_text(path)) == message


@pytest.mark.parametrize("read", [lambda path: read_head(path, 4), lambda path: read_bytes(path, 4)])
def test_what_the_system_says_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], object]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a")
    nameless = told(lambda: read(Path("a\0b")))
    assert "embedded null byte" in nameless
    assert nameless.endswith("on reading, expected a readable file")

    def refuse(*given: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert (
        told(lambda: read(path)) == f"{path}: found 'Permission denied' on reading, expected a readable file"
    )


@pytest.mark.parametrize(
    ("example", "importer"),
    [("teaching_best_fit.csv", "csv"), ("teaching_view.json", "json"), ("squeezenet.onnx", "onnx")],
)
@pytest.mark.parametrize("suffix", ["", ".txt", ".csv", ".json", ".onnx", ".pt2"])
def test_content_counts_not_the_name(tmp_path: Path, example: str, importer: str, suffix: str) -> None:
    path = tmp_path / f"file{suffix}"
    path.write_bytes((PATH / example).read_bytes())
    assert recognise(path).name == importer
    assert isinstance(load(str(path)), Graph | Problem)


def test_what_is_not_there_or_not_a_file(tmp_path: Path) -> None:
    assert refusal(tmp_path / "nothing.csv").endswith(": no such file, expected the path of a file")
    assert refusal(tmp_path).endswith("found a folder, expected a file")
    (tmp_path / "empty.csv").touch()
    assert refusal(tmp_path / "empty.csv").endswith("empty.csv: found an empty file, expected some content")
    os.mkfifo(tmp_path / "pipe")
    assert "found something other than a regular file" in refusal(tmp_path / "pipe")
    with pytest.raises(InputError, match="on reading"):
        load("a\0b")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,lower,upper,size\n")
    path.chmod(0)
    assert "found 'Permission denied' on reading" in refusal(path)


@pytest.mark.parametrize("suffix", [".pt", ".pkl", ".csv"])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickles_are_snapshots_or_refused_by_what_they_name(
    tmp_path: Path, suffix: str, protocol: int
) -> None:
    path = tmp_path / f"model{suffix}"
    path.write_bytes(pickle.dumps({"a": [1, 2]}, protocol=protocol))
    assert refusal(path).startswith(
        f"model{suffix}: found a pickle of a dict with 'a', expected a memory snap"
    )
    path.write_bytes(pickle.dumps({"a": os.getcwd}, protocol=protocol))
    assert "getcwd, expected plain data: nothing in a file is looked up or called" in refusal(path)


def test_an_unknown_kind_lists_the_known_ones(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Dear diary,\n")
    message = refusal(path)
    assert message.startswith("notes.txt: found an unknown file format, expected one of pt2 (")
    for importer in importers():
        assert f"{importer.name} ({importer.description})" in message


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", b"\x93\x01\x02", "x.csv: line 1, byte 0: found 0x93, expected text in UTF-8"),
        ("x.csv", b"name,age\nAnn,3\n", "x.csv: line 1: found an unknown column 'age'"),
        ("x.json", b"[1, 2]", "x.json: found a list, expected an object"),
        ("x.json", b"\x93\x01\x02", "x.json: line 1, byte 0: found 0x93, expected text in UTF-8"),
        ("x.onnx", b"\x93\x01\x02", "x.onnx: found bytes that are not an ONNX model"),
        ("x.pt2", b"\x93\x01\x02", "x.pt2: found "),
    ],
)
def test_a_name_that_promises_what_the_content_does_not_keep(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert refusal(path).startswith(message)


GARBAGE: dict[str, Callable[[int], bytes]] = {
    "random": lambda n: random.Random(1).randbytes(n),
    "zeros": lambda n: bytes(n),
    "letters": lambda n: b"a" * n,
    "braces": lambda n: b"{" * n,
    "lists": lambda n: b'{"a":[' + b"[" * n,
    "commas": lambda n: b"id,lower,upper,size\n" + b"," * n,
    "rows": lambda n: b"id,lower,upper,size\n" + b"x\n" * (n // 2),
    "one number": lambda n: b"id,lower,upper,size\na,0,1," + b"9" * n,
    "onnx": lambda n: b"\x08\x08" * (n // 2),
    "zip": lambda n: b"PK\3\4" + b"\0" * n,
}


@pytest.mark.parametrize("suffix", [".csv", ".json", ".onnx", ".pt2", ".bin"])
@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_is_refused_whatever_it_is_called(tmp_path: Path, kind: str, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    path.write_bytes(GARBAGE[kind](1 << 16))
    refusal(path)


MEGABYTE = 10**6
FEW_CALLS, LITTLE = 1_500, 100_000


@pytest.mark.parametrize(
    ("kind", "suffix", "most_calls", "most_bytes"),
    [
        # Not even read.
        ("random", ".onnx", FEW_CALLS, LITTLE),
        ("random", ".bin", FEW_CALLS, LITTLE),
        ("zeros", ".pt2", FEW_CALLS, LITTLE),
        ("zip", ".pt2", FEW_CALLS, LITTLE),
        # Half a million fields, of which the first 4,096 are looked at.
        ("onnx", ".onnx", 60_000, LITTLE),
        # Read and decoded.
        ("random", ".csv", FEW_CALLS, 4 * MEGABYTE),
        ("random", ".json", FEW_CALLS, 4 * MEGABYTE),
        ("letters", ".csv", FEW_CALLS, 4 * MEGABYTE),
        ("braces", ".json", FEW_CALLS, 4 * MEGABYTE),
        ("lists", ".json", FEW_CALLS, 4 * MEGABYTE),
        ("commas", ".csv", FEW_CALLS, 4 * MEGABYTE),
        ("one number", ".csv", FEW_CALLS, 4 * MEGABYTE),
        # Half a million rows, of which the first has too few fields.
        ("rows", ".csv", 3 * MEGABYTE // 2, 60 * MEGABYTE),
    ],
)
def test_a_megabyte_of_garbage_is_refused_before_anything_is_built_of_it(
    tmp_path: Path, kind: str, suffix: str, most_calls: int, most_bytes: int
) -> None:
    path = tmp_path / f"x{suffix}"
    # The first time imports and compiles.
    path.write_bytes(GARBAGE[kind](1_000))
    refusal(path)
    path.write_bytes(GARBAGE[kind](MEGABYTE))
    assert calls_of(lambda: refusal(path)) <= most_calls
    assert peak_bytes(lambda: refusal(path)) <= most_bytes


def test_text_files_have_a_largest_size(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    with path.open("wb") as file:
        file.write(b"id,lower,upper,size\n")
        file.truncate(2**29 + 1)  # a hole: takes no place on the disk
    assert refusal(path) == "x.csv: found a file of 536,870,913 bytes, expected at most 536,870,912"


@pytest.mark.parametrize("example", ["teaching_gaps.csv", "teaching_view.json", "squeezenet.onnx"])
def test_damaged_examples_give_errors_or_answers_but_nothing_else(tmp_path: Path, example: str) -> None:
    """Cut anywhere, bytes changed anywhere: a MemplanError, or something that loads."""
    whole = (PATH / example).read_bytes()
    draw = random.Random(example)
    path = tmp_path / example
    for _ in range(60):
        data = bytearray(whole[: draw.randrange(1, len(whole))] if draw.random() < 0.5 else whole)
        for _ in range(draw.randrange(4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        path.write_bytes(data)
        with contextlib.suppress(MemplanError):
            load(path)


def test_writing_replaces_whole_files(tmp_path: Path) -> None:
    made = make_problem([0], [1], [4])
    target = tmp_path / "plan.json"
    target.write_text("old")
    write(made, target)
    assert target.read_bytes() == dumps(made)
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~umask


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_problem([0], [1], [4])
    with pytest.raises(InputError, match="found a folder that does not exist, expected an existing folder"):
        write(made, tmp_path / "no" / "x.json")
    if Path("/proc/self").exists():
        refused_to_root, refused_to_others = "a folder that takes no files", "'Permission denied' on writing"
        with pytest.raises(InputError, match=f"found ({refused_to_root}|{refused_to_others})"):
            write(made, "/proc/memplan.json")
    with pytest.raises(InputError, match="found a folder or a device"):
        write_atomically(tmp_path, b"")
    target = tmp_path / "x.json"
    target.write_text("old")
    monkeypatch.setattr(
        Path, "replace", lambda self, other: (_ for _ in ()).throw(OSError(28, "No space left"))
    )
    with pytest.raises(InputError, match="found 'No space left' on writing"):
        write(made, target)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_suffixes_that_nothing_writes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"found the suffix '.xml', expected .json or .csv"):
        write(make_problem([0], [1], [4]), tmp_path / "x.xml")
    with pytest.raises(InputError, match=r"found the suffix '.csv', expected .json"):
        write(Graph("g", (), (), (), (), ()), tmp_path / "x.csv")
    assert not list(tmp_path.iterdir())
