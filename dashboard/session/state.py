"""What the app remembers: caches shared by all sessions, and each session's choices, mirrored in the URL.

What the URL says is read with suspicion: text → values, or an error that names the parameter.
"""

from __future__ import annotations

import gc
import math
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn

import streamlit as st
from memplan_dashboard.session import documents, uploads
from memplan_dashboard.session.documents import Document, Options
from memplan_dashboard.session.messages import show_error
from streamlit.runtime.scriptrunner import get_script_run_ctx

from memplan_engine import MemplanError
from memplan_engine.formats.importer import Loaded
from memplan_engine.formats.memplan_json.graph_format import About
from memplan_engine.preparation import PLANNING_OPTIONS, PlanningOption, Preparation
from memplan_engine.units import format_bytes, parse_bytes
from memplan_engine.warm_up import compile_kernels

MOST_DIM = 2**31 - 1
MOST_MEBIBYTES = 2.0**40
IN_ADDRESS = tuple(option for option in PLANNING_OPTIONS.values() if option.parameter)


def parse_dims(text: str) -> tuple[tuple[str, int], ...]:
    """ "batch=1, sequence=128" as pairs; raises MemplanError for what is none."""
    pairs = []
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = (part.strip() for part in pair.rpartition("="))
        number = _whole(value)
        if not name or number is None or not 1 <= number <= MOST_DIM:
            raise MemplanError(
                f"dimensions: found {pair[:40]!r}, expected NAME=VALUE with a whole number of 1 or more"
            )
        pairs.append((name, number))
    return tuple(pairs)


def parse_options(choices: dict[str, str]) -> Options:
    """How the document is to be opened; raises MemplanError."""
    asked = {option.name: _value_of(option, choices[option.parameter]) for option in IN_ADDRESS}
    how = Preparation(symbols=parse_dims(choices["symbols"]), **asked)
    return Options(parse_dims(choices["dims"]), choices["as_plan"] == "1", how, choices["part"])


def option_choices(options: Options) -> dict[str, str]:
    """The same back as text."""
    how = options.how
    return {
        "dims": pairs_text(options.dims),
        "as_plan": "1" if options.offsets_as_plan else "",
        "part": options.part,
        "symbols": pairs_text(how.symbols),
        **{option.parameter: _text_of(option, how) for option in IN_ADDRESS},
    }


def _value_of(option: PlanningOption, text: str) -> Any:
    """What the address says of `option`; raises MemplanError for a number that is none."""
    if option.most:
        return _number(option, text)
    if option.kind is bool:
        return text == "1"
    return option.kind(text) if text in set(option.kind) else option.default


def _text_of(option: PlanningOption, how: Preparation) -> str:
    if not option.asked(how):
        return ""
    value = getattr(how, option.name)
    return "1" if value is True else str(value)


def pairs_text(pairs: tuple[tuple[str, int], ...]) -> str:
    """ "batch=1,sequence=128"."""
    return ",".join(f"{name}={value}" for name, value in pairs)


def parse_mebibytes(text: str) -> float | None:
    """A capacity in MiB, where somebody wrote the address with its unit, as "64KiB"; None for none and for
    what is no number above 0."""
    try:
        value = parse_bytes(text) / 2**20 if text.lower().endswith("b") else float(text)
    except (ValueError, MemplanError):
        return None
    return min(value, MOST_MEBIBYTES) if not math.isnan(value) and value > 0 else None


def mebibytes_text(mebibytes: float | None) -> str:
    """The same back as text."""
    return repr(mebibytes).removesuffix(".0") if mebibytes else ""


def bytes_text(nbytes: int | None) -> str:
    """A number of bytes as it is typed: "24 GiB" where that is exact, else "10486"."""
    if not nbytes:
        return ""
    short = format_bytes(nbytes)
    try:
        exact = parse_bytes(short) == nbytes
    except MemplanError:
        # Rounded, it is no whole number of bytes: 10.24 KiB.
        exact = False
    return short if exact else str(nbytes)


def parse_marks(text: str, steps: int) -> tuple[int | None, int | None]:
    """ "74" or "74,120", a step and a second one, as numbers, None where there is none; raises MemplanError
    for what is no step of `steps`."""
    first, _, second = text.partition(",")
    marks = tuple(_whole(part) if part else None for part in (first, second))
    for part, mark in zip((first, second), marks, strict=True):
        if part and (mark is None or mark >= steps):
            raise MemplanError(f"at: found {part[:40]!r}, expected a step, 0 to {steps - 1:,}")
    return marks[0], marks[1]


