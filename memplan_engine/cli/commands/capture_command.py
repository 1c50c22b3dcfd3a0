"""The verbs that need torch: capturing models, for inference and for training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from memplan_engine.analysis.claims import left_out
from memplan_engine.cli.app import app
from memplan_engine.cli.options import AS_JSON, SYMBOLS, parse_symbols
from memplan_engine.cli.output import show, tell
from memplan_engine.errors import InputError
from memplan_engine.files import check_target
from memplan_engine.fx_estimator.fx_estimates import estimate_peaks, estimates_summary
from memplan_engine.graph import Graph
from memplan_engine.planner import as_problem
from memplan_engine.reporters import graph_tables
from memplan_engine.symbolic.symbolic_problem import resolve

if TYPE_CHECKING:
    from memplan_engine.formats.memplan_json.graph_format import EstimateEntry

FACTORY = Annotated[
    str, typer.Argument(help="package.module:factory, giving (model, inputs)", show_default=False)
]


Training = Literal["step", "joint"]
Partition = Literal["default", "min_cut"]
Gradients = Literal["held", "freed"]
OPTIMIZER = Annotated[
    Literal["sgd", "adam", "adamw"] | None,
    typer.Option(help="Of a whole step; the factory's own, or sgd, unless given."),
]
FOREACH = Annotated[
    bool | None,
    typer.Option("--foreach/--no-foreach", help="Update all parameters at once; torch decides unless given."),
]
ACCUMULATE = Annotated[
    int | None, typer.Option(help="Passes over the batch whose gradients add up before the optimizer.")
]
CLIP = Annotated[float | None, typer.Option("--clip-grad-norm", help="Scale gradients to at most this norm.")]


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
    output: Annotated[Path, typer.Option("-o", "--output", help="Where the graph goes.")],
    symbol: SYMBOLS = None,
    functional: Annotated[bool, typer.Option(help="Without in-place ops.")] = False,
    dynamic: Annotated[
        list[str] | None,
        typer.Option(help="Symbolic sizes: INPUT:DIMENSION=NAME[LOW:HIGH], as input_ids:1=seq[2:1024]."),
    ] = None,
    training: Annotated[
        Training | None, typer.Option(help="A whole step, or forward and backward as AOTAutograd cuts them.")
    ] = None,
    partition: Annotated[
        Partition | None, typer.Option(help="Of a joint graph; default unless given.")
    ] = None,
    optimizer: OPTIMIZER = None,
    foreach: FOREACH = None,
    accumulate: ACCUMULATE = None,
    clip_grad_norm: CLIP = None,
    gradients: Annotated[
        Gradients | None,
        typer.Option(
            help="Of a whole step: held to its end, as eager PyTorch does, or freed at their last use; held "
            "unless given."
        ),
    ] = None,
) -> None:
    """Capture a torch model without allocating its weights.

    The factory takes no arguments and returns (model, args), (model, kwargs) or (model, args, kwargs). It
    runs under the meta device where it can. For --training the model needs a loss: those of Hugging Face
    compute one when labels are among their inputs. A factory that returns a dict can give more: "model",
    "args", "kwargs", "optimizer" (a function of the parameters), "loss" (a function of the output), or
    "step", a function of model, optimizer and inputs that does a whole step in a way of its own.
    """
    from memplan_engine.torch_capture.torch_factory import (
        capture_factory,
        capture_pair_factory,
        capture_training_factory,
    )

    check_target(output, (".json",))
    _check(training, partition, gradients, dynamic)
    step = step_options(training, optimizer, foreach, accumulate, clip_grad_norm)
    if functional and training == "joint":
        raise InputError("--functional", "", "training joint", "another capture: joint graphs are functional")
    estimates: tuple[EstimateEntry, ...] = ()
    if training == "joint":
        pair = capture_pair_factory(factory, partition=partition or "default")
        graph, estimates = pair.joint, estimate_peaks(pair)
    elif step is not None:
        graph = capture_training_factory(
            factory, "step", gradients=gradients or "held", functional=functional, **step
        )
    else:
        graph = capture_factory(factory, functional=functional, dynamic=tuple(dynamic or ()))
    if symbol:
        graph = resolve(graph, parse_symbols(symbol))
    _write(graph, output, estimates)


def _write(graph: Graph, output: Path, estimates: tuple[EstimateEntry, ...]) -> None:
    """Write what was captured, and tell of it and of what has no size and hence no place in any plan."""
    # Here, not above: `--help` need not wait for pydantic.
    from memplan_engine.formats.memplan_json.graph_format import About
    from memplan_engine.formats.memplan_json.json_file import write_json

    write_json(graph, output, About(estimates=estimates) if estimates else None)
    problem = as_problem(graph)
    tell(f"{output}: {len(graph.ops)} ops, {len(problem)} buffers")
    if unknown := left_out(problem):
        tell(f"{output}: not planned: {unknown}")


@app.command()
def estimate(
    factory: FACTORY,
    partition: Annotated[Partition, typer.Option(help="How AOTAutograd cuts the joint graph.")] = "default",
    as_json: AS_JSON = False,
) -> None:
    """Estimate the peak of a forward and backward pass by PyTorch's published rule and by storages."""
    from memplan_engine.torch_capture.torch_factory import capture_pair_factory

    estimates = estimate_peaks(capture_pair_factory(factory, partition=partition))
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
