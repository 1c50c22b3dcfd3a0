"""The verbs that need torch: capturing models, for inference and for training."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from memplan_engine.analysis.claims import left_out
from memplan_engine.cli.app import app
from memplan_engine.cli.options import AS_JSON, SYMBOLS, parse_symbols
from memplan_engine.cli.output import show, tell
from memplan_engine.cli.progress import stages
from memplan_engine.errors import InputError
from memplan_engine.files import check_target
from memplan_engine.fx_estimator.fx_estimates import estimate_peaks, estimates_summary
from memplan_engine.graph import Graph
from memplan_engine.planner import as_problem
from memplan_engine.reporters import graph_tables
from memplan_engine.symbolic.symbolic_problem import resolve
from memplan_engine.units import count_of

if TYPE_CHECKING:
    from memplan_engine.formats.memplan_json.graph_format import EstimateEntry

FACTORY = Annotated[
    str, typer.Argument(help="package.module:factory, which returns (model, inputs)", show_default=False)
]


Training = Literal["step", "joint"]
Partition = Literal["default", "min_cut"]
Gradients = Literal["held", "freed"]
OPTIMIZER = Annotated[
    Literal["sgd", "adam", "adamw"] | None,
    typer.Option(help="Optimizer of the training step (default: the factory's own, or sgd)."),
]
FOREACH = Annotated[
    bool | None,
    typer.Option("--foreach/--no-foreach", help="Use foreach optimizer kernels (default: torch decides)."),
]
ACCUMULATE = Annotated[
    int | None, typer.Option(help="Gradient accumulation: passes before the optimizer step.")
]
CLIP = Annotated[float | None, typer.Option("--clip-grad-norm", help="Clip gradients to this norm.")]


def step_options(
    training: Training | None,
    optimizer: str | None,
    foreach: bool | None,
    accumulate: int | None,
    clip_grad_norm: float | None,
) -> dict[str, Any] | None:
    """What was said of a training step, by the names of `Recipe`; None where none is asked for. Raises
    InputError for options that would do nothing."""
    options = {
        "optimizer": optimizer,
        "foreach": foreach,
        "accumulate": accumulate,
        "clip_grad_norm": clip_grad_norm,
    }
    if training == "step":
        return options
    for name, value in options.items():
        if value is not None:
            found = f"--training {training}" if training else "no --training"
            raise InputError(f"--{name.replace('_', '-')}", "", found, "--training step")
    return None


@app.command()
def capture(
    factory: FACTORY,
    output: Annotated[Path, typer.Option("-o", "--output", help="Graph file to write (.json).")],
    symbol: SYMBOLS = None,
    functional: Annotated[bool, typer.Option(help="Functionalize: no in-place ops.")] = False,
    dynamic: Annotated[
        list[str] | None,
        typer.Option(help="Dynamic dimension, INPUT:DIMENSION=NAME[LOW:HIGH]: input_ids:1=seq[2:1024]."),
    ] = None,
    training: Annotated[
        Training | None,
        typer.Option(help="Capture a whole training step, or AOTAutograd's joint forward and backward."),
    ] = None,
    partition: Annotated[Partition | None, typer.Option(help="Partitioner of the joint graph.")] = None,
    optimizer: OPTIMIZER = None,
    foreach: FOREACH = None,
    accumulate: ACCUMULATE = None,
    clip_grad_norm: CLIP = None,
    gradients: Annotated[
        Gradients | None,
        typer.Option(
            help="In a training step, keep gradients to its end, as eager PyTorch does (default), or free "
            "each at its last use."
        ),
    ] = None,
) -> None:
    """Capture a PyTorch model as a graph, without allocating its weights.

    The factory takes no arguments and returns (model, args), (model, kwargs) or (model, args, kwargs). It
    runs under the meta device where it can. For --training the model needs a loss: those of Hugging Face
    compute one when labels are among their inputs. A factory that returns a dict can give more: "model",
    "args", "kwargs", "optimizer" (a function of the parameters), "loss" (a function of the output), or
    "step", a function of model, optimizer and inputs that runs a whole step itself.
    """
    from memplan_engine.torch_capture import torch_factory

    check_target(output, (".json",))
    _check(training, partition, gradients, dynamic)
    step = step_options(training, optimizer, foreach, accumulate, clip_grad_norm)
    if functional and training == "joint":
        raise InputError("--functional", "", "training joint", "another capture: joint graphs are functional")
    estimates: tuple[EstimateEntry, ...] = ()
    with stages() as begin:
        if training == "joint":
            pair = torch_factory.capture_pair_factory(factory, partition=partition or "default", tell=begin)
            graph, estimates = pair.joint, estimate_peaks(pair)
        elif step is not None:
            step["gradients"] = gradients or "held"
            graph = torch_factory.capture_training_factory(factory, functional=functional, tell=begin, **step)
        else:
            shapes = tuple(dynamic or ())
            graph = torch_factory.capture_factory(factory, functional=functional, dynamic=shapes, tell=begin)
        if symbol:
            graph = resolve(graph, parse_symbols(symbol))
        begin("writing the graph")
        _write(graph, output, estimates)
    _tell(graph, output)


def _write(graph: Graph, output: Path, estimates: tuple[EstimateEntry, ...]) -> None:
    # Here, not above: `--help` need not wait for pydantic.
    from memplan_engine.formats.memplan_json.graph_format import About
    from memplan_engine.formats.memplan_json.json_file import write_json

    write_json(graph, output, About(estimates=estimates) if estimates else None)


def _tell(graph: Graph, output: Path) -> None:
    """What was captured, what of it has no size and hence no place in any plan, and what to type next."""
    problem = as_problem(graph)
    tell(f"{output}: {count_of(len(graph.ops), 'op')}, {count_of(len(problem), 'buffer')}")
    if unknown := left_out(problem):
        tell(f"{output}: not planned: {unknown}")
    tell(f"next: memplan peak {shlex.quote(str(output))}")


@app.command()
def estimate(
    factory: FACTORY,
    partition: Annotated[Partition, typer.Option(help="Partitioner of the joint graph.")] = "default",
    as_json: AS_JSON = False,
) -> None:
    """Estimate the peak of forward and backward as PyTorch's FX estimator does, and by storages."""
    from memplan_engine.torch_capture.torch_factory import capture_pair_factory

    with stages() as begin:
        estimates = estimate_peaks(capture_pair_factory(factory, partition=partition, tell=begin))
    show(
        as_json,
        lambda: estimates_summary(estimates),
        lambda: [graph_tables.estimates_table(f"{factory}, {partition} partition", estimates)],
    )


def _check(
    training: Training | None,
    partition: Partition | None,
    gradients: Gradients | None,
    dynamic: list[str] | None,
) -> None:
    """Raise InputError for options that would do nothing."""
    found = f"--training {training}" if training else "no --training"
    for option, useless, expected in (
        ("--partition", partition and training != "joint", "--training joint"),
        ("--gradients", gradients and training != "step", "--training step"),
        ("--dynamic", dynamic and training, "a capture for inference"),
    ):
        if useless:
            raise InputError(option, "", found, expected)
