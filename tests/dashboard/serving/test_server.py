"""The dashboard as a stranger meets it: raw requests, a loosened configuration, the hosts that it asks."""

from __future__ import annotations

import base64
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("streamlit")
pytest.importorskip("websockets")
from memplan_dashboard.serving.server import send_in_order

from tests import ROOT
from tests.support.browser import import_path, serve
from tests.support.page_socket import PageSocket, texts
from tests.support.waiting import HANG_SECONDS

APP = """
import secrets
import streamlit as st
names = (
    "server.enableCORS server.enableXsrfProtection server.corsAllowedOrigins server.enableStaticServing "
    "server.trustedUserHeaders client.showErrorDetails client.toolbarMode client.allowedOrigins "
    "browser.gatherUsageStats global.developmentMode server.address"
)
for name in names.split():
    st.text(f"{name}={st.get_option(name)!r}")
if "fail" in st.query_params:
    raise ValueError("a secret in /home/somebody")
made = st.cache_resource(show_spinner=False)(lambda: secrets.token_hex())
st.text(f"made {made()}")
if "large" in st.query_params:
    st.text("large " * 10_000)
st.text("the end")
"""
HELD = {
    "server.enableCORS": True,
    "server.enableXsrfProtection": True,
    "server.corsAllowedOrigins": [],
    "server.enableStaticServing": False,
    "server.trustedUserHeaders": {},
    "client.showErrorDetails": "none",
    "client.toolbarMode": "minimal",
    "client.allowedOrigins": [],
    "browser.gatherUsageStats": False,
    "global.developmentMode": False,
    "server.address": "127.0.0.1",
}
LOOSE = """
[server]
address = "0.0.0.0"
enableCORS = false
enableXsrfProtection = false
corsAllowedOrigins = ["http://evil.example"]
enableStaticServing = true
enableAgentApi = true
trustedUserHeaders = { "X-User" = "user" }
[client]
showErrorDetails = "full"
toolbarMode = "developer"
allowedOrigins = ["http://evil.example"]
[browser]
gatherUsageStats = true
serverAddress = "evil.example"
[global]
developmentMode = true
"""
CONNECTIONS = """
import os, socket

def note(address):
    if not (isinstance(address, tuple) and str(address[0]) in ("127.0.0.1", "::1", "localhost")):
        with open(os.environ["CONNECTIONS"], "a") as log:
            log.write(f"{address}\\n")

def noted(name, at):
    genuine = getattr(socket.socket, name)
    def call(self, *arguments):
        if self.family in (socket.AF_INET, socket.AF_INET6):
            note(arguments[at] if len(arguments) > at else arguments[-1])
        return genuine(self, *arguments)
    setattr(socket.socket, name, call)

noted("connect", 0); noted("connect_ex", 0); noted("sendto", -1)
resolve = socket.getaddrinfo
def look_up(host, *arguments, **options):
    if host not in (None, "127.0.0.1", "::1", "localhost"):
        note(("name", host))
    return resolve(host, *arguments, **options)
socket.getaddrinfo = look_up
"""
"""A sitecustomize that notes the hosts that a process asks: in the server and in every process it starts."""
LITTLE_ROOM = """
import memplan_dashboard.serving.upload_limits as limits
limits.MOST_BYTES_OF_VISITOR, limits.LEAST_BYTES = 2**20, 1
"""


