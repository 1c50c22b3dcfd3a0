"""What the stages of a fit change in the user's code, in the words of the suggestions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from memplan_engine.advice.planning_changes import order_change, propose_early_updates, propose_reuse
from memplan_engine.advice.situation import Situation
from memplan_engine.advice.values import Candidate
from memplan_engine.fitting.fitted import Fitted, Stage, StageName
from memplan_engine.graph import Graph
from memplan_engine.preparation import Preparation
from memplan_engine.schedule import moved_ops

OPTIONS: dict[StageName, tuple[str, ...]] = {
    StageName.IN_PLACE: ("in_place", "concat"),
    StageName.REORDER: ("reorder",),
    StageName.GRADIENTS: ("early_updates",),
}
"""The fields of `Preparation` that do what a stage does."""
RUNS = "the order is a download here; memplan run MODEL --schedule order.json runs the model in it"


@dataclass(frozen=True, slots=True, eq=False)
class StageChange:
    """What a `stage` does to the graph it began with, as a candidate of the suggestions; by how many bytes
    the arena falls against the stage before, negative where it grows."""

    stage: Stage
    change: Candidate
    saved_bytes: int


def stage_changes(fitted: Fitted, graph: Graph, how: Preparation | None = None) -> tuple[StageChange, ...]:
    """The change of each stage of `fitted`, of `graph`, that changes something, in their order."""
    situation = Situation(graph, how or Preparation(), (), fitted.stages[0].plan)
    changes = []
    for before, stage in zip(fitted.stages, fitted.stages[1:], strict=False):
        saved = before.plan.arena_bytes - stage.plan.arena_bytes
        changes += [StageChange(stage, each, saved) for each in _changes(stage, before, situation)]
    return tuple(changes)


def _changes(stage: Stage, before: Stage, situation: Situation) -> Iterator[Candidate]:
    if stage.name is StageName.REORDER:
        if moved := moved_ops(before.graph, stage.graph):
            yield order_change(moved, {"reorder": True}, RUNS)
        return
    if stage.name in (StageName.RECOMPUTE, StageName.OFFLOAD, StageName.CHUNK):
        return
    propose = propose_early_updates if stage.name is StageName.GRADIENTS else propose_reuse
    wanted: dict[str, Any] = dict.fromkeys(OPTIONS[stage.name], True)
    found = [each for each in propose(situation) if each.options.items() <= wanted.items()]
    if found:
        # The one that changes most: of several ways to reuse memory that is all of them.
        yield max(found, key=lambda each: len(each.options))
