"""Which two files the Diff page compares: example pairs, base and head, the strategy, uploads."""

from __future__ import annotations

import json
from collections.abc import Callable

import memplan_examples
import streamlit as st
from memplan_dashboard.session import documents, state, uploads
from memplan_dashboard.session.documents import Document, Options
from memplan_dashboard.session.messages import show_error
from memplan_dashboard.session.state import parse_options
from memplan_dashboard.views.diff.diff_columns import Comparison
from memplan_dashboard.widgets import controls, planning_options
from memplan_dashboard.widgets.controls import bound, chooses, pick_key
from memplan_dashboard.widgets.planning_options import pick_symbols

from memplan_engine import MemplanError
from memplan_engine.planner import strategies_for
from memplan_engine.reporters.diff_tables import diff_summary

PAIR_LABELS = {
    "attention": "attention without its fused kernel",
    "batch": "the batch doubled",
    "front_op": "an op at the front",
    "kept_view": "a residual kept alive by a view",
}
FIRST_PAIR = "kept_view"


def pairs() -> dict[str, tuple[str, str]]:
    """The example pairs, name → keys of base and head."""
    return {
        name: (f"example:{base.stem}", f"example:{head.stem}")
        for name, (base, head) in memplan_examples.pairs().items()
    }


def default_keys() -> tuple[str, str]:
    """What is compared when nothing else is asked for: the first two files of the command line, or an
    example pair."""
    given = [key for key in documents.catalogue() if key.startswith("file:")]
    return (given[0], given[1]) if len(given) > 1 else pairs()[FIRST_PAIR]


def key_of(side: str) -> str:
    """The document of a side, as the URL has it or else the default."""
    return state.get(side) or default_keys()[state.SIDES.index(side)]


def options_of(side: str) -> Options:
    """How a side is to be opened, as the URL has it; raises MemplanError."""
    return parse_options({name: state.get(f"{side}_{name}") for name in state.OF_A_SIDE} | {"as_plan": ""})


def nothing_asked(side: str) -> dict[str, str]:
    """The choices of a side of which nothing is asked: its file as it is, planned as the other one."""
    return {f"{side}_{name}": "" for name in state.OF_A_SIDE}


def strategy_names(base: Document, head: Document) -> list[str]:
    """What can plan both; the plans that files brought come first."""
    brought = [controls.IMPORTED] if base.plan or head.plan else []
    known = strategies_for(head.problem)
    return brought + [name for name in strategies_for(base.problem) if name in known]


def strategy_of(side: str, document: Document, both: str) -> str:
    """What plans one side: its own strategy, else that of both. Of two files of which one brought no plan,
    that one is planned by `auto`."""
    own = state.get(f"{side}_strategy")
    chosen = own if own in controls.strategy_names(document) else both
    return "auto" if chosen == controls.IMPORTED and document.plan is None else chosen


def json_of(comparison: Comparison) -> str:
    """All of it for machines, as `memplan diff --format json` writes it."""
    return json.dumps(diff_summary(comparison.diff), indent=2, ensure_ascii=False) + "\n"


LAST = "diff_last_{}"
FAULT = "diff_fault_{}"
WHAT = {"base": "before", "head": "after"}


def pick_sides() -> tuple[tuple[Document, str], tuple[Document, str]]:
    """Base and head, and the strategy that plans each."""
    _pick_pair()
    row = controls.row([2.2, 0.35, 2.2, 1.6, 0.95])
    with row[0]:
        base = _pick("base")
    with row[1]:
        # The label is for those who hear the page: style.css leaves the icon alone.
        st.button(
            "Swap base and head",
            icon=":material/swap_horiz:",
            key="swap",
            help="Swap base and head",
            on_click=_swap,
        )
    with row[2]:
        head = _pick("head")
    with row[3]:
        strategy = _pick_strategy(base, head)
    with row[4], st.container(key="diff_upload"), st.popover("Upload", icon=":material/upload_file:"):
        for side in state.SIDES:
            st.file_uploader(
                f"{side.capitalize()}, {WHAT[side]}: a graph, a plan, buffers or a recording",
                key=f"uploader_{side}",
                help=uploads.RULES,
                on_change=_uploaded(side),
            )
            _say_fault(side)
    with row[0]:
        base_strategy = _pick_options("base", base, strategy)
    with row[2]:
        head_strategy = _pick_options("head", head, strategy)
    return (base, base_strategy), (head, head_strategy)


