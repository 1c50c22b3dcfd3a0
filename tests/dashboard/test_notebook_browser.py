"""The chart in a real JupyterLab and a real marimo: drawn, clicked, and known to Python.

Both are many packages, so `make test` installs neither: `pip install jupyterlab marimo` into .venv, and these
run.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

pytest.importorskip("playwright")
pytest.importorskip("anywidget")

from memplan_dashboard.launch import stop

from tests.support.browser import HANG_MS, import_path, reserved_port
from tests.support.waiting import wait_until

MAKE = """from memplan_dashboard.notebook import chart
from memplan_engine import make_plan, make_problem
problem = make_problem([0, 1, 2], [2, 3, 4], [4096, 8192, 4096], names=["a", "b", "c"])
view = chart(make_plan(problem, "greedy_by_size"), height=300)"""
CELLS = (f"{MAKE}\nview", "print('heard of', view.selected)", "view.selected = 'c'")
MARIMO = (
    f"""import marimo

app = marimo.App()


@app.cell
def _():
    import marimo as mo
{MAKE.replace("view = chart", "made = chart")}
    view = mo.ui.anywidget(made)
    view
    return mo, view


@app.cell
def _(mo, view):
    mo.md(f"heard of {{view.selected}}")
    return
""".replace("\nfrom", "\n    from")
    .replace("\nproblem", "\n    problem")
    .replace("\nmade", "\n    made")
)


def needs(package):
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed")


def answers(url):
    """Return whether a server answers at `url`."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with contextlib.suppress(urllib.error.URLError, OSError), opener.open(url, timeout=10):
        return True
    return False


@contextlib.contextmanager
def served(folder, *line):
    """The address of the server that `python -m LINE --port N` starts, once it answers."""
    environment = {
        **os.environ,
        "HOME": str(folder),
        "PYTHONPATH": import_path(),
        "OMP_NUM_THREADS": "1",
    }
    with reserved_port() as port:
        url = f"http://127.0.0.1:{port}"
        server = subprocess.Popen(
            [sys.executable, "-m", *line, f"--port={port}"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            wait_until(lambda: server.poll() is not None or answers(url))
            assert server.poll() is None, f"{line[0]} ended"
            yield url
        finally:
            stop(server)


def click_on_b(page):
    """Click into the rectangle of `b`, the lower right of the chart."""
    canvas = page.locator(".notebook-chart canvas").first
    canvas.wait_for()
    page.locator(".notebook-chart td", has_text="8 KiB").first.wait_for(state="attached")
    box = canvas.bounding_box()
    canvas.click(position={"x": 0.6 * box["width"], "y": 0.55 * box["height"]})


@pytest.fixture
def page(chromium):
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(HANG_MS)
    yield context.new_page()
    context.close()


@needs("jupyterlab")
@pytest.mark.slow
def test_in_jupyterlab_a_click_is_heard_and_a_name_is_shown(page, tmp_path):
    cells = [
        {"cell_type": "code", "id": f"c{at}", "metadata": {}, "outputs": [], "source": text}
        | {"execution_count": None}
        for at, text in enumerate(CELLS)
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "chart.ipynb").write_text(json.dumps(notebook))
    options = ("--no-browser", "--allow-root", "--ip=127.0.0.1", "--IdentityProvider.token=")
    with served(tmp_path, "jupyterlab", *options) as url:
        page.goto(f"{url}/lab/tree/chart.ipynb")
        page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
        cell = page.locator(".jp-Notebook .jp-CodeCell")
        cell.first.locator(".cm-content").click()
        page.keyboard.press("Shift+Enter")
        click_on_b(page)
        cell.nth(1).locator(".cm-content").click()
        page.keyboard.press("Shift+Enter")
        cell.nth(1).get_by_text("heard of b").last.wait_for()
        page.keyboard.press("Shift+Enter")
        page.locator('.notebook-chart [data-selected="2"]').wait_for()


@needs("marimo")
@pytest.mark.slow
def test_in_marimo_a_click_runs_the_cells_that_read_the_selection(page, tmp_path):
    (tmp_path / "chart.py").write_text(MARIMO)
    with served(tmp_path, "marimo", "run", "chart.py", "--headless", "--no-token", "--host=127.0.0.1") as url:
        page.goto(url)
        page.get_by_text("heard of None").wait_for()
        click_on_b(page)
        page.get_by_text("heard of b").wait_for()
