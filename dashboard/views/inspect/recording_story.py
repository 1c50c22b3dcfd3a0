"""What a recording tells before anything else: the out-of-memory, who asked for what, what was there.

What is live is grouped by the line that asked for it; the whole stacks of a line show on a click, and all of
them together as a flame view.
"""

from __future__ import annotations

import pandas as pd
import streamlit as st
from memplan_dashboard.charts import call_flame
from memplan_dashboard.session import documents, state
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.messages import errors_shown, plain
from memplan_dashboard.session.plan_facts import OF_DOCUMENT, PlanFacts
from memplan_dashboard.views.inspect.memory_tabs import is_recorded, over_time_of, summary
from memplan_dashboard.widgets.controls import bound, marked_steps
from memplan_dashboard.widgets.tables import selectable, whole

from memplan_engine.callers import Frame
from memplan_engine.recordings.cost import Moment, OutOfMemory, OverTime, failures_of, moment_at
from memplan_engine.recordings.flame import Call, Stack, calls_at, stacks_at
from memplan_engine.reporters.diff_words import sentence_case
from memplan_engine.reporters.recording_words import (
    failure_words,
    held_words,
    kinds_text,
    most_words,
    share_text,
)
from memplan_engine.units import format_bytes

MOST_FAILURES = 5
MOST_STACKS = 5
LEAST_SHARE = 0.001
"""Of what is live: smaller calls have no box."""
PEAK, HEIGHT, MARKED = "peak", "reserved", "marked"


def show_story(document: Document, facts: PlanFacts) -> None:
    """The story of a recording above its chart; nothing for any other document. `facts` is the plan that is
    shown: the story is of what the allocator did, whichever that is."""
    if not is_recorded(document):
        return
    with errors_shown():
        over = over_time_of(document)
        failures = _failures(document, over)
        marked = marked_steps(document.problem)[0]
        key = _pick_moment(over, failures, marked)
        failure = failures.get(key)
        moment = failure.moment if failure else _moment(document, over, _step(key, over, marked))
        _headline(document, over, failure, moment)
        _what_is_live(document, moment)


def _pick_moment(over: OverTime, failures: dict[str, OutOfMemory], marked: int | None) -> str:
    """Which moment is told: a failure, the peak, the step with the most reserved, or the one that is `marked`
    in the chart; the first failure unless the address says otherwise."""
    moments = {key: f"out of memory, step {each.moment.step:,}" for key, each in failures.items()}
    moments[PEAK] = f"peak live, step {_step(PEAK, over):,}"
    if over.knows_reserved:
        moments[HEIGHT] = f"peak reserved, step {_step(HEIGHT, over):,}"
    if marked is not None and marked < len(over.live):
        moments[MARKED] = f"marked, step {marked:,}"
    default = next(iter(moments))
    asked = state.get("moment")
    current = asked if asked in moments else default

    def take(picked: str | None) -> None:
        state.choose(moment="" if picked in (None, default) else str(picked), line="")

    st.segmented_control(
        "Moment",
        list(moments),
        format_func=moments.__getitem__,
        label_visibility="collapsed",
        **bound("moment_widget", current, take),
    )
    return current


def _step(key: str, over: OverTime, marked: int | None = None) -> int:
    if key == MARKED and marked is not None:
        return marked
    return int((over.reserved if key == HEIGHT else over.live).argmax())


@st.cache_resource(max_entries=8, show_spinner=False, hash_funcs={**OF_DOCUMENT, OverTime: id})
def _failures(document: Document, over: OverTime) -> dict[str, OutOfMemory]:
    if not over.failures:
        return {}
    recording = documents.read_recording(
        documents.path_of(document.key), documents.version_of(document.key), document.options.part
    )
    found = failures_of(recording, document.problem, over, MOST_FAILURES)
    return {str(each.moment.step): each for each in found}


@st.cache_resource(max_entries=16, show_spinner=False, hash_funcs={**OF_DOCUMENT, OverTime: id})
def _moment(document: Document, over: OverTime, step: int) -> Moment:
    return moment_at(document.problem, over, step)


