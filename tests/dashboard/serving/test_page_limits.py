"""How many pages a browser, and all together, may have open."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("streamlit")

from memplan_dashboard.serving import page_limits
from memplan_dashboard.serving.door import VISITOR_COOKIE
from memplan_dashboard.serving.page_limits import PageLimits


class Pages:
    """An app whose WebSockets stay open until they are let go."""

    def __init__(self) -> None:
        self.limits = PageLimits(self.app)
        self.closed: dict[int, asyncio.Event] = {}

    async def app(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        await self.closed[scope["number"]].wait()
        if scope["number"] == 13:
            raise RuntimeError("the page fell over")

    async def open(self, number: int, visitor: str = "") -> tuple[asyncio.Task[None], list[dict[str, Any]]]:
        """What opens page `number`, and what it was answered so far."""
        told: list[dict[str, Any]] = []
        answered = asyncio.Event()

        async def send(message: dict[str, Any]) -> None:
            told.append(message)
            if message["type"] != "websocket.http.response.start":
                answered.set()

        cookie = [(b"cookie", f"{VISITOR_COOKIE}={visitor * 43}".encode())] if visitor else []
        scope = {
            "type": "websocket", "number": number, "headers": cookie,
            "extensions": {"websocket.http.response": {}},
        }  # fmt: skip
        self.closed[number] = asyncio.Event()
        task = asyncio.create_task(self.limits(scope, None, send))  # type: ignore[arg-type]
        await answered.wait()
        return task, told


def opened(told: list[dict[str, Any]]) -> bool:
    if told[0]["type"] == "websocket.accept":
        return True
    assert told[0]["type"] == "websocket.http.response.start"
    assert told[0]["status"] == 503
    assert b"pages are open here; close some" in told[1]["body"]
    return False


def test_a_browser_and_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_limits, "MOST_PAGES_OF_VISITOR", 2)
    monkeypatch.setattr(page_limits, "MOST_PAGES", 4)

    async def visit() -> None:
        pages = Pages()
        tasks = {}
        for number, visitor, may in (
            (1, "a", True), (2, "a", True), (3, "a", False), (13, "b", True), (4, "", True), (5, "c", False)
        ):  # fmt: skip
            tasks[number], told = await pages.open(number, visitor)
            assert opened(told) is may, number
        pages.closed[1].set()
        await tasks[1]
        pages.closed[13].set()
        with pytest.raises(RuntimeError):
            await tasks[13]
        for number, visitor, may in ((6, "a", True), (7, "a", False), (8, "b", True)):
            tasks[number], told = await pages.open(number, visitor)
            assert opened(told) is may, number
        assert pages.limits.open.total() == 4
        for event in pages.closed.values():
            event.set()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        assert dict(pages.limits.open) == {}

    asyncio.run(visit())
