"""The Typer application that the verbs register with. An error of a command line becomes one line."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info

from memplan_engine.errors import INTERRUPTED, MemplanError, one_line
from memplan_engine.kernels import on_first_compilation

VERBS = {
    "plan": ("plan_command", "Place every buffer of FILE in one arena."),
    "compare": ("plan_command", "Compare strategies on the same problem."),
    "peak": ("explain_command", "Show what the peak, or another step, is made of."),
    "buffers": ("explain_command", "List every buffer with its size, offset, lifetime, op and source."),
    "layout": ("explain_command", "Show the memory layout: weights, activations, workspaces."),
    "validate": ("explain_command", "Check a finished plan with an independent validator."),
    "strategies": ("explain_command", "List the strategies and where they come from."),
    "diff": (
        "diff_command",
        "Explain why HEAD needs more memory than BASE: which buffers, from which lines, at which peak.",
    ),
    "check": (
        "checks.check_command",
        "Check that models need no more memory than they may, and no more than at another commit.",
    ),
    "what-if": (
        "what_if_command",
        "Edit buffers of FILE and replan; edits apply in the order of the options below.",
    ),
    "suggest": (
        "suggest_command",
        "Suggest what to do about the peak: each change planned and checked, with the bytes that it saves.",
    ),
    "fit": (
        "fit_command",
        "Fit a model into a capacity: in place, order, gradients, recomputation, until it fits.",
    ),
    "report": (
        "report_command",
        "Write a plan as a self-contained HTML page or as a figure (SVG, PNG).",
    ),
    "snapshot": (
        "snapshot_command",
        "Show an allocator recording: peak, fragmentation, out-of-memory events, and what a plan needs.",
    ),
    "allocator": (
        "allocator_command",
        "Predict what PyTorch's caching allocator reserves for FILE: under which settings, on which device.",
    ),
    "replay": (
        "replay_command",
        "Show every decision of a strategy: which buffer came next, where it went, and why.",
    ),
    "values": (
        "graph_command",
        "List which values can be planned, and why the others cannot (Static Runtime's rules).",
    ),
    "phases": (
        "graph_command",
        "Show the peak of each phase of a training graph, and what forward saves for backward.",
    ),
    "reuse": (
        "graph_command",
        "Show what in-place elementwise ops and zero-copy concat would save.",
    ),
    "symbols": (
        "symbols_command",
        "Show the symbolic sizes of FILE, its peak as a formula, and a plan valid for all their values.",
    ),
    "range": (
        "symbols_command",
        "Plan at the hints (or --symbol values) and check the offsets over the full range of the symbols.",
    ),
    "buckets": (
        "symbols_command",
        "Plan each bucket of one symbol, and show the memory it wastes.",
    ),
    "sweep": (
        "symbols_command",
        "Show arena, lower bound and partition plan as functions of one symbol.",
    ),
    "capture": (
        "capture_command",
        "Capture a PyTorch model, or a JAX function, as a graph, without allocating its weights.",
    ),
    "estimate": (
        "capture_command",
        "Estimate the peak of forward and backward as PyTorch's FX estimator does, and by storages.",
    ),
    "run": (
        "run_command",
        "Run a model in its planned arena: bitwise equality, predicted against measured bytes.",
    ),
    "observe": (
        "run_command",
        "Run a model eagerly and record every allocation, even if it cannot be exported.",
    ),
    "devices": (
        "devices_command",
        "Run SCRIPT as every rank of a distributed run, on fake tensors: what each holds, and whether it "
        "fits.",
    ),
    "calibrate": (
        "calibrate_command",
        "Measure the kernels' own scratch on this machine, for predictions without a run.",
    ),
    "zoo": (
        "zoo.zoo_command",
        "Plan each variant of the models of MANIFEST, and record them in a store of history.",
    ),
    "history": (
        "",
        "Keep what each commit of a project needs, and tell which commit, tensor and line changed it.",
    ),
    "history record": (
        "history.record_command",
        "Record graphs, plans, observations or factories at a commit, or a factory at each of many commits.",
    ),
    "history log": (
        "history.log_command",
        "List what was recorded: the figures of each model at each commit.",
    ),
    "history blame": (
        "history.blame_command",
        "Tell the commit, the tensor and the line of source of each change.",
    ),
    "history trend": (
        "history.trend_command",
        "Show the memory of a model over the commits, and which changes are to be looked at.",
    ),
    "history bisect": (
        "history.bisect_command",
        "Find the commit between GOOD and BAD with which the most memory came, and its line of source.",
    ),
    "history baseline": (
        "history.baseline_command",
        "Show what this commit is to be compared with: what was recorded where its branch began.",
    ),
    "history ack": ("history.ack_command", "Acknowledge that the change of a commit is meant, and why."),
    "history import": (
        "history.import_command",
        "Import older plans and graphs, each with its commit, or what another store has.",
    ),
    "history export": (
        "history.export_command",
        "Write the whole store into one file, which is a store itself.",
    ),
    "history prune": (
        "history.prune_command",
        "Remove points between two that say the same, and graphs that no point names any more.",
    ),
    "dashboard": ("dashboard_command", "Open the dashboard in the browser."),
}
"""The module in `commands` of each verb, and the first sentence of its help. A name of two words is a verb of
the first word's own, which has no module."""
GROUPS = {
    "Plan": ("plan", "compare", "check", "what-if", "validate", "strategies"),
    "Understand": (
        "peak",
        "suggest",
        "fit",
        "buffers",
        "layout",
        "phases",
        "values",
        "reuse",
        "replay",
        "diff",
        "snapshot",
        "allocator",
        "report",
    ),
    "Capture and run": ("capture", "run", "observe", "devices", "calibrate", "estimate"),
    "Dynamic sizes": ("symbols", "range", "sweep", "buckets"),
    "History": ("history", "zoo"),
    "Dashboard": ("dashboard",),
}
"""The verbs as the help has them; each is in one group."""


