"""A replay as plain values for machines: all that a page needs to step through it without asking again."""

from __future__ import annotations

from typing import Any

from memplan_engine.analysis.claims import claim_summary
from memplan_engine.replay.replay_values import KINDS, OUTCOMES, STATES, Holes, Objects, Step, Tree
from memplan_engine.replay.steps import Replay


def replay_summary(replay: Replay, sentences: bool = True) -> dict[str, Any]:
    """The replay as columns of plain numbers; bytes are exact integers.

    `buffers` has a value a buffer, `steps` a value a step. The rows of step k in `holes` or `objects` are
    `steps["first"][k] … steps["first"][k + 1] − 1`. `state` counts in `states`. Without `sentences` they
    are left out: they are half of the text.
    """
    plan, problem = replay.plan, replay.problem
    columns = replay.holes or replay.shared
    steps: dict[str, Any] = {
        "buffer": replay.buffer.tolist(),
        "offset": replay.offset.tolist(),
        "arena": replay.arena.tolist(),
        "bytes_left": replay.bytes_left.tolist(),
        "moved": replay.moved.tolist(),
        "moved_to": replay.moved_to.tolist(),
        "line": replay.line.tolist(),
    }
    if columns:
        steps |= {key: getattr(columns, key).tolist() for key in ("first", "more", "possible")}
    if sentences:
        steps["sentence"] = [step.sentence for step in replay.steps]
    return {
        "graph": problem.name,
        **claim_summary(problem),
        "strategy": plan.strategy,
        "family": str(replay.family),
        "fit": str(replay.fit) if replay.fit else None,
        "arena_bytes": plan.arena_bytes,
        "lower_bound_bytes": plan.bound.nbytes,
        "code": list(replay.code),
        "states": [str(state) for state in STATES],
        "keys": [
            {"name": key.name, "unit": str(key.unit), "descending": key.descending} for key in replay.keys
        ],
        "buffers": {
            "name": list(problem.names),
            "label": list(replay.labels),
            **{key: getattr(problem, key).tolist() for key in ("start", "end", "size")},
            "key": [key.values.tolist() for key in replay.keys],
            "object": None if plan.objects is None else plan.objects.tolist(),
        },
        "steps": steps,
        "holes": _rows(replay.holes, ("low", "high", "offset", "short", "state")),
        "objects": _rows(replay.shared, ("number", "size", "value", "state")),
        "tree": _tree(replay.tree),
    }


def step_summary(step: Step) -> dict[str, Any]:
    """One step in full."""
    replay, problem = step.replay, step.replay.problem
    return {
        "step": step.number,
        **claim_summary(problem),
        "buffer": step.name,
        "label": step.label,
        "offset": step.offset,
        "key": dict(step.key),
        "alive": [problem.names[buffer] for buffer in step.live],
        "holes": [
            {
                "low": hole.low,
                "high": hole.high,
                "offset": hole.offset,
                "short": hole.short,
                "taken": hole is step.hole,
                "reason": hole.reason,
            }
            for hole in step.holes
        ],
        "objects": [
            {
                "object": shared_object.number,
                "bytes": shared_object.size,
                "value": shared_object.value,
                "taken": shared_object is step.joined,
                "reason": shared_object.reason,
            }
            for shared_object in step.objects
        ],
        "more": step.more,
        "object": step.object,
        "moved": {problem.names[step.moved[0]]: step.moved[1]} if step.moved else {},
        "arena_before": step.arena_before,
        "arena_after": step.arena_after,
        "bytes_left": step.bytes_left,
        "line": replay.code[step.line],
        "sentence": step.sentence,
    }


def _rows(columns: Holes | Objects | None, keys: tuple[str, ...]) -> dict[str, list[int]] | None:
    return {key: getattr(columns, key).tolist() for key in keys} if columns else None


def _tree(tree: Tree | None) -> dict[str, Any] | None:
    if tree is None:
        return None
    columns = ("parent", "depth", "kind", "bound", "outcome", "capacity", "step", "blocked", "independent")
    return {
        "kinds": [str(kind) for kind in KINDS],
        "outcomes": [str(outcome) for outcome in OUTCOMES],
        **{key: [getattr(node, key) for node in tree] for key in columns},
        "kind": [KINDS.index(node.kind) for node in tree],
        "outcome": [OUTCOMES.index(node.outcome) for node in tree],
    }
