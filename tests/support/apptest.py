"""The app without a browser, as the tests of the pages drive it."""

from __future__ import annotations

import re
from functools import cache

from memplan_dashboard.session import advising
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from tests import ROOT
from tests.support.waiting import HANG_SECONDS

APP = ROOT / "dashboard" / "app.py"

# Each AppTest reads the metadata of every installed package, two thirds of what opening the app costs; it
# finds the same each time. A server does so once, too.
manifest_scanner.scan_component_manifests = cache(manifest_scanner.scan_component_manifests)


CSV = "id,lower,upper,size\na,0,4,10\nb,1,3,20\nc,2,4,10\n"


def open_app(page="", tab="", **parameters):
    """The app at an address; `page` is "compare", "import" or nothing for Inspect; `tab` is one below the
    chart."""
    app = AppTest.from_file(APP, default_timeout=HANG_SECONDS)
    for name, value in parameters.items():
        app.query_params[name] = value
    if tab:
        app.query_params["tab"] = tab
    # AppTest itself can only go to such a page from another one; by its address one comes straight.
    app._page_hash = calc_hash(page) if page else ""
    check(app.run())
    app._page_hash = ""
    return app


def check(app):
    """`app`, which must not have failed."""
    assert not app.exception, app.exception
    return app


def said(elements):
    return [each.value.replace("\\", "") for each in elements]


def upload(app, name, content):
    """The app once a file of this name and content, text or bytes, is uploaded."""
    raw = content if isinstance(content, bytes) else content.encode()
    app.file_uploader[0].upload(name, raw)
    return check(app.run())


def widget(kind, label):
    """The widget of that label."""
    return next(each for each in kind if each.label == label)


def figure(app, label):
    """The value of the metric, or of the chip, of that label."""
    chips = [chip.removeprefix(f"{label} ") for chip in chips_of(app) if chip.startswith(f"{label} ")]
    return next(iter([each.value for each in app.metric if each.label == label] + chips))


def chips_of(app):
    """The texts of the chips, as they are read."""
    badges = (re.fullmatch(r":\w+-badge\[(?::material/\w+: )?(.*)\]", each.value) for each in app.markdown)
    return [re.sub(r"\\(.)", r"\1", badge[1]) for badge in badges if badge]


def address(app):
    """The query parameters."""
    given = app.query_params.items()
    return {name: value if isinstance(value, str) else value[0] for name, value in given}


ASKED: list[advising.Advising] = []
"""The advice that pages wait for. The fixture `advice_on_request` fills it."""


def advised(app):
    """`app` with its suggestions, which are looked for in this thread."""
    while any("Looking for ways" in each.value for each in app.caption):
        assert ASKED, "the page waits for advice that it did not ask for"
        while ASKED:
            ASKED.pop().look()
        check(app.run())
    return app
