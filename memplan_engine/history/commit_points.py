"""What a factory needs at each of many commits: captured in work trees beside each other, and recorded."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError, MemplanError
from memplan_engine.history.git.git_commit import run_of, stamped, work_tree
from memplan_engine.history.git.git_history import line_runs, tree_of
from memplan_engine.history.git.worktrees import Worktrees
from memplan_engine.history.graph_blobs import digest_of, graph_from_json
from memplan_engine.history.history_values import (
    Fingerprints,
    HistoryPoint,
    HistoryRun,
    HistorySeries,
    NewPoint,
)
from memplan_engine.history.measuring import NODES, measure_graph, series_of, structure_of
from memplan_engine.preparation import Preparation
from memplan_engine.recordings.allocator_recording import Recording
from memplan_engine.torch_capture.factory_spec import parse_factory

if TYPE_CHECKING:
    from memplan_engine.history.database.store import History
    from memplan_engine.runtime.scripts.factory_capture import FactoryRequest

SECONDS = 600.0
"""A factory that is not captured by then is given up."""
MOST_BETWEEN = 1_000
"""Commits that nobody recorded, between two that somebody did: a runner that records each day skips tens."""
PLACES = "", "src"
"""Where in a repository modules are looked for."""


@dataclass(frozen=True, slots=True)
class FactoryRecipe:
    """What is captured and planned at a commit: `factory`, as it is named in `folder`, which may lie in a
    repository with the work tree `top`. `places` are folders in that from which modules are imported.

    `training` is "step" or "joint", "" for inference, `options` are those of `memplan capture`. The series is
    called `model` (as the factory's function unless given) and `variant` (its arguments), of `project`.
    """

    factory: str
    folder: Path
    top: Path
    project: str = ""
    model: str = ""
    variant: str = ""
    strategy: str = "auto"
    how: Preparation = field(default_factory=Preparation)
    nodes: int = NODES
    seed: int = 0
    training: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    places: tuple[str, ...] = PLACES
    seconds: float = SECONDS

    @property
    def series(self) -> HistorySeries:
        """What the points of it belong to."""
        spec = parse_factory(self.factory)
        told = [f"{name}={value}" for name, value in spec.arguments.items()]
        told += [f"training {self.training}"] * bool(self.training)
        told += [f"{name} {value}" for name, value in sorted(self.options.items())]
        return series_of(
            self.project,
            self.model or spec.function,
            self.variant or ", ".join(told),
            self.strategy,
            self.how,
            self.nodes,
            self.seed,
        )

    @property
    def file(self) -> Path | None:
        """The factory's file, None where it is a module."""
        module = parse_factory(self.factory).module
        return (self.folder / module).resolve() if module.endswith(".py") else None

    def capture(self, stop: threading.Event | None = None) -> bytes:
        """The graph of what is here now, as memplan JSON; raises as `capture_apart` does."""
        from memplan_engine.runtime.scripts.factory_capture import capture_apart

        return capture_apart(self._request(self.top, ()), self.seconds, stop)

    def capture_at(self, tree: Path, stop: threading.Event | None = None) -> bytes:
        """The graph of the commit whose files are in `tree`. A factory's file that the commit has not is that
        of today. Raises as `capture_apart` does."""
        from memplan_engine.runtime.scripts.factory_capture import capture_apart

        given: tuple[str, ...] = ()
        file = self.file
        if file is not None and not (tree / self._inside(file)).exists():
            given = (self._inside(file),)
            (tree / given[0]).parent.mkdir(parents=True, exist_ok=True)
            try:
                shutil.copyfile(file, tree / given[0])
            except OSError as error:
                raise InputError(f"factory {self.factory}", "", f"{error.strerror!r}", "a file") from None
        request = replace(self._request(tree, given), elsewhere=self.top)
        return capture_apart(request, self.seconds, stop)

    def measure(self, data: bytes, eager: Recording | None = None) -> NewPoint:
        """The point of the graph `data`, with what is known of a run without a plan."""
        graph, series = graph_from_json(data, f"factory {self.factory}"), self.series
        return measure_graph(
            graph, project=self.project, model=series.model, variant=series.variant, strategy=self.strategy,
            how=self.how, nodes=self.nodes, seed=self.seed, eager=eager,
        )  # fmt: skip

    def _inside(self, file: Path) -> str:
        """Where `file` lies in a work tree; a file from elsewhere stands at its top."""
        return str(file.relative_to(self.top)) if file.is_relative_to(self.top) else file.name

    def _request(self, tree: Path, given: tuple[str, ...]) -> FactoryRequest:
        from memplan_engine.runtime.scripts.factory_capture import FactoryRequest

        factory, file = self.factory, self.file
        if file is not None:
            name = self._inside(file) if file.is_relative_to(self.top) or tree != self.top else str(file)
            factory = str(parse_factory(factory)._replace(module=name))
        folder = self.folder.resolve()
        own = (str(folder.relative_to(self.top)),) if folder.is_relative_to(self.top) else ()
        places = tuple(dict.fromkeys([*own, *self.places]))
        return FactoryRequest(factory, tree, places, self.training, self.options, given=given)


class Came(StrEnum):
    """How the figures of a commit came about."""

    CAPTURED = "captured"
    SAME_GRAPH = "same graph"
    SAME_FILES = "same files"
    RECORDED = "recorded before"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The `point` of a commit, which is in the store; None, with the reason in `why_not`, for one that cannot
    be captured."""

    commit: str
    came: Came
    point: HistoryPoint | None = None
    why_not: str = ""


class CommitRecorder:
    """Records `recipe` at commits into `history`, in `trees`, as many at a time as these are.

    A commit that is in the store already, with the same versions of the packages that matter, is not captured
    again; one whose files or whose graph are those of another is not planned again.
    """

    def __init__(self, history: History, recipe: FactoryRecipe, trees: Worktrees, branch: str = "") -> None:
        self.history, self.recipe, self.trees, self.branch = history, recipe, trees, branch
        self._stop = threading.Event()
        self._by_tree: dict[str, NewPoint] = {}
        self._by_structure: dict[str, HistoryPoint | NewPoint] = {}
        self._recorded: dict[str, HistoryPoint] = {}
        self._versions = stamped(HistoryRun("")).versions
        self._look()

    def note(self, head: str, most: int) -> None:
        """Have the store know the order of `head` and of `most` commits before it."""
        self.history.note(line_runs(self.recipe.top, self.recipe.project, head, most))

    def record(self, commits: Sequence[str]) -> Iterator[CommitResult]:
        """The result of each of `commits`, as it is there; what is there stays when this is interrupted.

        Raises
        ------
        MemplanError: a store that cannot be written to, or git that fails.
        """
        with ThreadPoolExecutor(self.trees.count, "memplan-commits") as pool:
            try:
                for future in as_completed([pool.submit(self._one, commit) for commit in commits]):
                    yield future.result()
            except BaseException:
                self._stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _look(self, commit: str = "") -> bool:
        """Look up what is recorded, maybe by another who does the same at this time; whether `commit` is."""
        for point in self.history.points(self.recipe.series, commit):
            if point.run.versions == self._versions and point.fingerprints.graph and not point.run.dirty:
                self._recorded[point.run.commit] = point
                self._by_structure[point.fingerprints.structure] = point
        return commit in self._recorded

    def _one(self, commit: str) -> CommitResult:
        if commit in self._recorded or self._look(commit):
            return CommitResult(commit, Came.RECORDED, self._recorded[commit])
        run = run_of(self.recipe.top, project=self.recipe.project, commit=commit, branch=self.branch)
        try:
            came, new = self._measured(run.commit)
        except MemplanError as error:
            if self._stop.is_set():
                raise
            return CommitResult(commit, Came.SKIPPED, why_not=str(error))
        if self._look(commit):
            return CommitResult(commit, Came.RECORDED, self._recorded[commit])
        (point,) = self.history.record(run, [new]).points
        self._recorded[run.commit] = point
        return CommitResult(commit, came, point)

    def _measured(self, commit: str) -> tuple[Came, NewPoint]:
        tree = tree_of(self.recipe.top, commit)
        if tree in self._by_tree:
            return Came.SAME_FILES, self._by_tree[tree]
        with self.trees.at(commit) as place:
            data = self.recipe.capture_at(place, self._stop)
        structure = structure_of(graph_from_json(data, f"factory {self.recipe.factory}"))
        same, came = self._by_structure.get(structure), Came.SAME_GRAPH
        if same is None:
            new, came = self.recipe.measure(data), Came.CAPTURED
        else:
            told = same.fingerprints
            prints = Fingerprints(digest_of(data), structure, told.problem, told.plan)
            new = NewPoint(same.series, same.figures, prints, data, same.nodes, same.cut_short)
        self._by_tree[tree] = self._by_structure[structure] = new
        return came, new


def note_commits_before(history: History, run: HistoryRun, folder: Path | str = ".") -> None:
    """Have `history` know the commits between that of `run` and the nearest before it that it has: without
    them it could go by times alone, which a rebase changes. Nothing where there is none within MOST_BETWEEN
    commits, outside of a repository, and of a commit that it has not."""
    top = work_tree(folder)
    if not run.commit or top is None:
        return
    try:
        line = line_runs(top, run.project, run.commit, MOST_BETWEEN)[1:]
    except InputError:
        return
    known = {each.commit for each in history.runs(run.project)}
    between = list(takewhile(lambda each: each.commit not in known, line))
    if between and len(between) < len(line):
        history.note(between)
