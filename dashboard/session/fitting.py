"""Which fit belongs to what a session looks at, and what came of the fits of late."""

from __future__ import annotations

from dataclasses import dataclass, replace

import streamlit as st
from memplan_dashboard.background.fit_bounds import envelope
from memplan_dashboard.background.fit_job import FitAsked, FitJob
from memplan_dashboard.background.jobs import State
from memplan_dashboard.background.scheduler import AnyJob
from memplan_dashboard.session import documents, searches, state, uploads
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.plan_facts import OF_DOCUMENT

from memplan_engine import Graph, InputError
from memplan_engine.accelerators.presets import PRESETS, USUAL, accelerator
from memplan_engine.advice.checkpoint_code import Checkpoints, checkpoints_for
from memplan_engine.advice.source_patch import SourcePatch, proposed_patch
from memplan_engine.advice.stage_changes import StageChange, stage_changes
from memplan_engine.analysis.op_costs import OpTimes, modelled_times
from memplan_engine.analysis.torch_budgets import TorchPoint
from memplan_engine.feasibility.decision import Verdict
from memplan_engine.fitting.fit_stages import summed_up
from memplan_engine.fitting.fitted import CHOICES, LOWERING, Fitted, Stage, StageName
from memplan_engine.fitting.recompute_stage import Curve
from memplan_engine.preparation import PLANNING_OPTIONS, Preparation, prepared_graph
from memplan_engine.rewrites.held_gradients import HeldGradients
from memplan_engine.units import format_bytes

MOST_RESULTS = 16
MOST_SOURCE_BYTES = 1 << 20
"""Of a source to be patched: the longest model of transformers has a fifth of it."""
KEPT = ("alignment", "unread", "round_sizes")
"""What of a document's options holds for every stage: the sizes it is opened with do, too."""
USUAL_STAGES = tuple(name for name in LOWERING if name is not StageName.OFFLOAD)
"""The stages that are used unless the address says others. Copies to the host are sought for one capacity,
when those that are used for all are there."""
SEARCH_SECONDS = {"10": "10 s", "60": "60 s", "600": "10 min"}
"""What each search of a stage may take, as the address has it, and as people read it."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The stages of a fit, its `curve` of bytes against time, and what holds the gradients of the step.
    `cut_short` says that it was cancelled before all were there."""

    stages: tuple[Stage, ...]
    gradients: tuple[HeldGradients, ...]
    cut_short: bool
    curve: Curve | None = None


def asked_of(document: Document) -> FitAsked:
    """The fit that the address asks for of `document`."""
    how = document.options.how
    kept = Preparation(symbols=how.symbols, **{name: getattr(how, name) for name in KEPT})
    version = documents.version_of(document.key)
    only = tuple(name for name in stages_asked() if name is not StageName.OFFLOAD)
    device = device_asked() if StageName.RECOMPUTE in only else ""
    return FitAsked(document.key, version, document.options.dims, kept, only, limit_seconds(), device)


def copies_asked(asked: FitAsked, fitted: Fitted) -> FitAsked | None:
    """The fit of the same with copies to the host, for the capacity of `fitted`, which was found without;
    None where these are not to be used, or what was found fits and takes no longer to speak of."""
    capacity = fitted.capacity
    if StageName.OFFLOAD not in stages_asked() or capacity is None or capacity < fitted.state_bytes:
        return None
    if fitted.verdict is Verdict.FITS and fitted.best.is_quick:
        return None
    only = (*asked.only, StageName.OFFLOAD)
    return replace(asked, only=only, device=device_asked(), capacity=capacity)


def set_aside(how: Preparation) -> list[str]:
    """What of a document's options does not hold here: the stages decide it, or the state counts it."""
    own = [option for option in PLANNING_OPTIONS.values() if option.name not in (*KEPT, "symbols")]
    return [option.label or option.name for option in own if option.asked(how)]


def stages_asked() -> tuple[StageName, ...]:
    """The stages that may be used: USUAL_STAGES, unless the address names others; "none" for none."""
    named = state.get("stages").split(",")
    return USUAL_STAGES if named == [""] else tuple(name for name in CHOICES if name in named)


def stages_text(chosen: tuple[StageName, ...]) -> str:
    """The same back as text."""
    return "" if chosen == USUAL_STAGES else ",".join(chosen) or "none"


def device_asked() -> str:
    """Whose speed gives the times of ops; the address has it as that of each rank on Devices."""
    asked = state.get("gpu")
    return asked if asked in PRESETS else USUAL


def limit_seconds() -> float:
    """How long each search may go on."""
    chosen = state.get("fit_limit")
    return float(chosen if chosen in SEARCH_SECONDS else state.PARAMETERS["fit_limit"])


@st.cache_resource(max_entries=12, show_spinner=False, hash_funcs=OF_DOCUMENT)
def graph_of(document: Document) -> Graph | None:
    """The graph that is fitted, at the sizes that the document is opened with; None for buffers. Raises
    MemplanError for sizes that it cannot have."""
    loaded = document.loaded
    if not isinstance(loaded, Graph):
        return None
    return prepared_graph(loaded, Preparation(symbols=document.options.how.symbols))


