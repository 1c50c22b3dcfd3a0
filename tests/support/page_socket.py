"""A page of an app without a browser: the messages that the server sends over its WebSocket."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING

from tests.support.waiting import HANG_SECONDS

if TYPE_CHECKING:
    from streamlit.proto.BackMsg_pb2 import BackMsg
    from streamlit.proto.ForwardMsg_pb2 import ForwardMsg


class PageSocket:
    """One session of the server at `url`; `cookies` are those of a browser, as its header has them."""

    def __init__(self, url: str, cookies: str = "") -> None:
        from websockets.sync.client import connect

        self._open = ExitStack()
        self._connection = self._open.enter_context(
            connect(
                f"{url.replace('http', 'ws')}/_stcore/stream",
                additional_headers={"Cookie": cookies} if cookies else {},
                proxy=None,
                max_size=None,
                open_timeout=HANG_SECONDS,
                ping_interval=None,
            )
        )

    def __enter__(self) -> PageSocket:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the session, as closing its tab does."""
        self._open.close()

    def send(self, message: BackMsg) -> None:
        """Send what a browser would."""
        self._connection.send(message.SerializeToString())

    def receive(self) -> ForwardMsg:
        """Return the next message."""
        from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

        return ForwardMsg.FromString(self._connection.recv(HANG_SECONDS))

    def run(self, query: str = "", page: str = "") -> list[ForwardMsg]:
        """Return what a run of `page` at the address `query` sends, up to its end."""
        from streamlit.proto.BackMsg_pb2 import BackMsg

        wanted = BackMsg()
        wanted.rerun_script.query_string = query
        wanted.rerun_script.page_name = page
        # Back and Forward: any other run keeps to what its session has chosen.
        wanted.rerun_script.is_history_navigation = True
        self.send(wanted)
        messages = [self.receive()]
        while messages[-1].WhichOneof("type") != "script_finished" or messages[-1].script_finished:
            messages.append(self.receive())
        return messages

    def upload_address(self) -> str:
        """Return the path that takes the next upload of this session."""
        from streamlit.proto.BackMsg_pb2 import BackMsg

        wanted = BackMsg()
        wanted.file_urls_request.request_id = "1"
        wanted.file_urls_request.file_names.append("a.csv")
        self.send(wanted)
        while (message := self.receive()).WhichOneof("type") != "file_urls_response":
            pass
        return message.file_urls_response.file_urls[0].upload_url


def texts(messages: list[ForwardMsg]) -> list[str]:
    """Return what `st.text` and `st.markdown` show in `messages`, without the backslashes of Markdown."""
    elements = [message.delta.new_element for message in messages]
    shown = [element.text.body or element.markdown.body for element in elements]
    return [text.replace("\\", "") for text in shown if text]
