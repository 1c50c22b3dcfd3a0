"""The rectangle chart in an empty page: its own script and the bytes it reads, without Streamlit."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from memplan_dashboard.plan_view import windows
from memplan_dashboard.plan_view.component import feed_script, script, styles
from memplan_dashboard.plan_view.packing import pack

from tests.dashboard.plan_view.plan_view_app import LEGEND, PALETTE

if TYPE_CHECKING:
    from memplan_dashboard.plan_view import Found, Panel
    from playwright.sync_api import Page

HEIGHT = 520
STRIP = 104  # a fifth of the height
TOP, GAP, AXIS, GUTTER = 4, 26, 22, 76
PLOT = HEIGHT - TOP - GAP - STRIP - AXIS
CONV, NORM, RELU = [68, 119, 170], [34, 136, 51], [238, 102, 119]
INKED = "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.filter(value => value).length"
PIXEL = """(canvas, [x, y]) => {
    const ratio = canvas.width / canvas.clientWidth;
    return Array.from(canvas.getContext('2d').getImageData(x * ratio, y * ratio, 1, 1).data).slice(0, 3);
}"""
ROOT = "(document.querySelector('[data-testid=stBidiComponentIsolated]')?.shadowRoot ?? document)"
LIGHT = {
    "--st-background-color": "#ffffff",
    "--st-text-color": "#31333f",
    "--st-border-color": "#d5d6da",
    "--st-primary-color": "#3b6fa8",
    "--st-font": "sans-serif",
}
DARK = LIGHT | {
    "--st-background-color": "#0e1117",
    "--st-text-color": "#fafafa",
    "--st-border-color": "#45464c",
}
MOUNT = """async ([source, feed, css]) => {
    const load = (text) => import(URL.createObjectURL(new Blob([text], {type: 'text/javascript'})));
    const [chart, port] = [await load(source), await load(feed)];
    const style = document.createElement('style');
    style.textContent = css + 'body { margin: 16px; min-height: 1800px; }';
    document.head.append(style);
    const parentElement = document.createElement('div');
    document.body.replaceChildren(parentElement);
    window.sent = [];
    window.questions = [];
    const hear = (name, value) => window.sent.push([name, value]);
    const data = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    window.draw = (text, theme) => {
        for (const [name, value] of Object.entries(theme)) parentElement.style.setProperty(name, value);
        chart.default({data: data(text), parentElement, setStateValue: hear, setTriggerValue: hear});
    };
    window.answer = (text) => port.default({
        data: data(text), setStateValue: (name, value) => window.questions.push(value),
    });
}"""


class Chart:
    """A chart that is drawn. `at` gives the place of a step and a number of MiB in the "plain" scene: its
    time axis has 10 steps, its memory axis ends 9 % above the arena of 10 MiB."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.root = page.locator(".plan-view[data-drawn]")
        self.root.wait_for()
        self.stage = page.locator(".stage").first
        self.base = page.locator("canvas.base").first
        self.tooltip = page.locator(".tooltip")

    def data(self, name: str) -> str:
        """Return a data attribute."""
        return self.root.get_attribute(f"data-{name}") or ""

    def at(self, step: float, mib: float) -> tuple[float, float]:
        """Return the place of a step and a number of MiB on the canvas."""
        width = self.stage.bounding_box()["width"] - GUTTER - 1  # type: ignore[index]
        return GUTTER + width * step / 10, TOP + PLOT - PLOT * mib / 10.9

    def below(self, step: float) -> tuple[float, float]:
        """Return a place on the strip."""
        return self.at(step, 0)[0], HEIGHT - AXIS - 20

    def pixel(self, x: float, y: float) -> list[int]:
        """Return red, green and blue at a place."""
        found: list[int] = self.base.evaluate(PIXEL, [x, y])
        return found

    def mouse(self, x: float, y: float) -> None:
        """Move the pointer to a place."""
        self.stage.scroll_into_view_if_needed()
        box: Any = self.base.bounding_box()
        self.page.mouse.move(box["x"] + x, box["y"] + y)

    def click(self, x: float, y: float) -> None:
        """Click at a place."""
        self.mouse(x, y)
        self.page.mouse.down()
        self.page.mouse.up()

    def wheel(self, x: float, y: float, times: int = 3) -> None:
        """Zoom in at a place."""
        self.stage.focus()
        self.mouse(x, y)
        for _ in range(times):
            before = self.data("view")
            self.page.mouse.wheel(0, -120)
            self.until("view", before, other=True)

    def frame(self) -> None:
        """Wait for the frame that draws what was done."""
        self.page.evaluate("() => new Promise(requestAnimationFrame)")

    def until(self, name: str, value: str, other: bool = False) -> None:
        """Wait until a data attribute has a value, or has another one."""
        found = f"{ROOT}.querySelector('.plan-view')?.getAttribute('data-' + name)"
        self.page.wait_for_function(
            f"([name, value]) => {found} {'!==' if other else '==='} value", arg=[name, value]
        )

    def press(self, *keys: str) -> None:
        """Press keys on the chart."""
        self.stage.focus()
        for key in keys:
            self.page.keyboard.press(key)

    def view(self) -> list[float]:
        """Return the steps and bytes in view: x0, x1, y0, y1."""
        return [float(value) for value in self.data("view").split(",")]


