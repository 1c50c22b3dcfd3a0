"""How many pages are open at once: each has a WebSocket, and a session in the server's memory."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from memplan_dashboard.serving.door import refuse, visitor_in

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

MOST_PAGES_OF_VISITOR = 100
"""Of one browser; all who bring no cookie are one. Sixty pages, with examples in them, are tested."""
MOST_PAGES = 400


class PageLimits:
    """ASGI middleware: one WebSocket too many is answered with 503, and opens once another page is closed."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.open = Counter[str | None]()
        """Pages of each visitor."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a request; what opens no WebSocket goes through."""
        if scope["type"] != "websocket":
            await self.app(scope, receive, send)
            return
        visitor = visitor_in(scope)
        if self.open[visitor] >= MOST_PAGES_OF_VISITOR or self.open.total() >= MOST_PAGES:
            await refuse(scope, send, 503, f"{self.open.total()} pages are open here; close some")
            return
        self.open[visitor] += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.open[visitor] -= 1
            self.open += Counter()  # without those who have none
