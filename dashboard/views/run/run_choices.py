"""What the page Run can show: built-in models, which it runs, and files of runs that people have made."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

import streamlit as st
from memplan_dashboard.background.jobs import State
from memplan_dashboard.background.run_job import Asked, RunJob
from memplan_dashboard.background.scheduler import JobScheduler
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
    about = {name: (build.__doc__ or "").partition("\n")[0].rstrip(".:") for name, build in MODELS.items()}
    return files | {f"{MODEL}:{name}": f"{name}: {text}" for name, text in about.items()}


def current_key() -> str:
    """What the address asks for; the first model unless it does."""
    return state.get("run") or f"{MODEL}:{FIRST}"


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
        *(flag in flags for flag in ("functional", "check", "profile")),
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


@st.cache_resource(show_spinner=False)
def results() -> dict[Asked, RunFile]:
    """What came of the runs of late, for all sessions: the same run gives the same bytes."""
    return {}


def current_job() -> RunJob | None:
    """The session's run, while it is under way, or has failed."""
    job: RunJob | None = st.session_state.get("run_job")
    return job


def begin(asked: Asked) -> None:
    """Run it; the session's other run ends."""
    job = st.session_state.run_job = RunJob(searches.session_id(), asked, person=uploads.visitor())
    scheduler().submit(job)


def collect(job: RunJob) -> None:
    """Take what a finished run has found, once."""
    if job.state is State.DONE and job.result is not None:
        latest = results()
        latest.pop(job.asked, None)
        latest[job.asked] = job.result
        for old in list(latest)[:-MOST_RESULTS]:
            del latest[old]
        st.session_state.run_job = None
