"""What is recorded is what is read, on both databases."""

from __future__ import annotations

from dataclasses import replace

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from memplan_engine import load
from memplan_engine.errors import InputError
from memplan_engine.formats.memplan_json.json_file import dumps
from memplan_engine.graph import Graph
from memplan_engine.history.database.history_tables import VERSION_TABLE, Base
from memplan_engine.history.database.store import History
from memplan_engine.history.graph_blobs import digest_of
from memplan_engine.history.history_values import (
    Acknowledgement,
    Fingerprints,
    HistoryFigures,
    HistoryRun,
    HistorySeries,
    NewPoint,
    pairs,
)
from memplan_engine.history.opening import open_history
from tests import ROOT

SERIES = HistorySeries("proj", "gpt2", "batch 8", "auto", (("alignment", "64"), ("nodes", "1000")))
FIGURES = HistoryFigures(3000, 2900, 2950, "aligned load", 2**62, 17, "addmm_3", 4000, None)
RUN = HistoryRun(
    "proj", "b" * 40, "a" * 40, 1_700_000_000, "main", False, 1_700_000_100, (("torch", "2.13"),), "host"
)
GRAPH = ROOT / "example_graphs" / "gpt2.json"


def graph() -> Graph:
    loaded = load(GRAPH)
    assert isinstance(loaded, Graph)
    return loaded


def with_graph() -> NewPoint:
    data = dumps(graph())
    prints = Fingerprints(digest_of(data), "1" * 64, "2" * 64, "3" * 64)
    return NewPoint(SERIES, FIGURES, prints, data, nodes=7, cut_short=True)


def test_what_was_recorded_is_there_after_it_is_opened_again(history: History, location: str) -> None:
    measured = with_graph()
    recorded = history.record(RUN, [measured])
    history.close()
    with open_history(location) as again:
        (point,) = again.points()
        assert (point,) == recorded.points
        assert point.run == replace(RUN, key=recorded.run.key)
        assert len(point.run.key) == 32
        assert (point.series, point.figures, point.fingerprints) == (
            SERIES,
            FIGURES,
            measured.fingerprints,
        )
        assert (point.nodes, point.cut_short) == (7, True)
        assert again.graph_json(measured.fingerprints.graph) == measured.graph_json
        assert again.graph(measured.fingerprints.graph) == graph()
        assert (again.runs(), again.series()) == ([point.run], [SERIES])


def test_a_graph_is_kept_once_and_small(history: History, location: str) -> None:
    for _ in range(3):
        history.record(RUN, [with_graph()])
    with history.engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT nbytes, length(frame) FROM memplan_graphs").fetchall()
    ((nbytes, kept),) = rows
    assert nbytes == len(with_graph().graph_json)
    # The figure: a compressed graph is 7 to 36 kB.
    assert kept < 36_000 < nbytes


def test_points_of_a_run_come_all_or_not_at_all(history: History) -> None:
    good = NewPoint(SERIES, FIGURES)
    for bad in (
        NewPoint(SERIES, replace(FIGURES, arena=1)),
        NewPoint(replace(SERIES, model="other"), replace(FIGURES, arena=-1)),
        NewPoint(replace(SERIES, model="other"), replace(FIGURES, arena=2**63)),
        NewPoint(replace(SERIES, model="ot\0her"), FIGURES),
        NewPoint(replace(SERIES, model="\ud800"), FIGURES),
        NewPoint(replace(SERIES, model="other"), FIGURES, Fingerprints(graph="0" * 64)),
        NewPoint(replace(SERIES, model="other"), FIGURES, Fingerprints(graph="0" * 64), b"{}"),
    ):
        with pytest.raises(InputError) as error:
            history.record(RUN, [good, bad])
        assert history.name in str(error.value)
    assert (history.points(), history.runs(), history.series()) == ([], [], [])


def test_what_was_interrupted_may_be_sent_again(history: History) -> None:
    key = "f" * 32
    first = history.record(replace(RUN, key=key), [NewPoint(SERIES, FIGURES)])
    other = replace(SERIES, model="bert")
    again = history.record(replace(RUN, key=key), [NewPoint(SERIES, FIGURES), NewPoint(other, FIGURES)])
    assert again.points[0] == first.points[0]
    assert [point.series for point in history.points()] == [SERIES, other]
    assert len(history.runs()) == 1
    with pytest.raises(InputError, match=r"arena of 5 bytes where 3000 were recorded"):
        history.record(replace(RUN, key=key), [NewPoint(SERIES, replace(FIGURES, arena=5))])


