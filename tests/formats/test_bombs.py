"""Files that take the most for their length: they are read, or refused, in work that grows with the length.

`python -m benchmarks reading --bombs --megabytes 95` prints what they take.
"""

from __future__ import annotations

import contextlib
import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from memplan_engine import InputError, MemplanError, load
from memplan_engine.formats import json_stream, read_limits
from memplan_engine.formats.csv_tables import csv_reader, csv_table
from memplan_engine.formats.onnx_model import onnx_wire
from memplan_engine.formats.read_limits import JsonWeights, check_json
from tests import ROOT
from tests.support.bombs import BOMBS, functions, model, numbered
from tests.support.work import calls_of, peak_bytes

MOST_BYTES = 2 * 10**9
READ = """
import contextlib, pathlib, resource, sys
from memplan_engine import MemplanError, load
with contextlib.suppress(MemplanError):
    load(sys.argv[2])
pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
most = pages * resource.getpagesize() + int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (most, most))
with contextlib.suppress(MemplanError):
    load(sys.argv[3])
"""
"""Reads a small file, which imports and compiles, then a large one in so many bytes of address space more."""


def skip_without_its_package(bomb: str) -> None:
    kind = bomb.partition(":")[0]
    if package := {"pt2": "torch", "onnx": "onnx"}.get(kind):
        pytest.importorskip(package)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the address space of a process")
@pytest.mark.parametrize("nbytes", [15 * 10**6, 95 * 10**6])
@pytest.mark.parametrize("bomb", BOMBS)
def test_100_megabytes_of_the_worst(tmp_path: Path, bomb: str, nbytes: int) -> None:
    skip_without_its_package(bomb)
    suffix, make = BOMBS[bomb]
    small, large = tmp_path / f"small{suffix}", tmp_path / f"large{suffix}"
    small.write_bytes(make(5_000))
    large.write_bytes(make(nbytes))
    command = [sys.executable, "-c", READ, str(MOST_BYTES), str(small), str(large)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    large.unlink()
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("rows", [200_000, 1_000_000])
def test_long_lists_are_read(tmp_path: Path, rows: int) -> None:
    path = tmp_path / "long.csv"
    path.write_bytes(numbered(b"id,lower,upper,size\n", b"%x,0,1,64\n")(rows * 14))
    assert len(load(path)) >= rows  # type: ignore[arg-type]


@pytest.mark.parametrize("bomb", BOMBS)
def test_twice_the_bytes_are_at_most_twice_the_work(tmp_path: Path, bomb: str) -> None:
    skip_without_its_package(bomb)
    suffix, make = BOMBS[bomb]
    path = tmp_path / f"bomb{suffix}"

    def read() -> None:
        with contextlib.suppress(MemplanError):
            load(path)

    # The first time imports and compiles.
    path.write_bytes(make(1_000))
    read()
    calls, peaks = [], []
    for nbytes in (6_000, 12_000):
        path.write_bytes(make(nbytes))
        calls.append(calls_of(read))
        peaks.append(peak_bytes(read))
    assert calls[1] <= 2.1 * calls[0] + 500
    assert calls[1] <= 25 * 12_000
    assert peaks[1] <= 2.1 * peaks[0] + (1 << 18)


def refusal(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        load(path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "each"),
    [
        ("{{{", 3 * 7),
        ("[[[", 3 * 5),
        ('"a":"b":', 2 * 3),
        (",,,,", 4 * 2),
        ("{[,", 7 + 5 + 2),
        ('"x":[', 3 + 5),
    ],
)
def test_what_json_weighs(monkeypatch: pytest.MonkeyPatch, text: str, each: int) -> None:
    weights = JsonWeights(objects=7, lists=5, fields=3, values=2)
    for given in (text, text.encode()):
        monkeypatch.setattr(read_limits, "MAX_JSON_MEMORY", each)
        check_json(given, "file", weights)
        monkeypatch.setattr(read_limits, "MAX_JSON_MEMORY", each - 1)
        with pytest.raises(
            InputError, match=r"in memory, expected at most 0 MiB: a part of it, or a list of"
        ):
            check_json(given, "file", weights)


def test_the_most_rows_gaps_and_letters_of_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.csv"
    rows = b"id,lower,upper,size,gaps\na,0,9,1,1-2 3-4\nb,0,9,1,5-6\n"
    monkeypatch.setattr(csv_table, "MAX_ROWS", 3)
    monkeypatch.setattr(csv_reader, "MAX_GAPS", 3)
    monkeypatch.setattr(csv_table, "MAX_HEADER", 24)
    path.write_bytes(rows)
    load(path)
    assert refusal(path, rows + b"\n") == "a.csv: found 4 lines, expected at most 3"
    assert (
        refusal(path, rows.replace(b"3-4", b"3-4 6-7"))
        == "a.csv: field gaps: found 4 gaps, expected at most 3"
    )
    longer = rows.replace(b"gaps", b"gaps ")
    assert refusal(path, longer) == "a.csv: line 1: found a header of 25 characters, expected at most 24"


def test_the_most_that_a_trace_packs(tmp_path: Path) -> None:
    text = b'{"schemaVersion": 1, "traceEvents": [' + b" " * (json_stream.CHUNK * 8)
    told = refusal(tmp_path / "t.json.gz", gzip.compress(text + b"]}"))
    assert "bytes or more packed into" in told
    assert told.endswith("expected a packing ratio of at most 200 (a bomb?)")
    # Below a megabyte nobody minds.
    text = b'{"schemaVersion": 1, "traceEvents": [' + b" " * (json_stream.CHUNK - 100)
    assert "no memory event" in refusal(tmp_path / "t.json.gz", gzip.compress(text + b"]}"))


def test_the_most_of_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx")
    path = tmp_path / "m.onnx"
    # The version, the operator set and its two fields, the graph, and four nodes.
    data = model(b"\x0a\x00" * 4)
    monkeypatch.setattr(onnx_wire, "MOST_FIELDS", 9)
    monkeypatch.setattr(onnx_wire, "MOST_NODES", 4)
    path.write_bytes(data)
    load(path)
    monkeypatch.setattr(onnx_wire, "MOST_FIELDS", 8)
    assert "found more than 8 fields, expected" in refusal(path, data)
    monkeypatch.setattr(onnx_wire, "MOST_FIELDS", 99)
    assert "found more than 4 nodes, expected a part of the model" in refusal(path, model(b"\x0a\x00" * 5))


def test_nothing_hides_behind_what_protobuf_skips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx")
    monkeypatch.setattr(onnx_wire, "MOST_NODES", 4)
    # A group of an unknown field, which upb reads over.
    told = refusal(tmp_path / "m.onnx", model(b"\x0a\x00\xfb\x01\xfc\x01" + b"\x0a\x00" * 5))
    assert "found a truncated or damaged model" in told


@pytest.mark.parametrize("opset", [0, 2**31, 2**63 - 1])
def test_an_operator_set_that_is_none(tmp_path: Path, opset: int) -> None:
    pytest.importorskip("onnx")
    told = refusal(tmp_path / "m.onnx", model(b"\x0a\x06\x22\x04Relu", opset=opset))
    assert f"operator set '': found version {opset}, expected 1 or more, below 2^31" in told


def test_functions_that_call_each_other_in_a_circle(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    circle = functions(3, innermost=b"f2")
    assert "found a circle of calls" in refusal(
        tmp_path / "m.onnx", model(b"\x0a\x04\x22\x02f2", more=circle)
    )
