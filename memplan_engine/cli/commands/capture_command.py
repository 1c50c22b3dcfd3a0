"""The verbs that need torch, or jax: capturing models, for inference and for training."""

from __future__ import annotations

import shlex
from collections.abc import Callable
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
    from memplan_engine.formats.memplan_json.graph_format import About

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
BUDGETS = Annotated[
    bool,
    typer.Option(
        help="Of a joint graph: also what torch's activation_memory_budget runs again, for `memplan fit` "
        "and its page to show beside."
    ),
]
JAX = Annotated[
    bool, typer.Option("--jax", help="Compile a JAX function: the factory returns it and its arguments.")
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
    context: typer.Context,
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
    budgets: BUDGETS = False,
    optimizer: OPTIMIZER = None,
    foreach: FOREACH = None,
    accumulate: ACCUMULATE = None,
    clip_grad_norm: CLIP = None,
    gradients: Annotated[
        Gradients | None,
        typer.Option(help="In a training step, hold gradients to its end, as eager does (default), or not."),
    ] = None,
    jax: JAX = False,
) -> None:
    """Capture a PyTorch model, or a JAX function, as a graph, without allocating its weights.

    The factory returns (model, args), (model, kwargs) or (model, args, kwargs); it takes no arguments, or
    those that stand behind its name: "net.py:build(batch=8)". It runs under the meta device where it can. For
    --training the model needs a loss: those of Hugging Face compute one when labels are among their inputs. A
    factory that returns a dict can give more: "model", "args", "kwargs", "optimizer" (a function of the
    parameters), "loss" (a function of the output), or "step", a function of model, optimizer and inputs that
    runs a whole step itself. With --jax it returns (function, args), (function, args, kwargs) or (function,
    kwargs), and the graph is what XLA compiled.
    """
    check_target(output, (".json",))
    if jax:
        _capture_jax(context, factory, output)
        return
    from memplan_engine.torch_capture import torch_factory

    _check(training, functional, partition, budgets, gradients, dynamic)
    step = step_options(training, optimizer, foreach, accumulate, clip_grad_norm)
    about: Callable[[], About] | None = None
    with stages() as begin:
        if training == "joint":
            graph, about = _joint(factory, partition or "default", budgets, begin)
        elif step is not None:
            step["gradients"] = gradients or "held"
            graph = torch_factory.capture_training_factory(factory, functional=functional, tell=begin, **step)
        else:
            shapes = tuple(dynamic or ())
            graph = torch_factory.capture_factory(factory, functional=functional, dynamic=shapes, tell=begin)
        if symbol:
            graph = resolve(graph, parse_symbols(symbol))
        begin("writing the graph")
        _write(graph, output, about)
    _tell(graph, output)


def _capture_jax(context: typer.Context, factory: str, output: Path) -> None:
    """Write the graph of what XLA compiled, and tell JAX's figures beside those of the graph."""
    from memplan_engine.jax_capture.jax_compile import capture_jax

    for option in context.command.params:
        if option.name in (None, "factory", "output", "jax"):
            continue
        source = context.get_parameter_source(option.name)
        if source is not None and source.name == "COMMANDLINE":
            # Taken silently, it would do nothing.
            raise InputError(option.opts[0], "", "--jax", "a PyTorch model, or none of these options")
    with stages() as begin:
        found = capture_jax(factory, begin)
        begin("writing the graph")

        def about() -> About:
            from memplan_engine.formats.memplan_json.graph_format import About, XlaEntry

            return About(xla=XlaEntry(**found.analysis._asdict()))

        _write(found.graph, output, about)
    told = ", ".join(f"{name} {nbytes:,} B" for name, nbytes in found.analysis._asdict().items())
    tell(f"{output}: memory_analysis: {told}; XLA's own plan takes {found.plan.arena_bytes:,} B")
    _tell(found.graph, output)


def _joint(
    factory: str, partition: Partition, budgets: bool, begin: Callable[[str], None]
) -> tuple[Graph, Callable[[], About]]:
    """The joint graph, and what makes the header of its file."""
    from memplan_engine.torch_capture import torch_factory

    pair = torch_factory.capture_pair_factory(factory, partition=partition, tell=begin)
    points = torch_factory.torch_budgets_factory(factory, tell=begin) if budgets else ()

    def about() -> About:
        from memplan_engine.formats.memplan_json.graph_format import About, BudgetEntry

        return About(estimates=estimate_peaks(pair), budgets=tuple(map(BudgetEntry.of, points)))

    return pair.joint, about


def _write(graph: Graph, output: Path, about: Callable[[], About] | None) -> None:
    # Here, not above: `--help` need not wait for pydantic.
    from memplan_engine.formats.memplan_json.json_file import write_json

    write_json(graph, output, about and about())


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
    functional: bool,
    partition: Partition | None,
    budgets: bool,
    gradients: Gradients | None,
    dynamic: list[str] | None,
) -> None:
    """Raise InputError for options that would do nothing."""
    if functional and training == "joint":
        raise InputError("--functional", "", "training joint", "another capture: joint graphs are functional")
    if budgets and training == "joint" and partition == "min_cut":
        raise InputError("--budgets", "", "--partition min_cut", "the default one, which they are beside")
    found = f"--training {training}" if training else "no --training"
    for option, useless, expected in (
        ("--partition", partition and training != "joint", "--training joint"),
        ("--budgets", budgets and training != "joint", "--training joint"),
        ("--gradients", gradients and training != "step", "--training step"),
        ("--dynamic", dynamic and training, "a capture for inference"),
    ):
        if useless:
            raise InputError(option, "", found, expected)
