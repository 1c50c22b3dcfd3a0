"""What a recording tells before anything else: the out-of-memory, who asked for what, what was there.

Its tab groups what is live then by the line that asked for it; the whole stacks of a line show on a click,
and all of them together as a flame view.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import streamlit as st
from memplan_dashboard.charts import call_flame
from memplan_dashboard.plan_view.component import Marks
from memplan_dashboard.session import documents, state
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.messages import errors_shown, plain
from memplan_dashboard.session.plan_facts import OF_DOCUMENT
from memplan_dashboard.views.inspect.memory_tabs import over_time_of, summary
from memplan_dashboard.widgets.controls import bound
from memplan_dashboard.widgets.tables import selectable, whole

from memplan_engine.callers import Frame
from memplan_engine.recordings.allocator_recording import partial_words
from memplan_engine.recordings.cost import Moment, OutOfMemory, OverTime, failures_of, moment_at
from memplan_engine.recordings.flame import Call, Stack, calls_at, stacks_at
from memplan_engine.reporters.diff_words import sentence_case
from memplan_engine.reporters.recording_tables import (
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


@dataclass(frozen=True, slots=True, eq=False)
class Story:
    """What is told of the recording in `document`: the moment called `key` of `steps`, which is `failure`
    where a request failed there. `marks` are the steps that the page is about."""

    document: Document
    over: OverTime
    steps: dict[str, int]
    key: str
    failure: OutOfMemory | None
    marks: Marks

    @property
    def moment(self) -> Moment:
        """What is live at the moment that is told."""
        if self.failure is not None:
            return self.failure.moment
        return _moment(self.document, self.over, self.steps[self.key])


def story_of(document: Document, marks: Marks) -> Story | None:
    """The story of a recording, of what the allocator did, whichever plan is shown; None for any other
    document. The moment is that of the step marked first, else the first failure, else the peak."""
    if not documents.is_recorded(document):
        return None
    with errors_shown():
        over = over_time_of(document)
        failures = _failures(document, over)
        steps = {key: each.moment.step for key, each in failures.items()}
        steps[PEAK] = int(over.live.argmax())
        if over.knows_reserved:
            steps[HEIGHT] = int(over.reserved.argmax())
        key = _told(steps, marks[0])
        if marks[0] is None and key != PEAK:
            marks = (steps[key], marks[1])
        return Story(document, over, steps, key, failures.get(key), marks)
    return None


def _told(steps: dict[str, int], marked: int | None) -> str:
    """Which moment is told; a step `marked` that is none of them becomes one."""
    asked = state.get("moment")
    if asked in steps and marked in (None, steps[asked]):
        return asked
    if marked is None:
        return next(iter(steps))
    steps.setdefault(MARKED, marked)
    return next(key for key, step in steps.items() if step == marked)


def show_story(story: Story) -> None:
    """The moments to choose from, the verdict on the one that is told, and what was there."""
    with st.container(key="moments", horizontal=True, vertical_alignment="center", gap="small"):
        _pick_moment(story)
        _show_failed_request(story)
    if story.marks[1] is None:
        _headline(story)


def _pick_moment(story: Story) -> None:
    kind = "most recorded" if story.over.partial else "peak"
    names = {PEAK: f"{kind} live", HEIGHT: f"{kind} reserved", MARKED: "marked"}
    default = next(iter(story.steps))

    def take(picked: str | None) -> None:
        if picked in (None, default):
            state.choose(moment="", at="", line="")
        else:
            state.choose(moment=str(picked), at=str(story.steps[str(picked)]), line="")

    st.segmented_control(
        "Moment",
        list(story.steps),
        format_func=lambda key: f"{names.get(key, 'out of memory')}, step {story.steps[key]:,}",
        label_visibility="collapsed",
        **bound("moment_widget", story.key, take),
    )


def _show_failed_request(story: Story) -> None:
    callers = story.document.problem.callers
    if story.failure is not None and callers is not None and story.failure.stack >= 0:
        with st.popover("Call stack of the request that failed", type="tertiary"):
            _stack_text(callers.stacks.frames_of(story.failure.stack))


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


def _headline(story: Story) -> None:
    """The verdict, and what was there."""
    callers, over, moment = story.document.problem.callers, story.over, story.moment
    if story.failure is not None and callers is not None:
        asked, held, verdict = failure_words(story.failure, callers.stacks)
        verdict = f"{asked}; {verdict}"
        more = len(over.failures) - MOST_FAILURES
        told = [held, most_words(moment), *([f"{more:,} more requests failed"] if more > 0 else [])]
    else:
        verdict = f"{format_bytes(moment.live)} live at step {moment.step:,}"
        if most := most_words(moment):
            verdict = f"{verdict}; {most}"
        told = [summary(over), held_words(moment)] if over.knows_reserved else []
    if over.partial and (story.failure is not None or not over.knows_reserved):
        told.append(f"a part of a run: {partial_words(over.partial)}")
    with st.container(key="headline"):
        st.subheader(plain(sentence_case(verdict)), anchor=False)
        if told:
            st.caption(" ".join(plain(sentence_case(each)) for each in told if each))


def show_call_stacks(story: Story) -> None:
    """By line on the left, by stack on the right; below them the stacks of the line that was clicked."""
    document, moment = story.document, story.moment
    if not moment.groups:
        st.caption("Nothing is live at this step.")
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
