"""The dashboard as a stranger meets it: raw requests, a loosened configuration, and whom it asks itself."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.serving.server import send_in_order

from tests import ROOT
from tests.support.browser import Tab, import_path, serve

OPTIONS_ASKED = """
import sys
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
st.text("the end")
"""
SHARING = """
import secrets
import streamlit as st
made = st.cache_resource(show_spinner=False)(lambda: secrets.token_hex())
st.text(made())
"""
LARGE = """
import streamlit as st
st.text("large " * 10_000)
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
"""A sitecustomize that notes whom the process asks: in every process of the server, also those it starts."""


@pytest.fixture(scope="module")
def loose(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A server started where a folder, a home and variables ask for the opposite of what it holds, and where
    it notes whom it asks."""
    folder = tmp_path_factory.mktemp("loose")
    for place in (folder, folder / "home"):
        (place / ".streamlit").mkdir(parents=True)
        (place / ".streamlit" / "config.toml").write_text(LOOSE)
        (place / ".streamlit" / "secrets.toml").write_text('token = "a"\n[auth]\ncookie_secret = "b"\n')
    (folder / "app.py").write_text(OPTIONS_ASKED)
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(CONNECTIONS)
    env = {
        "HOME": str(folder / "home"),
        "CONNECTIONS": str(folder / "connections"),
        "STREAMLIT_SERVER_ENABLE_CORS": "false",
        "STREAMLIT_CLIENT_SHOW_ERROR_DETAILS": "full",
        "STREAMLIT_BROWSER_GATHER_USAGE_STATS": "true",
        "STREAMLIT_SERVER_ADDRESS": "0.0.0.0",
        "STREAMLIT_SERVER_ENABLE_AGENT_API": "true",
    }
    with serve(folder / "app.py", paths=[folder / "site"], env=env, folder=folder) as url:
        yield url, folder


def send(url: str, *lines: str, host: str | None = None, seconds: float = 10, body: str = "") -> str:
    """The answer to a raw request."""
    address, port = url.removeprefix("http://").split(":")
    with socket.create_connection((address, int(port)), timeout=seconds) as connection:
        head = [lines[0], f"Host: {host or f'{address}:{port}'}", *lines[1:], "Connection: close", "", body]
        connection.sendall("\r\n".join(head).encode("latin-1"))
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    return answer.decode("latin-1")


def handshake(url: str, *lines: str, host: str | None = None) -> str:
    """The first line of the answer to the start of a WebSocket."""
    address, port = url.removeprefix("http://").split(":")
    key = base64.b64encode(os.urandom(16)).decode()
    with socket.create_connection((address, int(port)), timeout=10) as connection:
        head = [
            "GET /_stcore/stream HTTP/1.1", f"Host: {host or f'{address}:{port}'}", "Upgrade: websocket",
            "Connection: Upgrade", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}", *lines, "", "",
        ]  # fmt: skip
        connection.sendall("\r\n".join(head).encode())
        return connection.recv(65536).decode("latin-1").partition("\r\n")[0]


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


def test_nobody_clears_what_all_share(tmp_path: Path) -> None:
    """The schedulers of searches and runs are in Streamlit's cache: cleared, everything would run at once."""
    connect = pytest.importorskip("websockets.sync.client").connect
    from streamlit.proto.BackMsg_pb2 import BackMsg
    from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

    (tmp_path / "app.py").write_text(SHARING)

    def shown(connection: Any) -> str:
        """What a run of the script shows."""
        wanted = BackMsg()
        wanted.rerun_script.query_string = ""
        connection.send(wanted.SerializeToString())
        texts = []
        while True:
            message = ForwardMsg.FromString(connection.recv(20))
            if message.delta.new_element.text.body:
                texts.append(message.delta.new_element.text.body)
            if message.WhichOneof("type") == "script_finished":
                return " ".join(texts)

    with serve(tmp_path / "app.py") as url:
        address = f"{url.replace('http', 'ws')}/_stcore/stream"
        with connect(address, proxy=None) as one, connect(address, proxy=None) as another:
            made = shown(one)
            another.send(BackMsg(clear_cache=True).SerializeToString())
            assert shown(another) == made
            assert shown(one) == made != ""


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


def test_the_dashboard_itself_asks_nobody(tmp_path: Path, open_page: Callable[..., Tab]) -> None:
    (tmp_path / "sitecustomize.py").write_text(CONNECTIONS)
    env = {"CONNECTIONS": str(tmp_path / "connections")}
    with serve(ROOT / "dashboard" / "app.py", paths=[tmp_path], env=env) as url:
        tab = open_page(f"{url}/?doc=example:gpt2&strategy=search")
        tab.page.locator(".plan-view[data-drawn]").first.wait_for(timeout=120_000)
        for page in ("fit", "devices", "pipeline", "compare", "diff", "replay", "run", "learn", "import"):
            tab.page.goto(f"{url}/{page}")
            tab.settle(90)
        tab.close()
    assert not (tmp_path / "connections").exists()


def test_what_lies_in_the_folder_the_home_and_the_environment_loosens_nothing(
    loose: tuple[str, Path], open_page: Callable[..., Tab]
) -> None:
    """open_page fails where the browser was told to ask another host."""
    url, folder = loose
    tab = open_page(url)
    tab.page.get_by_text("the end").wait_for()
    text = tab.page.locator("body").inner_text()
    assert {line for line in text.splitlines() if "=" in line} == {f"{k}={v!r}" for k, v in HELD.items()}
    assert tab.page.get_by_text("Deploy").count() == 0
    tab.page.goto(f"{url}/?fail")
    tab.page.get_by_test_id("stException").wait_for()
    assert "/home/somebody" not in tab.page.content()
    assert "ValueError" not in tab.page.content()
    tab.close()
    allowed = send(url, "GET /_stcore/host-config HTTP/1.1")
    assert '"allowedOrigins":[]' in allowed
    assert "access-control-allow-origin" not in allowed.lower()
    assert (
        "403" in send(url, "PUT /_stcore/upload_file/a/b HTTP/1.1", "Content-Length: 0").partition("\r\n")[0]
    )
    assert not (folder / "connections").exists()


@pytest.mark.quarantine
def test_an_upload_is_limited_by_the_server_and_needs_the_pages_token(
    dashboard_url: str, open_page: Callable[..., Tab]
) -> None:
    """At 1 GiB the body is waited for, with a byte more it is refused unread."""
    tab = open_page(f"{dashboard_url}/import")
    with tab.page.expect_request(lambda request: request.method == "PUT") as put:
        tab.page.locator("input[type=file]").set_input_files(
            {"name": "a.csv", "mimeType": "text/csv", "buffer": b"id,lower,upper,size\na,0,4,10\n"}
        )
    path = put.value.url.removeprefix(dashboard_url) + "x"
    given = put.value.all_headers()
    token = [f"Cookie: {given['cookie']}", f"X-Xsrftoken: {given['x-xsrftoken']}"]
    form = "Content-Type: multipart/form-data; boundary=x"

    def status(*lines: str) -> str:
        return send(dashboard_url, f"PUT {path} HTTP/1.1", form, *lines).partition("\r\n")[0]

    assert " 413 " in status(*token, f"Content-Length: {2**30 + 1}")
    with pytest.raises(TimeoutError):
        send(dashboard_url, f"PUT {path} HTTP/1.1", form, *token, f"Content-Length: {2**30}", seconds=2)
    assert " 403 " in status(token[0], "Content-Length: 0")
    assert " 403 " in status(*token, "Origin: http://evil.example", "Content-Length: 0")
    tab.close()


def test_it_listens_on_this_machine_only(loose: tuple[str, Path]) -> None:
    port = int(loose[0].rpartition(":")[2])
    with socket.socket() as elsewhere:
        # Where all addresses were taken this one would be in use.
        elsewhere.bind(("127.0.0.2", port))


def test_behind_a_reverse_proxy_it_answers_to_the_proxys_name(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text("import streamlit as st\nst.text('a')\n")
    with serve(app, allow_hosts=["Plans.Example"]) as url:
        assert send(url, "GET /_stcore/health HTTP/1.1", host="plans.example").endswith("ok")
        assert " 101 " in handshake(url, "Origin: https://plans.example", host="plans.example")
        assert " 101 " in handshake(url, "Origin: https://plans.example")
        assert " 403 " in handshake(url, "Origin: https://evil.example", host="plans.example")
        assert " 403 " in send(url, "GET / HTTP/1.1", host="evil.example")


def test_no_message_refers_to_one_that_a_browser_may_have_forgotten(tmp_path: Path) -> None:
    connect = pytest.importorskip("websockets.sync.client").connect
    from streamlit.proto.BackMsg_pb2 import BackMsg
    from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

    (tmp_path / "app.py").write_text(LARGE)
    with (
        serve(tmp_path / "app.py") as url,
        connect(f"{url.replace('http', 'ws')}/_stcore/stream", proxy=None, max_size=None) as browser,
    ):
        hashes: list[str] = []
        for _ in range(2):
            wanted = BackMsg()
            wanted.rerun_script.cached_message_hashes.extend(hashes)
            browser.send(wanted.SerializeToString())
            kinds = []
            while "script_finished" not in kinds:
                message = ForwardMsg.FromString(browser.recv(20))
                assert not message.metadata.cacheable
                hashes.append(message.hash)
                kinds.append(message.WhichOneof("type"))
            assert "delta" in kinds
            assert "ref_hash" not in kinds


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
