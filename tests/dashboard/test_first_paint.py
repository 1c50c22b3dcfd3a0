"""Nothing moves while the page appears."""

import asyncio

import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.serving import first_paint
from memplan_dashboard.serving.first_paint import SCRIPT, FirstPaint

from tests.support.dashboard_page import DashboardPage

SHIFTED = """() => new Promise((resolve) => {
    let sum = 0;
    new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) if (!entry.hadRecentInput) sum += entry.value;
    }).observe({ type: 'layout-shift', buffered: true });
    setTimeout(() => resolve(sum), 500);
})"""
MOST = 0.05
BEGUN = """() => Object.fromEntries(performance.getEntriesByType('resource')
    .map((entry) => [entry.name, entry.startTime]))"""
"""When the page began to load each address, ms."""


def answer_to(accept, content_type, *chunks, status=200):
    """What comes out for an answer in `chunks`: its headers, its body."""
    said = []

    async def inside(scope, receive, send):
        assert ("accept-encoding" in str(scope["headers"])) == ("html" not in accept)
        length = str(sum(map(len, chunks))).encode()
        headers = [(b"content-type", content_type), (b"content-length", length)]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for i, chunk in enumerate(chunks):
            more = i + 1 < len(chunks)
            await send({"type": "http.response.body", "body": chunk, "more_body": more})

    async def send(message):
        said.append(message)

    headers = [(b"accept", accept.encode()), (b"accept-encoding", b"gzip")]
    scope = {
        "type": "http", "method": "GET", "headers": headers, "path": "/", "query_string": b"doc=a%20b&at=",
    }  # fmt: skip
    asyncio.run(FirstPaint(inside, "p { margin: 0 }", "<link>")(scope, None, send))
    return dict(said[0]["headers"]), b"".join(message["body"] for message in said[1:])


def test_the_style_stands_at_the_end_of_the_head():
    headers, body = answer_to("text/html", b"text/html; charset=utf-8", b"<head>a</he", b"ad><body>b")
    assert body == b"<head>a<link><style>html {\np { margin: 0 }\n}</style>%b</head><body>b" % SCRIPT.encode()
    assert headers[b"content-length"] == str(len(body)).encode()


def test_who_wants_to_hears_which_page_is_asked_for_and_of_nothing_else(monkeypatch):
    heard = []
    monkeypatch.setattr(first_paint, "asked_for", [lambda *asked: heard.append(asked)])
    answer_to("*/*", b"text/html", b"<head></head>")
    assert not heard
    answer_to("text/html", b"text/html", b"<head></head>")
    assert heard == [("/", {"doc": "a b"})]


@pytest.mark.parametrize(
    ("accept", "kind", "status"),
    [("*/*", b"text/html", 200), ("text/html", b"text/css", 200), ("text/html", b"text/html", 404)],
)
def test_what_is_no_page_stays_as_it_is(accept, kind, status):
    headers, body = answer_to(accept, kind, b"<head>", b"</head>", status=status)
    assert body == b"<head></head>"
    assert headers[b"content-length"] == b"13"


@pytest.mark.quarantine
def test_what_inspect_begins_with_is_loaded_with_the_page_and_plotly_not_at_all(dashboard_url, open_page):
    page = DashboardPage(open_page(f"{dashboard_url}/?doc=example:gpt2"))
    begun = page.page.evaluate(BEGUN)
    (picture,) = [at for name, at in begun.items() if "/BidiComponent." in name]
    # What is asked before the socket is opened, over which the elements come.
    (asked,) = [at for name, at in begun.items() if name.endswith("/_stcore/health")]
    assert picture < asked
    page.page.get_by_test_id("stDataFrame").first.wait_for()
    assert not [name for name in page.page.evaluate(BEGUN) if "Plotly" in name]


@pytest.mark.parametrize("width", [1440, 800])
def test_nothing_moves_while_inspect_appears(dashboard_url, open_page, width):
    # Warm, as everywhere where it is measured: a new server says that it compiles.
    DashboardPage(open_page(f"{dashboard_url}/?doc=example:gpt2"))
    page = DashboardPage(open_page(f"{dashboard_url}/?doc=example:gpt2", width=width, height=900))
    assert page.page.evaluate(SHIFTED) < MOST
