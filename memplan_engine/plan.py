"""A plan: a placement of every buffer of a problem, with its strategy and its bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from memplan_engine.bounds import Bound
from memplan_engine.kernels.constructive.stack import stack_up
from memplan_engine.problem import FREE, Ints, Problem, int_column
from memplan_engine.system import by_name

if TYPE_CHECKING:
    from rich.console import RenderableType

Parameter = str | int | float | bool | None
DISPLAYS = {
    "figure": "memplan_engine.plotting.plotly_figure:plotly_figure",
    "table": "memplan_engine.reporters.plan_tables:plan_table",
    "html": "memplan_engine.reporters.notebook:notebook_html",
    "bundle": "memplan_engine.reporters.notebook:notebook_bundle",
}
"""Who draws or prints a plan, by form."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Offsets in bytes, one a buffer of `problem` (read-only int64 array of n).

    `parameters` are the strategy's own. What it took is no part of equality: `seconds` of wall time, search
    `nodes`, `threads`; `cut_short` says that a limit or a cancel ended it before it was through. `objects`
    is the shared object of each buffer (read-only int64 array of n), 0 … k − 1, where buffers are assigned
    to whole objects; None where they only have offsets.
    """

    problem: Problem
    offsets: Ints
    strategy: str
    bound: Bound
    parameters: tuple[tuple[str, Parameter], ...] = ()
    seconds: float = field(default=0.0)
    objects: Ints | None = None
    nodes: int = 0
    threads: int = 1
    cut_short: bool = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[object, ...]:
        columns = (None if column is None else column.tobytes() for column in (self.offsets, self.objects))
        return self.problem.fingerprint, self.strategy, self.bound, self.parameters, *columns

    @property
    def arena_bytes(self) -> int:
        """max(offset + size): what must be allocated."""
        return int((self.offsets + self.problem.size).max(initial=0))

    @property
    def gap(self) -> float:
        """Arena size over lower bound, minus 1; 0.0 for an empty problem."""
        return self.arena_bytes / self.bound.nbytes - 1 if self.bound.nbytes else 0.0

    @property
    def optimal(self) -> bool:
        """Whether the arena meets the lower bound, which proves that no placement is smaller."""
        return self.arena_bytes == self.bound.nbytes

    @property
    def packing_loss(self) -> int:
        """Arena size minus lower bound, bytes."""
        return self.arena_bytes - self.bound.nbytes

    @property
    def naive_bytes(self) -> int:
        """The arena without any reuse: what the strategy `naive` needs."""
        return int((naive_offsets(self.problem) + self.problem.size).max(initial=0))

    @property
    def saved(self) -> float:
        """The share of `naive_bytes` that the plan saves; 0.0 for an empty problem."""
        naive = self.naive_bytes
        return 1 - self.arena_bytes / naive if naive else 0.0

    @property
    def workspace_bytes(self) -> int:
        """What the ops hold for themselves beside the arena, bytes: temporaries, and scratch of any kind."""
        from memplan_engine.profile import workspace_of

        scratch = workspace_of(self.problem)
        return scratch.shared + scratch.unique

    @property
    def total_bytes(self) -> int:
        """Arena and workspace, bytes: all that the problem's scope knows of, constants apart."""
        return self.arena_bytes + self.workspace_bytes

    # How a plan is shown is asked of the rooms that draw and print: they know plans, not the other way round.

    def figure(self, colour_by: str | None = None, theme: str = "light") -> Any:
        """The rectangles over time and memory with the profile below, as a `plotly.graph_objects.Figure`.

        `colour_by` is one of `memplan_engine.plotting.colouring.COLOURINGS`; `theme` is light or dark.

        Raises
        ------
        MissingDependencyError: Plotly is not installed. InputError: no such colouring or theme.
        """
        return by_name(DISPLAYS["figure"])(self, colour_by, theme)

    def __rich__(self) -> RenderableType:
        """The table that `memplan plan` prints."""
        table: RenderableType = by_name(DISPLAYS["table"])(self)
        return table

    def _repr_html_(self) -> str:
        """The picture and the figures of the plan, for notebooks."""
        return str(by_name(DISPLAYS["html"])(self))

    def _repr_mimebundle_(self, **asked: Any) -> dict[str, str]:
        """The same in every form that a notebook may ask for."""
        return dict(by_name(DISPLAYS["bundle"])(self))


def naive_offsets(problem: Problem) -> Ints:
    """No reuse: the buffers one behind the other in the problem's order, each at its alignment.

    Those with fixed offsets stay where they are; the rest is stacked above the topmost of them.
    """
    is_fixed = problem.fixed != FREE
    offsets = np.array(problem.fixed)
    base = int((problem.fixed + problem.size)[is_fixed].max(initial=0))
    offsets[~is_fixed] = stack_up(problem.size[~is_fixed], problem.alignment[~is_fixed], base)
    return offsets


def make_offsets(values: Ints | Sequence[int], key: str = "offsets") -> Ints:
    """`values` as a read-only int64 array; raises InputError naming `key` if they are no 64-bit integers."""
    column = int_column(values, key, "plan")
    column.flags.writeable = False
    return column


def make_objects(values: Ints | Sequence[int] | None) -> Ints | None:
    """The column `Plan.objects` as a read-only int64 array, None as it is; raises as `make_offsets` does."""
    return None if values is None else make_offsets(values, "objects")
