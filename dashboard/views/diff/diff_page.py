"""Diff: two files side by side, what became of the arena, and which buffers it comes from."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st
from memplan_dashboard.plan_view import plan_view
from memplan_dashboard.session import searches, state
from memplan_dashboard.session.messages import NOTHING_TO_PLACE, errors_shown, plain
from memplan_dashboard.session.plan_facts import PlanFacts
from memplan_dashboard.session.searches import Search
from memplan_dashboard.views.diff import diff_sources
from memplan_dashboard.views.diff.diff_columns import (
    PALETTE,
    PATTERN,
    Comparison,
    compare_facts,
    diff_panels,
    difference_strip,
    filters,
    kinds_text,
    parse_kinds,
    toggled,
)
from memplan_dashboard.views.diff.diff_results import (
    show_changes,
    show_headline,
    show_peak,
    show_rewritten,
)
from memplan_dashboard.widgets import controls
from memplan_dashboard.widgets.buffer_details import show_buffer
from memplan_dashboard.widgets.calibration_note import show_calibration
from memplan_dashboard.widgets.search_panel import settle, show_search

from memplan_engine.analysis.buffer_names import buffer_names
from memplan_engine.diffing.regression import Change
from memplan_engine.reporters.diff_words import change


def _compared() -> tuple[Comparison | None, dict[str, Search]]:
    """Both files planned and compared, and the searches that go on for better plans, by side; an error where
    a plan cannot be made."""
    sides = diff_sources.pick_sides()
    several: list[PlanFacts] = []
    under_way: dict[str, Search] = {}
    for side, (document, strategy) in zip(state.SIDES, sides, strict=True):
        with errors_shown(side):
            search = searches.begin(document, strategy, sides)
            if search is not None:
                settle(search)
                under_way[side] = search
            several.append(searches.known_facts(document, strategy))
    return (compare_facts(*several) if len(several) == 2 else None), under_way


def _chart(comparison: Comparison, kinds: tuple[Change, ...]) -> int | None:
    """Both plans on one scale; gives the number of the selected buffer."""
    event = plan_view(
        diff_panels(comparison, kinds),
        palette=PALETTE,
        patterns=PATTERN,
        legend=(),
        selected=comparison.parse(state.get("changed")),
        key="diff_view",
        height=480,
        on_select=_chooser(comparison),
        filters=filters(comparison, kinds),
        on_filter=lambda label: state.choose(kinds=kinds_text(toggled(kinds, label))),
        difference=difference_strip(comparison),
    )
    return event.selected


def _details(comparison: Comparison, number: int) -> None:
    """The selected buffer on both sides."""
    rows = comparison.rows_of(number)
    with st.container(border=True, key="details"):
        st.markdown("**Selected buffer**")
        sizes = [
            int(problem.size[row])
            for problem, row in zip(comparison.problems, rows, strict=True)
            if row is not None
        ]
        if len(set(sizes)) == 2:
            st.caption(plain(f"{change(sizes[0], sizes[1])} in size"))
        for column, facts, side, row in zip(
            st.columns(2), (comparison.base, comparison.head), state.SIDES, rows, strict=True
        ):
            with column:
                st.text(f"{side}: {'not there' if row is None else buffer_names(facts.plan.problem)[row]}")
                if row is not None:
                    show_buffer(facts, row, [st.container()])


def _chooser(comparison: Comparison) -> Callable[[int | None], None]:
    return lambda number: state.choose(changed="" if number is None else comparison.text_of(number))


def _tables(comparison: Comparison, kinds: tuple[Change, ...], selected: int | None) -> None:
    parts: dict[str, Callable[[], None]] = {
        "The peak, by module": lambda: show_peak(comparison, selected, _chooser(comparison)),
        "Changed buffers": lambda: show_changes(comparison, kinds, selected, _chooser(comparison)),
        **({"Rewritten ops": lambda: show_rewritten(comparison)} if comparison.rewritten else {}),
        "Comment and JSON": lambda: _exports(comparison),
    }
    controls.show_tabs("diff_tables", parts)


def _exports(comparison: Comparison) -> None:
    """The comment for a pull request, to be copied or downloaded, and all of it as JSON."""
    comment = comparison.markdown
    name = f"{comparison.problems[0].name or 'base'}_{comparison.problems[1].name or 'head'}"[:80]
    with st.container(horizontal=True, gap="small"):
        st.download_button(
            "Markdown", comment, f"{name}.md", "text/markdown", icon=":material/download:", key="as_markdown"
        )
        st.download_button(
            "JSON",
            lambda: diff_sources.json_of(comparison),
            f"{name}.json",
            "application/json",
            icon=":material/download:",
            key="as_json",
        )
    st.caption("What `memplan diff --format markdown` writes; the button at its top right copies it.")
    st.code(comment, language="markdown", wrap_lines=True, height=420)


def _show_searches(under_way: dict[str, Search]) -> None:
    """The panels, side by side; one where both sides are the same."""
    by_search = {id(search): (side, search) for side, search in reversed(under_way.items())}
    shown = list(reversed(by_search.values()))
    if not shown:
        return
    with st.container(key="halves_diff_searches"):
        columns = st.columns(len(shown), gap="medium")
    for column, (side, search) in zip(columns, shown, strict=True):
        with column:
            show_search(search, side, [other for _, other in shown if other is not search])


def _page() -> None:
    comparison, under_way = _compared()
    if comparison is None:
        return
    show_headline(comparison)
    for side, facts in zip(state.SIDES, (comparison.base, comparison.head), strict=True):
        show_calibration(facts.document, side)
    _show_searches(under_way)
    if not comparison.buffers:
        st.info(NOTHING_TO_PLACE)
        return
    kinds = parse_kinds(state.get("kinds"))
    selected = _chart(comparison, kinds)
    if selected is not None:
        _details(comparison, selected)
    _tables(comparison, kinds, selected)


_page()
