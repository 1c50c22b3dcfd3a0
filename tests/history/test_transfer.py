"""Export, import and retention, on both databases."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import insert, select

from memplan_engine.errors import InputError
from memplan_engine.history.changes import history_changes
from memplan_engine.history.database.pruning import Pruned
from memplan_engine.history.database.row_values import POINTS, RUNS
from memplan_engine.history.database.store import History
from memplan_engine.history.database.transfer import Imported
from memplan_engine.history.graph_blobs import digest_of
from memplan_engine.history.history_values import (
    Acknowledgement,
    Fingerprints,
    HistoryFigures,
    HistoryRun,
    HistorySeries,
    NewPoint,
)
from memplan_engine.history.opening import open_history

SERIES = (HistorySeries("proj", "gpt2"), HistorySeries("proj", "bert", "batch 8"))
START = 1_700_000_000


def measured(series: HistorySeries, arena: int, graph: str = "") -> NewPoint:
    data = f'{{"graph": "{graph}"}}\n'.encode() if graph else b""
    prints = Fingerprints(digest_of(data)) if graph else Fingerprints()
    return NewPoint(series, HistoryFigures(arena, arena - 1, arena - 1, "load", 5, 6, "op"), prints, data)


def fill(history: History, arenas: list[int], first: int = 0) -> None:
    """A commit for each of `arenas`, of both series, each with a graph of its own."""
    for index, arena in enumerate(arenas, first):
        parent = f"{index - 1:040x}" if index else ""
        run = HistoryRun("proj", f"{index:040x}", parent, START + index, "main", recorded_at=START + index)
        history.record(run, [measured(series, arena, f"{series.model} {index}") for series in SERIES])


def graphs(history: History) -> int:
    with history.engine.connect() as connection:
        return int(connection.exec_driver_sql("SELECT count(*) FROM memplan_graphs").scalar() or 0)


def test_what_was_exported_is_one_file_and_all_of_it(history: History, tmp_path: Path) -> None:
    fill(history, [10, 10, 12])
    history.acknowledge(Acknowledgement(SERIES[0], f"{2:040x}", "wider", "ann", 9))
    folder = tmp_path / "carried"
    folder.mkdir()
    history.export(folder / "all.db")
    assert os.listdir(folder) == ["all.db"]
    with open_history(folder / "all.db", read_only=True) as copy:
        assert [replace(each, number=0) for each in copy.points()] == [
            replace(each, number=0) for each in history.points()
        ]
        assert copy.acknowledgements() == history.acknowledgements()
        for point in copy.points():
            data = copy.graph_json(point.fingerprints.graph)
            assert data == history.graph_json(point.fingerprints.graph)


def test_stores_of_two_machines_become_one(history: History, tmp_path: Path) -> None:
    fill(history, [10, 10])
    with open_history(tmp_path / "other.db") as other:
        fill(other, [10, 12, 12], first=1)
        other.acknowledge(Acknowledgement(SERIES[0], f"{2:040x}", "wider", "ann", 9))
        # The graphs of commit 1 are those that are there.
        assert history.merge(other) == Imported(runs=3, points=6, graphs=4, acknowledgements=1)
        assert history.merge(other) == Imported(0, 0, 0, 0)
        assert len(history.points()) == 10
        (change,) = history_changes(history.points(SERIES[0]), history.runs())
        assert (change.before.run.commit[-1], change.after.run.commit[-1], change.arena) == ("1", "2", 2)
        assert other.merge(history).points == 4


def test_who_imports_the_same_graphs_at_once_waits_and_finds_them_there(
    history: History, location: str, tmp_path: Path
) -> None:
    for number in range(4):
        with open_history(tmp_path / f"{number}.db") as other:
            own = replace(SERIES[0], variant=f"machine {number}")
            for index in range(40):
                other.record(HistoryRun("proj"), [measured(own, 10, f"graph {index}")])
    found: list[int | BaseException] = []

    def work(number: int) -> None:
        try:
            with (
                open_history(location) as own,
                open_history(tmp_path / f"{number}.db", read_only=True) as other,
            ):
                found.append(own.merge(other).graphs)
        except BaseException as error:
            found.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert sorted(found, key=str) == [0, 0, 0, 40]
    assert len(history.points()) == 4 * 40


def test_another_point_of_the_same_run_is_refused_and_nothing_of_it_is_kept(
    history: History, tmp_path: Path
) -> None:
    fill(history, [10, 10])
    history.export(tmp_path / "copy.db")
    with open_history(tmp_path / "copy.db") as copy:
        fill(copy, [11], first=7)
        with copy.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE memplan_points SET arena = 77 WHERE number = 1")
        with pytest.raises(InputError, match=r"copy.db: run .* arena of 77 bytes where .* has 10"):
            history.merge(copy)
    assert len(history.points()) == len(history.runs()) * 2 == 4


def test_a_graph_that_is_not_what_it_claims_is_not_imported(history: History, tmp_path: Path) -> None:
    with open_history(tmp_path / "other.db") as other:
        fill(other, [10])
        with other.engine.begin() as connection:
            connection.exec_driver_sql(
                "UPDATE memplan_graphs SET frame = (SELECT frame FROM memplan_graphs ORDER BY digest LIMIT 1)"
            )
        with pytest.raises(InputError, match=r"other.db: graph .*: found bytes with the digest"):
            history.merge(other)
    assert (history.runs(), history.series(), graphs(history)) == ([], [], 0)


def test_an_export_replaces_no_store_in_use_and_not_itself(history: History, tmp_path: Path) -> None:
    fill(history, [10])
    used = tmp_path / "used.db"
    with open_history(used) as other:
        with other.engine.connect() as connection:
            connection.exec_driver_sql("SELECT * FROM memplan_runs").fetchall()
            with pytest.raises(InputError, match="somebody has open"):
                history.export(used)
        with pytest.raises(InputError, match="the store itself"):
            other.export(used)
    with pytest.raises(InputError, match="does not exist"):
        history.export(tmp_path / "nowhere" / "all.db")
    history.export(used)
    with open_history(used, read_only=True) as copy:
        assert len(copy.points()) == 2


def test_what_is_pruned_leaves_every_change(history: History) -> None:
    fill(history, [10] * 20 + [12] * 20 + [11] * 20)
    history.acknowledge(Acknowledgement(SERIES[0], f"{30:040x}", "looked at", "ann", 9))
    before = [history_changes(history.points(series), history.runs()) for series in SERIES]
    assert [len(each) for each in before] == [2, 2]
    assert graphs(history) == 120
    # Of the first series the ends, two sides of two changes and the acknowledged one stay: 7 of 60.
    assert history.prune(newest=0) == Pruned(points=53 + 54, graphs=53 + 54)
    assert [history_changes(history.points(series), history.runs()) for series in SERIES] == before
    assert len(history.runs()) == 60
    assert graphs(history) == 13
    assert history.prune(newest=0) == Pruned(0, 0)
    for point in history.points():
        history.graph_json(point.fingerprints.graph)


@pytest.mark.slow
def test_a_thousand_recordings_of_one_commit_are_no_change_and_soon_gone(history: History) -> None:
    run = HistoryRun("proj", "a" * 40, "", START, "main")
    data = measured(SERIES[0], 10, "same")
    for _ in range(1000):
        history.record(run, [data])
    assert history_changes(history.points(), history.runs()) == []
    assert history.prune(newest=0) == Pruned(points=998, graphs=0)
    assert graphs(history) == 1


@pytest.mark.slow
def test_years_of_points_are_read_in_seconds(history: History, tmp_path: Path) -> None:
    """10,000 commits of one series among others: one chart of the dashboard."""
    fill(history, [10])
    with history._writing() as connection:
        rows = [
            {"key": f"{n:032x}", "project": "proj", "commit": f"{n:040x}", "parent": f"{n - 1:040x}",
             "committed_at": START + n, "branch": "main", "dirty": False, "recorded_at": START + n,
             "versions": "[]", "host": ""}
            for n in range(1, 10_001)
        ]  # fmt: skip
        connection.execute(insert(RUNS), rows)
        (columns,) = connection.execute(select(POINTS).where(POINTS.c.number == 1)).mappings()
        numbers = connection.execute(select(RUNS.c.number).where(RUNS.c.parent != "")).scalars()
        bare = {name: value for name, value in columns.items() if name != "number"}
        connection.execute(insert(POINTS), [bare | {"run": number, "arena": number} for number in numbers])
    began = time.monotonic()
    points = history.points(SERIES[0])
    assert len(points) == 10_001
    assert len(history_changes(points, history.runs())) == 10_000
    assert time.monotonic() - began < 10


def test_the_newest_and_the_young_stay(history: History) -> None:
    fill(history, [10] * 30)
    assert history.prune() == Pruned(0, 0)
    assert history.prune(newest=0, before=START + 10).points == 2 * 9
    assert history.prune(newest=5).points == 2 * 15
    commits = [int(point.run.commit, 16) for point in history.points(SERIES[1])]
    assert commits == [0, 25, 26, 27, 28, 29]
    with pytest.raises(InputError, match="0 or more points"):
        history.prune(newest=-1)
