"""What the app remembers: caches shared by all sessions, and each session's choices, mirrored in the URL."""

from __future__ import annotations

import gc
import threading
from dataclasses import replace

import streamlit as st
from memplan_dashboard.background import jobs
from memplan_dashboard.session import documents
from memplan_dashboard.session.documents import Document, Options
from memplan_dashboard.session.markdown_text import plain
from memplan_dashboard.session.plan_facts import Facts, make_facts
from memplan_dashboard.session.url import option_choices, parse_options

from memplan_engine import MemplanError, PlanError, SolveLimits, make_plan
from memplan_engine.formats.importer import Loaded
from memplan_engine.formats.memplan_json.graph_format import About
from memplan_engine.warm_up import compile_kernels

PARAMETERS = {
    "doc": "",
    "strategy": "",
    "colour": "",
    "find": "",
    "capacity": "",
    "selected": "",
    "compare": "auto,greedy_by_size,linear_scan",
    "dims": "",
    "alignment": "",
    "inputs": "",
    "as_plan": "",
    "part": "",
    "symbols": "",
    "streams": "",
    "unread": "",
    "round": "",
    "in_place": "",
    "concat": "",
    "other": "",
    "over": "",
    "tab": "",
    "limit": "60",
    "step": "",
    "mode": "",
    "lesson": "",
    "base": "",
    "head": "",
    "changed": "",
    "kinds": "",
    "what_if": "",
    "run": "",
    "run_strategy": "",
    "run_how": "",
    "run_device": "",
}
"""Every choice that the URL can hold, with its default; defaults are left out of the URL."""
FORMER = {"budget": "capacity"}
"""What choices were called in addresses that people have kept."""

OPENING = (
    "doc",
    "dims",
    "alignment",
    "inputs",
    "as_plan",
    "part",
    "symbols",
    "streams",
    "unread",
    "round",
    "in_place",
    "concat",
)
"""The choices that say what is open and how."""

SIDES = ("base", "head")
OF_A_SIDE = ("strategy", *(name for name in OPENING if name not in ("doc", "as_plan")))
"""What the Diff page can ask of each side by itself: in the URL with the side before it, "head_streams"."""
PARAMETERS |= {f"{side}_{name}": "" for side in SIDES for name in OF_A_SIDE}

AUTO_SECONDS = 1.0
"""How long `auto` looks for each plan where many are made at once."""
MOST_SECONDS = 60.0
"""When any other strategy is stopped: longer work belongs on the command line."""


def restore() -> None:
    """Take the session's choices from the URL on its first run, then write them back on every run."""
    if "choices" not in st.session_state:
        given = {name: st.query_params.get(name, default) for name, default in PARAMETERS.items()}
        for old, name in FORMER.items():
            given[name] = given[name] or st.query_params.get(old, "")
        st.session_state.choices = given
        st.session_state.opened = {}
    mirror()


def get(name: str) -> str:
    """The choice called `name`."""
    choices: dict[str, str] = st.session_state.choices
    return choices[name] or (documents.first_key() if name == "doc" else "")


def choose(**changes: str) -> None:
    """Change choices and the URL with them."""
    st.session_state.choices.update(changes)
    mirror()


def choose_document(key: str, options: Options | None = None) -> None:
    """Open another document: with `options`, or as this session opened it last."""
    if options is not None:
        st.session_state.opened[key] = options
    known: Options = st.session_state.opened.get(key, Options())
    choose(doc=key, selected="", other="", over="", what_if="", **option_choices(known))


def mirror() -> None:
    """Write the choices that are not defaults into the URL."""
    wanted = {name: value for name, value in st.session_state.choices.items() if value != PARAMETERS[name]}
    if wanted != st.query_params.to_dict():
        st.query_params.from_dict(wanted)


