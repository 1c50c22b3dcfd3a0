"""What was loaded → problem, with everything that a person may ask for on the way."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_type_hints

from memplan_engine.calibration.kernel_table import with_kernels
from memplan_engine.errors import InputError
from memplan_engine.formats.importer import Loaded
from memplan_engine.graph import Graph
from memplan_engine.lifetimes import DEFAULT_ALIGNMENT, PlanningOptions, Unread
from memplan_engine.plan import Plan
from memplan_engine.planner import as_problem
from memplan_engine.problem import Problem
from memplan_engine.schedule import Schedule, multi_stream, sequential

if TYPE_CHECKING:
    from memplan_engine.rewrites.reuse import Reused


class PlanningOption(NamedTuple):
    """A field of `Preparation` as people ask for it: command line, page and address are made from it."""

    told: str
    """What it does, in a sentence: `--help`, and the help of its widget."""
    label: str = ""
    """Of its widget on the page, a switch, or a number where there is a `most`; empty: neither."""
    parameter: str = ""
    """Its name in the address of a page; empty: it is not in it, or in a way of its own."""
    most: int = 0
    """The largest number that a page takes, in `unit`; 0 where it is no number."""
    unit: str = ""
    unset: str = ""
    """What the widget of a number shows while none is given."""
    at_one_size: bool = False
    """Decided at one set of sizes: verbs and pages that look at several do not take it."""
    of_training: bool = False
    """Only a whole training step takes it."""
    name: str = ""
    default: Any = None
    kind: Any = None
    """The field's type."""

    @property
    def flag(self) -> str:
        """The command line's name of it."""
        return "--" + ("symbol" if self.name == "symbols" else self.name.replace("_", "-"))

    def asked(self, how: Preparation) -> bool:
        """Whether `how` has anything but the default here."""
        return bool(getattr(how, self.name) != self.default)


@dataclass(frozen=True, slots=True)
class Preparation:
    """How a graph becomes a problem. For buffers without a graph only `alignment` makes sense.

    `alignment` is in bytes, None for 64 (of graphs) or what each buffer says. `symbols` gives symbolic sizes
    their values, as (name, value); those left out keep their hints. `streams` runs as many ops at one step as
    can and may; `schedule` is a memplan/schedule file. `in_place` lets elementwise ops write into an input
    that dies, `concat` makes the inputs of a concatenation inside its output; both are proved safe first.
    `calibration` is a memplan/calibration file: what kernels take becomes workspace of their ops. `card` is
    the device of a recorded or predicted run that is read.
    `early_updates` runs the optimizer inside the backward pass of a training step and frees its gradients.
    `reorder` takes the best order of the ops that a brief search finds, the same each time, for writes in
    place where they are asked for; with `early_updates` that of the step whose gradients are freed.
    """

    alignment: Annotated[
        int | None,
        PlanningOption(
            "Alignment in bytes (default: 64 for graphs, the file's own for CSV).",
            parameter="alignment",
            most=2**30,
            unit="bytes",
        ),
    ] = None
    plan_inputs: Annotated[
        bool,
        PlanningOption(
            "Also place graph inputs, which belong to the caller, in the arena.",
            label="Plan graph inputs",
            parameter="inputs",
        ),
    ] = False
    symbols: Annotated[
        tuple[tuple[str, int], ...],
        PlanningOption("Value of a symbolic size: NAME=VALUE (default: its hint). Repeatable."),
    ] = ()
    streams: Annotated[
        int | None,
        PlanningOption(
            "Run up to this many ops in parallel at each step, as early as possible (AITemplate's "
            "simple multi-stream).",
            label="Streams",
            parameter="streams",
            most=1024,
            unit="ops per step",
            unset="Sequential",
        ),
    ] = None
    schedule: Annotated[
        Path | None, PlanningOption("memplan/schedule JSON: a step for each op, or ops on streams.")
    ] = None
    calibration: Annotated[
        Path | None,
        PlanningOption("Add the kernels' own scratch, from a file that `memplan calibrate` wrote."),
    ] = None
    card: Annotated[
        int | None,
        PlanningOption("Device to look at, in a run on several (default: the one with the most bytes)."),
    ] = None
    unread: Annotated[
        Unread,
        PlanningOption(
            "Values that no op reads: freed at once, or kept alive to the last step, as fx.Interpreter does.",
            label="Keep unused values alive",
            parameter="unread",
        ),
    ] = Unread.FREED
    round_sizes: Annotated[
        bool,
        PlanningOption(
            "Round sizes up to the alignment, as AITemplate does.",
            label="Round sizes up",
            parameter="round",
            at_one_size=True,
        ),
    ] = False
    in_place: Annotated[
        bool,
        PlanningOption(
            "Let elementwise ops overwrite an input at its last use.",
            label="In-place elementwise ops",
            parameter="in_place",
            at_one_size=True,
        ),
    ] = False
    concat: Annotated[
        bool,
        PlanningOption(
            "Produce the inputs of a concat in place, inside its output.",
            label="Zero-copy concat",
            parameter="concat",
            at_one_size=True,
        ),
    ] = False
    early_updates: Annotated[
        bool,
        PlanningOption(
            "Update each parameter as soon as its gradient is complete, and free the gradient.",
            label="Optimizer in the backward pass",
            parameter="early_updates",
            at_one_size=True,
            of_training=True,
        ),
    ] = False
    reorder: Annotated[
        bool,
        PlanningOption(
            "Run the ops in the order with the lowest peak that a brief search finds.",
            label="Best order of the ops",
            parameter="reorder",
            at_one_size=True,
        ),
    ] = False

    @property
    def options(self) -> PlanningOptions:
        """What of it holds at whatever sizes."""
        alignment = DEFAULT_ALIGNMENT if self.alignment is None else self.alignment
        return {"alignment": alignment, "plan_inputs": self.plan_inputs, "unread": self.unread}


