"""Everything about one buffer of a plan."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st
from memplan_dashboard.session.plan_facts import PlanFacts
from streamlit.delta_generator import DeltaGenerator

from memplan_engine import Problem, find_provenance
from memplan_engine.analysis.provenance import OP_PROPERTIES, ops_at
from memplan_engine.plotting.neighbours import find_neighbours
from memplan_engine.units import format_bytes

MOST_NAMES = 6


def show_buffer(facts: PlanFacts, selected: int, columns: Sequence[DeltaGenerator]) -> None:
    """Size, place, lifetime, who makes and reads it and what lies above and below, in `columns`; below them
    the line of code."""
    lines = [line for line in _lines(facts, selected) if line[1]]
    height = -(-len(lines) // len(columns))
    for place, (label, value) in enumerate(lines):
        left, right = columns[place // height].columns([1, 3.5], vertical_alignment="top")
        left.caption(label)
        right.text(value)
    source = find_provenance(facts.plan.problem)[selected].source
    if source and source.code:
        st.code(source.code, language="python")


def _lines(facts: PlanFacts, selected: int) -> list[tuple[str, str]]:
    plan, problem = facts.plan, facts.plan.problem
    buffer, origin = problem[selected], find_provenance(problem)[selected]
    offset = int(plan.offsets[selected])
    near = find_neighbours(plan, selected)
    names = problem.names
    return [
        ("size", f"{format_bytes(buffer.size)} ({buffer.size:,} B)"),
        ("offset", f"{offset:,} to {offset + buffer.size:,} B ({format_bytes(offset)})"),
        ("lifetime", _lifetime(problem, buffer.start, buffer.end)),
        ("gaps", _names(tuple(f"steps {gap.start:,} to {gap.end - 1:,}" for gap in buffer.gaps))),
        ("alignment", f"{buffer.alignment} B" + ("" if buffer.fixed is None else ", offset fixed")),
        ("tensor", f"{origin.dtype} {list(origin.shape)}" if origin.dtype else ""),
        ("shared by", _names(origin.tensors[1:])),
        ("producer", " · ".join(filter(None, (origin.producer, origin.kind if origin.producer else "")))),
        ("readers", _names(origin.readers)),
        *((each.label, each.words(each.of(origin.maker))) for each in OP_PROPERTIES),
        ("source", str(origin.source) if origin.source else ""),
        ("above", _near(near.above, near.room_above, names, "the arena's end")),
        ("below", _near(near.below, near.room_below, names, "the arena's start")),
    ]


def _lifetime(problem: Problem, start: int, end: int) -> str:
    span = f"steps {start:,} to {end - 1:,}, {end - start:,} in all" if end - start > 1 else f"step {start:,}"
    first, last = ops_at(problem, start), ops_at(problem, end - 1)
    if not (first and last):
        return span
    return f"{span} ({first[0].name}{f' … {last[0].name}' if end - start > 1 else ''})"


def _names(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def _near(neighbours: tuple[int, ...], room: int, names: tuple[str, ...], end: str) -> str:
    who = _names(tuple(names[buffer] for buffer in neighbours)) or end
    return who + (f", {format_bytes(room)} between" if room else ", adjacent")
