"""JSON read in windows: the same elements wherever a window ends, and limits to the byte."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memplan_engine.errors import InputError
from memplan_engine.formats import json_stream
from memplan_engine.formats.json_stream import head_of, objects, read_json


def test_a_json_file_of_the_largest_size(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("[1, 2]")
    assert read_json(path, 6) == [1, 2]
    with pytest.raises(InputError, match="file: found more than 5 bytes, expected at most 5"):
        read_json(path, 5)


@pytest.mark.parametrize("chunk", range(1, 40))
def test_elements_are_the_same_wherever_a_window_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    path = tmp_path / "file"
    path.write_text('{"a": "ü€", "list" : [ {"x": 1}, {"y": [2, "]"]} ,\n{}], "b": 4}', encoding="utf-8")
    monkeypatch.setattr(json_stream, "CHUNK", chunk)
    assert list(objects(path, "list")) == [{"x": 1}, {"y": [2, "]"]}, {}]
    path.write_text('{"a":[0],"list":[{"a":1},{}],"b":[3]}')
    assert list(objects(path, "list")) == [{"a": 1}, {}]


def test_what_was_passed_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """16 MiB before the list and as many in it, in windows of 64 KiB."""
    path = tmp_path / "file"
    many = f'{{"x":"{"x" * 1000}"}},' * (16 * 1024)
    path.write_text(f'{{"before":[{many}0],"list":[{many}{{}}]}}')
    monkeypatch.setattr(json_stream, "CHUNK", 1 << 16)
    del many
    tracemalloc.start()
    assert sum(1 for _ in objects(path, "list")) == 16 * 1024 + 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 << 20


@pytest.mark.parametrize("packed", [False, True])
def test_how_far_a_file_has_been_read_is_told_in_its_own_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    text = json.dumps({"list": [{"x": number} for number in range(5_000)]}).encode()
    monkeypatch.setattr(json_stream, "CHUNK", 1_000)
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(text) if packed else text)
    told: list[tuple[int, int]] = []
    elements = list(objects(path, "list", lambda *at: told.append(at)))
    assert elements == [{"x": number} for number in range(5_000)]
    places = [place for place, _ in told]
    assert {size for _, size in told} == {path.stat().st_size}
    assert places == sorted(places)
    assert places[-1] == path.stat().st_size


def test_the_most_that_is_unpacked_and_the_largest_element(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (json_stream.MAX_PLAIN_BYTES, json_stream.MAX_OBJECT) == (512 * 2**20, 16 * 2**20)
    path = tmp_path / "file"
    text, elements = '{"k":[{"1":45}]}', [{"1": 45}]
    # The first window ends behind six characters of the element, which has eight.
    monkeypatch.setattr(json_stream, "CHUNK", text.index("5"))
    path.write_text(text)
    for most in (7, 6):
        monkeypatch.setattr(json_stream, "MAX_OBJECT", most)
        assert list(objects(path, "k")) == elements
    monkeypatch.setattr(json_stream, "MAX_OBJECT", 5)
    with pytest.raises(InputError, match="file: found broken JSON"):
        list(objects(path, "k"))
    # What is unpacked has a limit; what is not says by its length how long it takes.
    monkeypatch.setattr(json_stream, "MAX_OBJECT", 8)
    monkeypatch.setattr(json_stream, "MAX_PLAIN_BYTES", len(text) - 1)
    assert list(objects(path, "k")) == elements
    path.write_bytes(gzip.compress(text.encode()))
    with pytest.raises(InputError, match="file: found more than 15 bytes when unpacked"):
        list(objects(path, "k"))
    monkeypatch.setattr(json_stream, "MAX_PLAIN_BYTES", len(text))
    assert list(objects(path, "k")) == elements


def test_a_list_of_nothing_but_short_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    monkeypatch.setattr(json_stream, "FREE_OBJECTS", 10)
    path.write_text('{"k":[' + ",".join(["{}"] * 10) + "]}")
    assert len(list(objects(path, "k"))) == 10
    path.write_text('{"k":[' + ",".join(["{}"] * 11) + "]}")
    # Of 40 characters, where one object beyond the tenth should have 64.
    with pytest.raises(
        InputError, match="found 11 objects in 40 bytes, expected events, which have at least"
    ):
        list(objects(path, "k"))


def test_a_file_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_text("[]")

    def refuse(*given: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InputError, match="file: found 'Permission denied' on reading"):
        read_json(path, 5)


@pytest.mark.parametrize("read", [lambda path: read_json(path, 5), lambda path: list(objects(path, "list"))])
def test_what_is_not_there_or_not_a_file(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    (tmp_path / "empty").touch()
    for name, found in (("none", "no such file"), ("", "found a folder"), ("empty", "found an empty file")):
        with pytest.raises(InputError, match=f": {found}, expected"):
            read(tmp_path / name)


def test_the_head_of_a_file_is_unpacked_where_it_is_packed(tmp_path: Path) -> None:
    text = b"0123456789" * 10
    packed = gzip.compress(text)
    assert head_of(tmp_path, text[:40], 10) == text[:40]
    assert head_of(tmp_path, packed, 10) == text[:10]
    assert text.startswith(head_of(tmp_path, packed[:-12], 10))
    assert head_of(tmp_path, packed[:2] + b"nothing at all", 10) == b""
    assert head_of(tmp_path, zlib.compress(text), 10) == zlib.compress(text)
