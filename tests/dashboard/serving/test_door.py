"""Who is let in by the door before Streamlit, and what it adds to answers; without a server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from memplan_dashboard.serving.door import LOOPBACK, VISITOR_COOKIE, Door, host_name, visitor_of

OWN = "127.0.0.1:8501"


def ask(kind: str = "http", names: tuple[str, ...] = (), **headers: str | list[str]) -> tuple[Any, Any]:
    """What the door answers to a request with `headers`, and the request that came through, None for none."""
    came: list[Any] = []
    said: list[Any] = []

    async def inside(scope: Any, receive: Any, send: Any) -> None:
        came.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: Any) -> None:
        said.append(message)

    pairs = [
        (name.replace("_", "-").encode(), each.encode("latin-1"))
        for name, value in headers.items()
        for each in ([value] if isinstance(value, str) else value)
    ]
    scope = {"type": kind, "scheme": "http", "headers": pairs, "extensions": {"websocket.http.response": {}}}
    asyncio.run(Door(inside, names)(scope, lambda: None, send))  # type: ignore[arg-type,return-value]
    return said[0], came[0] if came else None


@pytest.mark.parametrize(
    "host",
    [*sorted(LOOPBACK), OWN, "localhost:9000", "[::1]:8501", "LocalHost:8501", "localhost.", "plans.example"],
)
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_names_of_this_machine_come_in_and_those_allowed(kind: str, host: str) -> None:
    assert ask(kind, names=("plans.example",), host=host)[1] is not None


@pytest.mark.parametrize(
    "host",
    [
        "", "evil.example", "plans.example", "127.0.0.1.evil.example", "localhost.evil.example",
        "evil@localhost", "localhost:8501:1", "localhost:x", "localhost:999999", "localhost/", "localhost#",
        "localhost,evil.example",
        " localhost", "127.0.0.2", "127.1", "2130706433", "0.0.0.0", "[::]", "[::ffff:127.0.0.1]", "::1",
        "localhost..", "löcalhost", "localhost\x00", ["localhost", "evil.example"], ["localhost"] * 2, [],
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_another_host_is_refused_before_anything_else(kind: str, host: str | list[str]) -> None:
    said, came = ask(kind, host=host)
    assert came is None
    assert said["status"] == 403


@pytest.mark.parametrize("origin", [f"http://{OWN}", f"HTTP://{OWN}"])
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_its_own_pages_come_in_and_streamlit_is_not_asked_to_judge_them(kind: str, origin: str) -> None:
    _, came = ask(kind, host=OWN, origin=origin)
    assert [name for name, _ in came["headers"]] == [b"host"]


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example", "https://evil.example:8501", "null", "", "http://localhost:8501", "http://127.0.0.1",
        "http://127.0.0.1:8502", f"ftp://{OWN}", f"http://x@{OWN}", f"http://{OWN}/a", f"http://{OWN}?", "http://[",
        f"http://{OWN}.evil.example", "file://", f"chrome-extension://{OWN}", [f"http://{OWN}", f"http://{OWN}"],
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_another_origin_is_refused(kind: str, origin: str | list[str]) -> None:
    said, came = ask(kind, host=OWN, origin=origin)
    assert came is None
    assert said["status"] == 403


def test_a_port_that_is_the_schemes_own_need_not_be_said() -> None:
    assert ask(host="localhost", origin="http://localhost:80")[1]
    assert ask(host="localhost:443", origin="https://localhost")[1]
    assert not ask(host="localhost:443", origin="http://localhost")[1]


def test_a_reverse_proxy_may_keep_the_host_or_change_it() -> None:
    names = ("plans.example",)
    for host in ("plans.example", OWN):
        assert ask("websocket", names, host=host, origin="https://plans.example")[1]
        assert not ask("websocket", names, host=host, origin="https://evil.example")[1]


def test_every_answer_has_the_headers_that_close_the_page_to_others() -> None:
    for host in (OWN, "evil.example"):
        headers = dict(ask(host=host)[0]["headers"])
        assert headers[b"x-frame-options"] == b"DENY"
        assert headers[b"x-content-type-options"] == b"nosniff"
        assert headers[b"referrer-policy"] == b"no-referrer"
        assert headers[b"cross-origin-resource-policy"] == b"same-origin"
        policy = dict(part.split(" ", 1) for part in headers[b"content-security-policy"].decode().split("; "))
        assert (policy["default-src"], policy["frame-ancestors"]) == ("'self'", "'none'")
        assert policy["object-src"] == policy["base-uri"] == policy["frame-src"] == "'none'"
        assert not {"'unsafe-inline'", "'unsafe-eval'"} & set(policy["script-src"].split())
        assert "evil" not in headers[b"content-security-policy"].decode()
    assert (
        f"'self' ws://{OWN} wss://{OWN}".encode()
        in dict(ask(host=OWN)[0]["headers"])[b"content-security-policy"]
    )


def cookie_of(answer: Any) -> str:
    """The cookie that an answer sets; "" for none."""
    return dict(answer["headers"]).get(b"set-cookie", b"").decode()


def test_each_browser_gets_a_cookie_that_cannot_be_guessed_and_keeps_it() -> None:
    first, second = (cookie_of(ask(host=OWN, accept="text/html,*/*")[0]) for _ in "ab")
    assert first != second
    assert "; HttpOnly; SameSite=Lax" in first
    value = first.removeprefix(f"{VISITOR_COOKIE}=").partition(";")[0]
    assert visitor_of(value) == value
    again = cookie_of(ask(host=OWN, accept="text/html", cookie=f"other=1; {VISITOR_COOKIE}={value}")[0])
    assert again == first
    for forged in ("", "..", "a" * 42, "a" * 44, f'"{value}"', f"{value[:-1]}/"):
        answer, _ = ask(host=OWN, accept="text/html", cookie=f"[]=1; {VISITOR_COOKIE}={forged}")
        fresh = cookie_of(answer).removeprefix(f"{VISITOR_COOKIE}=").partition(";")[0]
        assert visitor_of(forged) is None
        assert fresh not in (forged, value)
        assert visitor_of(fresh)


def test_only_pages_set_the_cookie_and_none_that_is_refused() -> None:
    assert not cookie_of(ask(host=OWN, accept="*/*")[0])
    assert not cookie_of(ask(host="evil.example", accept="text/html")[0])
    assert not cookie_of(ask(host=OWN, origin="http://evil.example", accept="text/html")[0])


def test_what_is_a_name() -> None:
    assert host_name("[FD00::1]:80") == "[fd00::1]"
    assert host_name("a.b-c_d.example.:1") == "a.b-c_d.example"
    assert [host_name(text) for text in ("", ".", "a..b", "a b", "*.a", "a:b", "[::1", "a\n")] == [None] * 8
