"""What `memplan history record` is given: files and factories as points, or one factory at many commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from memplan_engine.cli.commands.history.factory_options import recording, tell_result
from memplan_engine.cli.commands.history.history_options import commit_named, opened_to_write
from memplan_engine.cli.model_argument import is_factory
from memplan_engine.cli.options import open_file
from memplan_engine.cli.output import tell
from memplan_engine.cli.progress import stages
from memplan_engine.diffing.regression import Limit
from memplan_engine.errors import InputError
from memplan_engine.files import load_recording, recognise
from memplan_engine.formats.importer import RecordingImporter
from memplan_engine.history.alarms import Watched, watch_series
from memplan_engine.history.baselines import branch_of
from memplan_engine.history.commit_points import FactoryRecipe
from memplan_engine.history.git.git_commit import work_tree
from memplan_engine.history.git.git_history import ancestors, commits_between, known_commit
from memplan_engine.history.history_values import SHORT_HASH, HistoryPoint, NewPoint
from memplan_engine.history.measuring import measure_loaded
from memplan_engine.recordings.allocator_recording import Recording, Selection, choose_recording
from memplan_engine.units import count_of

ALL_COMMITS = 1_000_000


def commit_of_sources(sources: Sequence[str], commit: str) -> str:
    """What `--commit` names, "" for what is checked out: of that, and of no other, a factory is captured.

    Raises
    ------
    InputError: a factory at another commit; as `commit_named`.
    """
    named, top = commit_named(commit), work_tree()
    if not (named and top and any(is_factory(source, None) for source in sources)):
        return named
    if named != known_commit(top, "HEAD"):
        short = named[:SHORT_HASH]
        found = f"{short}, while a factory is captured from the files of what is checked out"
        raise InputError(
            "--commit", "", found, f"--range {short}~..{short}, which captures it at that commit"
        )
    return ""


def refuse_beside_range(**options: object) -> None:
    """Raise InputError where one of `options`, by their names, is given: they are of one commit."""
    for name, given in options.items():
        if given:
            raise InputError(f"--{name}", "", "--range beside it", "one of the two: a range has many commits")


def measured_sources(
    sources: Sequence[str], recipe: FactoryRecipe, strategy: str | None, eager: Path | None
) -> list[NewPoint]:
    """The point of each of `sources`, all called and planned as `recipe` says; `eager` is a run beside."""
    if len(sources) > 1 and recipe.model:
        raise InputError("--model", "", f"{len(sources)} sources", "one: several have their own names")
    beside = _recording(eager, recipe) if eager else None
    if eager and beside is None:
        raise InputError(str(eager), "", "no recording", "an observation, a snapshot or a profiler trace")
    return [_measured(source, recipe, strategy, beside) for source in sources]


def _measured(source: str, recipe: FactoryRecipe, strategy: str | None, eager: Recording | None) -> NewPoint:
    if is_factory(source, None):
        own = replace(recipe, factory=source)
        with stages() as begin:
            begin(f"capturing {source}")
            data = own.capture()
            begin("planning")
            return own.measure(data, eager)
    if recipe.training:
        raise InputError("--training", "", "a file", "a factory: its model can be trained")
    path = Path(source)
    own_recording = _recording(path, recipe)
    loaded, how = open_file(path, recipe.how)
    # What was recorded is called as its file: graphs have names of their own.
    model = recipe.model or (path.stem if own_recording else "")
    return measure_loaded(
        loaded, project=recipe.project, model=model, variant=recipe.variant, strategy=strategy, how=how,
        nodes=recipe.nodes, seed=recipe.seed, eager=eager or own_recording,
    )  # fmt: skip


def _recording(path: Path, recipe: FactoryRecipe) -> Recording | None:
    """The recording in `path`, None where it holds something else."""
    if not isinstance(recognise(path), RecordingImporter):
        return None
    return choose_recording(load_recording(path), Selection(recipe.how.card))


def record_range(
    sources: Sequence[str],
    commits: str,
    recipe: FactoryRecipe,
    jobs: int,
    branch: str,
    store: str | None,
    limit: Limit,
) -> list[Watched]:
    """Record the factory `sources` at each of `commits`, "BASE..HEAD" or "HEAD", and tell of each; the series
    on the branch of the last.

    Raises
    ------
    InputError: no factory, no such commits, or none of them at which it can be captured.
    """
    if len(sources) != 1 or not is_factory(sources[0], None):
        raise InputError("--range", "", f"{', '.join(sources)!r}", "one factory, such as models.py:build")
    recipe = replace(recipe, factory=sources[0])
    base, dots, head = commits.partition("..")
    if head.startswith("."):
        raise InputError("--range", "", repr(commits), "two dots: BASE..HEAD, the earlier first")
    head = (head if dots else base) or "HEAD"
    if dots:
        line = commits_between(recipe.top, base or "HEAD", head)
    else:
        line = ancestors(recipe.top, head, ALL_COMMITS)[::-1]
    if not line:
        raise InputError("--range", "", f"{commits!r}, which has no commits", "BASE..HEAD, the earlier first")
    named = branch or branch_of(recipe.top, head)
    points: dict[str, HistoryPoint] = {}
    skipped = 0
    with opened_to_write(store) as history, recording(history, recipe, jobs, named) as recorder:
        recorder.note(line[-1], len(line))
        try:
            for number, result in enumerate(recorder.record(line), 1):
                tell_result(result, f"{number}/{len(line)}")
                if result.point:
                    points[result.commit] = result.point
                else:
                    skipped += 1
        finally:
            left = f", {count_of(skipped, 'commit')} skipped" if skipped else ""
            tell(f"{count_of(len(points), 'commit')} of {recipe.series.label} in {history.name}{left}")
        if not points:
            found = f"none of {count_of(len(line), 'commit')} at which it can be captured"
            raise InputError(f"factory {recipe.factory}", "", found, "a factory that one of them has")
        branch = next(points[commit].run.branch for commit in reversed(line) if commit in points)
        return watch_series(history, [recipe.series], branch=branch, limit=limit)
