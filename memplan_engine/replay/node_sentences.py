"""What a node of the search tree decides, what follows, and why it ends there, in words."""

from __future__ import annotations

from memplan_engine.replay.tree import Kind, Node, Outcome
from memplan_engine.replay.values import Step
from memplan_engine.units import format_bytes


def node_sentence(step: Step) -> str:
    """One node."""
    assert step.node is not None
    return f"{_decision(step, step.node)} {_outcome(step, step.node)}"


def _decision(step: Step, node: Node) -> str:
    if node.kind is Kind.ROOT:
        return f"Is there a placement within {format_bytes(node.capacity)}?"
    at = format_bytes(node.offset)
    if node.kind is Kind.PLACE:
        return f"{step.name} at its low, {at}."
    if node.kind is Kind.FORCED:
        return (
            f"{step.name} at its low, {at}, and nowhere else need be tried: what is left beside it lives "
            "within its lifetime and lies no lower."
        )
    if node.outcome is Outcome.NOTHING_BELOW:
        return f"{step.name} not at its low."
    return f"{step.name} not at its low: it rests on another buffer, at {at} or higher."


def _outcome(step: Step, node: Node) -> str:
    names, capacity = step.replay.problem.names, format_bytes(node.capacity)
    if node.outcome is Outcome.SOLVED:
        return f"Solved: every buffer has its offset, within {capacity}."
    if node.outcome is Outcome.TOO_FULL:
        return f"Refuted: what is alive at step {node.step:,} then needs {format_bytes(node.bound)}."
    if node.outcome is Outcome.PAST_LATEST:
        return f"Refuted: that lifts {names[node.blocked]} so high that it would end above {capacity}."
    if node.outcome is Outcome.EXCHANGED:
        return (
            f"Refuted: {names[node.blocked]} could then rest on {step.name} alone, and all is as good with "
            "the two exchanged."
        )
    if node.outcome is Outcome.NOTHING_BELOW:
        return "Refuted: nothing is left that it could rest on."
    if node.outcome is Outcome.REFUTED_BEFORE:
        return "Refuted before: the same buffers were left, with the same lows."
    told = f"The arena then has at least {format_bytes(node.bound)}."
    if node.independent > 1:
        return f"{told} What is left falls into {node.independent} stretches of time that never meet."
    return told
