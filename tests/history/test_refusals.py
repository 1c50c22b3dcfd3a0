"""A full disk, a locked, a foreign, a damaged, a newer database: a clear answer, and nothing half-written."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest
from sqlalchemy import event

from memplan_engine.errors import InputError, MissingDependencyError
from memplan_engine.history.database import failures
from memplan_engine.history.database.connecting import find_location
from memplan_engine.history.database.pruning import alone
from memplan_engine.history.database.store import History
from memplan_engine.history.history_values import HistoryRun
from memplan_engine.history.opening import open_history
from tests import ROOT
from tests.history.test_transfer import SERIES, fill, measured
from tests.support.postgresql import Server


def contents(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.parent.iterdir() if each.is_file()}


def refused(path: Path, read_only: bool = False) -> str:
    """What opening `path` says; not a byte beside it may change."""
    before = contents(path)
    with pytest.raises(InputError) as error:
        open_history(path, read_only=read_only, wait=0.2)
    assert contents(path) == before
    message = str(error.value)
    assert message.startswith(f"{path}: ")
    assert ", expected " in message
    return message


@pytest.mark.parametrize("read_only", [False, True])
def test_what_is_no_store_is_refused_and_left_as_it_is(tmp_path: Path, read_only: bool) -> None:
    text = tmp_path / "text" / "notes.txt"
    text.parent.mkdir()
    text.write_text("dear diary " * 100)
    assert "found a file of something else" in refused(text, read_only)

    other = tmp_path / "other" / "bookmarks.db"
    other.parent.mkdir()
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE bookmarks (url)")
        connection.commit()
    assert "a database of something else (tables bookmarks)" in refused(other, read_only)


def test_a_place_that_takes_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        open_history(tmp_path / "nowhere" / "history.db")
    with pytest.raises(InputError, match="a folder or a device"):
        open_history(tmp_path)
    with pytest.raises(InputError, match="no such file, expected a store"):
        open_history(tmp_path / "history.db", read_only=True)
    (tmp_path / "empty.db").touch()
    assert "an empty database" in refused(tmp_path / "empty.db", read_only=True)
    for text in ("mysql://host/name", "sqlite://", "://"):
        with pytest.raises(InputError, match="expected a path, sqlite:///path, or postgresql://"):
            find_location(text)


def test_passwords_are_not_shown() -> None:
    location = find_location("postgresql://ann:secret@host/name")
    assert location.name == "postgresql://ann:***@host/name"


def test_a_store_of_a_newer_version_is_left_alone(history: History, location: str) -> None:
    fill(history, [10])
    with history.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE memplan_version SET version_num = '0999'")
    for read_only in (False, True):
        with pytest.raises(InputError, match="tables of the newer version '0999', expected at most 0001"):
            open_history(location, read_only=read_only)
    assert len(history.points()) == 2


def test_tables_without_a_version_are_not_taken_for_a_store(history: History, location: str) -> None:
    with history.engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE memplan_version")
    with pytest.raises(InputError, match="something else"):
        open_history(location)


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with open_history(path) as history:
        fill(history, [10] * 20)
    data = bytearray(path.read_bytes())
    for page in range(2, len(data) // 4096):
        data[page * 4096 : page * 4096 + 100] = b"\xff" * 100
    path.write_bytes(data)
    with pytest.raises(InputError, match="a database that is damaged"), open_history(path) as history:
        history.points()


def test_a_writer_waits_for_its_turn_and_says_when_it_comes_not(history: History, location: str) -> None:
    fill(history, [10])
    with open_history(location, wait=0.3) as second, history._writing() as connection:
        connection.exec_driver_sql("UPDATE memplan_points SET nodes = 1")
        alone(connection)
        began = time.monotonic()
        with pytest.raises(InputError, match="locked by another process"):
            fill(second, [12], first=1)
        assert 0.25 < time.monotonic() - began < 5
        # Readers need not wait.
        with open_history(location, read_only=True, wait=0.1) as reader:
            assert len(reader.points()) == 2
    fill(history, [12], first=1)
    assert len(history.points()) == 4


def test_one_that_gets_its_turn_in_time_writes(history: History, location: str) -> None:
    with open_history(location, wait=30) as second:
        with history._writing() as connection:
            connection.exec_driver_sql("UPDATE memplan_points SET nodes = 1")
            waiting = threading.Thread(target=fill, args=(second, [10]))
            waiting.start()
            time.sleep(0.5)
        waiting.join(20)
        assert len(history.points()) == 2


def test_several_write_at_once(location: str) -> None:
    """Each opens the store itself, which none has made: all of them try to."""
    errors: list[BaseException] = []

    def work(first: int) -> None:
        try:
            with open_history(location) as own:
                fill(own, [10, 11, 12], first=first)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(10 * number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert errors == []
    with open_history(location, read_only=True) as history:
        assert len(history.points()) == 6 * 3 * len(SERIES)
        assert len(history.runs()) == 18
        assert len(history.series()) == len(SERIES)


def test_a_full_disk_is_told_and_the_store_goes_on_as_it_was(tmp_path: Path) -> None:
    """SQLite's own limit, which fails in the same way as a disk does, wherever it is reached."""
    with open_history(tmp_path / "history.db") as history:
        fill(history, [10])

        @event.listens_for(history.engine, "begin")
        def limit(connection):  # type: ignore[no-untyped-def]
            connection.exec_driver_sql("PRAGMA max_page_count = 40")

        with pytest.raises(InputError, match=r"history.db: found a disk that is full.*nothing of what was"):
            fill(history, [10] * 300, first=1)
        before = history.points()
        assert 2 < len(before) < 600
        assert len(before) % 2 == 0
        with pytest.raises(InputError, match="a disk that is full"):
            fill(history, [10] * 300, first=1000)
        event.remove(history.engine, "begin", limit)
        fill(history, [10], first=2000)
        assert [point.run for point in history.points()].count(before[0].run) == 2
        check_sound(tmp_path / "history.db")


