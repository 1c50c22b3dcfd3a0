"""Diff: two files side by side, what became of the arena, and which buffers it comes from."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st
from memplan_dashboard.plan_view import plan_view
from memplan_dashboard.session import searches as solving
from memplan_dashboard.session import state
from memplan_dashboard.session.markdown_text import NOTHING_TO_PLACE, plain
from memplan_dashboard.session.plan_facts import Facts
from memplan_dashboard.session.searches import Search
from memplan_dashboard.views.diff import diff_choices
from memplan_dashboard.views.diff.diff_columns import Comparison, kinds_text, parse_kinds
from memplan_dashboard.views.diff.diff_details import show_pair
from memplan_dashboard.views.diff.diff_headline import show_headline
from memplan_dashboard.views.diff.diff_panels import (
    PALETTE,
    PATTERN,
    diff_panels,
    difference_strip,
    filters,
    toggled,
)
from memplan_dashboard.views.diff.diff_sources import pick_sides
from memplan_dashboard.views.diff.diff_tables_view import show_changes, show_peak
from memplan_dashboard.widgets.search_panel import settle, show_search

from memplan_engine import MemplanError
from memplan_engine.diffing.regression import Change


def _compared() -> tuple[Comparison | None, dict[str, Search]]:
    """Both files planned and compared, and the searches that go on for better plans, by side; an error where
    a plan cannot be made."""
    sides = pick_sides()
    several: list[Facts] = []
    searches: dict[str, Search] = {}
    for side, (document, strategy) in zip(diff_choices.SIDES, sides, strict=True):
        try:
            search = solving.begin(document, strategy, sides)
            if search is not None:
                settle(search)
                searches[side] = search
            several.append(solving.known_facts(document, strategy))
        except MemplanError as error:
            st.error(plain(f"{side}: {error}"), icon=":material/error:")
    return (diff_choices.compare(*several) if len(several) == 2 else None), searches


def _chart(found: Comparison, kinds: tuple[Change, ...]) -> int | None:
    """Both plans on one scale; gives the number of the selected buffer."""

    def switch(label: str) -> None:
        state.choose(kinds=kinds_text(toggled(kinds, label)))

    event = plan_view(
        diff_panels(found, kinds),
        palette=PALETTE,
        patterns=PATTERN,
        legend=(),
        selected=found.parse(state.get("changed")),
        key="diff_view",
        height=480,
        on_select=_chooser(found),
        filters=filters(found, kinds),
        on_filter=switch,
        difference=difference_strip(found),
    )
    return event.selected


def _chooser(found: Comparison) -> Callable[[int | None], None]:
    return lambda number: state.choose(changed="" if number is None else found.text_of(number))


def _tables(found: Comparison, kinds: tuple[Change, ...], selected: int | None) -> None:
    parts: dict[str, Callable[[], None]] = {
        "The peak, by module": lambda: show_peak(found, selected, _chooser(found)),
        "Changed buffers": lambda: show_changes(found, kinds, selected, _chooser(found)),
        "Comment and JSON": lambda: _exports(found),
    }
    names = list(parts)
    chosen = state.get("tab")
    st.session_state.diff_tables = chosen if chosen in parts else names[0]

    def opened() -> None:
        name = st.session_state.diff_tables
        state.choose(tab="" if name == names[0] else name)

    tabs = st.tabs(names, key="diff_tables", on_change=opened)
    for tab, show in zip(tabs, parts.values(), strict=True):
        if tab.open:
            with tab:
                show()


def _exports(found: Comparison) -> None:
    """The comment for a pull request, to be copied or downloaded, and all of it as JSON."""
    comment = diff_choices.markdown_of(found)
    name = f"{found.problems[0].name or 'base'}_{found.problems[1].name or 'head'}"[:80]
    with st.container(horizontal=True, gap="small"):
        st.download_button(
            "Markdown", comment, f"{name}.md", "text/markdown", icon=":material/download:", key="as_markdown"
        )
        st.download_button(
            "JSON",
            lambda: diff_choices.json_of(found),
            f"{name}.json",
            "application/json",
            icon=":material/download:",
            key="as_json",
        )
    st.caption("What `memplan diff --format markdown` writes; the button at its top right copies it.")
    st.code(comment, language="markdown", wrap_lines=True, height=420)


def _show_searches(searches: dict[str, Search]) -> None:
    """The panels, side by side; one where both sides are the same."""
    by_search = {id(search): (side, search) for side, search in reversed(searches.items())}
    shown = list(reversed(by_search.values()))
    if not shown:
        return
    with st.container(key="halves_diff_searches"):
        columns = st.columns(len(shown), gap="medium")
    for column, (side, search) in zip(columns, shown, strict=True):
        with column:
            show_search(search, side, [other for _, other in shown if other is not search])


def _page() -> None:
    found, searches = _compared()
    if found is None:
        return
    show_headline(found)
    _show_searches(searches)
    if not found.buffers:
        st.info(NOTHING_TO_PLACE)
        return
    kinds = parse_kinds(state.get("kinds"))
    selected = _chart(found, kinds)
    if selected is not None:
        show_pair(found, selected)
    _tables(found, kinds, selected)


_page()
