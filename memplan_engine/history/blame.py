"""What caused a change: the graphs of both sides, which the store has, compared down to the line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from memplan_engine.diffing.culprits import Explanation, explain
from memplan_engine.diffing.regression import Diff, diff
from memplan_engine.errors import MemplanError
from memplan_engine.graph import Graph, Source
from memplan_engine.history.changes import HistoryChange
from memplan_engine.history.measuring import plan_again

NO_GRAPH = "recorded without a graph: only the figures are known"


@dataclass(frozen=True, slots=True, eq=False)
class Blame:
    """A `change` with the `diff` of its two graphs and the `explanation` of its peak; None of both, with the
    reason in `unknown`, where the cause cannot be told."""

    change: HistoryChange
    diff: Diff | None = None
    explanation: Explanation | None = None
    unknown: str = ""

    @property
    def tensor(self) -> str:
        """The tensor that most of the change comes from, "" where none is known."""
        culprits = self.explanation.culprits if self.explanation else ()
        return culprits[0].largest.label if culprits else ""

    @property
    def line(self) -> Source | None:
        """The line of code that most of the change comes from."""
        culprits = self.explanation.culprits if self.explanation else ()
        return culprits[0].source if culprits else None


def blame_change(change: HistoryChange, graph: Callable[[str], Graph]) -> Blame:
    """Why `change` is one: both graphs, which `graph` gives by their digests (`History.graph`), are planned
    as their series says and compared. Whatever keeps that from being told is said in `unknown`."""
    digests = [point.fingerprints.graph for point in (change.before, change.after)]
    if not all(digests):
        return Blame(change, unknown=NO_GRAPH)
    try:
        base, head = (plan_again(graph(digest), change.after.series) for digest in digests)
    except MemplanError as error:
        return Blame(change, unknown=str(error))
    found = diff(base, head)
    return Blame(change, found, explain(found))