@st.cache_resource(max_entries=12, show_spinner=False)
def times_of(asked: FitAsked, _graph: Graph) -> OpTimes | None:
    """What the ops of the graph take on the device that is `asked` for; None where none may run again."""
    return modelled_times(_graph, accelerator(asked.device)) if asked.device else None


def fitted_of(asked: FitAsked, graph: Graph, capacity: int | None, outcome: Outcome) -> Fitted:
    """What an `outcome` with stages says of `capacity`."""
    times = times_of(asked, graph)
    return summed_up(graph, capacity, asked.only, outcome.stages, outcome.gradients, times, outcome.curve)


def border_of(outcome: Outcome) -> list[tuple[float, float]]:
    """Extra seconds and bytes from corner to corner of what is proved of every schedule, from the first point
    of the curve down; [] until all of it is there."""
    curve = outcome.curve
    if curve is None or not curve.lines:
        return []
    return envelope(curve.lines, curve.least_bytes, curve.points[0].plan.arena_bytes)


def torch_points(document: Document, asked: FitAsked) -> list[TorchPoint]:
    """What the file of the document says of torch's own partitioner, on the device that is `asked` for."""
    if not asked.device:
        return []
    return [entry.point.on(accelerator(asked.device)) for entry in document.about.budgets]


@st.cache_resource(show_spinner=False)
def results() -> dict[FitAsked, Outcome]:
    """What came of the fits of late, for all sessions."""
    return {}


def job_of(asked: FitAsked) -> FitJob | None:
    """The session's fit of what is `asked`, while it is under way, or has failed; that of the visitor's page
    before it was loaded again, too."""

    def wanted(job: AnyJob) -> bool:
        return isinstance(job, FitJob) and job.asked == asked and job.state.is_active

    job = st.session_state.get("fit_job")
    if job is None or job.asked != asked:
        job = searches.scheduler().take_over(searches.session_id(), uploads.visitor(), wanted)
        if job is None:
            return None
        st.session_state.fit_job = job
    assert isinstance(job, FitJob)
    return job


def order_of(fitted: Fitted) -> tuple[str, ...]:
    """The ops by name in the order that the stage of orders has found; () without that stage."""
    ordered = [stage for stage in fitted.stages if stage.name is StageName.REORDER]
    return tuple(op.name for op in ordered[0].graph.ops) if ordered else ()


def with_copies(fitted: Fitted, asked: FitAsked, graph: Graph, found: Outcome) -> Fitted:
    """`fitted`, with the stages that the fit with copies has found for its capacity: of that those in which
    ops run again or wait are its own, and the others were there before."""
    stages = [stage for stage in fitted.stages if stage.time is None]
    stages += [stage for stage in found.stages if stage.time is not None]
    times, held = times_of(asked, graph), fitted.gradients
    return summed_up(graph, asked.capacity, asked.only, stages, held, times, fitted.curve)


def begin(asked: FitAsked, graph: Graph, order: tuple[str, ...] = ()) -> FitJob:
    """Fit it, in the `order` of ops that was found before; the session's other jobs end."""
    state.wait_for_kernels()
    job = FitJob(searches.session_id(), asked, graph, order, person=uploads.visitor())
    st.session_state.fit_job = job
    searches.scheduler().submit(job)
    return job


def collect(job: FitJob) -> None:
    """Keep what an ended fit has found, once."""
    if job.state in (State.DONE, State.CANCELLED) and job.stages:
        latest = results()
        latest.pop(job.asked, None)
        cut_short = job.state is State.CANCELLED
        latest[job.asked] = Outcome(job.stages, job.gradients, cut_short, job.curve)
        for old in list(latest)[:-MOST_RESULTS]:
            del latest[old]
        st.session_state.fit_job = None


def proposed(fitted: Fitted, name: str, raw: bytes) -> SourcePatch:
    """The patch of the source `name` that does what the stages of `fitted` do. It is read and never run.
    Raises MemplanError for what is no Python in UTF-8, or too long."""
    if len(raw) > MOST_SOURCE_BYTES:
        raise InputError(name, "", format_bytes(len(raw)), f"at most {format_bytes(MOST_SOURCE_BYTES)}")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(name, f"byte {error.start}", "no UTF-8", "Python in UTF-8") from None
    return proposed_patch(text, name, fitted)


def changes_of(asked: FitAsked, fitted: Fitted, graph: Graph) -> tuple[StageChange, ...]:
    """What the stages of `fitted` change, worked out once for a fit and the number of its stages."""
    return _changes(asked, len(fitted.stages), fitted, graph)


def checkpoints_of(asked: FitAsked, fitted: Fitted, times: OpTimes) -> Checkpoints | None:
    """The modules to wrap for what `fitted` runs again, worked out once for a fit and its capacity."""
    return _checkpoints(asked, fitted.capacity, fitted.best.plan.arena_bytes, fitted, times)


@st.cache_resource(max_entries=24, show_spinner=False)
def _checkpoints(
    asked: FitAsked, capacity: int | None, arena: int, _fitted: Fitted, _times: OpTimes
) -> Checkpoints | None:
    return checkpoints_for(_fitted, _times)


@st.cache_resource(max_entries=24, show_spinner=False)
def _changes(asked: FitAsked, count: int, _fitted: Fitted, _graph: Graph) -> tuple[StageChange, ...]:
    how = replace(asked.how, symbols=())
    return stage_changes(_fitted, _graph, how)
