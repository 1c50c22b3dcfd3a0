"""Who proposes changes: the registry of advice."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from memplan_engine.advice.planning_changes import (
    propose_alignment,
    propose_defaults,
    propose_early_updates,
    propose_order,
    propose_reuse,
    propose_sizes,
)
from memplan_engine.advice.returned_results import propose_unreturned
from memplan_engine.advice.situation import Situation
from memplan_engine.advice.smaller_tensors import propose_half
from memplan_engine.advice.values import Candidate

Propose = Callable[[Situation], Iterable[Candidate]]
"""Looks at a situation and gives what may help, best first; whether it does is found out by planning it.
What it raises as a MemplanError means that it has nothing to propose."""

PROPOSERS: tuple[Propose, ...] = (
    propose_early_updates,
    propose_reuse,
    propose_order,
    propose_defaults,
    propose_alignment,
    propose_sizes,
    propose_half,
    propose_unreturned,
)
"""In the order in which they are asked: what keeps the bits of results goes first, and of it what takes least
time."""
