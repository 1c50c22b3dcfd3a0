"""How much of what is being uploaded the server holds: Streamlit keeps a file in memory from its last byte on
until its page, its session or its reader is done with it.

Bytes count as they come in, so that a length that somebody only announces keeps nobody out.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memplan_dashboard.serving.door import visitor_in
from starlette.exceptions import HTTPException

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES_OF_VISITOR = 1280 << 20
"""On the way and in memory; all who bring no cookie are one."""
MOST_BYTES_IN_ALL = 2560 << 20
LEAST_BYTES = 1 << 20
"""Each upload counts as so many: there are thousands at most."""
IDLE_SECONDS = 30.0
"""A request that brings nothing for so long is ended."""

_UPLOAD = re.compile(r"/_stcore/upload_file/([^/]+)/([^/]+)")


@dataclass(eq=False, slots=True)
class _Upload:
    """An upload that has `arrived` or is on its way; `place` is its session and its number there."""

    place: tuple[str, str]
    visitor: str | None
    nbytes: int
    arrived: bool = False


class UploadLimits:
    """ASGI middleware: the oldest uploads make room in memory, the visitor's own before those of others, and
    where none is left to go a request ends with 413."""

    def __init__(self, app: ASGIApp, held: Callable[[], Any]) -> None:
        """`held` gives Streamlit's `MemoryUploadedFileManager`."""
        self.app, self.held = app, held
        self.uploads: list[_Upload] = []
        """The oldest first."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a request; what is no upload goes through."""
        match = _UPLOAD.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if match is None or scope["method"] != "PUT":
            await self.app(scope, receive, send)
            return
        upload = _Upload((match[1], match[2]), visitor_in(scope), LEAST_BYTES)

        async def counted() -> Message:
            try:
                message = await asyncio.wait_for(receive(), IDLE_SECONDS)
            except TimeoutError:
                raise HTTPException(408, f"nothing came for {IDLE_SECONDS:.0f} s") from None
            upload.nbytes += len(message.get("body", b""))
            self._make_room(upload.visitor)
            return message

        self.uploads.append(upload)
        try:
            await self.app(scope, counted, send)
        finally:
            upload.arrived = True

    def _make_room(self, visitor: str | None) -> None:
        """Let go of what has arrived until the rest is within the limits; raises HTTPException where what is
        on its way is too much."""
        manager = self.held()
        self.uploads = [each for each in self.uploads if not each.arrived or _is_held(manager, each)]
        own = [each for each in self.uploads if each.visitor == visitor]
        for several, most in ((own, MOST_BYTES_OF_VISITOR), (self.uploads, MOST_BYTES_IN_ALL)):
            left = sum(each.nbytes for each in several if each in self.uploads)
            for each in [each for each in several if each.arrived]:
                if left <= most:
                    break
                manager.remove_file(*each.place)
                self.uploads.remove(each)
                left -= each.nbytes
            if left > most:
                raise HTTPException(413, f"uploads of more than {most:,} bytes are on their way")


def _is_held(manager: Any, upload: _Upload) -> bool:
    session, name = upload.place
    return name in manager.file_storage.get(session, ())
