"""What is recorded of a zoo, what is not worked out twice, and what becomes of workers that fail."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memplan_engine.errors import InputError, MemplanError
from memplan_engine.history.database.store import History
from memplan_engine.history.history_values import HistoryRun
from memplan_engine.history.opening import open_history
from memplan_engine.zoo.manifest import read_zoo
from memplan_engine.zoo.planning import failed
from memplan_engine.zoo.zoo_cache import ZooCache
from memplan_engine.zoo.zoo_run import Outcome, ZooCounts, ZooResult, run_zoo
from memplan_engine.zoo.zoo_values import ZooAnswer
from tests.support.zoo_workers import HereWorkers, sized

TEXT = """
project = "shop"
strategies = ["auto"]
[axes]
batch = [1, 2, 4]
[[models]]
name = "net"
factory = "nets.py:net"
"""
RUN = HistoryRun("shop", commit="c1", branch="main", recorded_at=100)


class Zoo:
    """A manifest, a cache and a store in one folder; `run` goes through it."""

    def __init__(self, folder: Path, history: History) -> None:
        self.folder, self.history = folder, history
        self.told: list[str] = []
        self.seen: list[ZooCounts] = []

    def run(self, text: str = TEXT, workers: HereWorkers | None = None, run: HistoryRun = RUN) -> ZooResult:
        (self.folder / "zoo.toml").write_text(text)
        workers = workers or HereWorkers()
        try:
            return run_zoo(
                read_zoo(self.folder / "zoo.toml"),
                self.history,
                run,
                workers,
                cache=ZooCache(self.folder / "cache"),
                watch=self.seen.append,
                tell=self.told.append,
            )
        finally:
            assert workers.closed

    def asked(self, text: str = TEXT, run: HistoryRun = RUN) -> list[str]:
        """What another run of it asks workers for: the labels, with the strategies."""
        workers = HereWorkers()
        assert self.run(text, workers, run).complete
        return [f"{task.variant.label} {' '.join(task.strategies)}" for task in workers.asked]


@pytest.fixture
def zoo(models: Path) -> Iterator[Zoo]:
    with open_history(models / "history.db") as history:
        yield Zoo(models, history)


def test_each_variant_is_a_series_with_its_graph_in_the_store(zoo: Zoo) -> None:
    result = zoo.run()
    assert result.complete
    assert result.failed == ()
    points = zoo.history.points()
    assert [(each.series.model, each.series.variant) for each in points] == [
        ("net", "batch=1"),
        ("net", "batch=2"),
        ("net", "batch=4"),
    ]
    assert [(each.figures.arena, each.figures.weights) for each in points] == [
        (128, 1000),
        (256, 1000),
        (512, 1000),
    ]
    assert zoo.history.graph(points[2].fingerprints.graph) == sized(4)
    (run,) = zoo.history.runs()
    assert (run.project, run.commit, run.key) == ("shop", "c1", result.run.key)
    assert zoo.seen[-1] == ZooCounts(3, done=3)


def test_a_second_run_asks_for_nothing_and_records_nothing_twice(zoo: Zoo) -> None:
    first = zoo.run()
    again = zoo.run(workers=(workers := HereWorkers()))
    assert workers.asked == []
    assert all(each.cached for each in again.outcomes)
    assert [each.points for each in again.outcomes] == [each.points for each in first.outcomes]
    assert len(zoo.history.points()) == 3
    assert again.run.key == first.run.key
    # At another commit it is another run, of the same points, from the cache.
    assert zoo.asked(run=replace(RUN, commit="c2", parent="c1")) == []
    assert len(zoo.history.points()) == 6
    assert zoo.seen[-1] == ZooCounts(3, done=3, cached=3)


CHANGES: dict[str, tuple[Callable[[Path], object], int]] = {
    "the factory's own file": (lambda folder: append(folder / "nets.py"), 3),
    "a file that it imports": (lambda folder: append(folder / "layers.py"), 3),
    "a file that it does not import": (lambda folder: append(folder / "others.py"), 0),
    "the whole cache": (lambda folder: shutil.rmtree(folder / "cache"), 3),
    "one variant in the cache": (lambda folder: next(folder.glob("cache/variants/*/*")).unlink(), 1),
    "one point in the cache": (lambda folder: next(folder.glob("cache/points/*/*")).unlink(), 1),
    "a damaged point": (lambda folder: next(folder.glob("cache/points/*/*")).write_text("{"), 1),
    "all graphs in the cache": (lambda folder: shutil.rmtree(folder / "cache" / "graphs"), 0),
}


def append(path: Path) -> None:
    with path.open("a") as file:
        file.write("\n# changed\n")


@pytest.mark.parametrize("change", CHANGES)
def test_what_has_changed_is_worked_out_again(zoo: Zoo, change: str) -> None:
    zoo.run()
    act, times = CHANGES[change]
    act(zoo.folder)
    assert len(zoo.asked()) == times
    assert len({each.figures for each in zoo.history.points()}) == 3


def test_versions_and_torch_variables_count(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    zoo.run()
    monkeypatch.setenv("TORCH_LOGS", "")
    assert len(zoo.asked()) == 3
    monkeypatch.setattr("memplan_engine.zoo.zoo_run.versions_here", lambda: (("torch", "9"),))
    assert len(zoo.asked()) == 3


def test_another_strategy_or_variant_asks_for_that_alone(zoo: Zoo) -> None:
    zoo.run()
    more = TEXT.replace('["auto"]', '["auto", "naive"]').replace("[1, 2, 4]", "[1, 8]")
    workers = HereWorkers()
    result = zoo.run(more, workers)
    known, new = workers.asked
    # The graph goes along: nothing is captured for it again.
    assert (known.variant.text, known.strategies, len(known.graphs)) == ("batch=1", ("naive",), 1)
    assert (new.variant.text, new.strategies, new.graphs) == ("batch=8", ("auto", "naive"), ())
    assert [[each.series.strategy for each in outcome.points] for outcome in result.outcomes] == [
        ["auto", "naive"],
        ["auto", "naive"],
    ]
    assert [each.figures.arena for each in result.outcomes[1].points] == [1024, 1024]


def test_equal_graphs_are_kept_once_and_planned_for_each_series(zoo: Zoo) -> None:
    text = TEXT + '[[models]]\nname = "same"\nfactory = "nets.py:net"\n'
    zoo.run(text)
    assert len(zoo.history.points()) == 6
    assert len(zoo.history.graph_digests()) == 3
    assert len(list(zoo.folder.glob("cache/graphs/*/*"))) == 3


def test_a_failure_is_told_in_a_line_and_tried_again_by_the_next_run(zoo: Zoo) -> None:
    def answer(task: Any, times: int) -> ZooAnswer | None:
        return failed("found ValueError: boom at nets.py:7") if task.variant.text == "batch=2" else None

    result = zoo.run(workers=HereWorkers(answer))
    (bad,) = result.failed
    assert bad == Outcome(bad.variant, failures=(("", "found ValueError: boom at nets.py:7"),))
    assert zoo.told == ["net (batch=2): found ValueError: boom at nets.py:7"]
    assert zoo.seen[-1] == ZooCounts(3, done=3, failed=1)
    assert len(zoo.history.points()) == 2
    assert zoo.asked() == ["net (batch=2) auto"]
    assert len(zoo.history.points()) == 3
    assert len(zoo.history.runs()) == 1


def test_a_strategy_that_fails_leaves_the_others(zoo: Zoo) -> None:
    def answer(task: Any, times: int) -> ZooAnswer:
        answered = workers.usual(replace(task, strategies=("auto",)))
        return replace(answered, failures=(("naive", "it has failed"),))

    workers = HereWorkers(answer)
    result = zoo.run(TEXT.replace('["auto"]', '["auto", "naive"]').replace("[1, 2, 4]", "[1]"), workers)
    assert zoo.told == ["net (batch=1), naive: it has failed"]
    assert [len(each.points) for each in result.failed] == [1]


def test_a_worker_that_dies_is_told_of_and_its_variant_tried_once_more(zoo: Zoo) -> None:
    def answer(task: Any, times: int) -> ZooAnswer | None:
        dies = task.variant.text == "batch=1" or (task.variant.text == "batch=2" and times == 1)
        return ZooAnswer(died="the process was ended by SIGKILL") if dies else None

    workers = HereWorkers(answer)
    result = zoo.run(workers=workers)
    assert [each.variant.text for each in result.failed] == ["batch=1"]
    assert zoo.told == [
        "net (batch=1): the process was ended by SIGKILL; it is tried once more",
        "net (batch=2): the process was ended by SIGKILL; it is tried once more",
        "net (batch=1): the process was ended by SIGKILL, twice",
    ]
    assert len(workers.asked) == 5
    assert len(zoo.history.points()) == 2


def test_an_error_of_the_cluster_is_the_variants_own(zoo: Zoo) -> None:
    def answer(task: Any, times: int) -> None:
        if task.variant.text == "batch=4":
            raise RuntimeError("two\nlines")

    assert [each.failures for each in zoo.run(workers=HereWorkers(answer)).failed] == [
        (("", "RuntimeError: two lines"),)
    ]


@pytest.mark.parametrize("ending", [KeyboardInterrupt, MemplanError])
def test_what_is_done_is_recorded_when_it_ends_early(zoo: Zoo, ending: type[BaseException]) -> None:
    def watch(counts: ZooCounts) -> None:
        if counts.done == 2:
            raise ending("ended")

    (zoo.folder / "zoo.toml").write_text(TEXT)
    workers = HereWorkers()

    def run() -> ZooResult:
        return run_zoo(
            read_zoo(zoo.folder / "zoo.toml"), zoo.history, RUN, workers,
            cache=ZooCache(zoo.folder / "cache"), watch=watch,
        )  # fmt: skip

    if ending is KeyboardInterrupt:
        result = run()
        assert not result.complete
        assert [each.variant.text for each in result.outcomes] == ["batch=1", "batch=2"]
    else:
        with pytest.raises(MemplanError, match="ended"):
            run()
    assert workers.closed
    assert len(zoo.history.points()) == 2
    assert zoo.asked() == ["net (batch=4) auto"]
    assert len(zoo.history.points()) == 3


def test_workers_that_are_cancelled_end_it_with_a_way_out(zoo: Zoo) -> None:
    workers = HereWorkers()
    submit = workers.submit

    def cancelled(task: Any) -> Any:
        future = submit(task)
        if len(workers.asked) == 3:
            future = type(future)()
            future.cancel()
            future.set_running_or_notify_cancel()
        return future

    workers.submit = cancelled  # type: ignore[method-assign]
    with pytest.raises(MemplanError, match="the same command does the rest"):
        zoo.run(workers=workers)
    assert len(zoo.history.points()) == 2


def test_a_cache_that_cannot_be_written_is_one_line(zoo: Zoo) -> None:
    (zoo.folder / "cache").write_text("a file")
    with pytest.raises(InputError, match=r"a folder that can be made \(--cache\)"):
        zoo.run()


def test_a_store_that_refuses_leaves_the_cache_for_the_next_run(zoo: Zoo) -> None:
    refusing = replace(zoo.history, read_only=True)
    with pytest.raises(InputError, match="reading only"):
        Zoo(zoo.folder, refusing).run()
    assert zoo.asked() == []
    assert len(zoo.history.points()) == 3


def test_what_was_not_used_for_long_is_removed_from_the_cache(zoo: Zoo) -> None:
    zoo.run()
    cache, now = ZooCache(zoo.folder / "cache"), time.time()
    files = [path for path in cache.folder.rglob("*") if path.is_file()]
    assert cache.forget_unused(now + 89 * 86_400) == 0
    other = cache.folder / "own" / "ab" / "notes"
    other.parent.mkdir(parents=True)
    other.touch()
    for path in (*files, other):
        os.utime(path, (now - 91 * 86_400,) * 2)
    # A run uses what it reads; what the last kept is not of this one.
    assert zoo.asked() == []
    used = [path for path in files if path.exists()]
    assert len(used) == len(files)
    for path in (*files, other):
        os.utime(path, (now - 91 * 86_400,) * 2)
    assert cache.forget_unused() == len(files)
    assert [path for path in cache.folder.rglob("*") if path.is_file()] == [other]
