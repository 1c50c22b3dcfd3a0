"""What the page Run can show: built-in models, which it runs, and files of runs that people have made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from zoneinfo import ZoneInfo

import streamlit as st
from memplan_dashboard.background.jobs import State
from memplan_dashboard.background.run_job import PROCESS, Asked, RunJob
from memplan_dashboard.background.scheduler import AnyJob, JobScheduler
from memplan_dashboard.background.spare import Spare
from memplan_dashboard.session import documents, searches, state, uploads
from memplan_dashboard.widgets.controls import not_listed
from memplan_examples.small import MODELS, NEED_TRANSFORMERS

from memplan_engine import MemplanError
from memplan_engine.formats.memplan_json.run_files import load_runs
from memplan_engine.formats.memplan_json.run_format import RunFile
from memplan_engine.strategies import known_strategies

MODEL = "model"
FIRST = "perceptron"
MOST_RESULTS = 32
PARTS = (
    "loading torch",
    "building the model",
    "exporting the model",
    "ordering the ops",
    "planning",
    "inserting the slab",
    "observing a run",
    "running in the slab",
    "checking every op in safety mode",
    "timing",
)
"""What a run does, part after part."""


def catalogue() -> dict[str, str]:
    """Key → label: files that were given or uploaded, then the models."""
    files = documents.given_runs() | uploads.listed("run")
    return files | {f"{MODEL}:{name}": name for name in MODELS}


def about(model: str) -> str:
    """What `model` is, in a sentence."""
    return (MODELS[model].__doc__ or "").partition("\n\n")[0]


def current_key() -> str:
    """What the address asks for; else the first run of the command line, or a model."""
    return state.get("run") or next(iter(documents.given_runs()), f"{MODEL}:{FIRST}")


def missing(model: str) -> str:
    """Why `model` cannot run here; "" when it can."""
    if find_spec("torch") is None:
        return "Running a model needs torch: pip install 'memplan[torch]'"
    if MODELS[model] in NEED_TRANSFORMERS and find_spec("transformers") is None:
        return f"{model} needs transformers, which is not installed: pip install 'memplan[examples]'"
    return ""


def asked_for(model: str) -> Asked:
    """The run that the address asks for; what makes no sense there is left out."""
    flags = set(state.get("run_how").split(","))
    strategy = state.get("run_strategy")
    return Asked(
        model,
        strategy if strategy in known_strategies() else "auto",
        "all" if "all" in flags else "native",
        *(flag in flags for flag in ("functional", "check", "profile", "order")),
    )


def wrong_choices(flags: Sequence[str]) -> str:
    """What the address asks of a model's run that is neither a strategy nor one of `flags`; "" if nothing."""
    notes = []
    strategy = state.get("run_strategy")
    if strategy and strategy not in known_strategies():
        notes.append(not_listed("run_strategy", strategy, "This is auto."))
    strange = [flag for flag in state.get("run_how").split(",") if flag and flag not in flags]
    if strange:
        notes.append(f"run_how: found {strange[0][:40]!r}, expected some of {', '.join(flags)}.")
    return " ".join(notes)


def open_file(key: str) -> dict[int, RunFile]:
    """The run in a file, or the observation in it by device; raises MemplanError."""
    return _load(key, documents.version_of(key))


@st.cache_resource(max_entries=8, show_spinner="Reading the run …")
def _load(key: str, version: tuple[int, int]) -> dict[int, RunFile]:
    path = documents.path_of(key)
    try:
        return load_runs(path)
    except MemplanError as error:
        raise MemplanError(str(error).replace(str(path), path.name)) from error


@st.cache_resource(show_spinner=False)
def scheduler() -> JobScheduler:
    """The runs of all sessions, one at a time: two would measure each other."""
    return JobScheduler(lambda session: searches.session_is_alive(session), most=1)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run, when it was here, and how many seconds it took."""

    run: RunFile
    at: datetime
    seconds: float

    @property
    def told(self) -> str:
        """When it ran, by the visitor's clock."""
        at = self.at.astimezone(_visitors_zone())
        return f"Ran on {at:%Y-%m-%d} at {at:%H:%M:%S}, in {self.seconds:.1f} s."


def _visitors_zone() -> ZoneInfo | None:
    """The time zone that the browser says it is in; None where that is none."""
    try:
        return ZoneInfo(st.context.timezone or "")
    except (KeyError, ValueError, OSError):
        return None


@st.cache_resource(show_spinner=False)
def results() -> dict[Asked, Outcome]:
    """What came of the runs of late, for all sessions: the same run gives the same bytes."""
    return {}


@st.cache_resource(show_spinner=False)
def spare() -> Spare:
    """The process that is ready for the next run, whoever's it is."""
    return Spare(PROCESS, lambda session: searches.session_is_alive(session))


def get_ready() -> None:
    """Have torch loaded by the time that somebody presses Run, unless a run needs the processor now."""
    if not scheduler().jobs and searches.session_is_alive(searches.session_id()):
        spare().want(searches.session_id())


def current_job() -> RunJob | None:
    """The session's run, while it is under way, or has failed; that of the visitor's page before it was
    loaded again, too."""
    if "run_job" not in st.session_state:
        of_before = scheduler().take_over(searches.session_id(), uploads.visitor(), _is_run)
        st.session_state.run_job = of_before
    job: RunJob | None = st.session_state.run_job
    return job


def _is_run(job: AnyJob) -> bool:
    return isinstance(job, RunJob) and job.state.is_active


def begin(asked: Asked) -> None:
    """Run it; the session's other run ends."""
    latest = results()

    def keep(job: RunJob) -> None:
        if job.result is not None:
            latest.pop(asked, None)
            latest[asked] = Outcome(job.result, datetime.now(UTC), job.seconds)
            for old in list(latest)[:-MOST_RESULTS]:
                del latest[old]

    job = st.session_state.run_job = RunJob(
        searches.session_id(), asked, person=uploads.visitor(), spare=spare(), keep=keep
    )
    scheduler().submit(job)


def forget(job: RunJob) -> None:
    """What came of a finished run stands among the results."""
    if job.state is State.DONE:
        st.session_state.run_job = None
