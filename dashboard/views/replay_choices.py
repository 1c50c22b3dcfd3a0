"""What the Replay page shows: which problem, strategy, mode and step, out of what the URL asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st
from memplan_dashboard.replay_view import Mode, exercise_values, make_message, trace_json
from memplan_dashboard.session import documents, plan_facts, state
from memplan_dashboard.session.documents import Document
from memplan_dashboard.widgets.controls import chooses, not_listed, pick_key

from memplan_engine import Problem, make_exercise, make_replay, replayable
from memplan_engine.plotting.colouring import CATEGORIES, Colouring, by_kind
from memplan_engine.replay.recorded import MOST_BUFFERS as MOST_IN_A_TREE
from memplan_engine.replay.replay_values import Family
from memplan_engine.replay.steps import Replay
from memplan_engine.strategies import get_strategy, known_strategies
from memplan_engine.strategies.base import SolveLimits, obstacle

FIRST_PROBLEM = "example:teaching_best_fit"
FIRST_STRATEGY = "greedy_by_size"
MOST_BY_HAND = 40
NOTE = "replay_note"


@dataclass(frozen=True, slots=True)
class Trace:
    """A replay as the browser gets it; `steps`: how many there are."""

    json: bytes
    family: Family
    steps: int


@dataclass(frozen=True, slots=True)
class Scene:
    """What goes to the browser, with its serial; `note`: what of the URL was not followed."""

    message: bytes
    serial: int
    note: str


# What the page shows first.


def choose_first_problem() -> None:
    """A teaching graph for those who have chosen nothing and named no file."""
    if not st.session_state.choices["doc"] and not documents.given_files():
        state.choose(doc=FIRST_PROBLEM)


def pick_problem() -> None:
    """The document, teaching graphs first."""
    known = sorted(documents.catalogue().items(), key=lambda item: not item[0].startswith("example:teaching"))
    pick_key("Problem", dict(known), state.get("doc"), "replay_doc", _take_problem)


def strategy_names(problem: Problem) -> list[str]:
    """What can be replayed on `problem`."""
    return [name for name in replayable() if not _hindrance(problem, name)]


def pick_strategy(problem: Problem) -> str:
    """The strategy; one that cannot be replayed here is said to be none, and another shown."""
    names, asked = strategy_names(problem), state.get("strategy")
    current = asked if asked in names else FIRST_STRATEGY
    if asked and asked != current:
        st.session_state[NOTE] = f"{_why_not(problem, asked)} This is {current}."
    # By hand there is nothing that a strategy decides.
    idle = state.get("mode") == Mode.EXERCISE and len(problem) <= MOST_BY_HAND
    st.selectbox("Strategy", names, disabled=idle, **chooses("strategy", current, "replay_strategy", step=""))
    return current


def pick_mode(problem: Problem, strategy: str, labels: Mapping[Mode, str]) -> Mode:
    """The mode; only those that make sense for the problem and the strategy are offered."""
    offered = [Mode.REPLAY]
    if strategy not in ("exact", "naive"):
        offered.append(Mode.PREDICT)
    if len(problem) <= MOST_BY_HAND:
        offered.append(Mode.EXERCISE)
    asked = state.get("mode")
    current = next((mode for mode in offered if mode == asked), Mode.REPLAY)
    if asked and asked != current:
        what = f"mode: found {asked[:40]!r}, expected {', '.join(offered)}"
        st.session_state[NOTE] = f"{st.session_state.get(NOTE, '')} {what} here.".strip()
    st.segmented_control(
        "Mode",
        offered,
        format_func=labels.__getitem__,
        required=True,
        **chooses("mode", current, "replay_mode", lambda mode: "" if mode == Mode.REPLAY else mode),
    )
    return current


def make_scene(document: Document, strategy: str, mode: Mode) -> Scene:
    """Replay `strategy` on `document`; raises MemplanError."""
    state.wait_for_kernels()
    trace = _traced(document, FIRST_STRATEGY if mode == Mode.EXERCISE else strategy)
    step, wrong = parse_step(state.get("step"), trace.steps)
    note = " ".join(filter(None, (st.session_state.pop(NOTE, ""), wrong)))
    exercise = _exercise(document) if mode == Mode.EXERCISE else None
    begun = _begin((document.key, document.options, strategy, mode), step)
    colouring = colours_of(document.problem, document)
    message = make_message(
        trace.json,
        mode=mode,
        step=begun.step,
        serial=begun.serial,
        color=colouring.index,
        palette=colouring.palette,
        exercise=exercise,
    )
    return Scene(message, begun.serial, note)


def keep_step(step: int) -> None:
    """The reader stands at `step` (0 …): into the URL, without a new beginning in the browser."""
    begun: _Begun | None = st.session_state.get("replay_begun")
    if begun is not None:
        begun.reported = step
    state.choose(step=str(step + 1))


def parse_step(text: str, steps: int) -> tuple[int, str]:
    """The step (0 …) that a URL asks for with 1 …, and what is wrong with it, if anything."""
    if not text:
        return 0, ""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if 1 <= number <= steps:
        return number - 1, ""
    return 0, f"step: found {text[:40]!r}, expected 1 to {steps:,}."


def colours_of(problem: Problem, document: Document) -> Colouring:
    """By op kind where there are many buffers of known kinds, else one colour after the other."""
    if document.knows_kinds and len(problem) > 2 * len(CATEGORIES):
        return by_kind(problem)
    index = (np.arange(len(problem)) % len(CATEGORIES)).astype(np.uint8)
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


# By identity: the entry holds the document, so that its id cannot become another's.
@st.cache_resource(max_entries=8, show_spinner="Replaying …", hash_funcs={Document: id})
def _traced(document: Document, strategy: str) -> Trace:
    replay: Replay = make_replay(document.problem, strategy, limits=SolveLimits(plan_facts.MOST_SECONDS))
    return Trace(trace_json(replay), replay.family, len(replay))


@st.cache_resource(max_entries=24, show_spinner="Looking for the optimum …", hash_funcs={Document: id})
def _exercise(document: Document) -> dict[str, Any]:
    return exercise_values(make_exercise(document.problem), document.problem.fingerprint)


def _hindrance(problem: Problem, name: str) -> str:
    """Why `name` cannot be replayed on `problem`; "" if it can."""
    if name == "exact" and len(problem) > MOST_IN_A_TREE:
        return f"{len(problem):,} buffers, and a search tree is shown of {MOST_IN_A_TREE} at most"
    return obstacle(get_strategy(name), problem) or ""


def _why_not(problem: Problem, name: str) -> str:
    if name == "imported":
        return "The plan that a file brought does not say how it came about."
    if name not in known_strategies():
        return not_listed("strategy", name)
    if name not in replayable():
        return f"{name} takes no decision for good before the last and cannot be replayed."
    return f"{name} cannot be replayed here: {_hindrance(problem, name)}."


def _take_problem(key: str) -> None:
    state.choose_document(key)
    state.choose(step="", lesson="")
