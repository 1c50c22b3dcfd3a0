"""Which search belongs to what a session looks at, and which of its plans is shown."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import streamlit as st
from memplan_dashboard.background import jobs
from memplan_dashboard.background.jobs import Job
from memplan_dashboard.background.scheduler import AnyJob, JobScheduler
from memplan_dashboard.session import plan_facts, state, uploads
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.plan_facts import PlanFacts, make_facts
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from memplan_engine.bounds import lower_bound
from memplan_engine.feasibility.decision import Decision, decides
from memplan_engine.plan import Plan
from memplan_engine.verdict import Verdict

LIMITS = {"10": "10 s", "60": "60 s", "600": "10 min"}
"""Seconds that a search may take, as the URL has them, and as people read them."""
MOST_KEPT = 4
PICTURE_SECONDS = 1.5
"""How long the search on more than MOST_AT_ONCE buffers waits for the page to be drawn: of 200,000 that
takes server and browser 1.2 s, and the search would have both cores."""


@dataclass(slots=True, eq=False)
class Search:
    """A session's search on `document`: its job, and the plan of it that is shown."""

    document: Document
    job: Job
    shown: PlanFacts

    @property
    def has_better(self) -> bool:
        """Whether the job knows a smaller arena or a higher bound than what is shown."""
        best, shown = self.job.best, self.shown.plan
        return best.arena_bytes < shown.arena_bytes or best.bound.nbytes > shown.bound.nbytes

    @property
    def verdict(self) -> Verdict:
        """What is known of the capacity that the job looks for; UNDECIDED where it looks for none."""
        capacity = self.job.capacity
        return Verdict.UNDECIDED if capacity is None else verdict_of(self.job.best, capacity)

    def show_best(self) -> None:
        """Show the best plan so far; it goes through the validator first."""
        best = self.job.best
        checked = make_facts(self.document, replace(best, bound=lower_bound(best.problem)))
        self.shown = replace(checked, plan=best)


def turn_text(jobs_of_all: JobScheduler, job: AnyJob) -> str:
    """When a job that waits has its turn: "3 before you"."""
    before = jobs_of_all.before(job)
    return f"{before} ahead of you" if before else "you are next"


def session_is_alive(session: str) -> bool:
    """Whether somebody looks: a browser is connected."""
    return runtime.exists() and runtime.get_instance().is_active_session(session)


@st.cache_resource(show_spinner=False)
def scheduler() -> JobScheduler:
    """The jobs of all sessions."""
    return JobScheduler(lambda session: session_is_alive(session))


def limit_seconds() -> float:
    """How long a search may go on: one of LIMITS."""
    chosen = state.get("limit")
    return float(chosen if chosen in LIMITS else state.PARAMETERS["limit"])


def known_facts(document: Document, strategy: str) -> PlanFacts:
    """The plan that this session has seen of `strategy`, else what it finds at once; raises MemplanError."""
    search = _searches().get((document, strategy))
    return search.shown if search else plan_facts.facts_of(document, strategy)


def begin(document: Document, strategy: str, beside: Sequence[tuple[Document, str]] = ()) -> Search | None:
    """The search that goes on after the first plan, begun if need be; None where there is nothing to look
    for: it is proved, or the strategy has tried all it knows. The searches for what stands `beside` it go on,
    all others of the session end. Raises MemplanError without a first plan."""
    searches = _searches()
    search = searches.get((document, strategy))
    if search is not None:
        searches[document, strategy] = searches.pop((document, strategy))
        return search
    quick = plan_facts.facts_of(document, strategy)
    session = session_id()
    if not (jobs.goes_on(strategy) and quick.plan.cut_short and session_is_alive(session)):
        return None
    search = _taken_over(document, quick)
    if search is None:
        is_large = len(document.problem) > plan_facts.MOST_AT_ONCE
        begins = time.monotonic() + PICTURE_SECONDS if is_large else 0.0
        job = Job(session, quick.plan, limit_seconds(), person=uploads.visitor(), not_before=begins)
        search = Search(document, job, quick)
        scheduler().submit(job, [searches[each].job for each in beside if each in searches])
    searches[document, strategy] = search
    for old in list(searches)[:-MOST_KEPT]:
        searches.pop(old).job.cancel()
    return search


def _taken_over(document: Document, quick: PlanFacts) -> Search | None:
    """The search on from `quick` that the visitor's page had before it was loaded again, with its best."""

    def wanted(job: AnyJob) -> bool:
        return isinstance(job, Job) and job.first is quick.plan

    job = scheduler().take_over(session_id(), uploads.visitor(), wanted)
    if not isinstance(job, Job):
        return None
    search = Search(document, job, quick)
    if search.has_better:
        search.show_best()
    return search


def aim(search: Search, capacity: int | None) -> None:
    """Have the search look for a plan within `capacity` bytes where that is the question: its best plan does
    not fit, and its bound would. Else for the smallest arena, as it does without a capacity."""
    job = search.job
    asked = capacity or None
    if asked == job.capacity or not decides(job.first.strategy):
        return
    if asked is not None and verdict_of(job.best, asked) is not Verdict.UNDECIDED:
        asked = None
    was, job.capacity = job.capacity, asked
    if asked is not None or (was is not None and job.snapshot().state.is_active):
        job.cancel(patience=0.0)
        keep_on(search)


def keep_on(search: Search, beside: Sequence[Search] = ()) -> None:
    """Search on for as long again as the limit says, and for less where a capacity is met; those `beside` it
    go on, too."""
    if search.verdict is not Verdict.UNDECIDED:
        search.job.capacity = None
    search.job.grant(limit_seconds())
    scheduler().submit(search.job, [other.job for other in beside])


def verdict_of(plan: Plan, capacity: int) -> Verdict:
    """What `plan` and its bound say of `capacity` bytes; UNDECIDED: this plan does not, another may."""
    return Decision(capacity, plan).placed


def _searches() -> dict[tuple[Document, str], Search]:
    searches: dict[tuple[Document, str], Search] = st.session_state.setdefault("searches", {})
    return searches


def session_id() -> str:
    """The session whose page is drawn; "" where there is none."""
    context = get_script_run_ctx()
    return context.session_id if context else ""
