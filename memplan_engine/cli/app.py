"""The Typer application that the verbs register with."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

VERBS = {
    "plan_command": ("plan", "compare"),
    "explain_command": ("peak", "layout", "validate", "strategies"),
    "diff_command": ("diff",),
    "what_if_command": ("what-if",),
    "report_command": ("report",),
    "snapshot_command": ("snapshot",),
    "replay_command": ("replay",),
    "graph_command": ("values", "reuse"),
    "symbols_command": ("symbols", "range", "buckets", "sweep"),
    "capture_command": ("capture", "estimate"),
    "run_command": ("run",),
    "observe_command": ("observe",),
    "dashboard_command": ("dashboard",),
}
"""The modules of `commands` with their verbs, in the order in which the help lists them; each module is
imported when one of its verbs is asked for."""


class _InOrder(TyperGroup):
    """Lists the verbs in the order of VERBS, whichever module was imported first."""

    def list_commands(self, ctx: Any) -> list[str]:
        order = [verb for verbs in VERBS.values() for verb in verbs]
        return sorted(super().list_commands(ctx), key=order.index)


app = typer.Typer(
    name="memplan",
    cls=_InOrder,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
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
