"""memplan: plans the memory of neural-network graphs, proves how good the plan is, and shows it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memplan_engine.bounds import Bound, BoundKind, contributors, lower_bound
    from memplan_engine.decision import Decision, Verdict, decide
    from memplan_engine.errors import InputError, MemplanError, MissingDependencyError, PlanError
    from memplan_engine.exporters.csv_file import write_csv
    from memplan_engine.exporters.json_file import write_json
    from memplan_engine.graph import (
        Graph,
        Op,
        Phase,
        Role,
        Source,
        Storage,
        Symbol,
        Tensor,
        Workspace,
        check_graph,
    )
    from memplan_engine.importers import ImportOptions, load
    from memplan_engine.importers.schedule_file import load_schedule
    from memplan_engine.importers.torch_capture import capture
    from memplan_engine.importers.torch_step import capture_step
    from memplan_engine.importers.torch_training import TrainingCapture, capture_training
    from memplan_engine.layout import Layout, make_layout
    from memplan_engine.lifetimes import Unread, to_problem
    from memplan_engine.managed import ManagedValue, managed_problem, managed_values
    from memplan_engine.object_tables import object_summary, object_table
    from memplan_engine.peak import Peak, find_peak
    from memplan_engine.plan import Plan
    from memplan_engine.planner import adopt, compare, make_plan, strategies_for
    from memplan_engine.positional import positional_maxima, shared_objects_bound
    from memplan_engine.preparation import Preparation, prepare
    from memplan_engine.problem import FREE, Buffer, Gap, Problem, make_problem
    from memplan_engine.profile import Profile, alive_at, make_profile
    from memplan_engine.provenance import Provenance, find_provenance
    from memplan_engine.records import UsageRecord, records_problem, usage_records
    from memplan_engine.schedule import (
        Schedule,
        by_steps,
        by_streams,
        check_schedule,
        multi_stream,
        sequential,
    )
    from memplan_engine.strategies import get_strategy, known_strategies
    from memplan_engine.strategies.base import Budget, Placement, Strategy
    from memplan_engine.training import min_cut_difference, phase_steps, saved_activations
    from memplan_engine.validate import Report, Rule, Violation, validate_plan

__all__ = [
    "FREE",
    "Bound",
    "BoundKind",
    "Budget",
    "Buffer",
    "Decision",
    "Gap",
    "Graph",
    "ImportOptions",
    "InputError",
    "Layout",
    "ManagedValue",
    "MemplanError",
    "MissingDependencyError",
    "Op",
    "Peak",
    "Phase",
    "Placement",
    "Plan",
    "PlanError",
    "Preparation",
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
    "Symbol",
    "Tensor",
    "TrainingCapture",
    "Unread",
    "UsageRecord",
    "Verdict",
    "Violation",
    "Workspace",
    "adopt",
    "alive_at",
    "by_steps",
    "by_streams",
    "capture",
    "capture_step",
    "capture_training",
    "check_graph",
    "check_schedule",
    "compare",
    "contributors",
    "decide",
    "find_peak",
    "find_provenance",
    "get_strategy",
    "known_strategies",
    "load",
    "load_schedule",
    "lower_bound",
    "make_layout",
    "make_plan",
    "make_problem",
    "make_profile",
    "managed_problem",
    "managed_values",
    "min_cut_difference",
    "multi_stream",
    "object_summary",
    "object_table",
    "phase_steps",
    "positional_maxima",
    "prepare",
    "records_problem",
    "saved_activations",
    "sequential",
    "shared_objects_bound",
    "strategies_for",
    "to_problem",
    "usage_records",
    "validate_plan",
    "write_csv",
    "write_json",
]

_HOMES: dict[str, tuple[str, ...]] = {
    "bounds": ("Bound", "BoundKind", "contributors", "lower_bound"),
    "decision": ("Decision", "Verdict", "decide"),
    "errors": ("InputError", "MemplanError", "MissingDependencyError", "PlanError"),
    "exporters.csv_file": ("write_csv",),
    "exporters.json_file": ("write_json",),
    "graph": (
        "Graph",
        "Op",
        "Phase",
        "Role",
        "Source",
        "Storage",
        "Symbol",
        "Tensor",
        "Workspace",
        "check_graph",
    ),
    "importers": ("ImportOptions", "load"),
    "importers.schedule_file": ("load_schedule",),
    "importers.torch_capture": ("capture",),
    "importers.torch_step": ("capture_step",),
    "importers.torch_training": ("TrainingCapture", "capture_training"),
    "layout": ("Layout", "make_layout"),
    "lifetimes": ("Unread", "to_problem"),
    "managed": ("ManagedValue", "managed_problem", "managed_values"),
    "object_tables": ("object_summary", "object_table"),
    "peak": ("Peak", "find_peak"),
    "plan": ("Plan",),
    "planner": ("adopt", "compare", "make_plan", "strategies_for"),
    "positional": ("positional_maxima", "shared_objects_bound"),
    "preparation": ("Preparation", "prepare"),
    "problem": ("FREE", "Buffer", "Gap", "Problem", "make_problem"),
    "profile": ("Profile", "alive_at", "make_profile"),
    "provenance": ("Provenance", "find_provenance"),
    "records": ("UsageRecord", "records_problem", "usage_records"),
    "schedule": ("Schedule", "by_steps", "by_streams", "check_schedule", "multi_stream", "sequential"),
    "strategies": ("get_strategy", "known_strategies"),
    "strategies.base": ("Budget", "Placement", "Strategy"),
    "training": ("min_cut_difference", "phase_steps", "saved_activations"),
    "validate": ("Report", "Rule", "Violation", "validate_plan"),
}
"""The names by the module that they come from: each is imported when somebody asks for it, so that `memplan`
starts quickly and a program that only reads a file waits for no other kind of file."""
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
