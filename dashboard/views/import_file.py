"""Import: upload a file or pick an example, see what was recognised, and open it."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st
from memplan_dashboard.plan_view import plan_view
from memplan_dashboard.session import documents, plan_facts, state
from memplan_dashboard.session.documents import Document, Options
from memplan_dashboard.session.messages import NOTHING_TO_PLACE, errors_shown, plain, show_error
from memplan_dashboard.session.plan_facts import PlanFacts
from memplan_dashboard.widgets import controls
from memplan_dashboard.widgets.plan_panels import make_panel
from memplan_dashboard.widgets.planning_options import pick_part

from memplan_engine import MemplanError, Role
from memplan_engine.files import importers, recognise
from memplan_engine.graph import storage_bytes
from memplan_engine.plotting.colouring import COLOURINGS
from memplan_engine.preparation import PLANNING_OPTIONS, Preparation
from memplan_engine.units import format_bytes


def _options() -> Options:
    with st.expander("Options", icon=":material/tune:"):
        left, middle, right = st.columns(3)
        dims = left.text_input(
            "Symbolic dimensions (ONNX)",
            placeholder="batch=1, sequence=128",
            help="Bound as the file is read. Dimensions left open become symbols with sliders.",
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
        as_plan = right.checkbox(
            "Open offsets as a finished plan", value=True, help="CSV with an offset column."
        )
        try:
            pairs = state.parse_dims(dims)
        except MemplanError as error:
            left.error(plain(error), icon=":material/error:")
            pairs = ()
    how = Preparation(alignment=int(alignment) if alignment else None, plan_inputs=plan_inputs)
    return Options(pairs, as_plan, how)


def _counts(document: Document, key: str) -> None:
    problem, graph = document.problem, document.graph
    figures = [("recognised as", recognise(documents.path_of(key)).name), ("buffers", f"{len(problem):,}")]
    if graph:
        figures += [
            ("ops", f"{len(graph.ops):,}"),
            ("tensors", f"{len(graph.tensors):,}"),
            ("storages", f"{len(graph.storages):,}"),
            ("constants", format_bytes(storage_bytes(graph, Role.CONSTANT))),
        ]
        if graph.symbols:
            figures.append(("symbols", ", ".join(plain(symbol.name) for symbol in graph.symbols)))
    else:
        figures += [("steps", f"{problem.steps:,}"), ("bytes in all", format_bytes(problem.total_bytes))]
    if document.plan:
        figures.append(("brings a plan", document.plan.strategy))
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


def _preview(facts: PlanFacts, title: str) -> None:
    document = facts.document
    st.caption(plain(f"{title}: {document.label}, {facts.plan.strategy}"))
    if not len(document.problem):
        st.info(NOTHING_TO_PLACE)
        return
    _violation(facts)
    colouring = COLOURINGS["op kind" if document.knows_kinds else "size"](document.problem)
    plan_view(
        [make_panel(facts, colouring)],
        palette=colouring.palette,
        legend=colouring.legend,
        selected=None,
        key="import_view",
        height=300,
    )


def _open(document: Document) -> None:
    state.choose_document(document.key, document.options)
    state.choose(strategy="imported" if document.plan else "auto")
    st.switch_page("views/inspect/inspect_page.py")


def _source() -> tuple[str | None, bool]:
    """The key of what was chosen, and whether it is an upload that was not known before."""
    with st.container(key="halves_source"):
        left, right = st.columns([1.4, 1], gap="large")
    uploaded = left.file_uploader("Upload a model, a graph or a list of buffers", key="uploader")
    labels = documents.catalogue()
    examples = [key for key in labels if key.startswith("example:")]
    example = right.selectbox(
        "or pick an example", examples, index=None, format_func=labels.__getitem__, placeholder="an example"
    )
    with right:
        st.caption(plain("Reads " + "; ".join(importer.description for importer in importers()) + "."))
    if uploaded is not None:
        with errors_shown():
            return documents.keep_upload(uploaded.name, uploaded.getvalue())
        return None, False
    return example, False


def _show_open() -> None:
    """What is open now, so that it stays in sight while nothing else can be opened."""
    document = state.current_document()
    with errors_shown():
        _preview(plan_facts.facts_of(document, controls.current_strategy(document)), "Open now")


def _show_new(key: str, is_new: bool, options: Options) -> None:
    try:
        # A CSV without all its offsets is opened as buffers, whatever the option says.
        load = state.load_either if options.offsets_as_plan else state.load_document
        document = load(key, options)
    except MemplanError as error:
        if is_new:
            documents.drop_upload(key)
        show_error(error)
        _show_open()
        return
    _counts(document, key)
    try:
        facts = plan_facts.facts_of(document, "imported" if document.plan else "auto")
    except MemplanError as error:
        show_error(error)
        _show_open()
        return
    if st.button("Open in Inspect", type="primary", icon=":material/open_in_new:"):
        _open(document)
    _preview(facts, "Preview")


def _page() -> None:
    key, is_new = _source()
    options = _options()
    options = replace(options, part=pick_part(key)) if key else options
    if key is None:
        st.info("The kind of file is recognised from its content. Nothing in a file is ever run.")
        _show_open()
        return
    _show_new(key, is_new, options)


_page()
