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
    from memplan_engine.exporters.observation_file import write_observation, write_observation_trace
    from memplan_engine.exporters.plot_style import FigureStyle
    from memplan_engine.exporters.report_html import write_report
    from memplan_engine.exporters.report_sections import ReportNotes
    from memplan_engine.exporters.run_file import write_run
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
    from memplan_engine.importers.observation_file import load_observation
    from memplan_engine.importers.recording_file import load_recording
    from memplan_engine.importers.run_file import load_run, load_runs
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
    from memplan_engine.recordings.observation import Level, Observation, observed_live, observed_peak
    from memplan_engine.recordings.observed import observation_recording, observed_problem
    from memplan_engine.recordings.parts import choose_recording
    from memplan_engine.recordings.problem import recorded_plan, recording_problem
    from memplan_engine.recordings.selection import Selection
    from memplan_engine.recordings.values import Recording, Snapshot
    from memplan_engine.records import UsageRecord, records_problem, usage_records
    from memplan_engine.replay.columns import replay_summary
    from memplan_engine.replay.exercise import judge, make_exercise
    from memplan_engine.replay.make import make_replay, replayable
    from memplan_engine.replay.predict import agrees
    from memplan_engine.replay.steps import Replay
    from memplan_engine.runtime.comparison import Measured, compare_run, learn_workspaces
    from memplan_engine.runtime.eager_run import observe_model
    from memplan_engine.runtime.equality import Equality, compare_results
    from memplan_engine.runtime.observer import Observer, observe, observe_result
    from memplan_engine.runtime.program import (
        Program,
        load_program,
        program_from_exported,
        program_from_module,
    )
    from memplan_engine.runtime.pt2_program import load_pt2
    from memplan_engine.runtime.safety import SafeRun, run_safely
    from memplan_engine.runtime.slab import insert_slab, slab_report
    from memplan_engine.runtime.slab_order import check_order
    from memplan_engine.runtime.slab_report import SlabReport
    from memplan_engine.runtime.static_runtime import StaticRuntime
    from memplan_engine.runtime.step_program import load_step
    from memplan_engine.runtime.subjects import Subject, subject_of
    from memplan_engine.runtime.temporaries import predict_temporaries
    from memplan_engine.runtime.trial import Trial, try_plan
    from memplan_engine.schedule import (
        Schedule,
        by_steps,
        by_streams,
        check_schedule,
        multi_stream,
        sequential,
    )
    from memplan_engine.scope import Scope
    from memplan_engine.strategies import get_strategy, known_strategies
    from memplan_engine.strategies.base import Budget, Placement, Strategy
    from memplan_engine.training import min_cut_difference, phase_steps, saved_activations
    from memplan_engine.validate import Report, Rule, Violation, validate_plan
    from memplan_engine.what_if.apply import apply
    from memplan_engine.what_if.edits import Align, Drop, Edit, Pin, Resize, Shorten, Split
    from memplan_engine.what_if.scenario import Scenario
    from memplan_engine.what_if.suggest import Fit, Suggestion, fit_into
    from memplan_engine.workspaces import predicted_live, with_workspaces, workspaces_as_tensors

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
    "Equality",
    "FigureStyle",
    "Fit",
    "Gap",
    "Graph",
    "ImportOptions",
    "InputError",
    "Layout",
    "Level",
    "ManagedValue",
    "Matching",
    "Measured",
    "MemplanError",
    "MissingDependencyError",
    "Moment",
    "Observation",
    "Observer",
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
    "Program",
    "Provenance",
    "Recording",
    "Replay",
    "Report",
    "ReportNotes",
    "Resize",
    "Role",
    "Rule",
    "SafeRun",
    "Scenario",
    "Schedule",
    "Scope",
    "Selection",
    "Shorten",
    "SlabReport",
    "Snapshot",
    "Source",
    "Split",
    "StaticRuntime",
    "Storage",
    "Strategy",
    "Subject",
    "Suggestion",
    "Symbol",
    "Tensor",
    "TrainingCapture",
    "Trial",
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
    "check_order",
    "check_schedule",
    "choose_recording",
    "compare",
    "compare_results",
    "compare_run",
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
    "insert_slab",
    "judge",
    "known_strategies",
    "learn_workspaces",
    "load",
    "load_observation",
    "load_program",
    "load_pt2",
    "load_recording",
    "load_run",
    "load_runs",
    "load_schedule",
    "load_step",
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
    "observation_recording",
    "observe",
    "observe_model",
    "observe_result",
    "observed_live",
    "observed_peak",
    "observed_problem",
    "phase_steps",
    "positional_maxima",
    "predict_temporaries",
    "predicted_live",
    "prepare",
    "profile_difference",
    "program_from_exported",
    "program_from_module",
    "recorded_plan",
    "recording_problem",
    "records_problem",
    "replay_summary",
    "replayable",
    "run_safely",
    "saved_activations",
    "sequential",
    "shared_objects_bound",
    "slab_report",
    "strategies_for",
    "subject_of",
    "to_problem",
    "try_plan",
    "usage_records",
    "validate_plan",
    "with_workspaces",
    "workspaces_as_tensors",
    "write_csv",
    "write_json",
    "write_observation",
    "write_observation_trace",
    "write_png",
    "write_report",
    "write_run",
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
    "exporters.observation_file": ("write_observation", "write_observation_trace"),
    "exporters.plot_style": ("FigureStyle",),
    "exporters.report_html": ("write_report",),
    "exporters.report_sections": ("ReportNotes",),
    "exporters.run_file": ("write_run",),
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
    "importers.observation_file": ("load_observation",),
    "importers.recording_file": ("load_recording",),
    "importers.run_file": ("load_run", "load_runs"),
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
    "recordings.observation": ("Level", "Observation", "observed_live", "observed_peak"),
    "recordings.observed": ("observation_recording", "observed_problem"),
    "recordings.parts": ("choose_recording",),
    "recordings.problem": ("recorded_plan", "recording_problem"),
    "recordings.selection": ("Selection",),
    "recordings.values": ("Recording", "Snapshot"),
    "records": ("UsageRecord", "records_problem", "usage_records"),
    "replay.columns": ("replay_summary",),
    "replay.exercise": ("judge", "make_exercise"),
    "replay.make": ("make_replay", "replayable"),
    "replay.predict": ("agrees",),
    "replay.steps": ("Replay",),
    "runtime.comparison": ("Measured", "compare_run", "learn_workspaces"),
    "runtime.equality": ("Equality", "compare_results"),
    "runtime.eager_run": ("observe_model",),
    "runtime.observer": ("Observer", "observe", "observe_result"),
    "runtime.program": ("Program", "load_program", "program_from_exported", "program_from_module"),
    "runtime.pt2_program": ("load_pt2",),
    "runtime.safety": ("SafeRun", "run_safely"),
    "runtime.slab": ("insert_slab", "slab_report"),
    "runtime.slab_order": ("check_order",),
    "runtime.slab_report": ("SlabReport",),
    "runtime.static_runtime": ("StaticRuntime",),
    "runtime.step_program": ("load_step",),
    "runtime.temporaries": ("predict_temporaries",),
    "runtime.subjects": ("Subject", "subject_of"),
    "runtime.trial": ("Trial", "try_plan"),
    "schedule": ("Schedule", "by_steps", "by_streams", "check_schedule", "multi_stream", "sequential"),
    "scope": ("Scope",),
    "strategies": ("get_strategy", "known_strategies"),
    "strategies.base": ("Budget", "Placement", "Strategy"),
    "training": ("min_cut_difference", "phase_steps", "saved_activations"),
    "validate": ("Report", "Rule", "Violation", "validate_plan"),
    "what_if.apply": ("apply",),
    "what_if.edits": ("Align", "Drop", "Edit", "Pin", "Resize", "Shorten", "Split"),
    "what_if.scenario": ("Scenario",),
    "what_if.suggest": ("Fit", "Suggestion", "fit_into"),
    "workspaces": ("predicted_live", "with_workspaces", "workspaces_as_tensors"),
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
