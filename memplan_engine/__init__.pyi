"""The public names, written once: `__init__.py` imports each from its module when it is asked for."""

from .accelerators.presets import PRESETS as PRESETS
from .accelerators.presets import Accelerator as Accelerator
from .accelerators.presets import accelerator as accelerator
from .advice.advise import advise as advise
from .advice.fit_stages import Fitted as Fitted
from .advice.fit_stages import fit_graph as fit_graph
from .advice.values import Advice as Advice
from .allocator.answers import Answers as Answers
from .allocator.answers import three_answers as three_answers
from .allocator.settings import AllocatorSettings as AllocatorSettings
from .allocator.settings import parse_settings as parse_settings
from .allocator.simulated_recording import simulated_recording as simulated_recording
from .allocator.simulation import AllocatorRun as AllocatorRun
from .allocator.simulation import simulate_allocator as simulate_allocator
from .analysis.layout import (
    Layout as Layout,
)
from .analysis.layout import (
    UsageRecord as UsageRecord,
)
from .analysis.layout import (
    make_layout as make_layout,
)
from .analysis.layout import (
    records_problem as records_problem,
)
from .analysis.layout import (
    usage_records as usage_records,
)
from .analysis.managed_values import (
    ManagedValue as ManagedValue,
)
from .analysis.managed_values import (
    managed_problem as managed_problem,
)
from .analysis.managed_values import (
    managed_values as managed_values,
)
from .analysis.peak import (
    Peak as Peak,
)
from .analysis.peak import (
    find_peak as find_peak,
)
from .analysis.positional import (
    object_summary as object_summary,
)
from .analysis.positional import (
    object_table as object_table,
)
from .analysis.positional import (
    positional_maxima as positional_maxima,
)
from .analysis.positional import (
    shared_objects_bound as shared_objects_bound,
)
from .analysis.provenance import (
    Provenance as Provenance,
)
from .analysis.provenance import (
    find_provenance as find_provenance,
)
from .analysis.tied_peaks import (
    TiedPeak as TiedPeak,
)
from .analysis.tied_peaks import (
    local_peaks as local_peaks,
)
from .analysis.tied_peaks import (
    tied_peaks as tied_peaks,
)
from .analysis.training_phases import (
    min_cut_difference as min_cut_difference,
)
from .analysis.training_phases import (
    phase_steps as phase_steps,
)
from .analysis.training_phases import (
    saved_activations as saved_activations,
)
from .analysis.workspaces import (
    predicted_live as predicted_live,
)
from .analysis.workspaces import (
    with_workspaces as with_workspaces,
)
from .analysis.workspaces import (
    workspaces_as_tensors as workspaces_as_tensors,
)
from .bounds import (
    Bound as Bound,
)
from .bounds import (
    BoundKind as BoundKind,
)
from .bounds import (
    contributors as contributors,
)
from .bounds import (
    lower_bound as lower_bound,
)
from .devices.rank_answers import device_answers as device_answers
from .diffing.culprits import (
    Culprit as Culprit,
)
from .diffing.culprits import (
    Explanation as Explanation,
)
from .diffing.culprits import (
    explain as explain,
)
from .diffing.matching import (
    Matching as Matching,
)
from .diffing.matching import (
    match_buffers as match_buffers,
)
from .diffing.moment import (
    Cause as Cause,
)
from .diffing.moment import (
    Moment as Moment,
)
from .diffing.regression import (
    Change as Change,
)
from .diffing.regression import (
    Diff as Diff,
)
from .diffing.regression import (
    changes_by_buffer as changes_by_buffer,
)
from .diffing.regression import (
    diff as diff,
)
from .diffing.rows import (
    DiffRow as DiffRow,
)
from .diffing.rows import (
    ProfileDifference as ProfileDifference,
)
from .diffing.rows import (
    diff_rows as diff_rows,
)
from .diffing.rows import (
    module_rows as module_rows,
)
from .diffing.rows import (
    profile_difference as profile_difference,
)
from .errors import (
    InputError as InputError,
)
from .errors import (
    MemplanError as MemplanError,
)
from .errors import (
    MissingDependencyError as MissingDependencyError,
)
from .errors import (
    PlanError as PlanError,
)
from .feasibility.decision import (
    Decision as Decision,
)
from .feasibility.decision import (
    decide as decide,
)
from .files import (
    ImportOptions as ImportOptions,
)
from .files import (
    load as load,
)
from .files import load_recording as load_recording
from .formats.csv_tables.csv_writer import write_csv as write_csv
from .formats.memplan_json.json_file import write_json as write_json
from .formats.memplan_json.observation_file import load_observation as load_observation
from .formats.memplan_json.observation_file import (
    write_observation as write_observation,
)
from .formats.memplan_json.observation_file import (
    write_observation_trace as write_observation_trace,
)
from .formats.memplan_json.run_files import (
    load_run as load_run,
)
from .formats.memplan_json.run_files import (
    load_runs as load_runs,
)
from .formats.memplan_json.run_files import write_run as write_run
from .formats.order_files import load_schedule as load_schedule
from .graph import (
    Graph as Graph,
)
from .graph import (
    Op as Op,
)
from .graph import (
    Phase as Phase,
)
from .graph import (
    Role as Role,
)
from .graph import (
    Source as Source,
)
from .graph import (
    Storage as Storage,
)
from .graph import (
    Symbol as Symbol,
)
from .graph import (
    Tensor as Tensor,
)
from .graph import (
    Workspace as Workspace,
)
from .graph import (
    check_graph as check_graph,
)
from .lifetimes import (
    PlanningOptions as PlanningOptions,
)
from .lifetimes import (
    Unread as Unread,
)
from .lifetimes import (
    to_problem as to_problem,
)
from .plan import Plan as Plan
from .planner import (
    adopt as adopt,
)
from .planner import (
    compare as compare,
)
from .planner import (
    make_plan as make_plan,
)
from .planner import (
    strategies_for as strategies_for,
)
from .plotting.figure_style import FigureStyle as FigureStyle
from .plotting.png_figure import write_png as write_png
from .plotting.svg_figure import write_svg as write_svg
from .preparation import (
    Preparation as Preparation,
)
from .preparation import (
    prepare as prepare,
)
from .problem import (
    FREE as FREE,
)
from .problem import (
    Buffer as Buffer,
)
from .problem import (
    Gap as Gap,
)
from .problem import (
    Problem as Problem,
)
from .problem import (
    make_problem as make_problem,
)
from .profile import (
    Profile as Profile,
)
from .profile import (
    live_at as live_at,
)
from .profile import (
    make_profile as make_profile,
)
from .recordings.allocator_recording import (
    Recording as Recording,
)
from .recordings.allocator_recording import Selection as Selection
from .recordings.allocator_recording import (
    Snapshot as Snapshot,
)
from .recordings.allocator_recording import choose_recording as choose_recording
from .recordings.cost import (
    Cost as Cost,
)
from .recordings.cost import (
    cost_of as cost_of,
)
from .recordings.observation import (
    Level as Level,
)
from .recordings.observation import (
    Observation as Observation,
)
from .recordings.observation import (
    observation_recording as observation_recording,
)
from .recordings.observation import (
    observed_live as observed_live,
)
from .recordings.observation import (
    observed_peak as observed_peak,
)
from .recordings.observed_graph import observation_graph as observation_graph
from .recordings.recorded_problem import (
    observed_problem as observed_problem,
)
from .recordings.recorded_problem import (
    recorded_plan as recorded_plan,
)
from .recordings.recorded_problem import (
    recording_problem as recording_problem,
)
from .replay.by_hand import agrees as agrees
from .replay.by_hand import (
    judge as judge,
)
from .replay.by_hand import (
    make_exercise as make_exercise,
)
from .replay.columns import replay_summary as replay_summary
from .replay.finder import finder as finder
from .replay.make import (
    make_replay as make_replay,
)
from .replay.make import (
    replayable as replayable,
)
from .replay.steps import Replay as Replay
from .reporters.diff_markdown import diff_markdown as diff_markdown
from .reporters.html.report_html import ReportNotes as ReportNotes
from .reporters.html.report_html import write_report as write_report
from .rewrites.order.certificate import OrderCertificate as OrderCertificate
from .rewrites.order.check_reorder import check_reorder as check_reorder
from .rewrites.order.order_search import OrderProgress as OrderProgress
from .rewrites.order.reorder import Reordered as Reordered
from .rewrites.order.reorder import reorder as reorder
from .runtime.loading import (
    RunTarget as RunTarget,
)
from .runtime.loading import load_pt2 as load_pt2
from .runtime.loading import load_step as load_step
from .runtime.loading import (
    run_target as run_target,
)
from .runtime.observer.observe_run import (
    Observer as Observer,
)
from .runtime.observer.observe_run import (
    observe as observe,
)
from .runtime.observer.observe_run import observe_model as observe_model
from .runtime.observer.observe_run import (
    observe_result as observe_result,
)
from .runtime.program import (
    Program as Program,
)
from .runtime.program import (
    load_program as load_program,
)
from .runtime.program import (
    program_from_exported as program_from_exported,
)
from .runtime.program import (
    program_from_module as program_from_module,
)
from .runtime.ranks.fake_world import fake_ranks as fake_ranks
from .runtime.ranks.rank_runs import observe_ranks as observe_ranks
from .runtime.recorder.fake_run import observe_fake as observe_fake
from .runtime.reordered_program import reordered_program as reordered_program
from .runtime.slab.fitted_program import fitted_program as fitted_program
from .runtime.slab.fitted_program import ordered_program as ordered_program
from .runtime.slab.insert_slab import (
    insert_slab as insert_slab,
)
from .runtime.slab.insert_slab import (
    slab_report as slab_report,
)
from .runtime.slab.slab_order import check_order as check_order
from .runtime.slab.slab_report import SlabReport as SlabReport
from .runtime.static.static_runtime import StaticRuntime as StaticRuntime
from .runtime.trial.comparison import (
    Measured as Measured,
)
from .runtime.trial.comparison import (
    compare_run as compare_run,
)
from .runtime.trial.comparison import (
    learn_workspaces as learn_workspaces,
)
from .runtime.trial.comparison import (
    predict_temporaries as predict_temporaries,
)
from .runtime.trial.equality import (
    Equality as Equality,
)
from .runtime.trial.equality import (
    compare_results as compare_results,
)
from .runtime.trial.run_in_plan import (
    RunOutcome as RunOutcome,
)
from .runtime.trial.run_in_plan import (
    run_in_plan as run_in_plan,
)
from .runtime.trial.safety import (
    SafeRun as SafeRun,
)
from .runtime.trial.safety import (
    run_safely as run_safely,
)
from .schedule import (
    Schedule as Schedule,
)
from .schedule import (
    by_steps as by_steps,
)
from .schedule import (
    by_streams as by_streams,
)
from .schedule import (
    check_schedule as check_schedule,
)
from .schedule import (
    multi_stream as multi_stream,
)
from .schedule import (
    sequential as sequential,
)
from .scope import Scope as Scope
from .strategies import (
    get_strategy as get_strategy,
)
from .strategies import (
    known_strategies as known_strategies,
)
from .strategies.base import (
    Placement as Placement,
)
from .strategies.base import (
    SolveLimits as SolveLimits,
)
from .strategies.base import (
    Strategy as Strategy,
)
from .torch_capture.capture_module import capture as capture
from .torch_capture.training.torch_step import capture_step as capture_step
from .torch_capture.training.torch_training import (
    TrainingCapture as TrainingCapture,
)
from .torch_capture.training.torch_training import (
    capture_training as capture_training,
)
from .verdict import (
    Verdict as Verdict,
)
from .verify.validate import (
    Report as Report,
)
from .verify.validate import (
    Rule as Rule,
)
from .verify.validate import (
    Violation as Violation,
)
from .verify.validate import (
    validate_plan as validate_plan,
)
from .what_if.apply import Scenario as Scenario
from .what_if.apply import apply as apply
from .what_if.edits import (
    Align as Align,
)
from .what_if.edits import (
    Drop as Drop,
)
from .what_if.edits import (
    Edit as Edit,
)
from .what_if.edits import (
    Pin as Pin,
)
from .what_if.edits import (
    Resize as Resize,
)
from .what_if.edits import (
    Shorten as Shorten,
)
from .what_if.edits import (
    Split as Split,
)
from .what_if.suggestions.suggest import (
    FitReport as FitReport,
)
from .what_if.suggestions.suggest import (
    Suggestion as Suggestion,
)
from .what_if.suggestions.suggest import (
    fit_into as fit_into,
)
