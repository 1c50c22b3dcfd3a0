"""Everything about the selected buffer."""

from __future__ import annotations

import streamlit as st
from memplan_dashboard.session.plan_facts import Facts

from memplan_engine import Problem, find_provenance
from memplan_engine.analysis.provenance import ops_at
from memplan_engine.plotting.neighbours import find_neighbours
from memplan_engine.units import format_bytes

MOST_NAMES = 6


def show_details(facts: Facts, selected: int) -> None:
    """Size, place, lifetime, who makes and reads it, where in the code, and what lies above and below."""
    problem = facts.plan.problem
    known = find_provenance(problem)[selected]
    filled = [fact for fact in _facts_of(facts, selected) if fact[1]]
    half = (len(filled) + 1) // 2
    with st.container(border=True, key="details"):
        st.markdown("**Selected buffer**")
        st.text(problem.names[selected])
        with st.container(key="facts"):
            for column, part in zip(st.columns(2), (filled[:half], filled[half:]), strict=True):
                for label, value in part:
                    left, right = column.columns([1, 3.5], vertical_alignment="top")
                    left.caption(label)
                    right.text(value)
        if known.source and known.source.code:
            st.code(known.source.code, language="python")


def _facts_of(facts: Facts, selected: int) -> list[tuple[str, str]]:
    plan, problem = facts.plan, facts.plan.problem
    buffer, known = problem[selected], find_provenance(problem)[selected]
    offset = int(plan.offsets[selected])
    near = find_neighbours(plan, selected)
    names = problem.names
    return [
        ("size", f"{format_bytes(buffer.size)} ({buffer.size:,} B)"),
        ("offset", f"{offset:,} to {offset + buffer.size:,} B ({format_bytes(offset)})"),
        ("lifetime", _lifetime(problem, buffer.start, buffer.end)),
        ("gaps", _names(tuple(f"steps {gap.start} to {gap.end - 1}" for gap in buffer.gaps))),
        ("alignment", f"{buffer.alignment} B" + ("" if buffer.fixed is None else ", offset fixed")),
        ("tensor", f"{known.dtype} {list(known.shape)}" if known.dtype else ""),
        ("shared by", _names(known.tensors[1:])),
        ("producer", " · ".join(filter(None, (known.producer, known.kind if known.producer else "")))),
        ("readers", _names(known.readers)),
        ("module", known.module),
        ("source", str(known.source) if known.source else ""),
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


def _near(found: tuple[int, ...], room: int, names: tuple[str, ...], end: str) -> str:
    who = _names(tuple(names[buffer] for buffer in found)) or end
    return who + (f", {format_bytes(room)} between" if room else ", touching")