HELP = {"help_option_names": ["-h", "--help"]}


class LazyVerbs(TyperGroup):
    """Knows its verbs from VERBS, those that begin with `prefix`: the module of one is imported when it is
    run or asked for its options."""

    def __init__(self, prefix: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.prefix = prefix
        own = {
            verb.removeprefix(prefix): told for verb, (_, told) in VERBS.items() if verb.startswith(prefix)
        }
        self.commands = {verb: TyperCommand(verb, help=told) for verb, told in own.items() if " " not in verb}

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The verbs by group, each with its sentence whole."""
        groups = {"Verbs": tuple(self.commands)} if self.prefix else GROUPS
        wide = max(map(len, self.commands))
        for group, verbs in groups.items():
            with formatter.section(group):
                formatter.write_dl([(verb.ljust(wide), VERBS[self.prefix + verb][1]) for verb in verbs])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The verb that `args` begin with, as its module registers it, with its name and what follows."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, load_verb(self.prefix + name) if name else None, rest


def load_verb(name: str) -> Any:
    """The command of a verb, whose module is imported; of one that has verbs of its own, all of these."""
    module, told = VERBS[name]
    if not module:
        plain: Any = {"context_settings": HELP, "rich_markup_mode": None}
        return LazyVerbs(f"{name} ", name=name, help=told, no_args_is_help=True, **plain)
    from memplan_engine.cli.values import name_values

    import_module(f"{__package__}.commands.{module}")
    for registered in app.registered_commands:
        command = get_command_from_info(registered, pretty_exceptions_short=False, rich_markup_mode=None)
        if command.name == name:
            name_values(command)
            return command
    raise AssertionError(f"{name} is not registered where VERBS says")


app = typer.Typer(
    name="memplan",
    cls=LazyVerbs,
    no_args_is_help=True,
    context_settings=HELP,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        print(f"memplan {version('memplan')}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Plan the memory of a neural-network graph: place every buffer, prove how good it is, show it."""


USAGE: type[BaseException] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)
"""The root of all that Typer raises when a command line cannot be understood; it has no public name."""


def run(arguments: Sequence[str]) -> int:
    """Run the command line `arguments`, and give its exit code; raises KeyboardInterrupt after Ctrl-C."""
    on_first_compilation(
        lambda: _say("compiling kernels for the first time; later runs load them from the cache")
    )
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A name that the terminal has no letters for is no reason to fail.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(args=list(arguments), prog_name="memplan", standalone_mode=False) or 0
        sys.stdout.flush()
    except USAGE as error:
        return _explain(error)
    except MemplanError as error:
        _say(str(error))
        return error.exit_code
    except OSError as error:
        # Of a file there is a name, of what is printed none.
        _say(f"{error.filename or 'cannot write'}: {error.strerror or error}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    if code == INTERRUPTED:
        # What Typer makes of a KeyboardInterrupt.
        raise KeyboardInterrupt
    return int(code)


def _explain(error: Any) -> int:
    """Wrong usage in one line, but for a call without a verb, which wants the help; the exit code."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
    else:
        _say(f"{one_line(error.format_message(), 300)} (see --help)")
    return 2


def _say(message: str) -> None:
    """One line on stderr; where that takes nothing, the exit code has to do."""
    with contextlib.suppress(OSError):
        print(f"memplan: {message}", file=sys.stderr)