def _pick_pair() -> None:
    """The example pairs, one click each."""
    examples = pairs()
    chosen = tuple(key_of(side) for side in state.SIDES)
    current = next((name for name, keys in examples.items() if keys == chosen), None)

    def take(name: str | None) -> None:
        if name in examples:
            _choose(**dict(zip(state.SIDES, examples[name], strict=True)))

    st.pills(
        "Example pairs, a real regression each",
        list(examples),
        format_func=lambda name: PAIR_LABELS.get(name, name.replace("_", " ")),
        **bound("pair_widget", current, take),
    )


def _pick(side: str) -> Document:
    """The document of one side; where it cannot be read, its error below the box, and the one before."""
    key, fault = key_of(side), ""
    try:
        document = state.load_either(key, options_of(side))
    except MemplanError as error:
        fault = str(error)
        key, document = _instead(side, key)
        state.choose(**{side: key, "changed": "", **nothing_asked(side)})
    if key.startswith("file:") and not state.get(side):
        # Of the command line: the address is to say which.
        state.choose(**{side: key})
    st.session_state[LAST.format(side)] = key
    label = f"{side.capitalize()} ({WHAT[side]})"
    pick_key(label, documents.catalogue(), key, f"{side}_widget", lambda picked: _choose(**{side: picked}))
    if fault:
        show_error(fault)
    _say_fault(side)
    return document


def _instead(side: str, asked: str) -> tuple[str, Document]:
    """The file as it is where only its options make no sense; what this side showed before, or else the
    default."""
    default = pairs()[FIRST_PAIR][state.SIDES.index(side)]
    for key in (asked, st.session_state.get(LAST.format(side), default), default):
        try:
            return key, state.load_either(key)
        except MemplanError:
            continue
    raise MemplanError("the example graphs are missing: reinstall memplan")


def _pick_strategy(base: Document, head: Document) -> str:
    names = strategy_names(base, head)
    chosen = state.get("strategy")
    current = chosen if chosen in names else names[0]
    brought = next((each for each in (base, head) if each.plan), base)
    st.selectbox(
        "Strategy",
        names,
        format_func=controls.strategy_label(brought),
        help="Used for both sides. greedy_by_size gives the same plan on every machine.",
        **chooses("strategy", current, "diff_strategy_widget"),
    )
    return current


def _pick_options(side: str, document: Document, both: str) -> str:
    """A popover with what can be asked of `side` alone; gives what plans it: `both` unless it has its own
    strategy."""
    names, own = controls.strategy_names(document), state.get(f"{side}_strategy")
    if own and own not in names:
        show_error(f"{side}_strategy: found {own[:40]!r}, expected one of those in the list")
        state.choose(**{f"{side}_strategy": ""})
        own = ""
    how = document.options.how
    asked = planning_options.count_asked(how) + len(how.symbols) + bool(document.options.part) + bool(own)
    label = f"Options of {side} ({asked})" if asked else f"Options of {side}"
    with st.popover(label, icon=":material/tune:", width="stretch"):
        names_of = controls.strategy_label(document)
        st.selectbox(
            f"Strategy of {side} alone",
            ["", *names],
            format_func=lambda name: names_of(name) if name else "that of both sides",
            **chooses(f"{side}_strategy", own),
        )
        if planning_options.can_prepare(document):
            planning_options.show_switches(document, f"{side}_")
            pick_symbols(document, f"{side}_")
        else:
            planning_options.keep_part(document, f"{side}_")
    return strategy_of(side, document, both)


def _swap() -> None:
    base, head = (key_of(side) for side in state.SIDES)
    crossed: dict[str, str] = {}
    for side, other in zip(state.SIDES, reversed(state.SIDES), strict=True):
        crossed |= {f"{side}_{name}": state.get(f"{other}_{name}") for name in state.OF_A_SIDE}
    _choose(base=head, head=base)
    state.choose(**crossed)


def _uploaded(side: str) -> Callable[[], None]:
    """Open what was uploaded; what cannot be read is forgotten, and said below the box."""

    def take() -> None:
        given = st.session_state[f"uploader_{side}"]
        if given is None:
            return
        try:
            key = uploads.keep_readable(given.name, given.getvalue(), state.load_either)
        except MemplanError as error:
            st.session_state[FAULT.format(side)] = str(error)
            return
        _choose(**{side: key})

    return take


def _choose(**sides: str) -> None:
    """Compare other files: the selection, what was asked and what was said of the last ones go."""
    for side in state.SIDES:
        st.session_state.pop(FAULT.format(side), None)
    asked = {name: "" for side in sides for name in nothing_asked(side)}
    state.choose(**asked, **sides, changed="", kinds="")


def _say_fault(side: str) -> None:
    if fault := st.session_state.get(FAULT.format(side)):
        show_error(fault)
