"""What can be done about the peak of a plan, looked for beside the page, so that nobody waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import streamlit as st
from memplan_dashboard.session import documents
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.plan_facts import OF_DOCUMENT

from memplan_engine import MemplanError, SolveLimits
from memplan_engine.advice.advise import advise
from memplan_engine.advice.values import Advice
from memplan_engine.allocator.answers import SettingsAdvice, three_answers
from memplan_engine.recordings.allocator_recording import Recording
from memplan_engine.recordings.observation import Observation
from memplan_engine.strategies import known_strategies
from memplan_engine.what_if.edits import Edit

SECONDS = 5.0
PICTURE_SECONDS = 0.3
"""How long it waits for the page to be drawn, which a thread that computes holds up: another plan of GPT-2 is
sent 0.10 s after the click without one, and 0.15 to 0.2 s beside one."""
AT_ONCE = threading.Semaphore(1)
"""Planning is work for a core: the others are for the pages."""


@dataclass(slots=True, eq=False)
class Advising:
    """The advice on one plan, while it is looked for and when it is there; `fault` says why there is none.
    `on_settings` is what other settings of the allocator do, where there are `requests` to simulate."""

    asked: tuple[Document, tuple[Edit, ...], str, int | None]
    requests: Callable[[], tuple[Recording | Observation, int | None]] | None = None
    advice: Advice | None = None
    fault: str = ""
    on_settings: SettingsAdvice | None = None
    done: threading.Event = field(default_factory=threading.Event)

    _begun: bool = False

    def begin(self) -> None:
        """Look for it from now on, in a thread of its own; once, whoever asks."""
        if not self._begun:
            self._begun = True
            threading.Thread(target=self._look_after_the_page, name="advice", daemon=True).start()

    def _look_after_the_page(self) -> None:
        time.sleep(PICTURE_SECONDS)
        self.look()

    def look(self) -> None:
        """Look for it in this thread."""
        document, edits, strategy, capacity = self.asked
        try:
            with AT_ONCE:
                self.advice = advise(
                    document.loaded,
                    document.options.how,
                    edits,
                    strategy=strategy if strategy in known_strategies() else "auto",
                    capacity=capacity,
                    limits=SolveLimits(SECONDS),
                    watch=self._hear,
                )
                if self.requests is not None:
                    source, index = self.requests()
                    self.on_settings = three_answers(source, index=index).advice
        except MemplanError as error:
            self.fault = str(error)
        finally:
            self.done.set()

    def _hear(self, advice: Advice) -> None:
        self.advice = advice


@st.cache_resource(max_entries=24, show_spinner=False, hash_funcs=OF_DOCUMENT)
def advising_of(document: Document, edits: tuple[Edit, ...], strategy: str, capacity: int | None) -> Advising:
    """The advice on `document` after `edits`, planned by `strategy`; nobody looks for it yet."""
    requests = documents.requests_of(document) if documents.is_simulated(document) else None
    return Advising((document, edits, strategy, capacity), requests)
