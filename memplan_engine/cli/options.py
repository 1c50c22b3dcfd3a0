"""The options that verbs share, and what they mean together."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from memplan_engine.cli.progress import reading
from memplan_engine.errors import InputError
from memplan_engine.files import ImportOptions, load, recognise
from memplan_engine.formats.importer import Loaded, RecordingImporter
from memplan_engine.graph import Graph
from memplan_engine.plan import Plan
from memplan_engine.preparation import (
    PLANNING_OPTIONS,
    PlanningOption,
    Preparation,
    prepare,
    prepared_graph,
)
from memplan_engine.problem import Problem
from memplan_engine.recordings.allocator_recording import Selection
from memplan_engine.strategies import get_strategy
from memplan_engine.strategies.base import SolveLimits, is_anytime

FILE = Annotated[Path, typer.Argument(help="memplan JSON, CSV, ONNX, .pt2 or a snapshot", show_default=False)]
AS_JSON = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ALL_ROWS = Annotated[bool, typer.Option("--all", help="Show every row of the tables.")]
CAPACITY = Annotated[
    str | None,
    typer.Option(
        help="Arena size to fit into, such as 512KiB, 100MB or bytes. "
        "Exit code: 0 fits, 1 does not, 3 undecided."
    ),
]
STRATEGY = Annotated[str, typer.Option(help="Planning strategy; see `memplan strategies`.")]
REUSE = tuple(name for name, option in PLANNING_OPTIONS.items() if option.at_one_size)
"""Options that are no choice of verbs which look at several sizes or ways at once."""
SYMBOLS = Annotated[
    list[str] | None,
    typer.Option("--symbol", "--dim", help=PLANNING_OPTIONS["symbols"].told),
]
_FILES: dict[str, str] = {}
"""The file that each graph or problem of this process came from, by the name that it bears."""
DEFAULT_SECONDS = 10.0
MOST_SECONDS = 1e9


SECONDS = Annotated[
    float | None,
    typer.Option(
        help=f"Time limit in seconds (default: {DEFAULT_SECONDS:g} for strategies that search, none "
        f"for others).",
        show_default=False,
    ),
]
KEPT_STRATEGY = Annotated[
    str | None,
    typer.Option(
        help="Planning strategy (default: auto). Without it, a finished plan is kept as it is.",
        show_default=False,
    ),
]
SEED = Annotated[int, typer.Option(min=0, help="Random seed; the same seed gives the same plan.")]
THREADS = Annotated[int, typer.Option(min=0, help="Number of threads; 0 means all cores.")]


def make_limits(strategy: str, seconds: float | None, seed: int = 0, threads: int = 0) -> SolveLimits:
    """The limits that the options ask for; raises InputError for a time limit that is none, and
    MemplanError for a strategy that is none."""
    if seconds is None and is_anytime(get_strategy(strategy)):
        seconds = DEFAULT_SECONDS
    if seconds is not None and not 0 < seconds <= MOST_SECONDS:
        raise InputError("--seconds", "", f"{seconds:g}", f"more than 0, and {MOST_SECONDS:g} at most")
    return SolveLimits(seconds=seconds, seed=seed, threads=threads)


def _parameter_of(option: PlanningOption) -> inspect.Parameter:
    """The parameter of a verb from which typer makes the command line's option."""
    if option.name == "symbols":
        return inspect.Parameter("symbols", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=SYMBOLS)
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=option.default,
        annotation=Annotated[option.kind, typer.Option(option.flag, help=option.told)],
    )


def with_preparation(
    verb: Callable[..., None] | None = None, *, without: tuple[str, ...] = ()
) -> Callable[..., Any]:
    """Give `verb`, in place of its parameter `how`, the options that make a Preparation, but for those called
    `without`. Errors that name a graph name the file that it came from."""
    if verb is None:
        return partial(with_preparation, without=without)
    shared = [_parameter_of(entry) for name, entry in PLANNING_OPTIONS.items() if name not in without]

    @wraps(verb)
    def run(**kwargs: Any) -> None:
        options = {parameter.name: kwargs.pop(parameter.name) for parameter in shared}
        options["symbols"] = tuple(parse_symbols(options["symbols"] or []).items())
        how = Preparation(**options)
        try:
            verb(**kwargs, how=how)
        except InputError as error:
            source = _FILES.get(error.source, error.source)
            raise InputError(source, error.place, error.found, error.expected) from error

    hints = get_type_hints(verb, include_extras=True)
    own = inspect.signature(verb).parameters.values()
    parameters = [
        parameter.replace(annotation=hints[parameter.name]) for parameter in own if parameter.name != "how"
    ] + shared
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def open_file(file: Path, how: Preparation, keep_symbols: bool = False) -> tuple[Loaded, Preparation]:
    """Load `file`. ONNX binds the symbols that have values as it is read, or takes the values for their hints
    when `keep_symbols`; every other kind of graph keeps its symbols."""
    importer = recognise(file)
    if how.card is not None and not isinstance(importer, RecordingImporter):
        raise InputError(file.name, "--card", str(how.card), "a recorded or predicted run, which has devices")
    if not importer.binds_dimensions:
        with reading(file) as progress:
            options = ImportOptions(selection=Selection(how.card), progress=progress)
            return _with_file_name(load(file, options), file), replace(how, card=None)
    values = dict(how.symbols)
    options = ImportOptions(hints=values) if keep_symbols else ImportOptions(dims=values)
    return _with_file_name(load(file, options), file), replace(how, symbols=())


def _with_file_name(loaded: Loaded, file: Path) -> Loaded:
    """`loaded`, whose name errors will give as that of `file`."""
    name = loaded.problem.name if isinstance(loaded, Plan) else loaded.name
    _FILES[name] = file.name
    return loaded


def open_graph(file: Path, how: Preparation) -> Graph:
    """The graph of `file` at the sizes that `how` asks for; raises InputError when it holds none."""
    loaded, how = open_file(file, how)
    if isinstance(loaded, Graph):
        return prepared_graph(loaded, how)
    problem = loaded.problem if isinstance(loaded, Plan) else loaded
    if problem.origin is None:
        raise InputError(file.name, "", "buffers without a graph", "a graph")
    return problem.origin.graph


def open_problem(file: Path, how: Preparation) -> Problem:
    """The problem of `file`, made as `how` asks."""
    return prepare(*open_file(file, how), file.name)


def open_plan(file: Path, how: Preparation, strategy: str | None) -> Plan | Problem:
    """The finished plan of `file`, unless a `strategy` is asked for, else the problem to be planned."""
    loaded, prepared = open_file(file, how)
    problem = prepare(loaded, prepared, file.name)
    if not isinstance(loaded, Plan) or strategy is not None:
        return problem
    if how.alignment is not None:
        expected = "no alignment: a finished plan stays as it is unless a --strategy is asked for"
        raise InputError(file.name, "alignment", str(how.alignment), expected)
    return loaded


def parse_symbols(pairs: list[str]) -> dict[str, int]:
    """ "batch=8" … as values by name; raises InputError naming the pair that is none."""
    values = {}
    for pair in pairs:
        name, _, value = pair.rpartition("=")
        if not name or not value.isascii() or not value.isdigit() or len(value) > 18:
            raise InputError("--symbol", "", repr(pair), "NAME=VALUE with a whole number")
        if name in values:
            raise InputError("--symbol", "", f"{name} twice", "one value for each symbol")
        values[name] = int(value)
    return values
