"""The verbs that run models: inside a plan, prediction beside measurement, or as they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from memplan_engine.cli.app import app
from memplan_engine.cli.commands.capture_command import (
    ACCUMULATE,
    CLIP,
    FOREACH,
    OPTIMIZER,
    step_options,
)
from memplan_engine.cli.model_argument import is_factory
from memplan_engine.cli.options import ALL_ROWS, AS_JSON, SECONDS, SEED, THREADS, make_limits
from memplan_engine.cli.output import check_targets, show
from memplan_engine.cli.progress import solve_in_sight, stages
from memplan_engine.errors import InputError
from memplan_engine.files import ImportOptions, load, recognise
from memplan_engine.plan import Plan
from memplan_engine.planner import make_plan
from memplan_engine.strategies import get_strategy
from memplan_engine.strategies.base import SolveLimits

if TYPE_CHECKING:
    from memplan_engine.formats.memplan_json.run_format import OrderEntry
    from memplan_engine.recordings.observation import Observation
    from memplan_engine.runtime.loading import RunTarget
    from memplan_engine.runtime.trial.run_in_plan import RunOutcome

DEFAULT_STRATEGY = "auto"
POLICY = Annotated[
    Literal["native", "all"],
    typer.Option(help="What lies in the slab: only what ops can write in place, or everything."),
]
FORCE = Annotated[bool, typer.Option("--force", help="Run --plan even if buffers overlap; implies --check.")]
RUN_OUTPUT = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="Write the run for the dashboard's Run page (.json)."),
]
REORDER = Annotated[
    bool, typer.Option("--reorder", help="Run the ops in the order with the fewest live bytes.")
]
SCHEDULE = Annotated[
    Path | None,
    typer.Option(help="Run the ops in the order of this schedule (.json or .csv).", show_default=False),
]
TRAINING = Annotated[Literal["step"] | None, typer.Option(help="A whole training step, optimizer included.")]


@app.command(name="run")
def run_(
    model: Annotated[
        str,
        typer.Argument(help="package.module:factory, file.py:factory or a .pt2 file", show_default=False),
    ],
    strategy: Annotated[
        str | None, typer.Option(help=f"Planning strategy (default: {DEFAULT_STRATEGY}).")
    ] = None,
    policy: POLICY = "native",
    functional: Annotated[bool, typer.Option("--functional", help="Functionalize: no in-place ops.")] = False,
    training: TRAINING = None,
    optimizer: OPTIMIZER = None,
    foreach: FOREACH = None,
    accumulate: ACCUMULATE = None,
    clip_grad_norm: CLIP = None,
    check: Annotated[bool, typer.Option("--check", help="Also run in safety mode.")] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Measure the run time against eager.")] = False,
    plan: Annotated[Path | None, typer.Option(help="Run this plan (.json or .csv).")] = None,
    reorder: REORDER = False,
    schedule: SCHEDULE = None,
    force: FORCE = False,
    seconds: SECONDS = None,
    seed: SEED = 0,
    threads: THREADS = 0,
    trace: Annotated[Path | None, typer.Option(help="Write a trace for Perfetto (.json).")] = None,
    observation: Annotated[Path | None, typer.Option(help="Write every allocation (.json).")] = None,
    output: RUN_OUTPUT = None,
    as_json: AS_JSON = False,
    all_rows: ALL_ROWS = False,
) -> None:
    """Run a model in its planned arena: bitwise equality, predicted against measured bytes. Exit code 1
    unless equal, or if safety mode finds a fault. A training step is compared with an eager one.

    The factory is that of `memplan capture`; here it runs on the CPU, with random weights where it makes
    them. A .pt2 file runs with its weights, on generated inputs; nothing in it is unpickled.
    """
    from memplan_engine.torch_capture.torch_fake import require_torch

    require_torch("running a model")
    _check_options(plan, force, strategy, (trace, observation, output))
    step = step_options(training, optimizer, foreach, accumulate, clip_grad_norm)
    name = strategy or DEFAULT_STRATEGY
    get_strategy(name)
    limits = make_limits(name, seconds, seed, threads)
    wish = {"policy": policy, "check": check, "profile": profile, "force": force}
    with stages() as tell:
        loaded = None if plan is None else _read_plan(plan)
        subject = _open(model, functional, step, seed, tell)
        subject, order = _in_order(subject, reorder, schedule, limits, tell)
        subject, order = _as_planned(subject, loaded, plan, order)
        tell("")
        graph = subject.program.graph
        chosen = loaded or solve_in_sight(lambda: make_plan(graph, name, limits=limits), limits)[0]
        outcome = _try(subject, chosen, plan, wish, tell).ordered(order)
    _write(outcome, trace, observation, output)
    _show(outcome, as_json, all_rows)
    if not outcome.run.passed:
        raise typer.Exit(1)


def _check_options(
    plan: Path | None, force: bool, strategy: str | None, targets: tuple[Path | None, ...]
) -> None:
    if force and plan is None:
        raise InputError("--force", "", "no --plan", "a plan to run in spite of its overlaps")
    if plan is not None and strategy is not None:
        raise InputError("--strategy", "", "a --plan, too", "one of them: a plan is finished")
    check_targets((".json",), plan, *targets)


def _read_plan(path: Path) -> Plan:
    loaded = load(path, ImportOptions(offsets_as_plan=True))
    if not isinstance(loaded, Plan):
        found = f"a {type(loaded).__name__.lower()}"
        raise InputError(path.name, "", found, "a plan, as `memplan plan -o` writes it")
    return loaded


def _open(
    model: str, functional: bool, step: dict[str, Any] | None, seed: int, tell: Callable[[str], None]
) -> RunTarget:
    """What is run; `step` holds the options of a whole training step."""
    from memplan_engine.runtime.eager_step import take_in_process
    from memplan_engine.runtime.loading import run_target, run_target_of_file, run_target_of_step
    from memplan_engine.torch_capture.torch_factory import build_factory

    if not is_factory(model, step):
        if functional:
            raise InputError("--functional", "", "a file", "a factory: what is exported stays as it is")
        path = Path(model)
        importer = recognise(path)
        if importer.name != "pt2":
            expected = "a factory or a .pt2 file: nothing else can run"
            raise InputError(path.name, "", importer.description, expected)
        tell("reading the file")
        return run_target_of_file(path)
    tell("building the model")
    built = build_factory(model, seed=seed)
    tell("exporting the model")
    name = model.rpartition(":")[2]
    try:
        if step is not None:
            weights = dict(chain(built.model.named_parameters(), built.model.named_buffers()))
            take = take_in_process(model, step, seed=seed, state=weights)
            recipe = built.recipe(step)
            return run_target_of_step(
                built.model, built.args, built.kwargs, recipe, functional=functional, name=name, take=take
            )
        return run_target(built.model, built.args, built.kwargs, functional=functional, name=name)
    except InputError as error:
        raise InputError(f"factory {model}", error.place, error.found, error.expected) from error


def _in_order(
    subject: RunTarget, best: bool, file: Path | None, limits: SolveLimits, tell: Callable[[str], None]
) -> tuple[RunTarget, OrderEntry | None]:
    """`subject` with its ops in the `best` order, or in that of the schedule in `file`, and what that comes
    to; as it is where neither is asked for."""
    if best and file is not None:
        raise InputError("--schedule", "", "--reorder, too", "one of them")
    if not best and file is None:
        return subject, None
    from memplan_engine.runtime.trial.ordered_target import ordered_target

    tell("ordering the ops")
    return ordered_target(subject, file, limits.seconds)


def _as_planned(
    subject: RunTarget, plan: Plan | None, file: Path | None, order: OrderEntry | None
) -> tuple[RunTarget, OrderEntry | None]:
    """`subject` rewritten as the graph of the plan in `file` is: its writes in place, the gradients that it
    frees and, unless an `order` was asked for, its order."""
    from memplan_engine.runtime.slab.binding import of_whole_ops
    from memplan_engine.runtime.slab.fitted_program import fitted_target
    from memplan_engine.runtime.trial.ordered_target import order_entry

    origin = None if plan is None else of_whole_ops(plan).problem.origin
    if origin is None:
        return subject, order
    graph, own = origin.graph, subject.program.graph
    moved = [op.name for op in own.ops] != [op.name for op in graph.ops]
    if order is not None and moved:
        return subject, order
    planned = fitted_target(subject, graph)
    if moved and planned is not subject:
        order = order_entry(own, replace(own, ops=planned.program.graph.ops), None, file)
    return planned, order


def _try(
    subject: RunTarget, plan: Plan, file: Path | None, wish: dict[str, Any], tell: Callable[[str], None]
) -> RunOutcome:
    from memplan_engine.runtime.trial.run_in_plan import run_in_plan

    try:
        return run_in_plan(subject, plan, **wish, file=file.name if file else "", tell=tell)
    except InputError as error:
        if file is None or error.place != "plan":
            raise
        raise InputError(file.name, "", error.found, error.expected) from error


def _write(outcome: RunOutcome, trace: Path | None, observation: Path | None, output: Path | None) -> None:
    from memplan_engine.formats.memplan_json.run_files import write_run

    _write_observation(outcome.observation, trace, observation)
    if output:
        write_run(outcome.run, output)


def _write_observation(observation: Observation, trace: Path | None, output: Path | None) -> None:
    from memplan_engine.formats.memplan_json.observation_file import (
        write_observation,
        write_observation_trace,
    )

    if trace:
        write_observation_trace(observation, trace)
    if output:
        write_observation(observation, output)


def _show(outcome: RunOutcome, as_json: bool, all_rows: bool) -> None:
    from memplan_engine.formats.memplan_json.run_format import run_summary
    from memplan_engine.reporters.run_tables import run_tables

    show(as_json, lambda: run_summary(outcome.run), lambda: run_tables(outcome.run, all_rows))


FAKE = Annotated[
    bool, typer.Option("--fake", help="Predict the run on fake tensors: no weights, no computation.")
]


DEVICE = Annotated[str, typer.Option(help="With --fake: cpu or cuda, which need not be there.")]
ARCH = Annotated[
    str | None,
    typer.Option(help="With --device cuda: its architecture, sm80 (default: sm90).", show_default=False),
]
CARDS = Annotated[
    int,
    typer.Option(min=1, help="With --device cuda: how many GPUs the script sees, with figures for each."),
]
CALIBRATION = Annotated[
    Path | None,
    typer.Option(help="With --fake: add what kernels take, by `memplan calibrate`.", show_default=False),
]


@app.command()
def observe(
    factory: Annotated[
        str,
        typer.Argument(
            help="package.module:factory, which returns (model, inputs); with --fake also script.py",
            show_default=False,
        ),
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Arguments of the script, after --.", show_default=False)
    ] = None,
    fake: FAKE = False,
    training: TRAINING = None,
    optimizer: OPTIMIZER = None,
    foreach: FOREACH = None,
    accumulate: ACCUMULATE = None,
    clip_grad_norm: CLIP = None,
    seed: SEED = 0,
    trace: Annotated[Path | None, typer.Option(help="Write a trace for Perfetto (.json).")] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write every allocation (.json); `memplan plan` reads it."),
    ] = None,
    as_json: AS_JSON = False,
    seconds: Annotated[
        float | None, typer.Option(help="Time limit for a script (default: 600).", show_default=False)
    ] = None,
    calibration: CALIBRATION = None,
    all_rows: ALL_ROWS = False,
    device: DEVICE = "cpu",
    arch: ARCH = None,
    cards: CARDS = 1,
) -> None:
    """Run a model eagerly and record every allocation, even if it cannot be exported.

    The factory is that of `memplan capture`; the model runs on the CPU, with random weights where it makes
    them. With --fake nothing is computed: the same Python runs on fake tensors, and the bytes are predicted.
    A whole script can be predicted, too: `memplan observe --fake script.py -- its arguments`. What -o writes
    can be planned, drawn and compared like any recording, or, after --fake, like a captured graph.
    """
    from memplan_engine.torch_capture.torch_fake import require_torch

    require_torch("observing a model")
    step = step_options(training, optimizer, foreach, accumulate, clip_grad_norm)
    check_targets((".json",), None, trace, output)
    how = _how(fake, device, arch, cards, calibration)
    from memplan_engine.reporters.observation_tables import observation_summary, observation_tables

    with stages() as tell:
        if factory.endswith(".py") and fake:
            observation = _script(factory, arguments or [], step, seconds, how, tell)
        elif arguments or seconds is not None:
            place = "--seconds" if not arguments else " ".join(arguments)
            raise InputError(place, "", f"the factory {factory}", "a script, script.py, and --fake")
        else:
            observation = _observed(factory, fake, step, seed, how, tell)
    _write_observation(observation, trace, output)
    show(as_json, lambda: observation_summary(observation), lambda: observation_tables(observation, all_rows))


def _script(
    script: str,
    arguments: list[str],
    step: dict[str, Any] | None,
    seconds: float | None,
    how: dict[str, Any],
    tell: Callable[[str], None],
) -> Observation:
    """What a script allocates, predicted on fake tensors."""
    from memplan_engine.runtime.recorder.script_run import SECONDS, observe_script

    if step is not None:
        raise InputError("--training", "", "a script", "a factory: a script trains by itself")
    tell("running the script on fake tensors")
    limit = SECONDS if seconds is None else seconds
    return observe_script(script, arguments, seconds=limit, **how)


def _how(fake: bool, device: str, arch: str | None, cards: int, calibration: Path | None) -> dict[str, Any]:
    """What a prediction is told of the device, and of what its kernels take."""
    if not fake and (device != "cpu" or arch is not None or cards > 1):
        raise InputError("--device", "", f"{device!r} without --fake", "--fake: real runs are on the CPU")
    if calibration is None:
        return {"device": device, "arch": arch, "cards": cards}
    if not fake:
        expected = "--fake too: a real run measures what its kernels take"
        raise InputError("--calibration", "", "no --fake", expected)
    from memplan_engine.formats.memplan_json.calibration_format import load_calibration

    return {"device": device, "arch": arch, "cards": cards, "calibration": load_calibration(calibration)}


def _observed(
    factory: str,
    fake: bool,
    step: dict[str, Any] | None,
    seed: int,
    how: dict[str, Any],
    tell: Callable[[str], None],
) -> Observation:
    """What a run of the factory's model allocates, measured, or predicted on fake tensors for a device and an
    architecture."""
    from memplan_engine.runtime.observer.observe_run import observe_model
    from memplan_engine.runtime.recorder.fake_run import observe_fake
    from memplan_engine.torch_capture.torch_factory import build_factory

    tell("building the model")
    built = build_factory(factory, seed=seed, weights=not fake)
    tell("recording a run on fake tensors" if fake else "observing a run")
    recipe = None if step is None else built.recipe(step)
    name = factory.rpartition(":")[2]
    if not fake:
        return observe_model(built.model, built.args, built.kwargs, recipe=recipe, name=name)
    return observe_fake(built.model, built.args, built.kwargs, recipe=recipe, name=name, **how)
