"""The Typer application that the verbs register with."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

VERBS = {
    "planning": ("plan", "compare"),
    "explaining": ("peak", "layout", "validate", "strategies"),
    "comparing": ("diff",),
    "what_if": ("what-if",),
    "reporting": ("report",),
    "recording": ("snapshot",),
    "replaying": ("replay",),
    "graphs": ("values", "reuse"),
    "symbols": ("symbols", "range", "buckets", "sweep"),
    "capturing": ("capture", "estimate"),
    "executing": ("run",),
    "observing": ("observe",),
    "serving": ("dashboard",),
}
"""The modules beside this one with their verbs, in the order in which the help lists them; each module is
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
    add_completion=False,
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
