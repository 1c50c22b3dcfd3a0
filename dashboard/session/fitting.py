"""Which fit belongs to what a session looks at, and what came of the fits of late."""

from __future__ import annotations

from dataclasses import dataclass, replace

import streamlit as st
from memplan_dashboard.background.fit_job import FitAsked, FitJob
from memplan_dashboard.background.jobs import State
from memplan_dashboard.background.scheduler import AnyJob
from memplan_dashboard.session import documents, searches, state, uploads
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.plan_facts import OF_DOCUMENT

from memplan_engine import Graph, InputError
from memplan_engine.advice.fit_stages import LOWERING, Fitted, Stage, StageName
from memplan_engine.advice.source_patch import SourcePatch, proposed_patch
from memplan_engine.advice.stage_changes import StageChange, stage_changes
from memplan_engine.preparation import PLANNING_OPTIONS, Preparation, prepared_graph
from memplan_engine.rewrites.held_gradients import HeldGradients
from memplan_engine.units import format_bytes

MOST_RESULTS = 16
MOST_SOURCE_BYTES = 1 << 20
"""Of a source to be patched: the longest model of transformers has a fifth of it."""
KEPT = ("alignment", "unread", "round_sizes")
"""What of a document's options holds for every stage: the sizes it is opened with do, too."""
SEARCH_SECONDS = {"10": "10 s", "60": "60 s", "600": "10 min"}
"""What each search of a stage may take, as the address has it, and as people read it."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The stages of a fit, and what holds the gradients of the step. `cut_short` says that it was cancelled
    before all were there."""

    stages: tuple[Stage, ...]
    gradients: tuple[HeldGradients, ...]
    cut_short: bool


def asked_of(document: Document) -> FitAsked:
    """The fit that the address asks for of `document`."""
    how = document.options.how
    kept = Preparation(symbols=how.symbols, **{name: getattr(how, name) for name in KEPT})
    version = documents.version_of(document.key)
    return FitAsked(document.key, version, document.options.dims, kept, stages_asked(), limit_seconds())


def set_aside(how: Preparation) -> list[str]:
    """What of a document's options does not hold here: the stages decide it, or the state counts it."""
    own = [option for option in PLANNING_OPTIONS.values() if option.name not in (*KEPT, "symbols")]
    return [option.label or option.name for option in own if option.asked(how)]


def stages_asked() -> tuple[StageName, ...]:
    """The stages that may be used: all, unless the address names some; "none" for none."""
    named = state.get("stages").split(",")
    return LOWERING if named == [""] else tuple(name for name in LOWERING if name in named)


def stages_text(chosen: tuple[StageName, ...]) -> str:
    """The same back as text."""
    return "" if chosen == LOWERING else ",".join(chosen) or "none"


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


def begin(asked: FitAsked, graph: Graph) -> FitJob:
    """Fit it; the session's other jobs end."""
    state.wait_for_kernels()
    job = FitJob(searches.session_id(), asked, graph, person=uploads.visitor())
    st.session_state.fit_job = job
    searches.scheduler().submit(job)
    return job


def collect(job: FitJob) -> None:
    """Keep what an ended fit has found, once."""
    if job.state in (State.DONE, State.CANCELLED) and job.stages:
        latest = results()
        latest.pop(job.asked, None)
        latest[job.asked] = Outcome(job.stages, job.gradients, job.state is State.CANCELLED)
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


@st.cache_resource(max_entries=24, show_spinner=False)
def _changes(asked: FitAsked, count: int, _fitted: Fitted, _graph: Graph) -> tuple[StageChange, ...]:
    how = replace(asked.how, symbols=())
    return stage_changes(_fitted, _graph, how)
