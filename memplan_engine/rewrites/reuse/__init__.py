"""In-place writes and concatenations without copies: fewer bytes for the same ops, with a proof."""

from __future__ import annotations

from memplan_engine.rewrites.reuse.breaches import Breach, Rule
from memplan_engine.rewrites.reuse.check_reuse import check_plan_execution, check_reuse
from memplan_engine.rewrites.reuse.concat import place_concats
from memplan_engine.rewrites.reuse.in_place import write_in_place
from memplan_engine.rewrites.reuse.reused import Kept, Reason, Reused, Rewrite, reused_problem, with_windows
from memplan_engine.rewrites.reuse.transform import (
    Saving,
    kept_table,
    reasons,
    reuse,
    rewrites_table,
    savings,
    savings_table,
)

__all__ = [
    "Breach",
    "Kept",
    "Reason",
    "Reused",
    "Rewrite",
    "Rule",
    "Saving",
    "check_plan_execution",
    "check_reuse",
    "kept_table",
    "place_concats",
    "reasons",
    "reuse",
    "reused_problem",
    "rewrites_table",
    "savings",
    "savings_table",
    "with_windows",
    "write_in_place",
]
