"""The replay in an empty page: its own script and the message it reads, without Streamlit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from memplan_dashboard.replay_view import Mode, exercise_values, make_message, trace_json
from memplan_dashboard.replay_view.component import script, styles

from memplan_engine import make_exercise
from memplan_engine.plotting.colouring import CATEGORIES
from memplan_engine.replay.steps import Replay

if TYPE_CHECKING:
    from playwright.sync_api import Page

MOUNT = """async ([source, css, text]) => {
    const url = URL.createObjectURL(new Blob([source], {type: 'text/javascript'}));
    window.part = await import(url);
    const style = document.createElement('style');
    style.textContent = css;
    document.head.append(style);
    const host = document.createElement('div');
    document.body.append(host);
    window.sent = [];
    const data = new TextEncoder().encode(text);
    const setStateValue = (name, value) => window.sent.push([name, value]);
    window.part.default({data, parentElement: host, setStateValue});
    await new Promise(requestAnimationFrame);
}"""
INNER = "\nexport { Trace, judgeGuess, judgeObject, Attempt };"


class View:
    """A replay that is drawn at a step, counted from 0."""

    def __init__(self, page: Page, replay: Replay, mode: Mode = Mode.REPLAY, step: int = 0) -> None:
        self.page, self.replay = page, replay
        problem = replay.problem
        exercise = exercise_values(make_exercise(problem), "key") if mode is Mode.EXERCISE else None
        index = (np.arange(len(problem)) % len(CATEGORIES)).astype(np.uint8)
        text = make_message(
            trace_json(replay),
            mode=mode,
            step=step,
            serial=1,
            color=index,
            palette=CATEGORIES,
            exercise=exercise,
        ).decode()
        page.evaluate(MOUNT, [script() + INNER, styles(), text])
        self.root = page.locator(".replay-view[data-drawn]")
        self.root.wait_for()

    @property
    def step(self) -> int:
        """Return the decision that is drawn, counted from 1."""
        return int(self.root.get_attribute("data-drawn") or "")

    @property
    def sentence(self) -> str:
        """Return what is said of it."""
        return self.page.locator(".sentence").inner_text()

    @property
    def lit(self) -> str:
        """Return the line of code that is lit."""
        return self.page.locator(".line.lit").inner_text()

    def picture(self) -> str:
        """Return the picture as a data URL."""
        url: str = self.page.locator("canvas.picture").evaluate("canvas => canvas.toDataURL()")
        return url

    def at(self, time: float, bytes_: float) -> tuple[float, float]:
        """Return where a step and a number of bytes are on the page, worked out from the axes."""
        box: Any = self.page.locator("canvas.picture").bounding_box()
        left, right, top, bottom = 70, box["width"] - 10, 14, box["height"] - 24 - 56 - 18
        x = left + (right - left) * time / self.replay.problem.steps
        limit = self.replay.plan.arena_bytes * 1.07
        return box["x"] + x, box["y"] + bottom - (bottom - top) * bytes_ / limit

    def click(self, time: float, bytes_: float) -> None:
        """Click at a step and a number of bytes."""
        self.page.mouse.click(*self.at(time, bytes_))