class MountedChart(Chart):
    """A chart without Streamlit: `draw` is a run of the page, and what it reports is kept in the page.

    `shown` is panels, or the message that a page of the dashboard sends (see `message_of`).
    """

    def __init__(
        self, page: Page, shown: Sequence[Panel] | bytes, scheme: str = "light", **choices: Any
    ) -> None:
        self.theme = DARK if scheme == "dark" else LIGHT
        self.serial = self.marks_serial = 0
        self.selected: int | None = None
        self.marks: tuple[int | None, int | None] = (None, None)
        page.evaluate(MOUNT, [script(), feed_script(), styles()])
        self.page = page
        if isinstance(shown, bytes):
            self.show(shown)
        else:
            self.draw(shown, **choices)
        super().__init__(page)

    def draw(
        self,
        panels: Sequence[Panel],
        *,
        selected: int | None = None,
        marks: tuple[int | None, int | None] | None = None,
        find: Found | None = None,
        most: int | None = None,
    ) -> None:
        """Draw panels, as a run of the page does.

        `selected` and `marks` are set by the page, and None leaves what the reader did. Of panels with more
        than `most` rectangles only those in view travel.
        """
        if selected is not None:
            self.selected, self.serial = selected, self.serial + 1
        if marks is not None:
            self.marks, self.marks_serial = marks, self.marks_serial + 1
        shared: dict[str, Any] = {
            "key": "chart",
            "height": HEIGHT,
            "palette": [list(pair) for pair in PALETTE],
            "legend": [list(entry) for entry in LEGEND],
            "patterns": None,
            "filters": None,
            "actions": [],
            "find": None if find is None else asdict(find),
            "selected": self.selected,
            "serial": self.serial,
            "marks": self.marks,
            "marksSerial": self.marks_serial,
        }
        self.panels = panels
        drawn: Sequence[Any] = panels
        if most is not None:
            shared["scene"] = self.scene = 1
            drawn = windows.first_crops(panels, self.selected)
        self.show(pack(drawn, shared))
        if most is not None:
            self.answer(None)

    def show(self, message: bytes) -> None:
        """Draw a message."""
        text = base64.b64encode(message).decode()
        self.page.evaluate("([text, theme]) => window.draw(text, theme)", [text, self.theme])

    def answer(self, request: windows.Request | None) -> None:
        """Send what the feed of a large plan answers."""
        near, wanted = windows.answers(self.panels, request) if request else ([], [])
        shared = {"key": "chart", "scene": self.scene, "serial": request.serial if request else None}
        text = base64.b64encode(pack(near, shared, wanted=wanted)).decode()
        self.page.evaluate("text => window.answer(text)", text)

    def sharp(self) -> None:
        """Answer what the chart asks, one question at a time, until its picture is exact."""
        asks = f"() => {ROOT}.querySelector('.plan-view').dataset.sharp === 'true' || questions.length"
        while True:
            self.frame()
            self.page.wait_for_function(asks)
            asked = self.page.evaluate("window.questions.splice(0)")
            if not asked:
                return
            request = windows.parse_request(asked[-1], len(self.panels))
            assert request is not None, asked
            self.answer(request)

    def heard(self, name: str, count: int = 1) -> list[Any]:
        """Return what was reported as `name`, at least `count` values."""
        script = "([name, count]) => sent.filter(([kind]) => kind === name).length >= count"
        self.page.wait_for_function(script, arg=[name, count])
        found: list[Any] = self.page.evaluate("sent")
        return [value for kind, value in found if kind == name]

    def reported(self, index: int | None) -> None:
        """Wait until the last selection that was reported is that of a buffer."""
        last = "sent.filter(([name]) => name === 'selection').at(-1)?.[1]"
        self.page.wait_for_function(f"index => {last} && {last}.index === index", arg=index)

    def marked(self, step: int | None, second: int | None) -> None:
        """Wait until the last marks that were reported are these."""
        last = "sent.filter(([name]) => name === 'marks').at(-1)?.[1]"
        self.page.wait_for_function(
            f"([step, second]) => {last} && {last}.step === step && {last}.second === second",
            arg=[step, second],
        )


def message_of(app: Any) -> bytes:
    """Return what a page that AppTest runs sends to its chart."""

    def elements(block: Any) -> Iterator[Any]:
        for each in block.children.values():
            yield from elements(each) if hasattr(each, "children") else (each,)

    charts = (each.proto for each in elements(app.main) if each.type == "bidi_component")
    (message,) = (each.bytes for each in charts if each.component_name == "memplan.plan_view")
    assert isinstance(message, bytes)
    return message
