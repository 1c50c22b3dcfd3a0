"""What stands before Streamlit: who is let in, what a browser may do with the answers, and whose they are.

Another site's name may point to this machine (DNS rebinding), and any page may open a WebSocket to it: a
request comes in only under a name that the dashboard is served under, and only from its own pages.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""The names that always lead here, of whatever port: a tunnel may have another."""

ALLOWED_BY = "memplan dashboard --allow-host NAME"

VISITOR_COOKIE = "memplan_visitor"
VISITOR_DAYS = 30
_VISITOR = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.?)(?::([0-9]{1,5}))?", re.ASCII)
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_PORTS = {"http": "80", "https": "443"}

# What is more than 'self' Streamlit needs: the script in its page, components from blobs, styles, data URLs.
POLICY = (
    "default-src 'self'; script-src 'self' {scripts}blob: 'wasm-unsafe-eval'; worker-src 'self' blob:; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "connect-src 'self' ws://{host} wss://{host}; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-src 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


def host_name(text: str) -> str | None:
    """The name in a Host header, "[::1]" of "[::1]:8501", in lower case; None where it is none."""
    match = _HOST.fullmatch(text.lower())
    return match[1].removesuffix(".") if match else None


def visitor_of(value: str | None) -> str | None:
    """What a cookie says of who is visiting; None where it cannot be ours."""
    return value if isinstance(value, str) and _VISITOR.fullmatch(value) else None


class Door:
    """ASGI middleware: answers 403 to a foreign Host or Origin, sets the headers of every answer, and gives
    each browser a cookie that cannot be guessed."""

    def __init__(self, app: ASGIApp, names: Iterable[str] = (), page: str = "") -> None:
        """`names` are further names to be served under, beside those of this machine; of all scripts that
        stand in a page, those in `page` may run."""
        self.app = app
        self.names = frozenset(names)
        self.scripts = "".join(f"'sha256-{_digest(script)}' " for script in _SCRIPT.findall(page))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a request; what is of neither HTTP nor WebSocket goes through."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        host, reason = self._judge(scope)
        answer = self._with_headers(scope, send, host)
        if reason:
            await refuse(scope, answer, 403, reason)
            return
        # It has been judged. Streamlit would ask the internet for this machine's address to judge it again.
        headers = [(name, value) for name, value in scope["headers"] if name != b"origin"]
        await self.app({**scope, "headers": headers}, receive, answer)

    def _judge(self, scope: Scope) -> tuple[str, str]:
        """The Host, "" where it is refused, and why the request is."""
        hosts, origins = _values(scope, b"host"), _values(scope, b"origin")
        if len(hosts) != 1 or host_name(hosts[0]) not in LOOPBACK | self.names:
            return "", f"Host {_shown(hosts)} is not allowed here; {ALLOWED_BY} allows it"
        if origins and (len(origins) > 1 or not self._is_own(origins[0], hosts[0])):
            return "", f"Origin {_shown(origins)} is not allowed here"
        return hosts[0].lower(), ""

    def _is_own(self, origin: str, host: str) -> bool:
        """Whether a page of `origin` is the dashboard's: it has the request's host and port, or a name that
        was allowed, for a reverse proxy may change the Host."""
        try:
            scheme, netloc = urlsplit(origin)[:2]
        except ValueError:
            return False
        if scheme not in _PORTS or origin.lower() != f"{scheme}://{netloc}".lower():
            return False
        return host_name(netloc) in self.names or _with_port(netloc, scheme) == _with_port(host, scheme)

    def _with_headers(self, scope: Scope, send: Send, host: str) -> Send:
        added = {
            **HEADERS,
            "content-security-policy": POLICY.format(host=host or "localhost", scripts=self.scripts),
        }
        if (
            host
            and scope["type"] == "http"
            and any("text/html" in each for each in _values(scope, b"accept"))
        ):
            added["set-cookie"] = _cookie(scope)
        pairs = [(name.encode(), value.encode()) for name, value in added.items()]

        async def answer(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                message = {**message, "headers": [*message.get("headers", ()), *pairs]}
            await send(message)

        return answer


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _with_port(netloc: str, scheme: str) -> tuple[str | None, str]:
    match = _HOST.fullmatch(netloc.lower())
    return (match[1].removesuffix("."), match[2] or _PORTS[scheme]) if match else (None, netloc)


def _values(scope: Scope, wanted: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == wanted]


def _shown(values: list[str]) -> str:
    return ascii(values[0][:80]) if len(values) == 1 else f"given {len(values)} times"


def visitor_in(scope: Scope) -> str | None:
    """Who sends a request, by the cookie that came; None without one."""
    came = [each.partition("=") for value in _values(scope, b"cookie") for each in value.split(";")]
    known = [visitor_of(value.strip()) for name, _, value in came if name.strip() == VISITOR_COOKIE]
    return known[-1] if known else None


def _cookie(scope: Scope) -> str:
    """The visitor's cookie: the one that came, for as long again, or a new one."""
    value = visitor_in(scope) or secrets.token_urlsafe(32)
    secure = "; Secure" if scope.get("scheme") == "https" else ""
    seconds = VISITOR_DAYS * 86_400
    return f"{VISITOR_COOKIE}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}"


async def refuse(scope: Scope, send: Send, status: int, reason: str) -> None:
    """Answer a request, or what would open a WebSocket, with `status` and the reason."""
    kind = "http"
    if scope["type"] == "websocket":
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1008})
            return
        kind = "websocket.http"
    body = f"memplan: {reason}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": f"{kind}.response.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.response.body", "body": body})
