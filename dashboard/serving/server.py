"""Runs Streamlit behind the door, as a program: `python -m memplan_dashboard.serving.server`.

What Streamlit reads by itself is left out, files in the current folder and in one's home and variables of the
environment: a stranger's folder would decide who may come in.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from pathlib import Path

from memplan_dashboard.serving.door import Door
from memplan_dashboard.serving.first_paint import SCRIPT, FirstPaint

NEVER = float(1 << 53)
"""Bytes: no message is as large."""

# .streamlit/config.toml says the same to those who start `streamlit run dashboard/app.py` themselves.
# Headless for good, because Streamlit's other mode asks for an e-mail address; the launcher opens browsers.
OPTIONS: dict[str, str | float | bool | list[str]] = {
    "server.address": "127.0.0.1",
    "server.headless": True,
    # A module that is read anew has other classes than the graphs that sessions keep.
    "server.fileWatcherType": "none",
    "server.showEmailPrompt": False,
    "server.maxUploadSize": 1024,
    "server.enableCORS": True,
    "server.enableXsrfProtection": True,
    "browser.gatherUsageStats": False,
    # No message refers to one that was sent before: what a browser has forgotten by then ends its page, and a
    # fragment's timer makes it forget soon ("Cached ForwardMsg MISS").
    "global.minCachedMessageSize": NEVER,
    "client.allowedOrigins": [],
    "client.toolbarMode": "minimal",
    "client.showErrorDetails": "none",
    "client.showErrorLinks": False,
    "runner.magicEnabled": False,
    # Streamlit would go through the whole heap after every run, a fragment's timer included, with Python's
    # lock held: with sixteen pages open that was four fifths of the server's time.
    "runner.postScriptGC": False,
    "theme.light.primaryColor": "#3B6FA8",
    "theme.dark.primaryColor": "#5B8FC7",
    "logger.hideWelcomeMessage": True,
    "logger.level": "warning",
}


def _end_with_input() -> None:
    """End when the launcher has, even where it was killed; the solvers end with their own input."""
    # Not through `sys.stdin`, whose lock the interpreter would wait for at its end.
    while os.read(0, 1 << 10):
        pass
    os._exit(0)


def send_in_order() -> None:
    """Have Streamlit send all that a run has drawn before what a fragment draws anew.

    When a fragment runs, Streamlit drops what the fragment's last run has drawn and was not sent yet. Where
    that was a run of the whole page, what stands below the fragment then comes before it: "Bad delta path
    index", and the page stays white. On a busy machine a fragment's timer is often faster than the sending:
    what runs of the fragment alone have drawn is dropped, or the answer to a click waits behind all of them.
    """
    from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
    from streamlit.runtime.forward_msg_queue import ForwardMsgQueue

    clear = ForwardMsgQueue.clear

    def is_of(message: ForwardMsg, fragments: set[str]) -> bool:
        run = set(message.metadata.run.fragment_ids)
        return bool(run) and run <= fragments

    def clear_for_pages(
        queue: ForwardMsgQueue,
        retain_lifecycle_msgs: bool = False,
        fragment_ids_this_run: list[str] | None = None,
    ) -> None:
        if fragment_ids_this_run:
            redrawn = set(fragment_ids_this_run)
            queue._queue = [each for each in queue._queue if not is_of(each, redrawn)]
            # What comes now must not take the place of a message that is before others.
            queue._delta_index_map = {}
        else:
            clear(queue, retain_lifecycle_msgs)

    ForwardMsgQueue.clear = clear_for_pages  # type: ignore[method-assign, assignment]


def main() -> None:
    """Serve until the process or its input is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("app")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--allow-host", action="append", default=[])
    parser.add_argument("--folder")
    parser.add_argument("--address", default=OPTIONS["server.address"])
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    threading.Thread(target=_end_with_input, daemon=True).start()
    for name in [name for name in os.environ if name.startswith("STREAMLIT_")]:
        del os.environ[name]

    from memplan_dashboard.serving.downloads import keep_downloads
    from memplan_dashboard.serving.page_limits import PageLimits
    from memplan_dashboard.serving.preload import preloads
    from memplan_dashboard.serving.upload_limits import UploadLimits
    from starlette.middleware import Middleware
    from streamlit import config, file_util, runtime
    from streamlit.runtime.app_session import AppSession
    from streamlit.starlette import App

    config.get_config_files = lambda file_name: []  # also those with secrets
    # A browser may ask for it, and it clears what all share, what schedules searches and runs included.
    AppSession._handle_clear_cache_request = lambda _session: None  # type: ignore[assignment]
    send_in_order()
    keep_downloads()
    # The app has no other way to hear of them: what it has of its own are pages.
    below = [] if arguments.folder is None else [f"--folder={arguments.folder}"]
    sys.argv = [arguments.app, *below, *arguments.files]
    static = Path(file_util.get_static_dir())
    page = (static / "index.html").read_text(encoding="utf-8")
    door = Middleware(Door, names=arguments.allow_host, page=page + SCRIPT)
    uploads = Middleware(UploadLimits, held=lambda: runtime.get_instance().uploaded_file_mgr)
    style = Path(arguments.app).with_name("style.css")
    middleware = [door, Middleware(PageLimits), uploads]
    if style.exists():
        text = style.read_text(encoding="utf-8")
        middleware.append(Middleware(FirstPaint, style=text, links=preloads(static, page)))
    where = {"server.address": arguments.address, "server.port": arguments.port}
    App(arguments.app, middleware=middleware).run(config={**OPTIONS, **where})


if __name__ == "__main__":
    main()
