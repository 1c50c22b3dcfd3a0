"""Uploads belong to whoever uploaded them: kept apart, within limits, under names that do no harm."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.session import documents, uploads

from memplan_engine import InputError, MemplanError


@pytest.fixture
def store(tmp_path, monkeypatch):
    """All visitors' uploads; `become` says who is visiting."""
    monkeypatch.setattr(uploads, "_store", lambda: tmp_path / "store")
    monkeypatch.setattr("sys.argv", ["app.py"])
    return tmp_path / "store"


@pytest.fixture
def become(store, monkeypatch):
    def visit(name):
        monkeypatch.setattr(uploads, "folder", lambda: store / name)

    visit("ann")
    return visit


def aged(path, days):
    """Make a file or a folder that was just written look older."""
    then = path.stat().st_mtime - days * 86_400
    os.utime(path, (then, then))


def test_another_browser_neither_lists_nor_opens_nor_renames_nor_drops_an_upload(become):
    key, _ = uploads.keep("hers.csv", b"one")
    become("bob")
    assert key not in documents.catalogue()
    with pytest.raises(InputError, match="no such file"):
        documents.path_of(key)
    with pytest.raises(InputError):
        documents.version_of(key)
    uploads.drop(key)
    assert uploads.keep("his.csv", b"one") == (key, True)
    assert list(uploads.listed().values()) == ["his.csv"]
    uploads.drop(key)
    become("ann")
    assert list(uploads.listed().values()) == ["hers.csv"]
    assert documents.path_of(key).read_bytes() == b"one"


def test_files_of_the_command_line_are_everybodys(become, tmp_path, monkeypatch):
    (tmp_path / "given.csv").write_text("x")
    monkeypatch.setattr("sys.argv", ["app.py", str(tmp_path / "given.csv")])
    for name in ("ann", "bob"):
        become(name)
        assert "file:given.csv" in documents.catalogue()


def test_the_oldest_of_ones_own_make_room_and_nobody_elses(become, monkeypatch):
    monkeypatch.setattr(uploads, "MOST_UPLOADS", 2)
    become("bob")
    old, _ = uploads.keep("bob.csv", b"bob")
    aged(uploads.find(old), 20)
    become("ann")
    run, _ = uploads.keep("run.json", b"run", "run")
    keys = []
    for text in (b"one", b"two", b"three"):
        keys.append(uploads.keep("x.csv", text)[0])
        aged(uploads.find(keys[-1]), 3 - len(keys))
    assert list(uploads.listed()) == keys[:0:-1]
    assert uploads.find(run)
    become("bob")
    assert uploads.find(old)


@pytest.mark.parametrize(("more", "left"), [(4, ["new", "b", "a"]), (5, ["new", "b"]), (10, ["new"])])
def test_the_bytes_of_a_visitor_have_a_limit(become, monkeypatch, more, left):
    monkeypatch.setattr(uploads, "MOST_BYTES", 10)
    for name, days in (("a", 2), ("b", 1)):
        aged(uploads.find(uploads.keep(name, name.encode() * 3)[0]), days)
    uploads.keep("new", b"n" * more)
    assert list(uploads.listed().values()) == left


def test_one_byte_more_than_a_visitor_may_have_is_refused_and_removes_nothing(become, monkeypatch):
    monkeypatch.setattr(uploads, "MOST_BYTES", 10)
    uploads.keep("a", b"a")
    with pytest.raises(InputError, match=r"^new: found 11 B, expected at most 10 B to upload$"):
        uploads.keep("new", b"n" * 11)
    assert list(uploads.listed().values()) == ["a"]


def test_all_uploads_together_have_a_limit_and_its_edge_is_told(become, store, monkeypatch):
    monkeypatch.setattr(uploads, "MOST_BYTES_IN_ALL", 10)
    uploads.keep("a", b"a" * 4)
    become("bob")
    uploads.keep("b", b"b" * 3)
    with pytest.raises(MemplanError, match=r"^c: found 4 B, expected what is left: .* take 7 B of 10 B$"):
        uploads.keep("c", b"c" * 4)
    assert uploads.keep("c", b"c" * 3)[1]
    assert sum(path.stat().st_size for path in store.rglob("*") if path.is_file()) == 10


def test_what_belongs_to_who_has_not_come_back_goes(become, store):
    key, _ = uploads.keep("a", b"a")
    aged(store / "ann", uploads.VISITOR_DAYS + 1)
    uploads.come_back()
    become("bob")
    uploads.keep("b", b"b")
    assert (store / "ann").exists()
    aged(store / "ann", uploads.VISITOR_DAYS + 1)
    uploads.keep("c", b"c")
    assert not (store / "ann").exists()
    become("ann")
    assert uploads.find(key) is None
    uploads.come_back()


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("..", "upload"),
        (".", "upload"),
        ("", "upload"),
        ("../../etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("/", "upload"),
        (".bashrc", "bashrc"),
        ("x.part", "x.part"),
        ("my model (2).csv", "my model (2).csv"),
        ("模" * 60, "模" * 60),
        ("模" * 90, "模" * 66),
        ("x" * 300 + ".json", "x" * 195 + ".json"),
        ("a\u202egnp.exe", "a_gnp.exe"),
        ("a\nb\tc\x00d\x7fe", "a_b_c_d_e"),
        ("a\ud800b", "a_b"),
        ("a\u2028b\u200b", "a_b_"),
        ('<img src=x onerror="1">.csv', "_img src=x onerror=_1__.csv"),
        ("nul:stream", "nul_stream"),
        ("e\u0301.csv", "é.csv"),
        ("con ", "con"),
    ],
)
def test_names_do_no_harm_and_stay_as_given_where_they_would_not(become, store, given, kept):
    key, is_new = uploads.keep(given, b"content")
    assert is_new
    assert list(uploads.listed().values()) == [kept]
    path = documents.path_of(key)
    assert path.name == kept
    assert path.parent.parent.parent == store / "ann"
    assert len(kept.encode()) <= uploads.MOST_NAME_BYTES
    assert [each for each in store.rglob("*") if each.is_file()] == [path]
    uploads.drop(key)
    assert not [each for each in store.rglob("*") if each.is_file()]


def test_the_same_bytes_under_another_name_are_one_upload_with_that_name(become):
    key, _ = uploads.keep("a.csv", b"x")
    assert uploads.keep("b.csv", b"x") == (key, True)
    assert uploads.listed() == {key: "b.csv"}


def test_a_disk_that_is_full_is_told_and_nothing_half_written_stays(become, store, monkeypatch):
    def full(self, content):
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(MemplanError, match=r"^a\.csv: cannot be kept in .*: No space left on device; XDG"):
        uploads.keep("a.csv", b"x")
    assert not [each for each in store.rglob("*") if each.is_file()]


def test_the_folder_does_not_tell_the_cookie(store, monkeypatch):
    monkeypatch.undo()
    cookies = {uploads.VISITOR_COOKIE: "a" * 43}
    monkeypatch.setattr(uploads.st, "context", type("Context", (), {"cookies": cookies}))
    first = uploads.folder()
    assert "aaaa" not in str(first)
    assert uploads.folder() == first
    cookies[uploads.VISITOR_COOKIE] = "b" * 43
    assert uploads.folder() != first
