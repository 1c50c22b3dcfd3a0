"""What the Replay page shows: which problem, strategy, mode and step, out of what the URL asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st
from memplan_dashboard.replay_view import Mode, exercise_values, make_message, trace_json
from memplan_dashboard.session import documents, plan_facts, searches, state
from memplan_dashboard.session.documents import Document
from memplan_dashboard.views.replay_keep import is_offered
from memplan_dashboard.widgets.controls import bound, chooses, current_colouring, not_listed, pick_key

from memplan_engine import Graph, Problem, finder, make_exercise, make_replay, replayable
from memplan_engine.plotting.colouring import CATEGORIES, Colouring
from memplan_engine.replay.finder import found_words
from memplan_engine.replay.recorded import MOST_BUFFERS as MOST_IN_A_TREE
from memplan_engine.replay.replay_values import Family
from memplan_engine.replay.steps import Replay
from memplan_engine.strategies import get_strategy, known_strategies
from memplan_engine.strategies.base import SolveLimits, Strategy, obstacle
from memplan_engine.units import format_bytes

TEACHING = "example:teaching_"
FIRST_PROBLEM = f"{TEACHING}best_fit"
FIRST_STRATEGY = "greedy_by_size"
AUTO = "auto"
"""The portfolio: what is replayed is what has found its plan."""
MOST_BY_HAND = 40
NOTE = "replay_note"


@dataclass(frozen=True, slots=True)
class Trace:
    """A replay as the browser gets it; `steps`: how many there are, `of`: a buffer's first, by its index,
    `question`: the first at which there is something to predict."""

    json: bytes
    family: Family
    steps: int
    of: Mapping[int, int]
    question: int


@dataclass(frozen=True, slots=True)
class Decider:
    """Whose decisions are shown; `told`: how it comes to be the one, where another was asked for."""

    strategy: Strategy
    told: str = ""

    @property
    def name(self) -> str:
        """The strategy's name."""
        return self.strategy.name


@dataclass(frozen=True, slots=True)
class Scene:
    """What goes to the browser, with its serial and how many steps it has; `note`: what of the URL was not
    followed."""

    message: bytes
    serial: int
    steps: int
    note: str


# What the page shows first.


def choose_first_problem() -> None:
    """A teaching graph for those who have opened nothing yet and named no file."""
    if not (st.session_state.choices["doc"] or documents.given_files() or state.has_opened()):
        state.choose(doc=FIRST_PROBLEM)


def pick_problem() -> None:
    """The document, teaching graphs first."""
    known = sorted(documents.catalogue().items(), key=lambda item: not item[0].startswith(TEACHING))
    pick_key("Graph", dict(known), state.get("doc"), "replay_doc", _take_problem)


def strategy_names(problem: Problem) -> list[str]:
    """What can be replayed on `problem`."""
    return [AUTO, *(name for name in replayable() if not _hindrance(problem, name))]


def pick_strategy(problem: Problem) -> str:
    """The strategy, to be chosen where it decides something; one that cannot be replayed here is said to be
    none, and another shown."""
    names, asked = strategy_names(problem), state.get("strategy")
    first = FIRST_STRATEGY if state.get("doc").startswith(TEACHING) else AUTO
    current = asked if asked in names else FIRST_STRATEGY if asked else first
    if asked and asked != current:
        st.session_state[NOTE] = f"{_why_not(problem, asked)} This is {current}."
    # By hand there is nothing that a strategy decides, nor in the order of ops.
    mode = state.get("mode")
    idle = mode == Mode.EXERCISE and len(problem) <= MOST_BY_HAND
    idle = idle or (mode.startswith((Mode.ORDER, Mode.KEEP)) and problem.origin is not None)
    if not idle:
        st.selectbox("Strategy", names, **chooses("strategy", current, "replay_strategy", step=""))
    return current


def decider_of(document: Document, name: str) -> Decider:
    """Who takes the decisions that are shown for the strategy `name`: of `auto` what has found its plan.
    Raises MemplanError."""
    if name != AUTO:
        return Decider(get_strategy(name))
    problem, plan = document.problem, searches.known_facts(document, AUTO).plan
    (began, since), strategy = found_words(plan), finder(plan)
    told = f"auto's plan, {format_bytes(plan.arena_bytes)},"
    if strategy is None or obstacle(strategy, problem) or _too_large(problem, strategy.name):
        source = began or "no strategy"
        return Decider(
            get_strategy(FIRST_STRATEGY),
            f"{told} comes from {source}, which cannot be replayed here: this is {FIRST_STRATEGY}.",
        )
    if since:
        return Decider(strategy, f"{told} began as {began} and was then {since}: this is the beginning.")
    return Decider(strategy, f"{told} was found by {began}: these are its decisions.")


def pick_mode(document: Document, decider: str, labels: Mapping[Mode, str]) -> Mode:
    """The mode; only those that make sense for the problem and who decides are offered."""
    problem = document.problem
    offered = [Mode.REPLAY]
    if decider not in ("exact", "naive"):
        offered.append(Mode.PREDICT)
    if len(problem) <= MOST_BY_HAND:
        offered.append(Mode.EXERCISE)
    if isinstance(document.loaded, Graph):
        offered.append(Mode.ORDER)
    if is_offered(document):
        offered.append(Mode.KEEP)
    asked = state.get("mode")
    current = next((mode for mode in offered if mode == asked), Mode.REPLAY)
    if asked.startswith(Mode.ORDER) and Mode.ORDER in offered:
        # Who orders is in the address, too.
        current = Mode.ORDER
    elif asked and asked != current:
        what = f"mode: found {asked[:40]!r}, expected {', '.join(offered)}"
        st.session_state[NOTE] = f"{st.session_state.get(NOTE, '')} {what} here.".strip()

    def take(mode: Mode) -> None:
        # Whoever has seen a replay to its end predicts from its beginning.
        anew = {"step": "", "buffer": ""} if mode in (Mode.PREDICT, Mode.ORDER, Mode.KEEP) else {}
        state.choose(mode="" if mode == Mode.REPLAY else mode, **anew)

    st.segmented_control(
        "Mode",
        offered,
        format_func=labels.__getitem__,
        required=True,
        **bound("replay_mode", current, take),
    )
    return current