def current_document() -> Document:
    """The chosen document; when it cannot be read, its error above the one that was open before."""
    try:
        document = load_document(get("doc"), parse_options(st.session_state.choices))
    except MemplanError as error:
        st.error(plain(error), icon=":material/error:")
        # What was asked of the document may be all that is wrong: open it as it is.
        choose(**option_choices(Options()), selected="")
        try:
            return _opened(load_document(get("doc"), Options()))
        except MemplanError:
            pass
        before = st.session_state.get("last_opening", {name: PARAMETERS[name] for name in OPENING})
        choose(**before, selected="")
        try:
            return load_document(get("doc"), parse_options(st.session_state.choices))
        except MemplanError:
            choose_document(documents.EXAMPLE, Options())
            return load_document(documents.EXAMPLE, Options())
    return _opened(document)


def _opened(document: Document) -> Document:
    """`document`, remembered as the last one that could be opened."""
    st.session_state.last_opening = {name: st.session_state.choices[name] for name in OPENING}
    return document


def load_document(key: str, options: Options) -> Document:
    """Read a document once for all sessions, and again when its file changes."""
    return _prepare(key, options, documents.version_of(key))


def load_either(key: str, options: Options) -> tuple[Document, Options]:
    """A list of buffers that has all its offsets as a finished plan, any other as buffers; and how it was
    opened. Raises MemplanError."""
    as_plan = _brings_plan(key, options, documents.version_of(key))
    used = replace(options, offsets_as_plan=as_plan)
    return load_document(key, used), used


# A file that is refused is not kept: without this answer it would be read again with every click.
@st.cache_resource(max_entries=48, show_spinner=False)
def _brings_plan(key: str, options: Options, version: tuple[int, int]) -> bool:
    try:
        load_document(key, replace(options, offsets_as_plan=True))
    except MemplanError:
        return False
    return True


@st.cache_resource(max_entries=24, show_spinner=False)
def _prepare(key: str, options: Options, version: tuple[int, int]) -> Document:
    loaded, about = _read(key, options.dims, options.offsets_as_plan, options.part, version)
    return documents.make_document(key, options, loaded, about)


@st.cache_resource(max_entries=12, show_spinner="Reading the file …")
def _read(
    key: str,
    dims: tuple[tuple[str, int], ...],
    offsets_as_plan: bool,
    part: str,
    version: tuple[int, int],
) -> tuple[Loaded, About]:
    return documents.read_document(key, dims, offsets_as_plan, part)


def facts_of(document: Document, strategy: str) -> Facts:
    """The plan of `document` by `strategy` and all about it; "imported" is the plan that the file brought.

    Raises MemplanError when the strategy cannot place the problem, or not in the time it has here.
    """
    compiling = start_compiling()
    if compiling.is_alive():
        with st.spinner("Compiling kernels, once on this machine: half a minute …"):
            compiling.join()
    return _facts(document, strategy)


# By identity: the entry holds the document, so that its id cannot become another's.
@st.cache_resource(max_entries=48, show_spinner="Planning …", hash_funcs={Document: id})
def _facts(document: Document, strategy: str) -> Facts:
    if strategy == "imported" and document.plan is not None:
        return make_facts(document, document.plan)
    limits = SolveLimits(jobs.FIRST_SECONDS if jobs.goes_on(strategy) else MOST_SECONDS)
    try:
        plan = make_plan(document.problem, strategy, limits=limits)
    except PlanError as error:
        if not limits.stopped:
            raise
        raise PlanError(f"{error} (after {limits.seconds:g} s; the command line can give it more)") from error
    return make_facts(document, plan, checked=True)


@st.cache_resource(show_spinner=False)
def start_compiling() -> threading.Thread:
    """Compile all kernels in the background, once a process, so that the first click need not wait."""
    thread = threading.Thread(target=compile_kernels, name="compile-kernels", daemon=True)
    thread.start()
    return thread


@st.cache_resource(show_spinner=False)
def set_aside() -> None:
    """Take what the first page has imported out of garbage collection, once a process: Streamlit collects
    after every run, which otherwise takes a tenth of a second, in which nothing is sent."""
    gc.collect()
    gc.freeze()
