"""Starts the dashboard as a process of its own: local, silent, without telemetry, and stopped with Ctrl-C.

Streamlit is never imported here: `memplan` must be able to import this module without it.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from memplan_dashboard.serving.door import host_name

from memplan_engine.errors import InputError, MemplanError, MissingDependencyError

APP = Path(__file__).with_name("app.py")
HOST = "127.0.0.1"
ALL_INTERFACES = "0.0.0.0"
FIRST_PORT = 8501
PORTS_TRIED = 100
STARTUP_SECONDS = 60.0
STOP_SECONDS = 5.0


def command(
    files: Sequence[Path],
    port: int,
    app: Path = APP,
    allow_hosts: Sequence[str] = (),
    folder: Path | None = None,
    address: str = HOST,
) -> list[str]:
    """Return the command line that serves `app` on `port` of `address` with `files` as its arguments and what
    lies below `folder` to be opened, under the names of this machine and `allow_hosts`, until its input ends;
    MemplanError for one that is no name, and for a folder that is none."""
    for name in allow_hosts:
        if host_name(name) != name.lower():
            found = repr(name[:80])
            raise MemplanError(f"--allow-host: found {found}, expected a host name or address without a port")
    # -P keeps the current folder off the import path: a `dashboard/` in it would shadow ours.
    line = [sys.executable, "-P", "-m", "memplan_dashboard.serving.server", f"--port={port}"]
    line += [f"--address={address}"]
    line += [f"--allow-host={name.lower()}" for name in allow_hosts]
    if folder is not None:
        if not folder.is_dir():
            raise InputError("--folder", "", str(folder), "a folder")
        line.append(f"--folder={folder.resolve()}")
    return [*line, "--", str(app), *(str(Path(file).resolve()) for file in files)]


def free_port(first: int, address: str = HOST) -> int:
    """Return the first port of `address` from `first` on that nobody listens on; MemplanError when 100 are
    taken."""
    if not 1 <= first <= 65535:
        raise MemplanError(f"--port: found {first}, expected 1 to 65535")
    last = min(first + PORTS_TRIED - 1, 65535)
    for port in range(first, last + 1):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            if os.name == "posix":  # elsewhere this option would allow a port that is in use
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind((address, port))
                return port
    raise MemplanError(f"no free port on {address} from {first} to {last}; name another with --port")


def has_display() -> bool:
    """Return whether this machine has a screen to open a browser on."""
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def is_healthy(url: str) -> bool:
    """Return whether the server at `url` answers that it is up."""
    # No proxy: http_proxy must not stand between this machine and itself.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/_stcore/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def stop(server: subprocess.Popen[bytes]) -> None:
    """End `server` and whatever it started, asking first; return when it is gone.

    The server must lead a session of its own: the whole group is ended.
    """
    server.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(STOP_SECONDS)
    kill(server)
    server.wait()


def kill(server: subprocess.Popen[bytes]) -> None:
    """End `server` and its group without asking."""
    if os.name == "posix":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(server.pid, signal.SIGKILL)
    server.kill()


def launch(
    files: Sequence[Path] = (),
    port: int | None = None,
    open_browser: bool = True,
    app: Path = APP,
    allow_hosts: Sequence[str] = (),
    folder: Path | None = None,
    all_interfaces: bool = False,
) -> int:
    """Serve the dashboard until Ctrl-C and return an exit code: 0 after Ctrl-C, else the server's own.

    `files` are opened by the app. A `port` in use is passed over for the next free one. A browser is opened
    when asked for and when there is a screen; the address is printed either way, once the server answers.
    `allow_hosts` are names under which a reverse proxy serves it; files below `folder` can be opened, too.
    With `all_interfaces` other machines reach it, or, in a container, the machine that runs it.
    Raises MissingDependencyError without Streamlit, MemplanError when no port is free, or a name or a folder
    is none, and without a current folder or a home.
    """
    if importlib.util.find_spec("streamlit") is None:
        raise MissingDependencyError("streamlit", "dashboard", "the dashboard")
    _check_folders()
    wanted = FIRST_PORT if port is None else port
    address = ALL_INTERFACES if all_interfaces else HOST
    chosen = free_port(wanted, address)
    if chosen != wanted:
        print(f"memplan: port {wanted} is in use, taking {chosen}", flush=True)
    line = command(files, chosen, app, allow_hosts, folder, address)
    with _interrupts() as ending, contextlib.suppress(KeyboardInterrupt):
        return _serve(line, f"http://{HOST}:{chosen}", open_browser, ending)
    return 0


def _check_folders() -> None:
    """Raise MemplanError where Streamlit would not start for want of a folder."""
    try:
        Path.cwd()
        Path.home()
    except FileNotFoundError:
        raise MemplanError("the current folder has been removed: start the dashboard elsewhere") from None
    except RuntimeError:
        raise MemplanError("HOME: found none, expected a folder, whose settings Streamlit reads") from None


def _serve(line: list[str], url: str, open_browser: bool, ending: _Ending) -> int:
    # A session of its own, so that the terminal's Ctrl-C reaches us alone and we end the server in order. Its
    # input ends with us, however we end.
    server = subprocess.Popen(line, stdin=subprocess.PIPE, start_new_session=True)
    try:
        ending.watch(server)
        deadline = time.monotonic() + STARTUP_SECONDS
        while server.poll() is None and not is_healthy(url):
            if time.monotonic() > deadline:
                raise MemplanError(f"the dashboard did not answer at {url} within {STARTUP_SECONDS:.0f} s")
            time.sleep(0.05)
        if server.poll() is None:
            print(f"memplan: the dashboard is at {url} (Ctrl-C stops it)", flush=True)
            if open_browser and has_display():
                webbrowser.open(url)
        return server.wait()
    finally:
        ending.begun = True
        stop(server)


class _Ending:
    """What Ctrl-C does: the first one asks the server to end, a second one ends it at once.

    Only the first is an exception, and none before there is a server: one in the midst of starting or ending
    it would leave it behind.
    """

    def __init__(self) -> None:
        self.begun = False
        self.server: subprocess.Popen[bytes] | None = None

    def watch(self, server: subprocess.Popen[bytes]) -> None:
        """From now on there is a server to end; raises KeyboardInterrupt where that was asked for before."""
        self.server = server
        if self.begun:
            raise KeyboardInterrupt

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        """Take a signal."""
        first, self.begun = not self.begun, True
        if self.server is not None and first:
            raise KeyboardInterrupt
        if self.server is not None:
            kill(self.server)


@contextlib.contextmanager
def _interrupts() -> Iterator[_Ending]:
    """Treat a polite kill or a closed terminal like Ctrl-C: the server must not outlive its launcher."""
    ending = _Ending()
    # SIGINT too: a shell starts background jobs with it ignored.
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.signal(number, ending) for number in numbers}
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main() -> int:
    """Read the command line, serve, and return the exit code; a MemplanError is one line on stderr."""
    parser = argparse.ArgumentParser(prog="memplan dashboard", description="Open the dashboard.")
    parser.add_argument("files", nargs="*", type=Path, help="graphs, problems or plans to open")
    parser.add_argument("--port", type=int, help=f"the port to try first (default: {FIRST_PORT})")
    parser.add_argument("--no-browser", action="store_true", help="print the address, open no browser")
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name that a reverse proxy serves it under",
    )
    parser.add_argument("--folder", type=Path, help="the folder whose files can be opened")
    parser.add_argument("--all-interfaces", action="store_true", help=f"listen on {ALL_INTERFACES}")
    arguments = parser.parse_args()
    try:
        return launch(
            arguments.files,
            arguments.port,
            open_browser=not arguments.no_browser,
            allow_hosts=arguments.allow_host,
            folder=arguments.folder,
            all_interfaces=arguments.all_interfaces,
        )
    except MemplanError as error:
        print(f"memplan: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
