"""A manifest → points in a store: what is known is taken from the cache, the rest is worked on by several at
a time; one process, this one, writes cache and store."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from memplan_engine.errors import MemplanError, one_line
from memplan_engine.history.commit_points import note_commits_before
from memplan_engine.history.history_values import HistoryRun, HistorySeries, NewPoint
from memplan_engine.history.measuring import NODES, series_options
from memplan_engine.zoo.local_workers import Workers
from memplan_engine.zoo.planning import variant_text
from memplan_engine.zoo.variant_keys import (
    forget_sources,
    graphs_key,
    point_key,
    run_key,
    sources_digest,
    versions_here,
)
from memplan_engine.zoo.zoo_cache import ZooCache
from memplan_engine.zoo.zoo_values import Manifest, Variant, Versions, ZooAnswer, ZooGraph, ZooTask

if TYPE_CHECKING:
    from memplan_engine.history.database.store import History

SECONDS = 600.0
"""For a variant, unless somebody says otherwise."""
LOOK_SECONDS = 0.2
"""Between two looks at workers: Python hears Ctrl-C only then."""
LOST = "the workers do not answer any more; what was done is recorded, and the same command does the rest"
BATCH_SECONDS, BATCH_POINTS = 1.0, 256
"""Points are recorded together once they have waited so long, or are so many: a transaction takes as long for
one as for some ten."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of `variant`: its points, those that were `cached` without any work, and each strategy that
    failed ("" for all of them) with the reason."""

    variant: Variant
    points: tuple[NewPoint, ...] = ()
    failures: tuple[tuple[str, str], ...] = ()
    cached: bool = False


@dataclass(frozen=True, slots=True)
class ZooCounts:
    """How far a zoo is: of `total` variants so many are `done`, of which some were `cached` or `failed`."""

    total: int
    done: int = 0
    cached: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class ZooResult:
    """What became of a zoo: the outcomes in the order of the manifest, without those that Ctrl-C left out,
    and the `run` of the store that has their points."""

    manifest: Manifest
    outcomes: tuple[Outcome, ...]
    run: HistoryRun
    remarks: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether all variants have come to an end."""
        return len(self.outcomes) == len(self.manifest.variants)

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """Those of which something failed."""
        return tuple(each for each in self.outcomes if each.failures)


def run_zoo(
    manifest: Manifest,
    history: History,
    run: HistoryRun,
    workers: Workers,
    *,
    cache: ZooCache,
    nodes: int = NODES,
    seed: int = 0,
    seconds: float = SECONDS,
    watch: Callable[[ZooCounts], None] = lambda counts: None,
    tell: Callable[[str], None] = lambda line: None,
) -> ZooResult:
    """Plan all variants of `manifest` and record their points in `history` as of `run`.

    Where all is as it was in a run that is there, its points go on with that one: what was interrupted and is
    begun again records only what is missing. `workers` are closed in the end; `nodes` and `seed` are what a
    search may spend, `seconds` what a variant may take. `watch` hears how far it is, `tell` of each failure,
    in a line. KeyboardInterrupt ends it with what is done.

    Raises
    ------
    InputError: a store or a cache that cannot be written to. MemplanError: workers that are gone. What was
    done is recorded.
    """
    zoo = _Zoo(manifest, history, workers, cache, nodes, seed, seconds, watch, tell)
    try:
        zoo.start(run)
        zoo.work()
    except KeyboardInterrupt:
        if not zoo.outcomes:
            raise
    finally:
        workers.close()
        zoo.record()
        cache.forget_unused()
    return zoo.result()