def check_sound(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


@pytest.mark.slow
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can make a small disk")
    try:
        with open_history(place / "history.db") as history:
            with pytest.raises(InputError, match="a disk that is full"):
                fill(history, [10] * 5000)
            kept = history.points()
            assert len(kept) % 2 == 0
            assert kept
        with open_history(place / "history.db", read_only=True) as history:
            assert history.points() == kept
        # Without room for a byte it can be read as before.
        fill_up(place / "filler")
        with open_history(place / "history.db", read_only=True) as history:
            assert history.points() == kept
        (place / "filler").unlink()
        with open_history(tmp_path / "large.db") as large:
            large.record(HistoryRun("proj"), [measured(SERIES[0], 5, os.urandom(2**20).hex())])
            with pytest.raises(InputError, match="a disk that is full"):
                large.export(place / "copy.db")
        assert sorted(path.name for path in place.iterdir() if "copy" in path.name) == []
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill_up(path: Path) -> None:
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


READING = """
import os, sys, tempfile
from memplan_engine.history.opening import open_history
for read_only in (False, True):
    with open_history(tempfile.gettempdir() + "/own.db", read_only=read_only) as history:
        history.points()  # All that is imported for it.
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
tempfile.tempdir = "/tmp"
with open_history(sys.argv[1], read_only=True) as history:
    print(len(history.points()))
try:
    open_history(sys.argv[1])
except Exception as error:
    print(error)
"""


def read_by_somebody(path: Path) -> list[str]:
    """What a process says that may read `path` and write nowhere beside it."""
    with tempfile.TemporaryDirectory() as own:
        done = subprocess.run(
            [sys.executable, "-c", READING, str(path)], cwd=ROOT, env={**os.environ, "TMPDIR": own},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def public(tmp_path: Path) -> Path:
    """A folder that everybody may read and nobody may write to."""
    folder = Path(tempfile.mkdtemp(prefix="memplan-read-", dir="/tmp"))
    folder.chmod(0o755)
    return folder


def test_a_store_in_a_folder_that_may_only_be_read(public: Path) -> None:
    with open_history(public / "a ?%20.db") as history:
        fill(history, [10, 11])
    public.chmod(0o555)
    count, told = read_by_somebody(public / "a ?%20.db")
    assert count == "4"
    assert "Permission denied" in told
    public.chmod(0o755)
    shutil.rmtree(public)


def test_what_a_killed_writer_left_in_the_log_is_read_as_well(public: Path, tmp_path: Path) -> None:
    """The log beside the file has the latest points, and nothing may be written to bring them together."""
    path = tmp_path / "history.db"
    with open_history(path) as history:
        fill(history, [10, 11])
        with history.engine.connect():
            # As long as one connection is open, the log stays.
            fill(history, [12], first=2)
            for name in ("history.db", "history.db-wal"):
                shutil.copy(tmp_path / name, public / name)
    assert (public / "history.db-wal").stat().st_size > 0
    for file in public.iterdir():
        file.chmod(0o444)
    public.chmod(0o555)
    assert read_by_somebody(public / "history.db")[0] == "6"
    public.chmod(0o755)
    shutil.rmtree(public)


def test_who_only_reads_writes_nothing(history: History, location: str) -> None:
    fill(history, [10])
    with open_history(location, read_only=True) as reader:
        with pytest.raises(InputError, match="opened for reading only"):
            fill(reader, [12], first=1)
        with (
            pytest.raises(InputError, match="may only be read"),
            failures.explained("name"),
            reader.engine.begin() as connection,
        ):
            connection.exec_driver_sql("UPDATE memplan_points SET arena = 0")
        fill(history, [12], first=1)
        assert len(reader.points()) == 4


@pytest.mark.slow
def test_a_server_that_does_not_answer_or_has_no_such_database(postgresql: Server, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such database on the server"):
        open_history(f"postgresql://memplan@/never?host={postgresql.folder}")
    with pytest.raises(InputError, match="no answer from the server"):
        open_history(f"postgresql://memplan@/never?host={tmp_path}", wait=1)
    with pytest.raises(InputError, match="may not come in"):
        open_history(f"postgresql://stranger@/postgres?host={postgresql.folder}")


@pytest.mark.slow
def test_tables_of_others_in_the_same_database_are_no_matter(postgresql: Server) -> None:
    location = postgresql.new_database()
    with open_history(location) as history, history.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE runs (number int)")
    other = postgresql.new_database()
    postgresql.run("psql", "-d", other.split("/")[3].split("?")[0], "-c", "CREATE TABLE runs (number int)")
    with open_history(other) as history:
        history.record(HistoryRun("proj"), [measured(SERIES[0], 5)])
        assert len(history.points()) == 1


def test_without_the_extra_it_is_said_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingDependencyError, match=r"psycopg: pip install 'memplan\[postgresql\]'"):
        open_history("postgresql:///name")
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'memplan\[history\]'"):
        open_history(tmp_path / "history.db")
