"""The solvers that a comparison knows, each by its name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from sys import maxsize

MOST_FOR_CP_SAT = 5_000


class Question(StrEnum):
    """What a solver is asked."""

    DECIDE = "decide"
    MINIMISE = "minimise"


@dataclass(frozen=True, slots=True)
class Solver:
    """`module` in this folder has its `solve`; `needs` is the package it imports; above `most` buffers it is
    not asked."""

    name: str
    module: str
    question: Question
    what: str
    needs: str = ""
    by_binary: bool = False
    most: int = maxsize

    def missing(self, binary: str) -> str:
        """Why it cannot run and what to do about it; "" when it can."""
        if self.by_binary:
            return "" if binary else f"{self.name} is left out: give its binary with --minimalloc PATH"
        if self.needs and find_spec(self.needs) is None:
            return f"{self.name} is left out: pip install 'memplan[bench]'"
        return ""


OURS = {Question.DECIDE: "decide", Question.MINIMISE: "auto"}
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
            "supermalloc", "supermalloc", Question.MINIMISE, "OmniMalloc's branch and bound", "omnimalloc"
        ),
        Solver("omni", "omni", Question.MINIMISE, "OmniMalloc's portfolio of greedy orders", "omnimalloc"),
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
