"""`memplan`: the verbs. Exit 0 fine, 1 a check failed, 2 bad input or usage."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType

from memplan_engine import compiling, summary, tables
from memplan_engine.errors import InputError, MemplanError
from memplan_engine.exporters import check_target, write
from memplan_engine.graph import Graph
from memplan_engine.importers import ImportOptions, load
from memplan_engine.importers.about import read_about
from memplan_engine.peak import find_peak
from memplan_engine.plan import Plan
from memplan_engine.planner import as_problem, compare, make_plan
from memplan_engine.problem import Problem
from memplan_engine.strategies import get_strategy, known_strategies
from memplan_engine.validate import validate_plan

app = typer.Typer(
    name="memplan",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

FILE = Annotated[Path, typer.Argument(help="memplan JSON, buffer CSV, ONNX or .pt2", show_default=False)]
PLAN_FILE = Annotated[Path, typer.Argument(help="memplan JSON, or CSV with offsets", show_default=False)]
AS_JSON = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
ALIGNMENT = Annotated[int | None, typer.Option(help="Bytes; 64 for graphs, the file's own for CSV.")]
DIM = Annotated[
    list[str] | None, typer.Option("--dim", help="Bind a symbolic dimension of an ONNX file: NAME=VALUE.")
]
PLAN_INPUTS = Annotated[bool, typer.Option("--plan-inputs", help="Give graph inputs a place in the arena.")]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"memplan {version('memplan')}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Plan the memory of a neural-network graph: place every buffer, prove how good it is, show it."""


@app.command()
def plan(
    file: FILE,
    strategy: Annotated[str, typer.Option(help="See `memplan strategies`.")] = "auto",
    alignment: ALIGNMENT = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write .json or .csv.")] = None,
    as_json: AS_JSON = False,
    dim: DIM = None,
    plan_inputs: PLAN_INPUTS = False,
) -> None:
    """Place every buffer of FILE in one arena."""
    problem = _problem(file, dim, alignment, plan_inputs)
    if output:
        check_target(output, (".json", ".csv"), file)
    made = make_plan(problem, strategy)
    if output:
        write(made, output)
    _show(
        as_json,
        lambda: summary.plan_summary(made) | {"offsets": summary.offsets(made)},
        lambda: [tables.plan_table(made), *tables.lesson(read_about(file))],
    )


@app.command(name="compare")
def compare_(
    file: FILE,
    names: Annotated[str, typer.Option("--strategies", help="Comma-separated, or all.")] = "all",
    alignment: ALIGNMENT = None,
    as_json: AS_JSON = False,
    dim: DIM = None,
    plan_inputs: PLAN_INPUTS = False,
) -> None:
    """Put strategies side by side."""
    chosen = list(known_strategies()) if names == "all" else [name.strip() for name in names.split(",")]
    for name in chosen:
        get_strategy(name)
    plans = compare(_problem(file, dim, alignment, plan_inputs), chosen)
    _show(
        as_json, lambda: [summary.plan_summary(each) for each in plans], lambda: [tables.compare_table(plans)]
    )


@app.command()
def peak(
    file: FILE,
    as_json: AS_JSON = False,
    all_rows: Annotated[bool, typer.Option("--all", help="Show every buffer.")] = False,
    dim: DIM = None,
    plan_inputs: PLAN_INPUTS = False,
) -> None:
    """Show what the peak is made of."""
    problem = _problem(file, dim, None, plan_inputs)
    found = find_peak(problem)
    _show(
        as_json,
        lambda: summary.peak_summary(found),
        lambda: [tables.peak_table(found, problem.name, all_rows)],
    )


@app.command(name="validate")
def validate_(file: PLAN_FILE, as_json: AS_JSON = False) -> None:
    """Check a finished plan against every rule."""
    loaded = load(file, ImportOptions(offsets_as_plan=True))
    if not isinstance(loaded, Plan):
        kind = "a graph" if isinstance(loaded, Graph) else "buffers without offsets"
        raise InputError(str(file), "", kind, "a finished plan")
    report = validate_plan(loaded)
    _show(
        as_json,
        lambda: summary.report_summary(loaded, report),
        lambda: tables.report_lines(loaded, report),
    )
    if not report.valid:
        raise typer.Exit(1)


