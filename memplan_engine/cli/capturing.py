"""The verbs that need torch: capturing models."""

from __future__ import annotations

from typing import Annotated

import typer

from memplan_engine.cli.app import app
from memplan_engine.cli.options import OUTPUT
from memplan_engine.cli.output import tell
from memplan_engine.exporters import check_target, write
from memplan_engine.planner import as_problem


@app.command()
def capture(
    factory: Annotated[str, typer.Argument(help="package.module:factory, giving (model, inputs)")],
    output: OUTPUT,
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
    tell(f"{output}: {len(graph.ops)} ops, {len(as_problem(graph))} buffers")
