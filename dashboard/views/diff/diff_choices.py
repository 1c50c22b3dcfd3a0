"""Which two files the Diff page compares, and what is known of the comparison, worked out once."""

from __future__ import annotations

import json

import memplan_examples
import streamlit as st
from memplan_dashboard.session import documents, state
from memplan_dashboard.session.documents import Document, Options
from memplan_dashboard.session.plan_facts import PlanFacts
from memplan_dashboard.session.url import parse_options
from memplan_dashboard.views.diff.diff_columns import Comparison, compare_facts
from memplan_dashboard.widgets import controls

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
    return state.get(side) or default_keys()[SIDES.index(side)]


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


# By identity: an entry holds its facts, so that their ids cannot become another's.
@st.cache_resource(max_entries=12, show_spinner="Comparing …", hash_funcs={PlanFacts: id})
def compare(base: PlanFacts, head: PlanFacts) -> Comparison:
    """Both sides, compared."""
    return compare_facts(base, head)


def json_of(comparison: Comparison) -> str:
    """All of it for machines, as `memplan diff --format json` writes it."""
    return json.dumps(diff_summary(comparison.diff), indent=2, ensure_ascii=False) + "\n"
