"""`memplan fit`: does a model fit, and by which rewrites?"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import typer

from memplan_engine.accelerators.presets import PRESETS, USUAL, accelerator
from memplan_engine.advice.stage_changes import stage_changes
from memplan_engine.analysis.op_costs import OpTimes, modelled_times
from memplan_engine.analysis.torch_budgets import TorchPoint
from memplan_engine.cli.app import app
from memplan_engine.cli.commands.capacity_option import EXIT_CODES
from memplan_engine.cli.commands.capture_command import ACCUMULATE, CLIP, FOREACH, OPTIMIZER, step_options
from memplan_engine.cli.commands.fit_sources import SourceChanges
from memplan_engine.cli.model_argument import is_factory
from memplan_engine.cli.options import (
    AS_JSON,
    SECONDS,
    SEED,
    THREADS,
    make_limits,
    open_file,
    with_preparation,
)
from memplan_engine.cli.output import check_targets, show, tell
from memplan_engine.cli.progress import solve_in_sight, stages
from memplan_engine.errors import InputError
from memplan_engine.files import recognise, write
from memplan_engine.fitting.fit_stages import fit_graph
from memplan_engine.fitting.fitted import LOWERING, Fitted, RandomOps, StageName
from memplan_engine.fitting.largest import Largest, Tried, largest_that_fits, parse_largest
from memplan_engine.formats.about import may_have_about, read_about
from memplan_engine.formats.memplan_json.run_files import load_run
from memplan_engine.formats.memplan_json.run_format import RunFile
from memplan_engine.formats.order_files import SUFFIXES, load_schedule, write_order
from memplan_engine.graph import Graph
from memplan_engine.op_kinds.ordered import drawing_ops
from memplan_engine.preparation import Preparation
from memplan_engine.reporters.fit.fit_tables import fit_stages_summary, fit_stages_tables
from memplan_engine.reporters.fit.largest_tables import largest_summary, largest_tables
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.torch_capture.factory_spec import parse_factory
from memplan_engine.units import parse_bytes

MODEL = Annotated[
    str,
    typer.Argument(
        help="package.module:factory, file.py:factory, .pt2, ONNX, memplan JSON or an observation",
        show_default=False,
    ),
]
BYTES = Annotated[
    str | None,
    typer.Option(
        "--capacity", help="Bytes for weights, optimizer state, inputs and arena together, such as 24GiB."
    ),
]
LARGEST = Annotated[
    str | None,
    typer.Option(
        metavar="NAME[=LOW:HIGH]",
        help="Find the largest NAME that fits: an argument of the factory, or a symbol of the graph.",
    ),
]
ALL_STAGES = ",".join(LOWERING)
CHUNK = Annotated[
    bool,
    typer.Option(
        "--chunk",
        help="Also run regions in pieces along a batch or a sequence: other last digits, and no proof.",
    ),
]
ONLY = Annotated[str, typer.Option(help="The stages that may be used, comma-separated, or none.")]
TRAINING = Annotated[Literal["step"] | None, typer.Option(help="With a factory: a whole training step.")]
SCHEDULE = Annotated[
    Path | None, typer.Option(help="Use this order of the ops; search for none (.json or .csv).")
]
ORDER = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        help="Write the order of the ops: .json or .csv for `memplan run --schedule`, .onnx for an ONNX "
        "model with its nodes sorted.",
    ),
]
SAVE_PLAN = Annotated[
    Path | None, typer.Option(help="Write the best plan (.json or .csv); `memplan run --plan` runs it.")
]
PATCH = Annotated[
    Path | None,
    typer.Option(
        help="With file.py:factory: write the changes to its source as a patch, "
        "once a new capture confirms them (.patch)."
    ),
]

CHECKPOINTS = Annotated[
    Path | None,
    typer.Option(
        help="With file.py:factory: write which modules to wrap in torch.utils.checkpoint, "
        "once a new capture confirms it (.py)."
    ),
]
DEVICE = Annotated[
    str,
    typer.Option(help="Whose published speed gives the time of each op: one of " + ", ".join(PRESETS) + "."),
]
COSTS = Annotated[
    Path | None,
    typer.Option(
        help="Take the times of ops from this run instead (`memplan run MODEL --profile -o run.json`)."
    ),
]
HOST = Annotated[
    str | None,
    typer.Option(
        "--host-bandwidth",
        help="Bytes a second that are copied to the host, and as many back, such as 25GB; else what the "
        "link of --device carries.",
    ),
]

RANDOM = Annotated[
    RandomOps,
    typer.Option(
        help="Where ops run again: keep what was drawn, such as masks of dropout, or the state of the "
        "generator, and draw again."
    ),
]


@app.command(name="fit")
@with_preparation(without=("streams", "schedule", "in_place", "concat", "early_updates", "reorder"))
def fit(
    model: MODEL,
    how: Preparation,
    capacity: BYTES = None,
    largest: LARGEST = None,
    only: ONLY = ALL_STAGES,
    chunk: CHUNK = False,
    training: TRAINING = None,
    optimizer: OPTIMIZER = None,
    foreach: FOREACH = None,
    accumulate: ACCUMULATE = None,
    clip_grad_norm: CLIP = None,
    seconds: SECONDS = None,
    seed: SEED = 0,
    threads: THREADS = 0,
    device: DEVICE = USUAL,
    costs: COSTS = None,
    host_bandwidth: HOST = None,
    random: RANDOM = RandomOps.KEEP,
    schedule: SCHEDULE = None,
    output: ORDER = None,
    save_plan: SAVE_PLAN = None,
    patch: PATCH = None,
    checkpoints: CHECKPOINTS = None,
    as_json: AS_JSON = False,
) -> None:
    """Fit a model into a capacity: in place, order, gradients, recomputation, until it fits.

    Without --capacity it ends with what fewer bytes take in time, and what they take at least.
    Exit code with --capacity: 0 fits, 1 proved not to, 3 undecided. A search takes at most --seconds (10).
    """
    limit = None if capacity is None else parse_bytes(capacity, "--capacity")
    times_of = _times(device, costs, host_bandwidth)
    chosen = _chosen(only, chunk)
    source = Path(model) if Path(model).is_file() else None
    _check_places(source, output, save_plan, patch, checkpoints)
    step = step_options(training, optimizer, foreach, accumulate, clip_grad_norm)
    own = SourceChanges(model, patch, checkpoints, step, seed)
    limits = make_limits("auto", seconds, seed, threads)
    with stages() as begin:
        one = _OneFit(how, step, limit, chosen, times_of, random, limits, schedule, begin)
        tried, found = (None, one.fit(model)) if largest is None else one.largest(model, largest)
        fitted, times = found.fitted, found.times
        changes = stage_changes(fitted, found.graph, found.how)
        own = replace(own, model=found.model)
        own.find(fitted, times, begin)
    _tell_idle(random, found.graph)
    own.write()
    _write(fitted, source, output, save_plan)
    points = _torch_points(source, times)
    show(
        as_json,
        lambda: fit_stages_summary(fitted, changes, points) | own.summary() | largest_summary(tried),
        lambda: [
            *largest_tables(tried),
            *fit_stages_tables(fitted, changes, own.patch, own.checkpoints, points),
        ],
    )
    if save_plan and (source is None or source.suffix == ".pt2"):
        _tell_next(found.model, step, save_plan)
    if fitted.verdict is not None:
        raise typer.Exit(EXIT_CODES[fitted.verdict])


class _Found(NamedTuple):
    """A fit of what `model` names, at the sizes of `how`."""

    model: str
    graph: Graph
    how: Preparation
    times: OpTimes
    fitted: Fitted


@dataclass(frozen=True, slots=True)
class _OneFit:
    """Fits of one model or another, all in the same way."""

    how: Preparation
    step: dict[str, Any] | None
    capacity: int | None
    stages: list[str]
    times_of: Callable[[Graph], OpTimes]
    random: RandomOps
    limits: SolveLimits
    schedule: Path | None
    begin: Callable[[str], None]

    def fit(self, model: str, how: Preparation | None = None) -> _Found:
        """The fit of `model`."""
        graph, how = _graph(model, how or self.how, self.step, self.begin)
        fixed = None if self.schedule is None else load_schedule(self.schedule, graph)
        times = self.times_of(graph)
        search = partial(fit_graph, graph, self.capacity, self.stages, how=how, limits=self.limits)
        timed = partial(search, tell=self.begin, schedule=fixed, times=times, random=self.random)
        fitted, _ = solve_in_sight(timed, self.limits, quiet=True)
        return _Found(model, graph, how, times, fitted)

    def largest(self, model: str, text: str) -> tuple[Largest, _Found]:
        """The largest value of what `text` names that fits, and the fit there."""
        name, low, high = parse_largest(text)
        if self.capacity is None or self.schedule is not None:
            found = "no --capacity" if self.capacity is None else "--schedule"
            raise InputError("--largest", "", found, "--capacity, and no order of ops: graphs differ")
        made = is_factory(model, self.step)
        found_at: dict[int, _Found] = {}

        def fit(value: int) -> Tried:
            self.begin(f"{name} = {value:,}")
            spec = str(parse_factory(model).replaced(**{name: value})) if made else model
            others = tuple(pair for pair in self.how.symbols if pair[0] != name)
            how = self.how if made else replace(self.how, symbols=(*others, (name, value)))
            found = found_at[value] = self.fit(spec, how)
            return Tried(value, found.fitted, sum(found.times.seconds.values()))

        largest = largest_that_fits(fit, name, low, high, lambda: self.limits.stopped)
        return largest, found_at[largest.best.value]


def _chosen(only: str, chunk: bool) -> list[str]:
    """The stages that may be used."""
    names = [name.strip() for name in only.split(",") if name.strip()]
    if "none" in names and len(names) > 1:
        raise InputError("--only", "", repr(only), "none by itself, or the stages without it")
    names = [name for name in names if name != "none"]
    return names + [StageName.CHUNK] * (chunk and StageName.CHUNK not in names)


def _tell_idle(random: RandomOps, graph: Graph) -> None:
    """Say which choice changes nothing of `graph`."""
    if random is RandomOps.STATE and not drawing_ops(graph):
        tell("--random state changes nothing: no op draws random numbers")


def _write(fitted: Fitted, source: Path | None, output: Path | None, save_plan: Path | None) -> None:
    if output:
        write_order(fitted.best_order.graph, output, source)
    if save_plan:
        write(fitted.best.plan, save_plan)


def _tell_next(model: str, step: dict[str, Any] | None, plan: Path) -> None:
    """How to run the plan that was written."""
    if plan.suffix == ".json":
        tell(f"next: memplan run {shlex.join([model, *_said(step), '--plan', str(plan)])}")


def _times(device: str, costs: Path | None, host: str | None) -> Callable[[Graph], OpTimes]:
    """What gives the times of the ops of a graph, by the speed of `device` or the run `costs`, and of copies
    to the host, by the device's link or as many bytes a second as `host` says."""
    gpu = accelerator(device)
    times_of = partial(modelled_times, gpu=gpu)
    if costs is not None:
        times_of = partial(_measured, load_run(costs), costs)
    if host is None:
        return times_of
    bandwidth = parse_bytes(host, "--host-bandwidth")
    if bandwidth <= 0:
        raise InputError("--host-bandwidth", "", repr(host), "bytes a second, above 0, such as 25GB")
    return lambda graph: replace(times_of(graph), host_bandwidth=float(bandwidth), host_of="")


