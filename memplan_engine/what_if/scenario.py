"""A scenario: a problem, the edits so far, and those that were undone."""

from __future__ import annotations

from dataclasses import dataclass, replace

from memplan_engine.problem import Problem
from memplan_engine.what_if.apply import apply
from memplan_engine.what_if.edits import Edit


@dataclass(frozen=True, slots=True)
class Scenario:
    """A plain value: `edits` in the order in which they were made, `undone` with the last one undone last."""

    edits: tuple[Edit, ...] = ()
    undone: tuple[Edit, ...] = ()

    def add(self, *edits: Edit) -> Scenario:
        """With `edits` made; what was undone before cannot be redone any more."""
        return Scenario((*self.edits, *edits))

    def undo(self) -> Scenario:
        """Without the last edit; as it is when there is none."""
        return Scenario(self.edits[:-1], (*self.undone, self.edits[-1])) if self.edits else self

    def redo(self) -> Scenario:
        """With the edit that was undone last."""
        return Scenario((*self.edits, self.undone[-1]), self.undone[:-1]) if self.undone else self

    def without(self, place: int) -> Scenario:
        """Without the edit at `place`, whatever came after it."""
        return replace(self, edits=(*self.edits[:place], *self.edits[place + 1 :]), undone=())

    def of(self, problem: Problem) -> Problem:
        """`problem` after the edits; raises InputError as `apply` does."""
        return apply(problem, self.edits)
