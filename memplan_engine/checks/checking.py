"""Several models held against what they may need, and against what they needed at another commit."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from memplan_engine.checks.ceilings import NO_CEILINGS, Ceilings
from memplan_engine.checks.checked_graphs import ModelSource, files_at, load_graph
from memplan_engine.checks.eager_reserved import eager_reserved
from memplan_engine.checks.model_check import ModelCheck
from memplan_engine.diffing.regression import Limit
from memplan_engine.errors import InputError, MemplanError
from memplan_engine.graph import Graph
from memplan_engine.history.measuring import reproducible_plan
from memplan_engine.plan import Plan
from memplan_engine.preparation import Preparation


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """`ceilings` are those of each model. `base` is a commit to compare with, or, for one model, the file of
    a graph; "" for none. `limit` is by how much a model may be larger than there. `strategy` and `how`
    plan."""

    models: Sequence[ModelSource]
    ceilings: Ceilings = NO_CEILINGS
    base: str = ""
    limit: Limit | None = None
    strategy: str = "auto"
    how: Preparation = field(default_factory=Preparation)

    def plan(self, graph: Graph) -> Plan:
        """The plan of `graph`, the same on each machine."""
        return reproducible_plan(graph, self.strategy, self.how)


def check_models(request: CheckRequest, folder: Path) -> tuple[ModelCheck, ...]:
    """Capture, plan and judge each model; `folder` is where the files are that `base` has others of.

    A model that the base does not have is new: it is compared with nothing, and `remark` says so. One that
    cannot be captured there is, too, unless a limit is asked for, which nobody could then hold it to.

    Raises
    ------
    InputError, MemplanError: a model of today that cannot be captured or planned, no such commit; with a
        limit a model that the base has and that cannot be captured or planned there.
    """
    with _files_of(request, folder) as before:
        return tuple(_check(source, request, before) for source in request.models)


@contextmanager
def _files_of(request: CheckRequest, folder: Path) -> Iterator[Path | None]:
    """The folder with the files of the base, or its one file; None without a base."""
    if not request.base or Path(request.base).is_file():
        if request.base and len(request.models) != 1:
            found = f"a file and {len(request.models)} models"
            raise InputError("--base", "", found, "a commit, or one model")
        yield Path(request.base) if request.base else None
        return
    with files_at(request.base, folder) as files:
        yield files


def _check(source: ModelSource, request: CheckRequest, before: Path | None) -> ModelCheck:
    given = source.given()
    graph = given.graph()
    plan = request.plan(graph)
    reserved = None if request.ceilings.reserved is None else eager_reserved(given)
    base, remark = None, ""
    if before is not None:
        try:
            was = load_graph(before) if before.is_file() else source.graph_in(before)
            base = plan if was == graph else request.plan(was)
        except MemplanError as error:
            if before.is_file():
                raise
            # Where it was looked for is another place each time.
            why = str(error).replace(f"{before}{os.sep}", "")
            if request.limit is not None and not source.is_new(before, error):
                ways = "mend it there, name another base, or ask for no limit of its growth"
                raise MemplanError(
                    f"{source.text}: no graph of it at {request.base}: {why}; {ways}"
                ) from None
            remark = f"not compared: {why}"
    return ModelCheck(source.text, plan, request.ceilings, reserved, base, request.limit, remark)
