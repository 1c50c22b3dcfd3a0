"""A writer that is killed loses nothing that it was told is committed, and leaves nothing half-written."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests import ROOT


def killed(*arguments: object) -> list[int]:
    """The numbers that `tests.history.killed` prints."""
    command = [sys.executable, "-m", "tests.history.killed", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [int(number) for number in re.findall(r"\d+", done.stdout)]


def test_a_writer_killed_before_each_of_its_statements(location: str) -> None:
    kills, kept, told = killed("record-statements", location)
    # Making the store, then two records of some ten statements each.
    assert kills > 25
    assert told <= kept
    assert told > 8


def test_a_migration_killed_before_each_of_its_statements(location: str) -> None:
    kills, kept = killed("migrate-statements", location)
    assert kills > 10
    assert kept == 4


def test_writers_killed_at_any_moment(location: str) -> None:
    kills, kept, told = killed("record", location, 5, 1)
    assert kills == 5
    assert kept >= told >= 4


def test_processes_that_record_at_once_and_one_that_is_killed(location: str) -> None:
    kept, told = killed("together", location, 6)
    assert kept >= told >= 5 * 4


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_hundreds_of_writers_killed_at_any_moment(location: str) -> None:
    wanted = 200 if "://" not in location else 60
    kills, kept, told = killed("record", location, wanted, 2)
    assert kills == wanted
    assert kept >= told > wanted / 2


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_hundreds_of_migrations_killed_at_any_moment(location: str) -> None:
    wanted = 100 if "://" not in location else 50
    kills, kept = killed("migrate", location, wanted, 3)
    assert kills == wanted
    assert kept == 20
