"""A real browser on a real server, for tests: finding Chromium, serving an app, opening a tab."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tests import ROOT
from tests.support.settled import IS_SETTLED, ON_SCREEN, WATCH
from tests.support.waiting import HANG_SECONDS, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

HANG_MS = HANG_SECONDS * 1000
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--force-color-profile=srgb",
]


def find_chromium() -> str | None:
    """Return the path of a Chromium to drive: $MEMPLAN_CHROMIUM, one on the path, or Playwright's own."""
    if chosen := os.environ.get("MEMPLAN_CHROMIUM"):
        return chosen
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        # Ubuntu's chromium is a wrapper that only works where snap does.
        if path and subprocess.run([path, "--version"], capture_output=True).returncode == 0:
            return path
    return _playwrights_own()


def _playwrights_own() -> str | None:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


# A page that shows an error has no storage.
FORGET = "() => { try { localStorage.clear() } catch { } }"


@dataclass
class Tab:
    """An open page and what went wrong on it: `errors` must be empty (or cleared) when the test ends."""

    page: Page
    errors: list[str] = field(default_factory=list)
    foreign_hosts: set[str] = field(default_factory=set)
    alone: bool = True

    def close(self) -> None:
        """Close the page: needed before its server stops, since losing the server is an error, too.

        Its context goes with it, or, shared with later pages, forgets all but the scripts it has compiled.
        """
        if self.alone:
            self.page.context.close()
        elif not self.page.is_closed():
            self.page.evaluate(FORGET)
            self.page.context.clear_cookies()
            self.page.close()

    def settle(self, timeout_s: float = HANG_SECONDS) -> None:
        """Wait until the app has run its script for what was done last, and the page shows the result."""
        self.page.evaluate(ON_SCREEN)
        self.page.wait_for_function(IS_SETTLED, timeout=timeout_s * 1000)


def open_tab(
    browser: Browser,
    url: str,
    width: int,
    height: int,
    scheme: str,
    shared: BrowserContext | None = None,
    patience_ms: float = HANG_MS,
) -> Tab:
    """Open `url` in a new context or in `shared`, and collect what the console and the page complain of.

    `patience_ms` limits the wait for the server's answer.
    """
    context = shared or browser.new_context()
    tab = Tab(context.new_page(), alone=shared is None)
    tab.page.set_default_timeout(HANG_MS)
    tab.page.add_init_script(WATCH)
    tab.page.set_viewport_size({"width": width, "height": height})
    tab.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
    home = urlsplit(url).netloc

    def note_request(request: Request) -> None:
        target = urlsplit(request.url)
        if target.scheme in ("http", "https", "ws", "wss") and target.netloc != home:
            tab.foreign_hosts.add(target.netloc)

    def note_message(message: ConsoleMessage) -> None:
        at = message.location.get("url", "")
        if message.type == "error":
            tab.errors.append(f"{message.text} {at}")

    tab.page.on("console", note_message)
    tab.page.on("pageerror", lambda error: tab.errors.append(str(error)))
    tab.page.on("request", note_request)
    tab.page.goto(url, timeout=patience_ms)
    return tab


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """Yield a port of this machine that no other program is given meanwhile.

    On Linux a socket that does not listen holds it, and lets a server that sets SO_REUSEADDR have it too.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        if sys.platform != "linux":
            holder.close()
        yield port


@contextlib.contextmanager
def serve(
    app: Path,
    *files: Path,
    paths: Sequence[Path] = (),
    allow_hosts: Sequence[str] = (),
    env: Mapping[str, str] = MappingProxyType({}),
    folder: Path | None = None,
) -> Iterator[str]:
    """Serve `app` on a free port, exactly as `memplan dashboard` does, and yield its address.

    The server is gone when this returns; what it printed goes into the error if it did not start. `paths` are
    more folders to import from, `allow_hosts` more names to serve under, `env` more variables, and `folder`
    the current folder.
    """
    # Imported here: finding the browser must not need the project to be installed.
    from memplan_dashboard.launch import command, is_healthy, stop

    with (
        reserved_port() as port,
        tempfile.TemporaryDirectory() as own,
        open(Path(own) / "log", "w+b") as log,
    ):
        url = f"http://127.0.0.1:{port}"
        server = subprocess.Popen(
            command(files, port, app, allow_hosts),
            cwd=folder or own,
            # With its own cache: what a test uploads must not show up in the user's dashboard.
            env={
                **os.environ,
                "PYTHONPATH": import_path(*paths),
                "OMP_NUM_THREADS": "1",
                "XDG_CACHE_HOME": own,
                **env,
            },
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

        def printed() -> str:
            return f"{app}: {(Path(own) / 'log').read_text(errors='replace')}"

        try:
            wait_until(lambda: server.poll() is not None or is_healthy(url), printed)
            if server.returncode is not None:
                raise RuntimeError(f"did not start: {printed()}")
            yield url
        finally:
            stop(server)


def import_path(*paths: Path) -> str:
    """Return a PYTHONPATH: this checkout, `paths`, and what this process was given."""
    given = filter(None, [os.environ.get("PYTHONPATH")])
    return os.pathsep.join(map(str, (ROOT, *paths, *given)))


if __name__ == "__main__":
    sys.exit(find_chromium() is None)
