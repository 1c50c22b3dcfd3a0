"""What the app remembers: caches shared by all sessions, and each session's choices, mirrored in the URL."""

from __future__ import annotations

import threading

import streamlit as st

from dashboard import documents
from dashboard.documents import Document, Options
from memplan_engine import MemplanError, Plan, make_plan
from memplan_engine.compiling import compile_kernels

PARAMETERS = {
    "doc": documents.DEFAULT,
    "strategy": "auto",
    "colour": "op kind",
    "find": "",
    "budget": "",
    "selected": "",
    "compare": "auto,greedy_by_size,linear_scan",
    "dims": "",
    "alignment": "",
    "inputs": "",
    "as_plan": "",
}
"""Every choice that the URL can hold, with its default; defaults are left out of the URL."""


def restore() -> None:
    """Take the session's choices from the URL on its first run, then write them back on every run."""
    if "choices" not in st.session_state:
        given = {name: st.query_params.get(name, default) for name, default in PARAMETERS.items()}
        st.session_state.choices = given
    mirror()


def get(name: str) -> str:
    """The choice called `name`."""
    choices: dict[str, str] = st.session_state.choices
    return choices[name]


def choose(**changes: str) -> None:
    """Change choices and the URL with them."""
    st.session_state.choices.update(changes)
    mirror()


def mirror() -> None:
    """Write the choices that are not defaults into the URL."""
    wanted = {name: value for name, value in st.session_state.choices.items() if value != PARAMETERS[name]}
    if wanted != st.query_params.to_dict():
        st.query_params.from_dict(wanted)


def current_options() -> Options:
    """How the current document is to be opened; what the URL says is checked, not trusted."""
    dims = []
    for pair in filter(None, get("dims").split(",")):
        name, _, value = pair.partition("=")
        if not (name and value.isascii() and value.isdigit() and 0 < int(value) < 2**31):
            raise MemplanError(f"dimensions: found {pair[:40]!r}, expected NAME=VALUE with a number from 1")
        dims.append((name, int(value)))
    alignment = get("alignment")
    if alignment and not (alignment.isascii() and alignment.isdigit() and 0 < int(alignment) <= 2**30):
        raise MemplanError(f"alignment: found {alignment[:40]!r}, expected 1 to 2^30 bytes")
    return Options(
        tuple(dims), get("as_plan") == "1", get("inputs") == "1", int(alignment) if alignment else None
    )


def current_document() -> Document:
    """The chosen document; when it cannot be read, its error above the example that opens by default."""
    try:
        return load_document(get("doc"), current_options())
    except MemplanError as error:
        st.error(str(error), icon=":material/error:")
        choose(doc=documents.DEFAULT, dims="", alignment="", inputs="", as_plan="", selected="")
        return load_document(documents.DEFAULT, Options())


@st.cache_resource(max_entries=12, show_spinner="Reading the file …")
def load_document(key: str, options: Options) -> Document:
    """Read a document once for all sessions."""
    return documents.open_document(key, options)


def plan_of(document: Document, strategy: str) -> Plan:
    """The plan of `document` by `strategy`; "imported" is the plan that the file brought."""
    if strategy == "imported" and document.plan is not None:
        return document.plan
    return _plan(document.problem.fingerprint, document.problem.name, strategy, document)


@st.cache_resource(max_entries=64, show_spinner="Planning …")
def _plan(fingerprint: str, name: str, strategy: str, _document: Document) -> Plan:
    return make_plan(_document.problem, strategy)


@st.cache_resource(show_spinner=False)
def start_compiling() -> threading.Thread:
    """Compile all kernels in the background, once a process, so that the first click need not wait."""
    thread = threading.Thread(target=compile_kernels, name="compile-kernels", daemon=True)
    thread.start()
    return thread