@dataclass
class _Zoo:
    manifest: Manifest
    history: History
    workers: Workers
    cache: ZooCache
    nodes: int
    seed: int
    seconds: float
    watch: Callable[[ZooCounts], None]
    tell: Callable[[str], None]
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    counts: ZooCounts = field(default_factory=lambda: ZooCounts(0))
    run: HistoryRun = field(default_factory=lambda: HistoryRun(""))
    versions: Versions = ()
    remarks: tuple[str, ...] = ()
    _keys: list[str] = field(default_factory=list)
    _tasks: dict[int, ZooTask] = field(default_factory=dict)
    _waiting: list[NewPoint] = field(default_factory=list)
    _since: float = 0.0
    _stored: set[str] = field(default_factory=set)
    _ended: queue.SimpleQueue[tuple[int, Future[ZooAnswer]]] = field(default_factory=queue.SimpleQueue)
    _retried: set[int] = field(default_factory=set)

    def start(self, run: HistoryRun) -> None:
        """Take what is known, and make tasks of the rest."""
        self.versions = versions_here()
        folder = self.manifest.path.resolve().parent
        variants = self.manifest.variants
        self.counts = ZooCounts(len(variants))
        forget_sources()
        sources = [sources_digest(each.origin, folder) for each in variants]
        self._keys = [graphs_key(*pair, self.versions) for pair in zip(variants, sources, strict=True)]
        project = self.manifest.project or run.project
        asked = sorted(
            (key, each.model, each.text, each.strategies, str(each.how))
            for key, each in zip(self._keys, variants, strict=True)
        )
        said = [project, run.commit, run.branch, run.dirty, self.nodes, self.seed, asked]
        self.run = replace(run, project=project, key=run_key(said))
        note_commits_before(self.history, self.run, folder)
        self._stored = self.history.graph_digests()
        for number, variant in enumerate(variants):
            graphs = self.cache.graphs(self._keys[number])
            points = [] if graphs is None else [*self._known(variant, graphs)]
            missing = tuple(
                strategy
                for strategy in variant.strategies
                if graphs is None or not any(each.series.strategy == strategy for each in points)
            )
            if not missing:
                self._done(number, Outcome(variant, tuple(points), cached=True))
                continue
            carried = tuple(
                replace(each, json=data)
                for each in graphs or ()
                if (data := self.cache.json(each.digest)) is not None
            )
            if len(carried) != len(graphs or ()):
                # A cache with holes: from the beginning.
                carried, missing = (), variant.strategies
            self._tasks[number] = ZooTask(
                variant, missing, str(folder), project, sources[number], self.versions,
                self.nodes, self.seed, self.seconds, carried,
            )  # fmt: skip

    def _known(self, variant: Variant, graphs: tuple[ZooGraph, ...]) -> Iterator[NewPoint]:
        """The points that the cache has: of each strategy those of all graphs, or none."""
        for strategy in variant.strategies:
            points = []
            for graph in graphs:
                key = point_key(graph.digest, variant.how, strategy, self.nodes, self.seed, self.versions)
                point = self.cache.point(key)
                if point is None:
                    break
                series = HistorySeries(
                    self.run.project,
                    variant.model,
                    variant_text(variant, graph),
                    strategy,
                    series_options(variant.how, self.nodes, self.seed),
                )
                figures = replace(point.figures, eager=graph.eager, reserved=graph.reserved)
                points.append(replace(point, series=series, figures=figures))
            if len(points) == len(graphs):
                yield from points

    def work(self) -> None:
        """Have the tasks answered."""
        for number in self._tasks:
            self._submit(number)
        left = len(self._tasks)
        while left:
            for line in self.workers.news():
                self.tell(line)
            try:
                number, future = self._ended.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                self._record_what_waited()
                continue
            answer = self._answer(number, future)
            if answer.died and number not in self._retried:
                self._retried.add(number)
                label = self.manifest.variants[number].label
                self.tell(f"{label}: {answer.died}; it is tried once more")
                self._submit(number)
                continue
            left -= 1
            self._take(number, answer)
            self._record_what_waited()

    def _submit(self, number: int) -> None:
        future = self.workers.submit(self._tasks[number])
        future.add_done_callback(lambda ended: self._ended.put((number, ended)))

    def _answer(self, number: int, future: Future[ZooAnswer]) -> ZooAnswer:
        try:
            return future.result()
        except CancelledError:
            raise MemplanError(LOST) from None
        except Exception as error:
            # Of a cluster: a worker that was ended again and again, a class that it does not know.
            return ZooAnswer(failures=(("", one_line(f"{type(error).__name__}: {error}", 300)),))

    def _take(self, number: int, answer: ZooAnswer) -> None:
        """Keep an answer, for now and for runs to come."""
        task = self._tasks[number]
        graphs = answer.graphs or task.graphs
        if answer.graphs:
            self.cache.keep_graphs(self._keys[number], answer.graphs)
        for point in answer.points:
            key = point_key(
                point.fingerprints.graph, task.variant.how, point.series.strategy,
                self.nodes, self.seed, self.versions,
            )  # fmt: skip
            self.cache.keep_point(key, point)
        failures = answer.failures or ((("", f"{answer.died}, twice"),) if answer.died else ())
        for strategy, why in failures:
            self.tell(f"{task.variant.label}{strategy and f', {strategy}'}: {why}")
        known = [] if not task.graphs else [
            each for each in self._known(task.variant, task.graphs)
            if each.series.strategy not in task.strategies
        ]  # fmt: skip
        json = {graph.digest: graph.json for graph in graphs}
        points = [replace(each, graph_json=json[each.fingerprints.graph]) for each in answer.points]
        self._done(number, Outcome(task.variant, (*known, *points), failures))

    def _done(self, number: int, outcome: Outcome) -> None:
        bare = tuple(replace(each, graph_json=b"") for each in outcome.points)
        self.outcomes[number] = replace(outcome, points=bare)
        if not self._waiting:
            self._since = time.monotonic()
        self._waiting += outcome.points
        counts = self.counts
        self.counts = replace(
            counts,
            done=counts.done + 1,
            cached=counts.cached + outcome.cached,
            failed=counts.failed + bool(outcome.failures),
        )
        self.watch(self.counts)

    def _record_what_waited(self) -> None:
        waited = time.monotonic() - self._since > BATCH_SECONDS
        if self._waiting and (waited or len(self._waiting) >= BATCH_POINTS):
            self.record()

    def record(self) -> None:
        """Write into the store what waits for it."""
        waiting, self._waiting = self._waiting, []
        while waiting:
            some, waiting = waiting[:BATCH_POINTS], waiting[BATCH_POINTS:]
            given = [self._with_graph(each) for each in some]
            recorded = self.history.record(self.run, given)
            self.run, self.remarks = recorded.run, self.remarks or recorded.remarks
            self._stored |= {each.fingerprints.graph for each in given}

    def _with_graph(self, point: NewPoint) -> NewPoint:
        digest = point.fingerprints.graph
        if digest in self._stored:
            return replace(point, graph_json=b"")
        data = point.graph_json or self.cache.json(digest)
        # A point of which the graph is lost has its figures all the same.
        return replace(point, graph_json=data) if data else replace(
            point, fingerprints=replace(point.fingerprints, graph="")
        )  # fmt: skip

    def result(self) -> ZooResult:
        """What became of it."""
        outcomes = tuple(self.outcomes[number] for number in sorted(self.outcomes))
        return ZooResult(self.manifest, outcomes, self.run, self.remarks)
