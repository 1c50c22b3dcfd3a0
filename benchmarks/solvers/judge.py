"""An answer held against the instance: valid or not, how far above the bound, decided or not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.families.instance import Instance
from benchmarks.solvers.catalogue import Question, Solver
from benchmarks.solvers.protocol import Answer
from memplan_engine.planner import adopt
from memplan_engine.verify.validate import validate_plan


@dataclass(frozen=True, slots=True)
class Result:
    """What `solver` gave for `instance`: `arena` in bytes, None when it gave no placement; `said` is its
    verdict for people; `decided` whether that settles the question; `wrong` what our validator says of it.
    `asked` is false where the solver cannot be told of what the instance asks for."""

    instance: Instance
    solver: Solver
    threads: int
    answer: Answer
    arena: int | None
    said: str
    decided: bool
    wrong: str = ""
    seed: int = 0
    asked: bool = True

    @property
    def label(self) -> str:
        """The solver's name, and how many threads it had if that is not one."""
        return self.solver.name if self.threads == 1 else f"{self.solver.name}:{self.threads}"

    @property
    def above(self) -> float | None:
        """Arena over the bound: the optimum where it is known, or else the lower bound."""
        return None if self.arena is None else self.arena / self.instance.bound


def unasked(instance: Instance, solver: Solver, threads: int) -> Result:
    """What stands for an answer where the solver cannot be told of what the instance asks for."""
    return Result(
        instance, solver, threads, Answer(), None, solver.cannot(instance.features), False, asked=False
    )


def judge(instance: Instance, solver: Solver, threads: int, answer: Answer, seed: int = 0) -> Result:
    """Check the placement with the independent validator, and the claims against what is known."""
    arena, wrong = _arena(instance, answer)
    lowest = arena if instance.optimum is None else instance.optimum
    if not wrong and lowest is not None and answer.bound > lowest:
        wrong = f"claims a bound of {answer.bound}, and {lowest} bytes are enough"
    if solver.question is Question.DECIDE:
        fits = arena is not None and arena <= instance.capacity
        denied = answer.denied or answer.bound > instance.capacity
        if denied and instance.optimum is not None and instance.optimum <= instance.capacity:
            wrong = f"says that it does not fit, and {instance.optimum} bytes are enough"
        said = "fits" if fits else "does not fit" if denied else "undecided"
        decided = fits or denied
    else:
        decided = arena is not None and arena <= max(answer.bound, instance.lower_bound)
        said = "proven" if decided else "no"
    said = "WRONG" if wrong else answer.trouble or said
    return Result(instance, solver, threads, answer, arena, said, decided and not wrong, wrong, seed)


def _arena(instance: Instance, answer: Answer) -> tuple[int | None, str]:
    if answer.offsets is None:
        return None, ""
    plan = adopt(instance.problem, np.array(answer.offsets, dtype=np.int64))
    violations = validate_plan(plan).violations
    return (None, violations[0].message) if violations else (plan.arena_bytes, "")


def disagreement(results: list[Result]) -> str:
    """What cannot both be true among answers to one instance; "" when there is nothing."""
    arenas = [(result.arena, result.label) for result in results if result.arena is not None]
    if not arenas:
        return ""
    arena, packer = min(arenas)
    for result in results:
        capacity = result.instance.capacity
        below = max(result.answer.bound, capacity + 1 if result.said == "does not fit" else 0)
        if below > arena:
            return f"{result.label} says that {below - 1} bytes are too few, {packer} needs {arena}"
    return ""
