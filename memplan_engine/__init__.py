"""memplan: plans the memory of neural-network graphs, proves how good the plan is, and shows it."""

from __future__ import annotations

from memplan_engine.bounds import Bound, BoundKind, contributors, lower_bound
from memplan_engine.errors import InputError, MemplanError, MissingDependencyError, PlanError
from memplan_engine.exporters.csv_file import write_csv
from memplan_engine.exporters.json_file import write_json
from memplan_engine.graph import Graph, Op, Role, Source, Storage, Tensor, check_graph
from memplan_engine.importers import ImportOptions, load
from memplan_engine.importers.torch_capture import capture
from memplan_engine.lifetimes import to_problem
from memplan_engine.peak import Peak, find_peak
from memplan_engine.plan import Plan
from memplan_engine.planner import adopt, compare, make_plan
from memplan_engine.problem import FREE, Buffer, Gap, Problem, make_problem
from memplan_engine.profile import Profile, alive_at, make_profile
from memplan_engine.provenance import Provenance, find_provenance
from memplan_engine.schedule import Schedule, sequential
from memplan_engine.strategies import get_strategy, known_strategies
from memplan_engine.strategies.base import Budget, Placement, Strategy
from memplan_engine.validate import Report, Rule, Violation, validate_plan

__all__ = [
    "FREE",
    "Bound",
    "BoundKind",
    "Budget",
    "Buffer",
    "Gap",
    "Graph",
    "ImportOptions",
    "InputError",
    "MemplanError",
    "MissingDependencyError",
    "Op",
    "Peak",
    "Placement",
    "Plan",
    "PlanError",
    "Problem",
    "Profile",
    "Provenance",
    "Report",
    "Role",
    "Rule",
    "Schedule",
    "Source",
    "Storage",
    "Strategy",
    "Tensor",
    "Violation",
    "adopt",
    "alive_at",
    "capture",
    "check_graph",
    "compare",
    "contributors",
    "find_peak",
    "find_provenance",
    "get_strategy",
    "known_strategies",
    "load",
    "lower_bound",
    "make_plan",
    "make_problem",
    "make_profile",
    "sequential",
    "to_problem",
    "validate_plan",
    "write_csv",
    "write_json",
]
