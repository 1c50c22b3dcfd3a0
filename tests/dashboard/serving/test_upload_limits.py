"""What is on its way and in memory: counted as it comes, with limits at their edges."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.serving import upload_limits
from memplan_dashboard.serving.door import VISITOR_COOKIE
from memplan_dashboard.serving.upload_limits import UploadLimits
from starlette.exceptions import HTTPException
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.uploaded_file_manager import UploadedFileRec

from tests.dashboard.serving.test_server import send
from tests.support.browser import Tab, serve


class Uploading:
    """Streamlit's keeper of uploads behind the limits; `part` keeps a request on its way."""

    def __init__(self) -> None:
        self.manager = MemoryUploadedFileManager("")
        self.limits = UploadLimits(self.app, held=lambda: self.manager)

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


@pytest.mark.quarantine
def test_what_is_on_its_way_counts_and_does_not_make_room(uploading: Uploading) -> None:
    async def run() -> None:
        first = asyncio.create_task(uploading.put("s/a", [5, None], "v"))
        await asyncio.sleep(0)
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


LESS = """
import memplan_dashboard.serving.upload_limits as limits
limits.MOST_BYTES_OF_VISITOR, limits.LEAST_BYTES = 2**20, 1
"""
APP = """
import streamlit as st
file = st.file_uploader("a file")
st.text(f"{len(file.getvalue()) if file else 0:,} bytes")
"""


def test_the_server_limits_what_comes(tmp_path: Path, open_page: Callable[..., Tab]) -> None:
    (tmp_path / "sitecustomize.py").write_text(LESS)
    (tmp_path / "app.py").write_text(APP)
    with serve(tmp_path / "app.py", paths=[tmp_path]) as url:
        tab = open_page(url)
        tab.page.get_by_text("0 bytes").wait_for()
        with tab.page.expect_request(lambda request: request.method == "PUT") as put:
            tab.page.locator("input[type=file]").set_input_files(
                {"name": "a.csv", "mimeType": "text/csv", "buffer": b"x" * 1000}
            )
        tab.page.get_by_text("1,000 bytes").wait_for()
        given = put.value.all_headers()
        lines = (
            f"PUT {put.value.url.removeprefix(url)}x HTTP/1.1",
            f"Cookie: {given['cookie']}",
            f"X-Xsrftoken: {given['x-xsrftoken']}",
            "Content-Type: multipart/form-data; boundary=x",
        )

        def put_again(nbytes: int) -> str:
            head = '--x\r\nContent-Disposition: form-data; name="a"; filename="b"\r\n\r\n'
            body = f"{head}{'x' * nbytes}\r\n--x--\r\n"
            answer = send(url, *lines, f"Content-Length: {len(body)}", body=body)
            return answer.split(" ", 2)[1]

        assert put_again(1 << 20) == "413"
        # The one that the page showed makes room.
        assert put_again((1 << 20) - 200) == "204"
        tab.close()
