"""What a notebook runs, in a browser: the chart is drawn in a cell, and a click reaches the model."""

from __future__ import annotations

import pytest

pytest.importorskip("playwright")
pytest.importorskip("streamlit")
pytest.importorskip("anywidget")
from memplan_dashboard.notebook import chart

from memplan_engine import make_plan, make_problem

MOUNT = """async ([source, css, bytes, ground]) => {
    const url = URL.createObjectURL(new Blob([source], {type: 'text/javascript'}));
    const {default: {render}} = await import(url);
    const style = document.createElement('style');
    style.textContent = css;
    document.head.append(style);
    document.body.style.background = ground;
    const el = document.createElement('div');
    document.body.replaceChildren(el);
    window.sent = [];
    // Not at the beginning of its buffer, as a message of a notebook's kernel.
    const whole = Uint8Array.from([0, 0, 0, ...bytes]);
    const model = {
        get: () => new DataView(whole.buffer, 3),
        set: (name, value) => window.sent.push([name, value]),
        save_changes: () => window.sent.push(["saved"]),
        on: () => {},
        off: () => {},
    };
    window.leave = render({model, el});
}"""


@pytest.mark.parametrize(("ground", "text"), [("white", "#31333f"), ("black", "#fafafa")])
def test_a_click_in_a_cell_reaches_the_model(dashboard_url, open_page, ground, text):
    widget = chart(make_plan(make_problem([0], [4], [64], names=["a"]), "greedy_by_size"), height=400)
    page = open_page(f"{dashboard_url}/_stcore/health").page
    page.evaluate(MOUNT, [widget._esm, widget._css, list(widget._message), ground])
    page.locator(".plan-view[data-drawn]").wait_for()
    assert (
        page.locator(".notebook-chart").evaluate("host => host.style.getPropertyValue('--st-text-color')")
        == text
    )
    page.locator(".stage").first.click(position={"x": 400, "y": 150})
    page.wait_for_function("() => window.sent.length > 1")
    assert page.evaluate("window.sent") == [["_report", {"index": 0, "serial": 1}], ["saved"]]
    page.evaluate("window.leave()")
    assert page.locator(".plan-view").count() == 0
