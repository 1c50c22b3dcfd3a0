"""The problem of a graph with symbols: the same buffers and lifetimes at all values, sizes as formulas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Unpack

import numpy as np

from memplan_engine.errors import InputError
from memplan_engine.graph import MAX_BYTES, Graph
from memplan_engine.lifetimes import PlanningOptions, to_problem
from memplan_engine.problem import Ints, Origin, Problem, make_problem
from memplan_engine.schedule import Schedule, sequential
from memplan_engine.symbolic.expression import Formula, parse
from memplan_engine.symbolic.resolve import resolve, size_at
from memplan_engine.symbolic.symbol_values import Values, check_values


@dataclass(frozen=True, slots=True, eq=False)
class SymbolicProblem:
    """Buffers with formulas for sizes. `which[i]` is the place in `formulas` (distinct texts) of the size of
    buffer i; `frame` holds everything else of the buffers, with sizes of no meaning. `round_sizes`: sizes are
    rounded up to the alignment after they are evaluated."""

    graph: Graph
    schedule: Schedule
    frame: Problem
    formulas: tuple[Formula, ...]
    which: Ints
    round_sizes: bool = False

    def __len__(self) -> int:
        return len(self.frame)

    def formula(self, buffer: int) -> Formula:
        """The size of one buffer, in bytes, before it is rounded."""
        return self.formulas[int(self.which[buffer])]

    def values(self, values: Mapping[str, int] | None = None) -> Values:
        """`values` checked, with hints for the symbols that are not among them."""
        return check_values(self.graph.symbols, values, self.graph.name)

    def sizes(self, values: Mapping[str, int]) -> Ints:
        """The size of each buffer in bytes at values of all symbols.

        Raises
        ------
        ImpossibleSizeError: a size that is negative or not whole. InputError: one above 2^63−1, or a sum.
        """
        found = [size_at(formula, values, self.graph.name, self._place(i))
                 for i, formula in enumerate(self.formulas)]  # fmt: skip
        if sum(size * count for size, count in zip(found, self._counts(), strict=True)) > MAX_BYTES:
            raise InputError(self.graph.name, "storages", "sizes whose sum passes 2^63-1", "a smaller total")
        sizes: Ints = np.array(found, dtype=np.int64)[self.which]
        return sizes + -sizes % self.frame.alignment if self.round_sizes else sizes

    def at(self, values: Mapping[str, int] | None = None, origin: bool = True) -> Problem:
        """The plain problem at `values`; buffers without bytes stay in it. Without `origin` it does not know
        its graph, which saves most of the time.

        Raises
        ------
        InputError: as `check_values` and `sizes`.
        """
        checked, frame = self.values(values), self.frame
        return make_problem(
            frame.start,
            frame.end,
            self.sizes(checked),
            names=frame.names,
            alignment=frame.alignment,
            steps=frame.steps,
            name=frame.name,
            origin=Origin(resolve(self.graph, checked), self.schedule) if origin else None,
        )

    def _counts(self) -> list[int]:
        return [int(count) for count in np.bincount(self.which, minlength=len(self.formulas))]

    def _place(self, formula: int) -> str:
        first = int(np.flatnonzero(self.which == formula)[0])
        return f"storage {self.frame.names[first]!r}"


def symbolic_problem(
    graph: Graph,
    schedule: Schedule | None = None,
    *,
    round_sizes: bool = False,
    **options: Unpack[PlanningOptions],
) -> SymbolicProblem:
    """The buffers of `graph`, as `to_problem` finds them, and those with formulas that happen to have no
    bytes at the hints. A graph without symbols gives formulas that are plain numbers.

    Raises
    ------
    InputError: `alignment` below 1, a formula that cannot be read or has an unknown symbol.
    """
    schedule = schedule or sequential(graph)
    filled = tuple(replace(s, nbytes=1) if s.formula else s for s in graph.storages)
    frame = to_problem(replace(graph, storages=filled), schedule, **options)
    symbols = {symbol.name: symbol for symbol in graph.symbols}
    storages = {storage.name: storage for storage in graph.storages}
    read = partial(parse, names=symbols, source=graph.name)
    rows: dict[Formula, int] = {}
    which = []
    for name in frame.names:
        text = storages[name].formula or str(storages[name].nbytes)
        which.append(rows.setdefault(read(text, place=f"storage {name!r}"), len(rows)))
    return SymbolicProblem(graph, schedule, frame, tuple(rows), np.array(which, dtype=np.int64), round_sizes)