def _torch_points(source: Path | None, times: OpTimes) -> list[TorchPoint]:
    """What the file `source` says of torch's own partitioner, by modelled times."""
    gpu = times.gpu
    if source is None or gpu is None or not may_have_about(source):
        return []
    return [entry.point.on(gpu) for entry in read_about(source).budgets]


def _measured(run: RunFile, path: Path, graph: Graph) -> OpTimes:
    """The times that the run, of the file `path`, has of its ops."""
    if run.profile is None or not run.profile.op_seconds:
        expected = "the times of its ops: `memplan run MODEL --profile -o run.json`"
        raise InputError(str(path), "profile", "none", expected)
    seconds = dict(zip(run.ops, run.profile.op_seconds, strict=True))
    times = OpTimes(seconds, f"measured on a CPU: {path.name}", measured=True)
    # Before long work.
    times.of_ops(graph)
    return times


def _said(step: dict[str, Any] | None) -> list[str]:
    """The options of a training step as they were given: who runs the plan has to give them, too."""
    if step is None:
        return []
    words = ["--training", "step"]
    for name, value in step.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            words += [f"--{flag}", str(value)]
    return words


def _check_places(
    source: Path | None,
    output: Path | None,
    save_plan: Path | None,
    patch: Path | None,
    checkpoints: Path | None,
) -> None:
    """Raise InputError, before long work, for what cannot be written there."""
    check_targets(SUFFIXES, source, output)
    _check_onnx(output, source)
    check_targets((".json", ".csv"), None, save_plan)
    check_targets((".patch", ".diff"), None, patch)
    check_targets((".py",), None, checkpoints)


def _check_onnx(output: Path | None, source: Path | None) -> None:
    """Raise InputError for nodes to be sorted of what is no ONNX model."""
    if output is None or output.suffix.lower() != ".onnx":
        return
    if source is None or recognise(source).name != "onnx":
        expected = ".json or .csv: only an ONNX model has nodes to sort"
        raise InputError(str(output), "", "the suffix '.onnx'", expected)


def _graph(
    model: str, how: Preparation, step: dict[str, Any] | None, begin: Callable[[str], None]
) -> tuple[Graph, Preparation]:
    """The graph of a file, or of what a factory builds."""
    if is_factory(model, step):
        from memplan_engine.torch_capture import torch_factory

        if step is not None:
            return torch_factory.capture_training_factory(model, tell=begin, gradients="held", **step), how
        return torch_factory.capture_factory(model, tell=begin), how
    path = Path(model)
    begin("reading the file")
    loaded, how = open_file(path, how)
    if not isinstance(loaded, Graph):
        expected = "a graph: buffers have no ops to reorder (`memplan plan --capacity` fits them)"
        raise InputError(path.name, "", f"a {type(loaded).__name__.lower()}", expected)
    return loaded, how
