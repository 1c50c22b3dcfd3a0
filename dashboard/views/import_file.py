"""Import: upload a file or pick an example, see what was recognised, and open it."""

from __future__ import annotations

import streamlit as st

from dashboard import documents, state
from dashboard.colours import by_kind
from dashboard.documents import Document, Options
from dashboard.panels import make_panel
from dashboard.plan_view import plan_view
from memplan_engine import MemplanError, Role
from memplan_engine.graph import storage_bytes
from memplan_engine.importers import IMPORTERS, recognise
from memplan_engine.units import format_bytes

KEPT = "imported_key"


def _options() -> Options:
    with st.expander("Options", icon=":material/tune:"):
        left, middle, right = st.columns(3)
        dims = left.text_input("Symbolic dimensions (ONNX)", placeholder="batch=1, sequence=128")
        alignment = middle.number_input(
            "Alignment, bytes", min_value=1, value=None, placeholder="as in the file"
        )
        plan_inputs = right.checkbox("Plan graph inputs, too", help="Give them a place in the arena.")
        as_plan = right.checkbox(
            "Open offsets as a finished plan", value=True, help="CSV with an offset column."
        )
    pairs = []
    for pair in filter(None, (part.strip() for part in dims.split(","))):
        name, _, value = pair.partition("=")
        if not (name.strip() and value.strip().isascii() and value.strip().isdigit() and int(value) > 0):
            left.error(f"found {pair!r}, expected NAME=VALUE with a whole number of 1 or more")
            continue
        pairs.append((name.strip(), int(value)))
    return Options(tuple(pairs), as_plan, plan_inputs, int(alignment) if alignment else None)


def _read(key: str, options: Options) -> tuple[Document, Options] | None:
    """The document; a CSV without all its offsets is opened as buffers, whatever the option says."""
    try:
        return state.load_document(key, options), options
    except MemplanError as error:
        if options.offsets_as_plan:
            plain = Options(options.dims, False, options.plan_inputs, options.alignment)
            try:
                return state.load_document(key, plain), plain
            except MemplanError:
                pass
        st.error(str(error), icon=":material/error:")
        return None


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
    else:
        figures += [("steps", f"{problem.steps:,}"), ("bytes in all", format_bytes(problem.total_bytes))]
    if document.plan:
        figures.append(("brings", f"a plan ({document.plan.strategy})"))
    for column, (label, value) in zip(st.columns(len(figures)), figures, strict=True):
        column.metric(label, value)


def _preview(document: Document) -> None:
    if not len(document.problem):
        st.info("There is nothing to place: every tensor is a constant, an input or empty.")
        return
    plan = document.plan or state.plan_of(document, "greedy_by_size")
    colouring = by_kind(document.problem)
    st.caption(f"Preview: {plan.strategy}")
    plan_view(
        [make_panel(plan, colouring)],
        palette=colouring.palette,
        legend=colouring.legend,
        selected=None,
        key="import_view",
        height=300,
    )


def _open(key: str, options: Options, document: Document) -> None:
    state.choose(
        doc=key,
        selected="",
        dims=",".join(f"{name}={value}" for name, value in options.dims),
        alignment=str(options.alignment or ""),
        inputs="1" if options.plan_inputs else "",
        as_plan="1" if options.offsets_as_plan else "",
        strategy="imported" if document.plan else "auto",
    )
    st.switch_page("views/inspect_plan.py")


def _source() -> str | None:
    left, right = st.columns([1.4, 1], gap="large")
    uploaded = left.file_uploader("Upload a model, a graph or a list of buffers", key="uploader")
    examples = [key for key in documents.catalogue() if key.startswith("example:")]
    labels = documents.catalogue()
    example = right.selectbox(
        "or pick an example", examples, index=None, format_func=labels.__getitem__, placeholder="an example"
    )
    with right:
        st.caption("Reads " + "; ".join(importer.description for importer in IMPORTERS) + ".")
    if uploaded is not None:
        return documents.keep_upload(uploaded.name, uploaded.getvalue())
    return example


def _page() -> None:
    key = _source()
    options = _options()
    if key is None:
        st.info("The kind of file is recognised from its content. Nothing in a file is ever run.")
        return
    read = _read(key, options)
    if read is None:
        st.caption("The plan that was open stays as it was.")
        return
    document, used = read
    _counts(document, key)
    if st.button("Open in Inspect", type="primary", icon=":material/open_in_new:"):
        _open(key, used, document)
    _preview(document)


_page()