def test_points_and_runs_of_some_only(history: History) -> None:
    others = [replace(SERIES, model=name) for name in ("bert", "resnet")]
    history.record(RUN, [NewPoint(series, FIGURES) for series in (SERIES, *others)])
    elsewhere = replace(SERIES, project="elsewhere")
    history.record(replace(RUN, project="elsewhere"), [NewPoint(elsewhere, FIGURES)])
    assert [point.series for point in history.points(others[1])] == [others[1]]
    assert {point.series for point in history.points(others)} == set(others)
    assert history.points(replace(SERIES, model="never")) == []
    assert history.series("elsewhere") == [elsewhere]
    assert [run.project for run in history.runs("elsewhere")] == ["elsewhere"]


def test_the_latest_point_of_each_series_and_the_digests_of_all_graphs(history: History) -> None:
    other, foreign = replace(SERIES, strategy="naive"), replace(SERIES, project="other")
    for number, several in enumerate(([SERIES, other], [SERIES, foreign], [SERIES])):
        figures = replace(FIGURES, arena=FIGURES.arena + number)
        history.record(replace(RUN, commit=f"c{number}"), [NewPoint(each, figures) for each in several])
    assert [(each.series, each.figures.arena) for each in history.latest_points("proj")] == [
        (other, 3000),
        (SERIES, 3002),
    ]
    assert [each.run.commit for each in history.latest_points("other")] == ["c1"]
    assert history.latest_points("none") == []
    assert history.graph_digests() == set()
    history.record(replace(RUN, commit="c9"), [with_graph()])
    assert history.graph_digests() == {digest_of(dumps(graph()))}


def test_an_acknowledgement_counts_for_a_commit_and_is_said_anew(history: History) -> None:
    history.record(RUN, [NewPoint(SERIES, FIGURES)])
    history.acknowledge(Acknowledgement(SERIES, RUN.commit, "new head", "ann", 5))
    history.acknowledge(Acknowledgement(SERIES, RUN.commit, "a wider head", "bob", 6))
    assert history.acknowledgements() == [
        Acknowledgement(SERIES, RUN.commit, "a wider head", "bob", 6),
    ]
    with pytest.raises(InputError, match="no such series"):
        history.acknowledge(Acknowledgement(replace(SERIES, model="never"), RUN.commit, "?"))


def test_times_that_cannot_be_right_are_told_and_kept(history: History) -> None:
    assert history.record(RUN, [NewPoint(SERIES, FIGURES)]).remarks == ()
    early = replace(RUN, commit="c" * 40, recorded_at=RUN.committed_at - 3600)
    commit, store = history.record(early, [NewPoint(SERIES, FIGURES)]).remarks
    assert "commit cccccccccccc is of 2023-11-14 22:13:20 UTC" in commit
    assert "2023-11-14 21:13:20 UTC" in store
    assert len(history.points()) == 2


def test_a_graph_that_is_not_there_or_damaged_is_told(history: History) -> None:
    measured = with_graph()
    history.record(RUN, [measured])
    with pytest.raises(InputError, match="no such graph"):
        history.graph("9" * 64)
    with history.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE memplan_graphs SET frame = substr(frame, 1, 100)")
    with pytest.raises(InputError, match="damaged"):
        history.graph(measured.fingerprints.graph)


def test_the_migrations_make_the_tables_that_the_code_knows(history: History) -> None:
    with history.engine.connect() as connection:
        options = {"version_table": VERSION_TABLE, "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, Base.metadata) == []


def test_series_are_one_where_all_of_it_is_equal() -> None:
    assert pairs({"nodes": 5, "alignment": 64}) == (("alignment", "64"), ("nodes", "5"))
    shifted = replace(SERIES, model="gpt2batch 8", variant="")
    assert len({SERIES.digest, shifted.digest, replace(SERIES, strategy="search").digest}) == 3