def _planning_options() -> dict[str, PlanningOption]:
    """The fields of `Preparation` by name, each with what its annotation says of it."""
    hints = get_type_hints(Preparation, include_extras=True)
    options = {}
    for field in fields(Preparation):
        kind, option = get_args(hints[field.name])
        options[field.name] = option._replace(name=field.name, default=field.default, kind=kind)
    return options


PLANNING_OPTIONS = _planning_options()


def arguments_of(how: Preparation) -> list[str]:
    """The options of a command line that ask for `how`."""
    arguments = []
    for option in PLANNING_OPTIONS.values():
        if option.asked(how):
            value = getattr(how, option.name)
            if value is True:
                arguments.append(option.flag)
            elif isinstance(value, tuple):
                arguments += [text for name, number in value for text in (option.flag, f"{name}={number}")]
            else:
                arguments += [option.flag, str(value)]
    return arguments


def prepare(loaded: Loaded, how: Preparation, source: str = "") -> Problem:
    """The problem of `loaded`, made as `how` asks; `source` names it in errors.

    Raises
    ------
    InputError: something that only a graph can give, asked of a list of buffers; streams together with a
        schedule; and all that the steps on the way raise.
    """
    if isinstance(loaded, Graph):
        return problem_of(prepared_reuse(loaded, how), how)
    problem = loaded.problem if isinstance(loaded, Plan) else loaded
    # Taken silently, an option that does nothing would give a plan of something else than was asked for.
    for option in PLANNING_OPTIONS.values():
        if option.name not in ("alignment", "plan_inputs") and option.asked(how):
            place = option.name.replace("_", " ")
            kind = "a finished plan stays as it is" if isinstance(loaded, Plan) else "buffers have no ops"
            raise InputError(
                source or problem.name, place, _setting_text(getattr(how, option.name)), f"a graph: {kind}"
            )
    return as_problem(problem, alignment=how.alignment)


def prepared_reuse(graph: Graph, how: Preparation) -> Reused:
    """`graph` at the sizes and in the order that `how` asks for, with the reuse that it asks for."""
    # Here, not above: buffers without a graph need not wait for it.
    from memplan_engine.rewrites.reuse import Reused, reuse

    graph = prepared_graph(graph, how)
    if how.reorder:
        graph = _reordered(graph, how)
        schedule = sequential(graph)
    elif how.early_updates:
        graph, schedule = _with_early_updates(graph, how)
    else:
        schedule = prepared_schedule(graph, how)
    if not (how.in_place or how.concat):
        return Reused(graph, schedule)
    return reuse(graph, schedule, in_place=how.in_place, concat=how.concat, **how.options)


def _with_early_updates(graph: Graph, how: Preparation) -> tuple[Graph, Schedule]:
    from memplan_engine.rewrites.early_updates import early_updates
    from memplan_engine.rewrites.held_gradients import free_gradients

    if how.streams is not None or how.schedule is not None:
        found = "a schedule" if how.streams is None else f"{how.streams} streams"
        raise InputError(graph.name, "early updates", found, "neither: they are a schedule themselves")
    freed = free_gradients(graph)
    return freed, early_updates(freed)


def _reordered(graph: Graph, how: Preparation) -> Graph:
    from memplan_engine.rewrites.held_gradients import free_gradients
    from memplan_engine.rewrites.order.checked import checked_reorder

    if how.streams is not None or how.schedule is not None:
        found = "a schedule" if how.streams is None else f"{how.streams} streams"
        raise InputError(graph.name, "reorder", found, "neither: the order of the ops is looked for")
    given = free_gradients(graph) if how.early_updates else graph
    return checked_reorder(given, in_place=how.in_place, brief=True).graph


def problem_of(reused: Reused, how: Preparation) -> Problem:
    """The buffers of what `prepared_reuse` gave for `how`."""
    from memplan_engine.rewrites.reuse import reused_problem

    return reused_problem(reused, round_sizes=how.round_sizes, **how.options)


def prepared_graph(graph: Graph, how: Preparation) -> Graph:
    """`graph` at the sizes that `how` asks for."""
    if how.symbols:
        # Here, not above: without symbols nobody need wait for sympy.
        from memplan_engine.symbolic.symbolic_problem import resolve

        graph = resolve(graph, dict(how.symbols))
    if how.calibration is None:
        return graph
    from memplan_engine.formats.memplan_json.calibration_format import load_calibration

    return with_kernels(graph, load_calibration(how.calibration))


def prepared_schedule(graph: Graph, how: Preparation) -> Schedule:
    """The schedule of `graph` that `how` asks for; one op a step when it asks for none."""
    if how.schedule is not None:
        if how.streams is not None:
            raise InputError(str(how.schedule), "", f"a schedule and {how.streams} streams", "one of them")
        from memplan_engine.formats.order_files import load_schedule

        return load_schedule(how.schedule, graph)
    return sequential(graph) if how.streams is None else multi_stream(graph, how.streams)


def range_options(graph: Graph, how: Preparation) -> dict[str, Any]:
    """What of `how` plans over a range of sizes take, as `sweep`, `plan_buckets` and `schema_of` name it.
    What is `at_one_size` is not among it."""
    return {"schedule": prepared_schedule(graph, how), **how.options}


def _setting_text(setting: object) -> str:
    if setting is True:
        return "switched on"
    if isinstance(setting, tuple):
        return ", ".join(f"{name}={value}" for name, value in setting)
    return str(setting)