def make_scene(document: Document, decider: Decider, mode: Mode) -> Scene:
    """Replay what `decider` does on `document`; raises MemplanError."""
    state.wait_for_kernels()
    strategy = get_strategy(FIRST_STRATEGY) if mode == Mode.EXERCISE else decider.strategy
    trace = _traced(document, strategy.name, strategy)
    step, wrong = _place(document, trace, mode)
    note = " ".join(filter(None, (st.session_state.pop(NOTE, ""), wrong)))
    exercise = _exercise(document) if mode == Mode.EXERCISE else None
    begun = _begin((document.key, document.options, strategy.name, mode), step)
    colouring = colours_of(document)
    message = make_message(
        trace.json,
        mode=mode,
        step=begun.step,
        serial=begun.serial,
        color=colouring.index,
        palette=colouring.palette,
        exercise=exercise,
    )
    return Scene(message, begun.serial, trace.steps, note)


def keep_step(step: int) -> None:
    """The reader stands at `step` (0 …): into the URL, without a new beginning in the browser."""
    begun: _Begun | None = st.session_state.get("replay_begun")
    if begun is not None:
        begun.reported = step
    state.choose(step=str(step + 1), buffer="")


def _place(document: Document, trace: Trace, mode: Mode) -> tuple[int, str]:
    """The step (0 …) that the URL asks for, by its number or a buffer's name, and what is wrong with that."""
    name = state.get("buffer")
    if not name:
        if mode == Mode.PREDICT and not state.get("step"):
            return trace.question, ""
        return parse_step(state.get("step"), trace.steps)
    index = document.index_of.get(name)
    if index is None or index not in trace.of:
        return 0, f"buffer: found {name[:80]!r}, expected the name of a buffer of {document.label}."
    return trace.of[index], ""


def parse_step(text: str, steps: int) -> tuple[int, str]:
    """The step (0 …) that a URL asks for with 1 …, and what is wrong with it, if anything."""
    if not text:
        return 0, ""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if 1 <= number <= steps:
        return number - 1, ""
    return 0, f"step: found {text[:40]!r}, expected 1 to {steps:,}."


def colours_of(document: Document) -> Colouring:
    """Those of Inspect where there are many buffers of known kinds, else one colour after the other."""
    count = len(document.problem)
    if document.knows_kinds and count > 2 * len(CATEGORIES):
        return plan_facts.colouring_of(document, current_colouring(document))
    index = (np.arange(count) % len(CATEGORIES)).astype(np.uint8)
    return Colouring(index, CATEGORIES, ())


@dataclass(slots=True)
class _Begun:
    """Where the browser was told to begin, and what it has reported since (0 …)."""

    identity: object
    step: int
    serial: int
    reported: int


def _begin(identity: object, step: int) -> _Begun:
    """The same beginning as long as the page shows the same and the URL says nothing new."""
    begun: _Begun | None = st.session_state.get("replay_begun")
    if begun is None or begun.identity != identity or begun.reported != step:
        begun = _Begun(identity, step, begun.serial + 1 if begun else 1, step)
        st.session_state.replay_begun = begun
    return begun


@st.cache_resource(max_entries=8, show_spinner="Replaying …", hash_funcs=plan_facts.OF_DOCUMENT)
def _traced(document: Document, name: str, _strategy: Strategy) -> Trace:
    replay: Replay = make_replay(document.problem, _strategy, limits=SolveLimits(plan_facts.MOST_SECONDS))
    buffers, steps = np.unique(replay.buffer, return_index=True)
    first = dict(zip(buffers.tolist(), steps.tolist(), strict=True))
    # As the browser asks: not for what has no bytes, or a fixed offset.
    free = (document.problem.size > 0) & (document.problem.fixed < 0)
    question = min((step for buffer, step in first.items() if buffer >= 0 and free[buffer]), default=0)
    return Trace(trace_json(replay), replay.family, len(replay), first, question)


@st.cache_resource(
    max_entries=24, show_spinner="Searching for the optimum …", hash_funcs=plan_facts.OF_DOCUMENT
)
def _exercise(document: Document) -> dict[str, Any]:
    return exercise_values(make_exercise(document.problem), document.problem.fingerprint)


def _hindrance(problem: Problem, name: str) -> str:
    """Why `name` cannot be replayed on `problem`; "" if it can."""
    return _too_large(problem, name) or obstacle(get_strategy(name), problem) or ""


def _too_large(problem: Problem, name: str) -> str:
    if name == "exact" and len(problem) > MOST_IN_A_TREE:
        return f"{len(problem):,} buffers, and a search tree is shown for at most {MOST_IN_A_TREE}"
    return ""


def _why_not(problem: Problem, name: str) -> str:
    if name == "imported":
        return "A finished plan from a file does not record how it was made."
    if name not in known_strategies():
        return not_listed("strategy", name)
    if name not in replayable():
        return f"{name} makes no final decision before the last one and cannot be replayed."
    return f"{name} cannot be replayed here: {_hindrance(problem, name)}."


def _take_problem(key: str) -> None:
    state.choose_document(key, lesson="")