def marks_text(marks: tuple[int | None, int | None]) -> str:
    """The same back as text."""
    return ",".join("" if mark is None else str(mark) for mark in marks).removesuffix(",")


def _number(option: PlanningOption, text: str) -> int | None:
    value = _whole(text) if text else None
    if text and (value is None or not 1 <= value <= option.most):
        expected = f"1 to {option.most:,} {option.unit}"
        raise MemplanError(f"{option.parameter}: found {text[:40]!r}, expected {expected}")
    return value


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None


NOTHING_ASKED = option_choices(documents.AS_IT_IS)
"""The choices that say nothing of how a document is opened."""
PARAMETERS = {
    "doc": "",
    "strategy": "",
    "colour": "",
    "find": "",
    "capacity": "",
    "selected": "",
    "at": "",
    "compare": "auto,greedy_by_size,linear_scan",
    **NOTHING_ASKED,
    "other": "",
    "over": "",
    "tab": "",
    "limit": "60",
    "step": "",
    "buffer": "",
    "mode": "",
    "lesson": "",
    "base": "",
    "head": "",
    "changed": "",
    "kinds": "",
    "what_if": "",
    "moment": "",
    "line": "",
    "run": "",
    "run_strategy": "",
    "run_how": "",
    "run_device": "",
    "settings": "",
    "gpu": "",
    "headroom": "",
    "stages": "",
    "fit_limit": "10",
    "order": "",
    "event": "",
    **dict.fromkeys(("ranks", "with", "rank", "block", "utilization"), ""),
}
"""Every choice that the URL can hold, with its default; defaults are left out of the URL."""
FORMER = {"budget": "capacity"}
"""What choices were called in addresses that people have kept."""

OF_THE_BROWSER = ("view",)
"""What of the URL charts write and read by themselves: the zoom."""

OPENING = ("doc", *NOTHING_ASKED)
"""The choices that say what is open and how."""

SIDES = ("base", "head")
OF_A_SIDE = ("strategy", *(name for name in OPENING if name not in ("doc", "as_plan")))
"""What the Diff page can ask of each side by itself: in the URL with the side before it, "head_streams"."""
PARAMETERS |= {f"{side}_{name}": "" for side in SIDES for name in OF_A_SIDE}


def restore() -> None:
    """Take the choices from the URL on a session's first run, and when somebody goes Back or Forward; then
    write them back on every run."""
    if "choices" not in st.session_state:
        uploads.come_back()
        st.session_state.opened = {}
        st.session_state.choices = _in_address()
    elif _walks_in_history():
        st.session_state.choices = _in_address()
    if not st.session_state.pop("by_itself", False):
        st.session_state.pop("refused", None)
    mirror()


def run_again() -> NoReturn:
    """Run the page once more though nobody did anything: why a document was refused is still said."""
    st.session_state.by_itself = True
    st.rerun()


def _in_address() -> dict[str, str]:
    return choices_in(st.query_params.to_dict())


def choices_in(query: Mapping[str, str]) -> dict[str, str]:
    """The choices that the `query` of an address holds; without a document in it, the command line's."""
    given = {name: query.get(name, default) for name, default in PARAMETERS.items()}
    for old, name in FORMER.items():
        given[name] = given[name] or query.get(old, "")
    first = documents.first_key()
    if not given["doc"] and first != documents.EXAMPLE:
        given["doc"] = first
    return given


def _walks_in_history() -> bool:
    """Whether Back or Forward brought the URL here. Any other run may come with an older URL than what the
    last one wrote."""
    context = get_script_run_ctx()
    return bool(context and getattr(context, "is_history_navigation", False))


def get(name: str) -> str:
    """The choice called `name`."""
    choices: dict[str, str] = st.session_state.choices
    return document_in(choices) if name == "doc" else choices[name]


def document_in(choices: Mapping[str, str]) -> str:
    """The key of the document that `choices` ask for."""
    return choices["doc"] or documents.first_key()


def title(page: str) -> str:
    """What a tab of the browser says: the page, what it shows, the program."""
    others = {"Learn": "none", "Diff": "head", "Run": "run", "Devices": "ranks", "Pipeline": "pipeline"}
    shown = st.session_state.get(f"{others[page]}_widget", "") if page in others else get("doc")
    return " · ".join(filter(None, (page, documents.label_of(shown)))) + " — memplan"


