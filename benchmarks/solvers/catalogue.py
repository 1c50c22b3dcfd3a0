"""The solvers that a comparison knows, each by its name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from sys import maxsize

from benchmarks.families.instance import Feature

MOST_FOR_CP_SAT = 5_000
EVERYTHING = frozenset(Feature)
NOTHING: frozenset[Feature] = frozenset()


class Question(StrEnum):
    """What a solver is asked."""

    DECIDE = "decide"
    MINIMISE = "minimise"


@dataclass(frozen=True, slots=True)
class Solver:
    """`module` in this folder has its `solve`; `needs` is the package it imports; above `most` buffers it is
    not asked. `features` are those that it can be told of, `workers` the threads that it runs on a core."""

    name: str
    module: str
    question: Question
    what: str
    needs: str = ""
    by_binary: bool = False
    most: int = maxsize
    features: frozenset[Feature] = EVERYTHING
    workers: int = 1

    def cannot(self, asked: frozenset[Feature]) -> str:
        """Why it cannot be asked about an instance with these features; "" when it can."""
        lacking = sorted(asked - self.features)
        if Feature.GAPS in lacking:
            lacking = [feature for feature in lacking if feature is not Feature.WINDOWS]
        return f"knows no {', '.join(lacking)}" if lacking else ""

    def missing(self, binary: str) -> str:
        """Why it cannot run and what to do about it; "" when it can."""
        if self.by_binary:
            return "" if binary else f"{self.name} is left out: give its binary with --minimalloc PATH"
        if self.needs and find_spec(self.needs) is None:
            return f"{self.name} is left out: pip install 'memplan[bench]'"
        return ""


OURS = {Question.DECIDE: "decide", Question.MINIMISE: "auto"}
BY_MINIMALLOC = EVERYTHING - {Feature.FIXED}
"""Its tables have a column for offsets, in which no buffer may be left free."""
SOLVERS = {
    solver.name: solver
    for solver in (
        Solver("decide", "ours_decide", Question.DECIDE, "memplan_engine.decide"),
        Solver(
            "minimalloc",
            "minimalloc",
            Question.DECIDE,
            "MiniMalloc's binary, all of its process",
            by_binary=True,
            features=BY_MINIMALLOC,
        ),
        Solver(
            "cp_sat_decide",
            "cp_sat_decide",
            Question.DECIDE,
            "OR-tools CP-SAT, the arena fixed",
            "ortools",
            most=MOST_FOR_CP_SAT,
        ),
        Solver("auto", "ours_auto", Question.MINIMISE, "memplan_engine.make_plan, strategy auto"),
        Solver(
            "minimalloc_minimise",
            "minimalloc_minimise",
            Question.MINIMISE,
            "MiniMalloc's binary with --minimize_capacity, half of the time from each of two capacities",
            by_binary=True,
            features=BY_MINIMALLOC,
        ),
        *(
            Solver(
                f"supermalloc_{workers}",
                "supermalloc",
                Question.MINIMISE,
                f"OmniMalloc's branch and bound, {workers} threads on a core",
                "omnimalloc",
                features=NOTHING,
                workers=workers,
            )
            for workers in (3, 6)
        ),
        Solver(
            "tela",
            "tela",
            Question.MINIMISE,
            "OmniMalloc's TelaMalloc, with ever more backtracks",
            "omnimalloc",
            features=NOTHING,
        ),
        Solver(
            "omni",
            "omni",
            Question.MINIMISE,
            "OmniMalloc's portfolio of greedy orders, no search",
            "omnimalloc",
            features=frozenset({Feature.FIXED}),
        ),
        Solver(
            "cp_sat_minimise",
            "cp_sat_minimise",
            Question.MINIMISE,
            "OR-tools CP-SAT, the arena minimised",
            "ortools",
            most=MOST_FOR_CP_SAT,
        ),
    )
}
