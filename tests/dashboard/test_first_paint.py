"""The additions to a page's head that keep its layout still while it appears."""

import asyncio

import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.serving import first_paint
from memplan_dashboard.serving.first_paint import SCRIPT, FirstPaint


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


def test_which_page_is_asked_for_is_passed_on_and_nothing_else(monkeypatch):
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