@app.command()
def capture(
    factory: Annotated[str, typer.Argument(help="package.module:factory, giving (model, inputs)")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Where the graph goes.")],
    functional: Annotated[bool, typer.Option(help="Without in-place ops.")] = False,
) -> None:
    """Capture a torch model without allocating its weights.

    The factory takes no arguments and returns (model, args), (model, kwargs) or (model, args, kwargs). It
    runs under the meta device where it can.
    """
    from memplan_engine.importers.torch_factory import capture_factory

    check_target(output, (".json",))
    graph = capture_factory(factory, functional=functional)
    write(graph, output)
    problem = as_problem(graph)
    Console(stderr=True).print(
        f"{output}: {len(graph.ops)} ops, {len(problem)} buffers", markup=False, highlight=False
    )


@app.command(name="strategies")
def strategies_(as_json: AS_JSON = False) -> None:
    """List the strategies with their sources."""
    known = known_strategies()
    _show(
        as_json,
        lambda: [
            {"name": each.name, "description": each.description, "source": each.source}
            for each in known.values()
        ],
        lambda: [tables.strategies_table(known)],
    )


@app.command()
def dashboard(
    files: Annotated[list[Path] | None, typer.Argument(help="Files to open.", show_default=False)] = None,
    port: Annotated[int | None, typer.Option(help="Port on 127.0.0.1; the next free one from 8501.")] = None,
    browser: Annotated[bool, typer.Option(help="Open a browser when there is one.")] = True,
) -> None:
    """Open the dashboard in the browser."""
    for file in files or []:
        if not file.is_file():
            raise InputError(str(file), "", "no such file", "a file to open")
    arguments = [str(file.resolve()) for file in files or []]
    options = ([] if port is None else [f"--port={port}"]) + ([] if browser else ["--no-browser"])
    # The engine does not import the dashboard: it is started as a program of its own. -P: a folder called
    # dashboard where one happens to be must not be taken for it.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "dashboard.launch", *options, *arguments])


def main() -> None:
    """Run the CLI; a MemplanError becomes one line on stderr and exit code 2."""
    compiling.on_first_compilation(
        lambda: print(
            "memplan: compiling kernels, once; the next run takes them from the cache", file=sys.stderr
        )
    )
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A name that the terminal has no letters for is no reason to fail.
            stream.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="memplan")
    except MemplanError as error:
        print(f"memplan: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        print(f"memplan: cannot write: {error.strerror or error}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2)


def _problem(file: Path, dims: list[str] | None, alignment: int | None, plan_inputs: bool) -> Problem:
    loaded = load(file, ImportOptions(dims=_dims(dims or [])))
    source = loaded.problem if isinstance(loaded, Plan) else loaded
    return as_problem(source, alignment=alignment, plan_inputs=plan_inputs)


def _dims(pairs: list[str]) -> dict[str, int]:
    dims = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if not name or not value.isascii() or not value.isdigit() or len(value) > 18 or int(value) < 1:
            raise InputError("--dim", "", repr(pair), "NAME=VALUE with a whole number of 1 or more")
        dims[name] = int(value)
    return dims


def _show(as_json: bool, machine: Callable[[], Any], people: Callable[[], Iterable[RenderableType]]) -> None:
    """Print what one of the two gives; the other is never worked out."""
    if as_json:
        text = json.dumps(machine(), indent=2) + "\n"
    else:
        # Into a pipe there is no width to fit: tables stay whole for grep.
        console = Console() if sys.stdout.isatty() else Console(width=200)
        with console.capture() as captured:
            for part in people():
                console.print(part)
        text = "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        # Who read the pipe has seen enough: no failure, and nothing left to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