@st.cache_resource(max_entries=16, show_spinner=False, hash_funcs=OF_DOCUMENT)
def _calls(document: Document, step: int) -> tuple[Call, ...]:
    return calls_at(document.problem, step, LEAST_SHARE)


def _headline(document: Document, over: OverTime, failure: OutOfMemory | None, moment: Moment) -> None:
    """The verdict, and what was there."""
    callers = document.problem.callers
    if failure is not None and callers is not None:
        asked, held, verdict = failure_words(failure, callers.stacks)
        verdict = f"{asked}; {verdict}"
        more = len(over.failures) - MOST_FAILURES
        told = [held, most_words(moment), *([f"{more:,} more requests failed"] if more > 0 else [])]
    else:
        verdict = f"{format_bytes(moment.live)} live at step {moment.step:,}"
        if most := most_words(moment):
            verdict = f"{verdict}; {most}"
        told = [summary(over), held_words(moment)] if over.knows_reserved else []
    st.markdown(f"#### {plain(sentence_case(verdict))}")
    if told:
        st.caption(" ".join(plain(sentence_case(each)) for each in told if each))
    if failure is not None and callers is not None and failure.stack >= 0:
        with st.expander("Call stack of the request that failed"):
            _stack_text(callers.stacks.frames_of(failure.stack))


def _what_is_live(document: Document, moment: Moment) -> None:
    """By line on the left, by stack on the right; below them the stacks of the line that was clicked."""
    if not moment.groups:
        return
    calls = _calls(document, moment.step)
    with st.container(key="halves_story"):
        left, right = st.columns([1, 1.2], gap="medium") if calls else (st.container(), None)
    with left:
        chosen = _lines(document, moment)
    if right is not None:
        boxes = call_flame.data(calls, moment.live)
        right.plotly_chart(call_flame.figure(boxes), key="call_flame", config={"displayModeBar": False})
        right.caption("Call stacks × live bytes, the outermost call on top; click a call to zoom in.")
    if chosen is not None:
        label = moment.groups[chosen].caller.label
        _stacks(label, stacks_at(document.problem, moment.step, label))


def _lines(document: Document, moment: Moment) -> int | None:
    """The table of lines; gives the place of the one that is chosen."""
    groups = moment.groups
    table = pd.DataFrame(
        {
            "allocated by": [group.caller.label for group in groups],
            "size": [format_bytes(group.nbytes) for group in groups],
            "share": [share_text(group.nbytes, moment) for group in groups],
            "buffers": [group.count for group in groups],
            "kind": [kinds_text(group) for group in groups],
            "bytes": [group.nbytes for group in groups],
        }
    )
    places = {group.caller.label: place for place, group in enumerate(groups)}
    chosen = places.get(state.get("line"))

    def choose(place: int | None) -> None:
        state.choose(line="" if place is None else groups[place].caller.label)

    scope = f"{document.key}_{document.options.part}_{moment.step}"
    selectable(table, list(range(len(groups))), chosen, "story", scope, choose, whole("buffers", "bytes"))
    return chosen


def _stacks(label: str, stacks: tuple[Stack, ...]) -> None:
    """The whole stacks behind one line, the innermost call first."""
    with st.container(border=True, key="story_stacks"):
        count = len(stacks)
        st.markdown(f"**{plain(label)}**: {count:,} call stack{'s' * (count != 1)}")
        for stack in stacks[:MOST_STACKS]:
            buffers = f"{stack.count:,} buffer{'s' * (stack.count != 1)}"
            st.caption(plain(f"{format_bytes(stack.nbytes)} in {buffers}, innermost call first"))
            _stack_text(stack.frames)
        if count > MOST_STACKS:
            st.caption(f"and {count - MOST_STACKS:,} more")


def _stack_text(frames: tuple[Frame, ...]) -> None:
    st.code("\n".join(map(str, frames)) or "no stack was recorded", language=None)
