"""The plan that advice is asked about, and what it takes to plan it with a change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from memplan_engine.analysis.tied_peaks import TiedPeak, tied_peaks
from memplan_engine.formats.importer import Loaded
from memplan_engine.graph import Graph
from memplan_engine.plan import Plan
from memplan_engine.preparation import Preparation, prepare, prepared_graph, prepared_reuse, problem_of
from memplan_engine.problem import Problem
from memplan_engine.rewrites.reuse import Reused
from memplan_engine.what_if.apply import apply
from memplan_engine.what_if.edits import Edit


@dataclass(frozen=True, slots=True, eq=False)
class Situation:
    """What somebody has on the screen: `loaded`, prepared as `how` says and changed by `edits`, is the
    problem of `plan`. Proposers look at it and at nothing else."""

    loaded: Loaded
    how: Preparation
    edits: tuple[Edit, ...]
    plan: Plan
    _reused: dict[Preparation, Reused] = field(default_factory=dict, repr=False)

    @property
    def problem(self) -> Problem:
        """The buffers of the plan."""
        return self.plan.problem

    @property
    def graph(self) -> Graph | None:
        """The graph at the sizes that are asked for, before any reuse; None for buffers without one."""
        return prepared_graph(self.loaded, self.how) if isinstance(self.loaded, Graph) else None

    @property
    def peaks(self) -> tuple[TiedPeak, ...]:
        """Where the peak is reached."""
        return tied_peaks(self.problem)

    def reused(self, options: Mapping[str, Any]) -> Reused | None:
        """What reuse makes of the graph with `options` changed, worked out once; None without a graph."""
        if not isinstance(self.loaded, Graph):
            return None
        how = replace(self.how, **options)
        if how not in self._reused:
            self._reused[how] = prepared_reuse(self.loaded, how)
        return self._reused[how]

    def changed(self, options: Mapping[str, Any], edits: tuple[Edit, ...]) -> Problem:
        """The buffers with `options` changed and `edits` added; raises InputError where that cannot be."""
        how = replace(self.how, **options)
        reused = self.reused(options)
        problem = prepare(self.loaded, how) if reused is None else problem_of(reused, how)
        return apply(problem, (*self.edits, *edits))

    def after(self, plan: Plan, options: Mapping[str, Any], edits: tuple[Edit, ...]) -> Situation:
        """The situation in which `plan`, made with the change, is on the screen."""
        return Situation(
            self.loaded, replace(self.how, **options), (*self.edits, *edits), plan, _reused=self._reused
        )
