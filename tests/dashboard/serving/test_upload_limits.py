"""What is on its way and in memory: counted as it comes, with limits at their edges."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.serving import upload_limits
from memplan_dashboard.serving.door import VISITOR_COOKIE
from memplan_dashboard.serving.upload_limits import UploadLimits
from starlette.exceptions import HTTPException
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.uploaded_file_manager import UploadedFileRec


class Uploading:
    """Streamlit's keeper of uploads behind the limits; `part` keeps a request on its way."""

    def __init__(self) -> None:
        self.manager = MemoryUploadedFileManager("")
        self.limits = UploadLimits(self.app, held=lambda: self.manager)
        self.waits = asyncio.Event()

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        data, more = b"", True
        while more:
            message = await receive()
            data, more = data + message["body"], message["more_body"]
        session, name = scope["path"].split("/")[-2:]
        self.manager.add_file(session, UploadedFileRec(name, "a.csv", "text/csv", data))

    async def put(self, place: str, chunks: Sequence[int | None], visitor: str = "") -> None:
        """Send so many bytes one after the other; None waits without an end."""
        left = list(chunks)

        async def receive() -> Any:
            if left[0] is None:
                self.waits.set()
                await asyncio.Event().wait()
            return {"type": "http.request", "body": b"x" * (left.pop(0) or 0), "more_body": bool(left)}

        headers = [(b"cookie", f"{VISITOR_COOKIE}={visitor * 43}".encode())] if visitor else []
        path = f"/_stcore/upload_file/{place}"
        await self.limits(
            {"type": "http", "method": "PUT", "path": path, "headers": headers},
            receive,
            lambda message: None,  # type: ignore[arg-type,return-value]
        )

    @property
    def held(self) -> list[str]:
        return [f"{session}/{name}" for session, files in self.manager.file_storage.items() for name in files]


@pytest.fixture
def uploading(monkeypatch: pytest.MonkeyPatch) -> Uploading:
    monkeypatch.setattr(upload_limits, "LEAST_BYTES", 1)
    monkeypatch.setattr(upload_limits, "MOST_BYTES_OF_VISITOR", 10)
    monkeypatch.setattr(upload_limits, "MOST_BYTES_IN_ALL", 15)
    return Uploading()


def refusal(put: Coroutine[Any, Any, None]) -> int:
    with pytest.raises(HTTPException) as caught:
        asyncio.run(put)
    return caught.value.status_code


def test_a_visitor_has_so_much_in_memory_and_the_oldest_make_room(uploading: Uploading) -> None:
    asyncio.run(uploading.put("s/a", [4], "v"))
    asyncio.run(uploading.put("s/b", [2, 2], "v"))
    assert uploading.held == ["s/a", "s/b"]
    asyncio.run(uploading.put("t/c", [4], "v"))
    assert uploading.held == ["s/b", "t/c"]
    # All of it, and a byte more.
    asyncio.run(uploading.put("t/d", [4, 5], "v"))
    assert uploading.held == ["t/d"]
    assert refusal(uploading.put("t/e", [4, 6, 1000], "v")) == 413
    assert uploading.held == []


def test_one_visitor_does_not_make_room_for_another_while_there_is_some(uploading: Uploading) -> None:
    asyncio.run(uploading.put("s/a", [6], "v"))
    asyncio.run(uploading.put("t/b", [7], "w"))
    assert uploading.held == ["s/a", "t/b"]
    asyncio.run(uploading.put("u/c", [1]))
    assert uploading.held == ["t/b", "u/c"]


def test_who_brings_no_cookie_is_one_visitor(uploading: Uploading) -> None:
    asyncio.run(uploading.put("s/a", [6]))
    asyncio.run(uploading.put("t/b", [6]))
    assert uploading.held == ["t/b"]


def test_what_is_on_its_way_counts_and_does_not_make_room(uploading: Uploading) -> None:
    async def run() -> None:
        first = asyncio.create_task(uploading.put("s/a", [5, None], "v"))
        await uploading.waits.wait()
        with pytest.raises(HTTPException):
            await uploading.put("s/b", [4], "v")
        await uploading.put("s/c", [3], "v")
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        # What broke off counts no more.
        await uploading.put("s/d", [5], "v")
        assert uploading.held == ["s/c", "s/d"]

    asyncio.run(run())


def test_what_a_session_let_go_of_counts_no_more(uploading: Uploading) -> None:
    asyncio.run(uploading.put("s/a", [5], "v"))
    uploading.manager.remove_session_files("s")
    asyncio.run(uploading.put("t/b", [3], "v"))
    asyncio.run(uploading.put("t/c", [4], "v"))
    assert uploading.held == ["t/b", "t/c"]


def test_a_request_that_brings_nothing_is_ended(
    uploading: Uploading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_limits, "IDLE_SECONDS", 0.01)
    assert refusal(uploading.put("s/a", [4, None], "v")) == 408
    assert uploading.held == []
