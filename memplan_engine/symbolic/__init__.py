"""Sizes that depend on symbols: formulas, values, plans for whole ranges. sympy is imported when used."""

from __future__ import annotations

from memplan_engine.symbolic.expression import Formula, parse, to_sympy, to_text
from memplan_engine.symbolic.monotone import Trend, trend
from memplan_engine.symbolic.one_symbol import Bucket, BucketTable, Sweep, plan_buckets, sweep
from memplan_engine.symbolic.partition import (
    MemorySchema,
    Requirement,
    build_schema,
    schema_of,
    symbolic_max,
    symbolic_peak,
)
from memplan_engine.symbolic.revalidate import Proof, RangeReport, revalidate
from memplan_engine.symbolic.symbol_values import check_values, corners, samples
from memplan_engine.symbolic.symbolic_problem import SymbolicProblem, resolve, symbolic_problem

__all__ = [
    "Bucket",
    "BucketTable",
    "Formula",
    "MemorySchema",
    "Proof",
    "RangeReport",
    "Requirement",
    "Sweep",
    "SymbolicProblem",
    "Trend",
    "build_schema",
    "check_values",
    "corners",
    "parse",
    "plan_buckets",
    "resolve",
    "revalidate",
    "samples",
    "schema_of",
    "sweep",
    "symbolic_max",
    "symbolic_peak",
    "symbolic_problem",
    "to_sympy",
    "to_text",
    "trend",
]
