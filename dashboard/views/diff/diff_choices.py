"""Which two files the Diff page compares, and what is known of the comparison, worked out once."""

from __future__ import annotations

import json
from pathlib import Path

import memplan_examples
import streamlit as st
from memplan_dashboard.session import documents, state
from memplan_dashboard.session.documents import Document, Options
from memplan_dashboard.session.plan_facts import Facts
from memplan_dashboard.session.url import parse_options
from memplan_dashboard.views.diff.diff_columns import Comparison, compare_facts
from memplan_dashboard.widgets import controls

from memplan_engine import diff_markdown, diff_rows, module_rows
from memplan_engine.diffing.rows import DiffRow, ModuleRow
from memplan_engine.planner import strategies_for
from memplan_engine.reporters.diff_tables import diff_summary

SIDES = state.SIDES
PAIR_LABELS = {
    "attention": "attention without its fused kernel",
    "batch": "the batch doubled",
    "front_op": "an op at the front",
    "kept_view": "a residual kept alive by a view",
}
FIRST_PAIR = "kept_view"
AS_IT_IS = Options()


def pairs() -> dict[str, tuple[str, str]]:
    """The example pairs, name → keys of base and head."""
    return {name: (_key(base), _key(head)) for name, (base, head) in memplan_examples.pairs().items()}


def default_keys() -> tuple[str, str]:
    """What is compared when nothing else is asked for: the first two files of the command line, or an
    example pair."""
    given = [key for key in documents.catalogue() if key.startswith("file:")]
    return (given[0], given[1]) if len(given) > 1 else pairs()[FIRST_PAIR]


def key_of(side: str) -> str:
    """The document of a side, as the URL has it or else the default."""
    return state.get(side) or default_keys()[SIDES.index(side)]


def options_of(side: str) -> Options:
    """How a side is to be opened, as the URL has it; raises MemplanError."""
    return parse_options({name: state.get(f"{side}_{name}") for name in state.OF_A_SIDE} | {"as_plan": ""})


def nothing_asked(side: str) -> dict[str, str]:
    """The choices of a side of which nothing is asked: its file as it is, planned as the other one."""
    return {f"{side}_{name}": "" for name in state.OF_A_SIDE}


def read_side(key: str, options: Options = AS_IT_IS) -> Document:
    """The document; a list of buffers with all its offsets is a finished plan. Raises MemplanError."""
    return state.load_either(key, options)[0]


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


# By identity: an entry holds its facts, so that their ids cannot become another's.
@st.cache_resource(max_entries=12, show_spinner="Comparing …", hash_funcs={Facts: id})
def compare(base: Facts, head: Facts) -> Comparison:
    """Both sides, compared."""
    return compare_facts(base, head)


@st.cache_resource(max_entries=12, show_spinner="Comparing …", hash_funcs={Comparison: id})
def _rows(found: Comparison, unchanged: bool) -> tuple[Comparison, tuple[DiffRow, ...]]:
    return found, diff_rows(found.diff, unchanged=unchanged)


@st.cache_resource(max_entries=12, show_spinner="Comparing …", hash_funcs={Comparison: id})
def _modules(found: Comparison) -> tuple[Comparison, tuple[ModuleRow, ...]]:
    return found, module_rows(found.diff, found.diff.moment)


@st.cache_resource(max_entries=12, show_spinner=False, hash_funcs={Comparison: id})
def _markdown(found: Comparison) -> tuple[Comparison, str]:
    return found, diff_markdown(found.diff)


def diff_rows_of(found: Comparison, unchanged: bool) -> tuple[DiffRow, ...]:
    """Every buffer that changed, with `unchanged` the others, too."""
    return _rows(found, unchanged)[1]


def module_rows_of(found: Comparison) -> tuple[ModuleRow, ...]:
    """The peak that explains Δdemand, by module."""
    return _modules(found)[1]


def markdown_of(found: Comparison) -> str:
    """The comment for a pull request."""
    return _markdown(found)[1]


def json_of(found: Comparison) -> str:
    """All of it for machines, as `memplan diff --format json` writes it."""
    return json.dumps(diff_summary(found.diff), indent=2, ensure_ascii=False) + "\n"


def _key(path: Path) -> str:
    return f"example:{path.stem}"
