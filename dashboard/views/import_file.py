"""Import: a file is uploaded, picked or named, and opens in Inspect; below it what is open now, and how."""

from __future__ import annotations

import re

import streamlit as st
from memplan_dashboard.plan_view import plan_view
from memplan_dashboard.session import documents, folder, plan_facts, state, uploads
from memplan_dashboard.session.documents import Document, Options
from memplan_dashboard.session.messages import NOTHING_TO_PLACE, errors_shown, plain, show_error
from memplan_dashboard.session.plan_facts import PlanFacts
from memplan_dashboard.widgets import controls
from memplan_dashboard.widgets.plan_panels import make_panel
from memplan_dashboard.widgets.planning_options import keep_part

from memplan_engine import MemplanError, Role
from memplan_engine.files import importers, recognise
from memplan_engine.graph import storage_bytes
from memplan_engine.plotting.figure_style import default_colouring
from memplan_engine.preparation import PLANNING_OPTIONS, Preparation
from memplan_engine.units import format_bytes

UNASKED = Options(offsets_as_plan=True)


def _options() -> Options | None:
    """How the next file is opened; None while something is wrong with that."""
    with st.expander("Options", icon=":material/tune:"):
        left, middle, right = st.columns(3)
        dims = left.text_input(
            "Symbolic dimensions (ONNX)",
            placeholder="batch=1, sequence=128",
            help="Set while the file is read. Dimensions left open become symbols with sliders.",
        )
        alignment = middle.number_input(
            "Alignment, bytes",
            min_value=1,
            max_value=PLANNING_OPTIONS["alignment"].most,
            value=None,
            placeholder="as in the file",
        )
        asked = PLANNING_OPTIONS["plan_inputs"]
        plan_inputs = right.checkbox(asked.label, help=asked.told)
        as_plan = right.checkbox("Open as a finished plan", value=True, help="CSV with an offset column.")
        try:
            pairs = state.parse_dims(dims)
        except MemplanError as error:
            left.error(plain(error), icon=":material/error:")
            return None
    how = Preparation(alignment=int(alignment) if alignment else None, plan_inputs=plan_inputs)
    return Options(pairs, as_plan, how)


def _counts(document: Document) -> None:
    problem, graph = document.problem, document.graph
    figures = [("buffers", f"{len(problem):,}")]
    if graph:
        figures += [
            ("ops", f"{len(graph.ops):,}"),
            ("tensors", f"{len(graph.tensors):,}"),
            ("storages", f"{len(graph.storages):,}"),
            ("weights", format_bytes(storage_bytes(graph, Role.CONSTANT))),
        ]
        if graph.symbols:
            figures.append(("symbols", ", ".join(plain(str(symbol)) for symbol in graph.symbols)))
    else:
        figures += [("steps", f"{problem.steps:,}"), ("total bytes", format_bytes(problem.total_bytes))]
    if document.plan:
        figures.append(("includes a plan", document.plan.strategy))
    columns = st.container(key="figures").columns(len(figures))
    for column, (label, value) in zip(columns, figures, strict=True):
        column.metric(label, value)


def _violation(facts: PlanFacts) -> None:
    """What the validator says of a plan that is not valid: how much, and the first of it."""
    if facts.report.valid:
        return
    count = sum(facts.report.counts.values())
    violations = "1 violation" if count == 1 else f"{count:,} violations, the first"
    st.warning(
        plain(f"Not valid, {violations}: {facts.report.violations[0].message}"), icon=":material/error:"
    )


def _preview(facts: PlanFacts) -> None:
    document = facts.document
    # Of a reader's description what it is, without what more there is to say: "a list of buffers".
    kind = re.split("[:,(]", recognise(documents.path_of(document.key)).description)[0].strip()
    st.caption(plain(f"Open now: {document.label}, {facts.plan.strategy} · {kind}"))
    if not len(document.problem):
        st.info(NOTHING_TO_PLACE)
        return
    _violation(facts)
    colouring = default_colouring(document.problem)(document.problem)
    plan_view(
        [make_panel(facts, colouring)],
        palette=colouring.palette,
        legend=colouring.legend,
        selected=None,
        key="import_view",
        height=300,
    )


def _source() -> tuple[str | None, bool]:
    """The key of what was chosen, and whether it is an upload that was not known before."""
    with st.container(key="halves_source"):
        left, right = st.columns([1.4, 1], gap="large")
    uploaded = left.file_uploader(
        "Upload a model, a graph or a list of buffers", key="uploader", help=uploads.RULES
    )
    labels = documents.catalogue()
    examples = [key for key in labels if key.startswith("example:")]
    example = right.selectbox(
        "or pick an example", examples, index=None, format_func=labels.__getitem__, placeholder="an example"
    )
    with right:
        named = _from_folder()
        st.caption(plain("Reads " + "; ".join(importer.description for importer in importers()) + "."))
    if uploaded is not None:
        with left, errors_shown():
            return uploads.keep(uploaded.name, uploaded.getvalue())
    return named or example, False


def _from_folder() -> str | None:
    """The key of a file below the launcher's folder, picked from the list or named by its path."""
    root = folder.root()
    if root is None:
        return None
    named = st.selectbox(
        f"or a file below {root.name or root}",
        list(folder.listed().values()),
        index=None,
        placeholder="a path",
        accept_new_options=True,
        key="folder_path",
    )
    return f"{folder.KIND}:{named}" if named else None


def _open(key: str, is_new: bool, options: Options) -> None:
    """Open what was chosen and lead on to Inspect; where it cannot be read or planned, stay and say why."""
    label = documents.catalogue().get(key, key.partition(":")[2])
    # In a place of its own: what stands below it stays where it is.
    with st.container(), st.spinner(plain(f"Reading {label} …")):
        chosen = _read(key, is_new, options)
    if chosen is not None:
        state.lead_on("views/inspect/inspect_page.py", **chosen)


def _read(key: str, is_new: bool, options: Options) -> dict[str, str] | None:
    """The choices that show what was read and planned; None where it cannot be."""
    try:
        # A CSV without all its offsets is opened as buffers, whatever the option says.
        load = state.load_either if options.offsets_as_plan else state.load_document
        document = load(key, options)
        strategy = "imported" if document.plan else "auto"
    except MemplanError as error:
        if is_new:
            uploads.drop(key)
        show_error(error)
        return None
    try:
        plan_facts.facts_of(document, strategy)
    except MemplanError as error:
        show_error(error)
        return None
    return state.document_choices(document.key, document.options, strategy=strategy)


def _show_open(options: Options | None) -> None:
    """What is open now, in sight while nothing else can be opened; a button opens it another way."""
    document = state.current_document()
    _counts(document)
    keep_part(document)
    if options not in (None, UNASKED, document.options) and st.button(
        f"Open {plain(document.label)} with these options", type="primary", icon=":material/open_in_new:"
    ):
        assert options is not None
        _open(document.key, False, options)
    with errors_shown():
        _preview(plan_facts.facts_of(document, controls.current_strategy(document)))


def _page() -> None:
    key, is_new = _source()
    options = _options()
    if key is None:
        st.info("The kind of file is recognised from its content. Nothing in a file is ever executed.")
    elif options is not None:
        _open(key, is_new, options)
    _show_open(options)


_page()