@pytest.fixture(scope="module")
def loose(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A server started where a folder, a home and variables ask for the opposite of what it holds.

    It notes the hosts that it asks, has a name behind a reverse proxy, and a visitor may upload 1 MiB.
    """
    folder = tmp_path_factory.mktemp("loose")
    for place in (folder, folder / "home"):
        (place / ".streamlit").mkdir(parents=True)
        (place / ".streamlit" / "config.toml").write_text(LOOSE)
        (place / ".streamlit" / "secrets.toml").write_text('token = "a"\n[auth]\ncookie_secret = "b"\n')
    (folder / "app.py").write_text(APP)
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(CONNECTIONS + LITTLE_ROOM)
    env = {
        "HOME": str(folder / "home"),
        "CONNECTIONS": str(folder / "connections"),
        "STREAMLIT_SERVER_ENABLE_CORS": "false",
        "STREAMLIT_CLIENT_SHOW_ERROR_DETAILS": "full",
        "STREAMLIT_BROWSER_GATHER_USAGE_STATS": "true",
        "STREAMLIT_SERVER_ADDRESS": "0.0.0.0",
        "STREAMLIT_SERVER_ENABLE_AGENT_API": "true",
    }
    how: dict[str, Any] = {"paths": [folder / "site"], "env": env, "folder": folder}
    with serve(folder / "app.py", allow_hosts=["Plans.Example"], **how) as url:
        yield url, folder


def connected(url: str) -> socket.socket:
    """Return a connection to the server at `url`."""
    address, port = url.removeprefix("http://").split(":")
    return socket.create_connection((address, int(port)), timeout=HANG_SECONDS)


def request(url: str, lines: Sequence[str], host: str | None, body: str = "") -> bytes:
    """Return a raw request."""
    head = [lines[0], f"Host: {host or url.removeprefix('http://')}", *lines[1:], "", body]
    return "\r\n".join(head).encode("latin-1")


def send(url: str, *lines: str, host: str | None = None, body: str = "") -> str:
    """Return the answer to a raw request."""
    with connected(url) as connection:
        connection.sendall(request(url, (*lines, "Connection: close"), host, body))
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    return answer.decode("latin-1")


def first_line(url: str, *lines: str, host: str | None = None) -> str:
    """Return the first line of the answer to a raw request whose body is yet to come."""
    with connected(url) as connection:
        connection.sendall(request(url, lines, host))
        answer = b""
        while b"\r\n" not in answer:
            answer += connection.recv(65536)
    return answer.decode("latin-1").partition("\r\n")[0]


def handshake(url: str, *lines: str, host: str | None = None) -> str:
    """Return the first line of the answer to the start of a WebSocket."""
    key = base64.b64encode(os.urandom(16)).decode()
    head = (
        "GET /_stcore/stream HTTP/1.1", "Upgrade: websocket", "Connection: Upgrade",
        "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}",
    )  # fmt: skip
    return first_line(url, *head, *lines, host=host)


PAGES = ("", "fit", "devices", "pipeline", "compare", "diff", "replay", "run", "learn", "import")
PATHS = (
    "/", "/compare", "/_stcore/health", "/_stcore/host-config", "/_stcore/metrics", "/media/x.png",
    "/static/x", "/component/x/y", "/_stcore/bidi-components/x/y", "/_stcore/script-health-check",
    "/%2e%2e/etc/passwd",
)  # fmt: skip


def test_no_path_answers_under_a_foreign_name(loose: tuple[str, Path]) -> None:
    url, _ = loose
    for path in PATHS:
        for method in ("GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE"):
            answer = send(url, f"{method} {path} HTTP/1.1", host="evil.example:8501")
            assert answer.startswith("HTTP/1.1 403"), (method, path)
            assert (
                method == "HEAD"
                or "'evil.example:8501' is not allowed here; memplan dashboard --allow" in answer
            )
    assert send(url, "PUT /_stcore/upload_file/a/b HTTP/1.1", host="evil.example").startswith("HTTP/1.1 403")
    assert " 403 " in handshake(url, "Origin: http://evil.example", host="evil.example")
    # What a proxy is asked has two hosts.
    assert not send(url, "GET http://evil.example/_stcore/health HTTP/1.1").endswith("ok")


def test_streamlits_agent_api_is_off(loose: tuple[str, Path]) -> None:
    """It would drive the app without a browser. Another Streamlit may have none, and answers 404 or 405."""
    url, _ = loose
    for path in ("interact", "mcp"):
        answer = send(
            url,
            f"POST /_stcore/agent/{path} HTTP/1.1",
            "Content-Type: application/json",
            "Content-Length: 2",
            body="{}",
        )
        assert answer.split(" ", 2)[1] in ("400", "403", "404", "405")
        assert "not_available" in answer or answer.split(" ", 2)[1] in ("404", "405")


def test_nobody_clears_what_all_share(loose: tuple[str, Path]) -> None:
    """The schedulers of searches and runs are in Streamlit's cache: cleared, everything would run at once."""
    from streamlit.proto.BackMsg_pb2 import BackMsg

    def made(page: PageSocket) -> str:
        (text,) = (text for text in texts(page.run()) if text.startswith("made "))
        return text

    with PageSocket(loose[0]) as one, PageSocket(loose[0]) as another:
        before = made(one)
        another.send(BackMsg(clear_cache=True))
        assert made(another) == before
        assert made(one) == before


def test_a_foreign_origin_opens_no_websocket_and_nobody_is_asked_about_it(loose: tuple[str, Path]) -> None:
    url, folder = loose
    assert " 101 " in handshake(url, f"Origin: {url}")
    for origin in ("http://evil.example", "null", "http://localhost:1", f"{url}.evil.example"):
        assert " 403 " in handshake(url, f"Origin: {origin}")
        assert send(url, "GET /_stcore/health HTTP/1.1", f"Origin: {origin}").startswith("HTTP/1.1 403")
    assert not (folder / "connections").exists()
    # The test would have seen it.
    ask = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.1', 9))"
    env = {**os.environ, "PYTHONPATH": import_path(folder / "site"), "CONNECTIONS": str(folder / "seen")}
    subprocess.run([sys.executable, "-P", "-c", ask], env=env, check=False, stderr=subprocess.DEVNULL)
    assert "192.0.2.1" in (folder / "seen").read_text()


@pytest.mark.slow
def test_the_dashboard_itself_asks_nobody(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(CONNECTIONS)
    env = {"CONNECTIONS": str(tmp_path / "connections")}
    app = ROOT / "dashboard" / "app.py"
    with serve(app, paths=[tmp_path], env=env) as url, PageSocket(url) as page:
        for name in PAGES:
            sent = page.run("doc=example:teaching_view&strategy=search", name)
            assert "exception" not in {message.delta.new_element.WhichOneof("type") for message in sent}
            assert any(message.delta.new_element.WhichOneof("type") for message in sent), name
    assert not (tmp_path / "connections").exists()


def test_what_lies_in_the_folder_the_home_and_the_environment_loosens_nothing(
    loose: tuple[str, Path],
) -> None:
    url, folder = loose
    with PageSocket(url) as page:
        sent = page.run()
        assert {text for text in texts(sent) if "=" in text} == {f"{k}={v!r}" for k, v in HELD.items()}
        assert texts(sent)[-1] == "the end"
        assert not any(message.new_session.config.gather_usage_stats for message in sent)
        failed = page.run("fail")
    assert "exception" in {message.delta.new_element.WhichOneof("type") for message in failed}
    assert "/home/somebody" not in str(failed)
    assert "ValueError" not in str(failed)
    allowed = send(url, "GET /_stcore/host-config HTTP/1.1")
    assert '"allowedOrigins":[]' in allowed
    assert "access-control-allow-origin" not in allowed.lower()
    put = send(url, "PUT /_stcore/upload_file/a/b HTTP/1.1", "Content-Length: 0")
    assert "403" in put.partition("\r\n")[0]
    assert not (folder / "connections").exists()


def token_lines(url: str) -> tuple[str, str]:
    """Return the headers that show that a page of the server asks."""
    answer = send(url, "GET /_stcore/health HTTP/1.1")
    (cookie,) = re.findall(r"(_streamlit_xsrf=[^;]+)", answer)
    return f"Cookie: {cookie}", f"X-Xsrftoken: {cookie.partition('=')[2]}"


def test_an_upload_is_limited_by_the_server_and_needs_the_pages_token(loose: tuple[str, Path]) -> None:
    """The body of 1 GiB is asked for; with a byte more it is refused unread."""
    url, _ = loose
    cookie, token = token_lines(url)
    with PageSocket(url) as page:
        put = f"PUT {page.upload_address()} HTTP/1.1"

        def status(*lines: str) -> str:
            form = "Content-Type: multipart/form-data; boundary=x"
            return first_line(url, put, form, "Expect: 100-continue", *lines)

        assert " 413 " in status(cookie, token, f"Content-Length: {2**30 + 1}")
        assert " 100 " in status(cookie, token, f"Content-Length: {2**30}")
        assert " 403 " in status(cookie, "Content-Length: 0")
        assert " 403 " in status(cookie, token, "Origin: http://evil.example", "Content-Length: 0")


def test_a_visitor_uploads_what_there_is_room_for(loose: tuple[str, Path]) -> None:
    """The room is 1 MiB; earlier uploads are removed for later ones."""
    url, _ = loose
    with PageSocket(url) as page:
        page.run()
        put = f"PUT {page.upload_address()} HTTP/1.1"

        def status(nbytes: int) -> str:
            head = '--x\r\nContent-Disposition: form-data; name="a"; filename="b"\r\n\r\n'
            body = f"{head}{'x' * nbytes}\r\n--x--\r\n"
            form = ("Content-Type: multipart/form-data; boundary=x", f"Content-Length: {len(body)}")
            return send(url, put, *token_lines(url), *form, body=body).split(" ", 2)[1]

        assert [status(nbytes) for nbytes in (1000, 1 << 20, (1 << 20) - 200)] == ["204", "413", "204"]


def test_it_listens_on_this_machine_only(loose: tuple[str, Path]) -> None:
    port = int(loose[0].rpartition(":")[2])
    with socket.socket() as elsewhere:
        # Where all addresses were taken this one would be in use.
        elsewhere.bind(("127.0.0.2", port))


def test_behind_a_reverse_proxy_it_answers_to_the_proxys_name(loose: tuple[str, Path]) -> None:
    url, _ = loose
    assert send(url, "GET /_stcore/health HTTP/1.1", host="plans.example").endswith("ok")
    assert " 101 " in handshake(url, "Origin: https://plans.example", host="plans.example")
    assert " 101 " in handshake(url, "Origin: https://plans.example")
    assert " 403 " in handshake(url, "Origin: https://evil.example", host="plans.example")
    assert " 403 " in send(url, "GET / HTTP/1.1", host="evil.example")


def test_no_message_refers_to_one_that_a_browser_may_have_forgotten(loose: tuple[str, Path]) -> None:
    with PageSocket(loose[0]) as page:
        several = [page.run("large") for _ in range(2)]
    for sent in several:
        kinds = {message.WhichOneof("type") for message in sent}
        assert ("delta" in kinds, "ref_hash" in kinds) == (True, False)
        assert not any(message.metadata.cacheable for message in sent)
        assert any(len(text) > 10_000 for text in texts(sent))


def test_what_a_page_has_drawn_is_sent_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fragment runs before anything of the page was sent: what stands below it may not come first."""
    from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
    from streamlit.runtime.forward_msg_queue import ForwardMsgQueue

    def drawn(place: int, fragment: str = "") -> ForwardMsg:
        message = ForwardMsg()
        message.metadata.delta_path[:] = [0, place]
        message.delta.new_element.text.body = f"{place}{fragment}"
        message.delta.fragment_id = fragment
        return message

    def sent() -> list[str]:
        queue = ForwardMsgQueue()
        for message in (drawn(0), drawn(1, "timed"), drawn(2)):
            queue.enqueue(message)
        queue.clear(retain_lifecycle_msgs=True, fragment_ids_this_run=["timed"])
        queue.enqueue(drawn(1, "timed"))
        before = [message.delta.new_element.text.body for message in queue.flush()]
        queue.enqueue(drawn(0))
        queue.clear(retain_lifecycle_msgs=True)
        assert queue.is_empty(), "a run of the whole page draws everything anew"
        return before

    monkeypatch.setattr(ForwardMsgQueue, "clear", ForwardMsgQueue.clear)
    assert sent() == ["0", "2", "1timed"], "Streamlit has mended it: send_in_order can go"
    send_in_order()
    assert sent() == ["0", "1timed", "2", "1timed"]