def choose(**changes: str) -> None:
    """Change choices and the URL with them."""
    st.session_state.choices.update(changes)
    mirror()


def choose_document(key: str, options: Options | None = None, **others: str) -> None:
    """Open another document: with `options`, or as this session opened it last. `others` are choices that
    change with it, in one entry of the browser's history."""
    choose(**document_choices(key, options, **others))


def document_choices(key: str, options: Options | None = None, **others: str) -> dict[str, str]:
    """The choices that `choose_document` makes."""
    if options is not None:
        st.session_state.opened[key] = options
    last: Options = st.session_state.opened.get(key, documents.AS_IT_IS)
    forgotten = ("selected", "buffer", "step", "at", "other", "over", "what_if", "moment", "line", "event")
    return {"doc": key, **dict.fromkeys(forgotten, ""), **option_choices(last), **others}


def lead_on(page: str, **changes: str) -> NoReturn:
    """Go to another page with choices changed, in one entry of the browser's history."""
    st.session_state.choices.update(changes)
    st.switch_page(page, query_params=_for_address())


def mirror() -> None:
    """Write the choices that are not defaults into the URL; what the browser keeps there stays."""
    wanted = _for_address() | {
        name: st.query_params[name] for name in OF_THE_BROWSER if name in st.query_params
    }
    if wanted != st.query_params.to_dict():
        st.query_params.from_dict(wanted)


def _for_address() -> dict[str, str]:
    return {name: value for name, value in st.session_state.choices.items() if value != PARAMETERS[name]}


def has_opened() -> bool:
    """Whether the session has opened a document, be it the one that nobody chose."""
    return "last_opening" in st.session_state


def current_document() -> Document:
    """The chosen document; when it cannot be read, its error above the one that was open before."""
    try:
        document = _opened(load_document(get("doc"), parse_options(st.session_state.choices)))
    except MemplanError as error:
        st.session_state.refused = str(error)
        document = _instead()
    if "refused" in st.session_state:
        show_error(st.session_state.refused)
    return document


def _instead() -> Document:
    """The document that was open before, or the example."""
    before = st.session_state.get("last_opening", {name: PARAMETERS[name] for name in OPENING})
    # What was asked of the document may be all that is wrong: it is opened as it is before another one is.
    for choices in (NOTHING_ASKED, before):
        choose(**choices, selected="")
        with suppress(MemplanError):
            return _opened(load_document(get("doc"), parse_options(st.session_state.choices)))
    choose_document(documents.EXAMPLE, documents.AS_IT_IS)
    return load_document(documents.EXAMPLE, documents.AS_IT_IS)


def _opened(document: Document) -> Document:
    """`document`, remembered as the last one that could be opened."""
    st.session_state.last_opening = {name: st.session_state.choices[name] for name in OPENING}
    return document


def load_document(key: str, options: Options) -> Document:
    """Read a document once for all sessions, and again when its file changes."""
    return _prepare(key, options, documents.version_of(key))


def load_either(key: str, options: Options = documents.AS_IT_IS) -> Document:
    """A list of buffers that has all its offsets as a finished plan, any other as buffers; the document says
    how it was opened. Raises MemplanError."""
    as_plan = _brings_plan(key, options, documents.version_of(key))
    return load_document(key, replace(options, offsets_as_plan=as_plan))


# A file that is refused is not kept: without this answer it would be read again with every click.
@st.cache_resource(max_entries=48, show_spinner=False)
def _brings_plan(key: str, options: Options, version: tuple[int, int]) -> bool:
    try:
        # Where the allocator put what a predicted run made nobody knows: it is a graph, on every page.
        if documents.is_observed_graph(documents.path_of(key)):
            return False
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


@st.cache_resource(show_spinner=False)
def start_compiling() -> threading.Thread:
    """Compile all kernels in the background, once a process, so that the first click need not wait."""
    thread = threading.Thread(target=compile_kernels, name="compile-kernels", daemon=True)
    thread.start()
    return thread


def wait_for_kernels() -> None:
    """Return when the kernels are compiled."""
    compiling = start_compiling()
    if compiling.is_alive():
        with st.spinner("Compiling kernels, once on this machine: about two minutes …"):
            compiling.join()


@st.cache_resource(show_spinner=False)
def set_aside() -> None:
    """Take what the first page has imported out of garbage collection, once a process: Streamlit collects
    after every run, which otherwise takes a tenth of a second, in which nothing is sent."""
    gc.collect()
    gc.freeze()
