"""What stands in Streamlit's page from the first: the dashboard's style sheet, for what the app sends comes
after the first paint, and what was painted would move; and where the server is, for Streamlit would look for
it below /compare before it looks at the root, which takes two answers 404."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_END_OF_HEAD = b"</head>"
SCRIPT = '<script>window.__streamlit = { BACKEND_BASE_URL: new URL(".", location.href).href };</script>'
"""The server is where the relative addresses of the page lead, its scripts' among them."""


asked_for: list[Callable[[str, dict[str, str]], None]] = []
"""Who hears of each page that a browser asks for, its path and its query, before it is answered."""


class FirstPaint:
    """ASGI middleware: puts `links`, `style` and SCRIPT at the end of the head of every HTML page."""

    def __init__(self, app: ASGIApp, style: str, links: str = "") -> None:
        self.app = app
        # Nested, for Streamlit's own rules come later and would win.
        self.element = f"{links}<style>html {{\n{style}\n}}</style>{SCRIPT}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a request; what is no page goes through as it is."""
        if scope["type"] != "http" or scope["method"] != "GET" or not _wants_page(scope):
            await self.app(scope, receive, send)
            return
        query = dict(parse_qsl(scope["query_string"].decode("ascii", "replace")))
        for hear in asked_for:
            hear(scope["path"], query)
        # What is compressed cannot be added to.
        headers = [(name, value) for name, value in scope["headers"] if name != b"accept-encoding"]
        await self.app({**scope, "headers": headers}, receive, self._adding(send))

    def _adding(self, send: Send) -> Send:
        start: list[Message] = []
        body: list[bytes] = []

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start" and _is_page(message):
                start.append(message)
            elif start and message["type"] == "http.response.body":
                body.append(message.get("body", b""))
                if not message.get("more_body"):
                    whole = b"".join(body).replace(_END_OF_HEAD, self.element + _END_OF_HEAD, 1)
                    await send(_with_length(start[0], len(whole)))
                    await send({"type": "http.response.body", "body": whole})
            else:
                await send(message)

        return answer


def _wants_page(scope: Scope) -> bool:
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


def _is_page(message: Message) -> bool:
    headers: dict[bytes, bytes] = dict(message.get("headers", ()))
    return bool(message["status"] == 200) and headers.get(b"content-type", b"").startswith(b"text/html")


def _with_length(message: Message, length: int) -> Message:
    others = [pair for pair in message["headers"] if pair[0] != b"content-length"]
    return {**message, "headers": [*others, (b"content-length", str(length).encode())]}
