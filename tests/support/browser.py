"""A real browser on a real server, for tests: finding Chromium, serving an app, opening a tab."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tests import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

FIRST_TEST_PORT = 8701
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

    def settle(self, timeout_s: float = 20) -> None:
        """Wait until the app has run its script to the end and the page shows the result."""
        ready = (
            "() => document.querySelector('[data-testid=stApp]')?.dataset.testScriptState === 'notRunning'"
        )
        self.page.wait_for_function(ready, timeout=timeout_s * 1000)


def open_tab(
    browser: Browser,
    url: str,
    width: int,
    height: int,
    scheme: str,
    shared: BrowserContext | None = None,
    patience_ms: float = 30_000,
) -> Tab:
    """Open `url` in a context of its own, or in `shared`, with everything the console and the page complain
    of collected. `patience_ms` is how long the server may take to answer."""
    context = shared or browser.new_context()
    tab = Tab(context.new_page(), alone=shared is None)
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
def serve(
    app: Path,
    *files: Path,
    startup_s: float = 60,
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
    from memplan_dashboard.launch import command, free_port, is_healthy, stop

    port = free_port(FIRST_TEST_PORT + 100 * _worker())
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as own, open(Path(own) / "log", "w+b") as log:
        server = subprocess.Popen(
            command(files, port, app, allow_hosts),
            cwd=folder or own,
            # A cache of its own: uploads of a test must not show up in the dashboard of whoever runs it.
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
        try:
            deadline = time.monotonic() + startup_s
            while not is_healthy(url):
                if server.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise RuntimeError(f"{app} did not start: {log.read().decode(errors='replace')}")
                time.sleep(0.05)
            yield url
        finally:
            stop(server)


def import_path(*paths: Path) -> str:
    """Return a PYTHONPATH: this checkout, `paths`, and what this process was given."""
    given = filter(None, [os.environ.get("PYTHONPATH")])
    return os.pathsep.join(map(str, (ROOT, *paths, *given)))


def _worker() -> int:
    """Return this pytest-xdist worker's number, so that workers never race for a port."""
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


if __name__ == "__main__":
    sys.exit(find_chromium() is None)
