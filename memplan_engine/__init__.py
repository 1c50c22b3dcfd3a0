"""memplan: plans the memory of neural-network graphs, proves how good the plan is, and shows it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memplan_engine.bounds import Bound, BoundKind, contributors, lower_bound
    from memplan_engine.decision import Decision, Verdict, decide
    from memplan_engine.diff_comment import diff_markdown
    from memplan_engine.diffing.matching import Matching, match_buffers
    from memplan_engine.diffing.moment import Cause, Moment
    from memplan_engine.diffing.regression import Change, Diff, changes_by_buffer, diff
    from memplan_engine.diffing.rows import DiffRow, diff_rows, module_rows
    from memplan_engine.diffing.strip import ProfileDifference, profile_difference
    from memplan_engine.errors import InputError, MemplanError, MissingDependencyError, PlanError
    from memplan_engine.exporters.csv_file import write_csv
    from memplan_engine.exporters.figure_png import write_png
    from memplan_engine.exporters.figure_svg import write_svg
    from memplan_engine.exporters.json_file import write_json
    from memplan_engine.exporters.plot_style import FigureStyle
    from memplan_engine.exporters.report_html import write_report
    from memplan_engine.exporters.report_sections import ReportNotes
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
    from memplan_engine.importers.recording_file import load_recording
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
    from memplan_engine.recordings.cost import Cost, cost_of
    from memplan_engine.recordings.parts import choose_recording
    from memplan_engine.recordings.problem import recorded_plan, recording_problem
    from memplan_engine.recordings.selection import Selection
    from memplan_engine.recordings.values import Recording, Snapshot
    from memplan_engine.records import UsageRecord, records_problem, usage_records
    from memplan_engine.replay.columns import replay_summary
    from memplan_engine.replay.exercise import judge, make_exercise
    from memplan_engine.replay.make import make_replay, replayable
    from memplan_engine.replay.predict import agrees
    from memplan_engine.replay.values import Replay
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
    from memplan_engine.what_if.apply import apply
    from memplan_engine.what_if.edits import Align, Drop, Edit, Pin, Resize, Shorten, Split
    from memplan_engine.what_if.scenario import Scenario
    from memplan_engine.what_if.suggest import Fit, Suggestion, fit_into

__all__ = [
    "FREE",
    "Align",
    "Bound",
    "BoundKind",
    "Budget",
    "Buffer",
    "Cause",
    "Change",
    "Cost",
    "Decision",
    "Diff",
    "DiffRow",
    "Drop",
    "Edit",
    "FigureStyle",
    "Fit",
    "Gap",
    "Graph",
    "ImportOptions",
    "InputError",
    "Layout",
    "ManagedValue",
    "Matching",
    "MemplanError",
    "MissingDependencyError",
    "Moment",
    "Op",
    "Peak",
    "Phase",
    "Pin",
    "Placement",
    "Plan",
    "PlanError",
    "Preparation",
    "Problem",
    "Profile",
    "ProfileDifference",
    "Provenance",
    "Recording",
    "Replay",
    "Report",
    "ReportNotes",
    "Resize",
    "Role",
    "Rule",
    "Scenario",
    "Schedule",
    "Selection",
    "Shorten",
    "Snapshot",
    "Source",
    "Split",
    "Storage",
    "Strategy",
    "Suggestion",
    "Symbol",
    "Tensor",
    "TrainingCapture",
    "Unread",
    "UsageRecord",
    "Verdict",
    "Violation",
    "Workspace",
    "adopt",
    "agrees",
    "alive_at",
    "apply",
    "by_steps",
    "by_streams",
    "capture",
    "capture_step",
    "capture_training",
    "changes_by_buffer",
    "check_graph",
    "check_schedule",
    "choose_recording",
    "compare",
    "contributors",
    "cost_of",
    "decide",
    "diff",
    "diff_markdown",
    "diff_rows",
    "find_peak",
    "find_provenance",
    "fit_into",
    "get_strategy",
    "judge",
    "known_strategies",
    "load",
    "load_recording",
    "load_schedule",
    "lower_bound",
    "make_exercise",
    "make_layout",
    "make_plan",
    "make_problem",
    "make_profile",
    "make_replay",
    "managed_problem",
    "managed_values",
    "match_buffers",
    "min_cut_difference",
    "module_rows",
    "multi_stream",
    "object_summary",
    "object_table",
    "phase_steps",
    "positional_maxima",
    "prepare",
    "profile_difference",
    "recorded_plan",
    "recording_problem",
    "records_problem",
    "replay_summary",
    "replayable",
    "saved_activations",
    "sequential",
    "shared_objects_bound",
    "strategies_for",
    "to_problem",
    "usage_records",
    "validate_plan",
    "write_csv",
    "write_json",
    "write_png",
    "write_report",
    "write_svg",
]

_HOMES: dict[str, tuple[str, ...]] = {
    "bounds": ("Bound", "BoundKind", "contributors", "lower_bound"),
    "decision": ("Decision", "Verdict", "decide"),
    "diff_comment": ("diff_markdown",),
    "diffing.matching": ("Matching", "match_buffers"),
    "diffing.moment": ("Cause", "Moment"),
    "diffing.regression": ("Change", "Diff", "changes_by_buffer", "diff"),
    "diffing.rows": ("DiffRow", "diff_rows", "module_rows"),
    "diffing.strip": ("ProfileDifference", "profile_difference"),
    "errors": ("InputError", "MemplanError", "MissingDependencyError", "PlanError"),
    "exporters.csv_file": ("write_csv",),
    "exporters.figure_png": ("write_png",),
    "exporters.figure_svg": ("write_svg",),
    "exporters.json_file": ("write_json",),
    "exporters.plot_style": ("FigureStyle",),
    "exporters.report_html": ("write_report",),
    "exporters.report_sections": ("ReportNotes",),
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
    "importers.recording_file": ("load_recording",),
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
    "recordings.cost": ("Cost", "cost_of"),
    "recordings.parts": ("choose_recording",),
    "recordings.problem": ("recorded_plan", "recording_problem"),
    "recordings.selection": ("Selection",),
    "recordings.values": ("Recording", "Snapshot"),
    "records": ("UsageRecord", "records_problem", "usage_records"),
    "replay.columns": ("replay_summary",),
    "replay.exercise": ("judge", "make_exercise"),
    "replay.make": ("make_replay", "replayable"),
    "replay.predict": ("agrees",),
    "replay.values": ("Replay",),
    "schedule": ("Schedule", "by_steps", "by_streams", "check_schedule", "multi_stream", "sequential"),
    "strategies": ("get_strategy", "known_strategies"),
    "strategies.base": ("Budget", "Placement", "Strategy"),
    "training": ("min_cut_difference", "phase_steps", "saved_activations"),
    "validate": ("Report", "Rule", "Violation", "validate_plan"),
    "what_if.apply": ("apply",),
    "what_if.edits": ("Align", "Drop", "Edit", "Pin", "Resize", "Shorten", "Split"),
    "what_if.scenario": ("Scenario",),
    "what_if.suggest": ("Fit", "Suggestion", "fit_into"),
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
