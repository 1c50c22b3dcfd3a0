"""The dashboard's launcher: local, silent, without telemetry, and stopped with Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from memplan_dashboard import launch
from memplan_dashboard.serving import server

from memplan_engine.cli import app as command_line
from memplan_engine.errors import MemplanError, MissingDependencyError
from tests import ROOT
from tests.support.browser import Tab, import_path, serve

TINY_APP = """
import sys
import streamlit as st
st.header("Arguments")
st.text("|".join(sys.argv[1:]))
st.text(st.get_option("server.maxUploadSize"))
st.file_uploader("A graph")
"""


@pytest.fixture
def tiny_app(tmp_path: Path) -> Path:
    app = tmp_path / "app.py"
    app.write_text(TINY_APP)
    return app


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A socket that listens on some port of this machine."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken


def test_the_command_names_app_port_and_absolute_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    line = launch.command([Path("a b.csv")], 9001)
    assert line[0] == sys.executable
    app = str(launch.APP)
    assert line[line.index("--") :] == ["--", app, str(tmp_path / "a b.csv")]
    assert "--port=9001" in line[: line.index("--")]
    line = launch.command([], 9001, folder=Path("."))
    assert f"--folder={tmp_path}" in line[: line.index("--")]
    with pytest.raises(MemplanError, match="--folder: found none, expected a folder"):
        launch.command([], 9001, folder=Path("none"))


def test_the_verb_hands_its_options_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []
    monkeypatch.setattr(os, "execv", lambda program, line: taken.extend(line))
    (tmp_path / "a.csv").write_text("")
    given = ["dashboard", "--port", "9001", "--allow-host", "x", "--allow-host", "y", "--no-browser"]
    given += ["--folder", str(tmp_path)]
    assert command_line.run([*given, str(tmp_path / "a.csv")]) == 0
    options = ["--port=9001", "--no-browser", "--allow-host=x", "--allow-host=y", f"--folder={tmp_path}"]
    options.append(str(tmp_path / "a.csv"))
    assert taken == [sys.executable, "-P", "-m", "memplan_dashboard.launch", *options]


@pytest.mark.parametrize("name", ["", "a:80", "http://a", "a/b", "*", "a b", "a,b", "\u202ea"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(MemplanError, match=r"--allow-host: found .*, expected a host name or address"):
        launch.launch(allow_hosts=[name], open_browser=False)
    assert "--allow-host=plans.example" in launch.command([], 9001, allow_hosts=["Plans.Example"])


def test_those_who_start_streamlit_themselves_have_the_same_options() -> None:
    in_file = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text())
    assert flat(in_file) == server.OPTIONS


def flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a TOML table as dotted names and values."""
    options: dict[str, Any] = {}
    for name, value in table.items():
        options |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return options


def test_a_port_in_use_is_passed_over(listener: socket.socket) -> None:
    taken = listener.getsockname()[1]
    assert launch.free_port(taken) > taken


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_an_impossible_port_is_named(port: int) -> None:
    with pytest.raises(MemplanError, match=rf"--port: found {port}, expected 1 to 65535"):
        launch.free_port(port)


def test_no_free_port_is_an_error(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "PORTS_TRIED", 1)
    taken = listener.getsockname()[1]
    with pytest.raises(MemplanError, match=f"from {taken} to {taken}"):
        launch.free_port(taken)


def test_without_streamlit_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"memplan\[dashboard\]"):
        launch.launch()


def test_the_command_line_names_its_mistake_on_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "memplan_dashboard.launch", "--port=99999"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr == "memplan: --port: found 99999, expected 1 to 65535\n"


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ([], ([], None, True, [], None)),
        (
            [
                "--no-browser",
                "--port=9001",
                "--allow-host=x",
                "--allow-host=y",
                "--folder=d",
                "a.csv",
                "b.csv",
            ],
            ([Path("a.csv"), Path("b.csv")], 9001, False, ["x", "y"], Path("d")),
        ),
    ],
)
def test_the_command_line_reaches_launch(
    monkeypatch: pytest.MonkeyPatch, typed: list[str], expected: tuple[object, ...]
) -> None:
    def note(files: list[Path], port: int | None, **others: object) -> int:
        assert (files, port, *others.values()) == expected
        return 5

    monkeypatch.setattr(launch, "launch", note)
    monkeypatch.setattr(sys, "argv", ["launch", *typed])
    assert launch.main() == 5


def test_importing_the_launcher_does_not_import_streamlit() -> None:
    check = "import sys, memplan_dashboard.launch; sys.exit('streamlit' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True, cwd=ROOT)


@pytest.mark.quarantine
@pytest.mark.parametrize(("screen", "wanted", "opened"), [("", True, 0), (":0", True, 1), (":0", False, 0)])
def test_a_browser_opens_only_where_there_is_a_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, screen: str, wanted: bool, opened: int
) -> None:
    """A stand-in server that answers one health check and ends takes Streamlit's place."""
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("DISPLAY", screen)
    monkeypatch.setattr(sys, "platform", "linux")
    calls: list[str] = []
    monkeypatch.setattr("webbrowser.open", calls.append)
    stand_in = (
        "import http.server, sys\n"
        "class Ok(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self): self.send_response(200); self.end_headers()\n"
        "    def log_message(self, *a): pass\n"
        "server = http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), Ok)\n"
        "server.handle_request(); __import__('time').sleep(0.3); sys.exit(7)\n"
    )
    monkeypatch.setattr(
        launch, "command", lambda files, port, *_: [sys.executable, "-c", stand_in, str(port)]
    )
    assert launch.launch(port=launch.free_port(8650), open_browser=wanted) == 7
    assert len(calls) == opened


def start_launcher(app: Path, home: Path, port: int) -> subprocess.Popen[str]:
    """Start the launcher in `home`, which is empty and where nobody is called user yet."""
    script = (
        "import sys; from pathlib import Path; from memplan_dashboard.launch import launch; "
        f"sys.exit(launch([Path('x.csv')], port={port}, app=Path({str(app)!r})))"
    )
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": import_path()}
    return subprocess.Popen(
        [sys.executable, "-c", script], cwd=home, env=env, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_starts_without_a_prompt_and_stops_without_a_trace(
    tmp_path: Path, tiny_app: Path, listener: socket.socket, number: signal.Signals
) -> None:
    """A first start in a new home: nothing is asked, nothing is written, and nothing is left running."""
    home = tmp_path / "home"
    home.mkdir()
    taken = listener.getsockname()[1]
    launcher = start_launcher(tiny_app, home, taken)
    assert launcher.stdout is not None
    printed: list[str] = []
    while "Ctrl-C" not in (line := launcher.stdout.readline()):
        assert line, f"the launcher ended early: {printed}"
        printed.append(line)
    found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
    assert found, line
    assert f"memplan: port {taken} is in use, taking {found[1]}\n" in printed
    assert launch.is_healthy(found[0])

    launcher.send_signal(number)
    rest, _ = launcher.communicate(timeout=20)
    assert launcher.returncode == 0
    assert "Traceback" not in rest
    assert not launch.is_healthy(found[0])
    assert list(home.iterdir()) == []


@pytest.mark.quarantine
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_killed_launcher_leaves_no_server(tmp_path: Path, tiny_app: Path) -> None:
    launcher = start_launcher(tiny_app, tmp_path, launch.free_port(8750))
    assert launcher.stdout is not None
    while "Ctrl-C" not in (line := launcher.stdout.readline()):
        assert line
    address = re.search(r"http://127\.0\.0\.1:\d+", line)
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children")
    pids = [int(word) for word in children.read_text().split()] if children.exists() else []
    launcher.kill()
    launcher.communicate(timeout=20)
    assert address
    wait_until(lambda: not launch.is_healthy(address[0]) and all(map(has_ended, pids)), 5)


@pytest.mark.quarantine
@pytest.mark.skipif(os.name != "posix", reason="process groups")
def test_stop_ends_what_the_server_started(tmp_path: Path) -> None:
    """A server that ignores the polite signal and has a child: both are gone afterwards."""
    note = tmp_path / "child"
    script = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(note)!r}, 'w').write(f'{{child.pid}}\\n')\n"
        "time.sleep(60)\n"
    )
    server = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    wait_until(lambda: note.exists() and note.read_text().endswith("\n"))
    child = int(note.read_text())
    launch_seconds = launch.STOP_SECONDS
    launch.STOP_SECONDS = 0.2
    try:
        launch.stop(server)
    finally:
        launch.STOP_SECONDS = launch_seconds
    assert server.returncode == -signal.SIGKILL
    wait_until(lambda: has_ended(child))


STUBBORN = """
import http.server, os, signal, subprocess, sys
from pathlib import Path

signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
Path(sys.argv[1]).write_text(f"{os.getpid()} {child.pid}\\n")

class Ok(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.send_response(200); self.end_headers()
    def log_message(self, *a): pass

http.server.HTTPServer(("127.0.0.1", int(sys.argv[2])), Ok).serve_forever()
"""
"""A server that pays no heed to a polite signal, and has a child."""


@pytest.mark.quarantine
@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("gap", [0.02, 0.3, 1.0])
def test_a_second_ctrl_c_ends_a_stubborn_server_and_its_child_at_once(tmp_path: Path, gap: float) -> None:
    note = tmp_path / "pids"
    script = (
        "import sys\n"
        "from memplan_dashboard import launch\n"
        "launch.STOP_SECONDS = 60\n"
        f"line = [sys.executable, '-c', {STUBBORN!r}, {str(note)!r}]\n"
        "launch.command = lambda files, port, *_: [*line, str(port)]\n"
        "sys.exit(launch.launch(open_browser=False))\n"
    )
    launcher = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=ROOT)
    assert launcher.stdout is not None
    while b"Ctrl-C" not in (line := launcher.stdout.readline()):
        assert line
    pids = [int(word) for word in note.read_text().split()]
    launcher.send_signal(signal.SIGINT)
    time.sleep(gap)
    assert launcher.poll() is None
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(20) == 0
    wait_until(lambda: all(map(has_ended, pids)))


@pytest.mark.quarantine
@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_while_the_server_starts_waits_until_there_is_one(
    monkeypatch: pytest.MonkeyPatch, presses: int
) -> None:
    """`Popen` with an exception in its midst would leave a process that nobody knows of."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        for _ in range(presses):
            signal.raise_signal(signal.SIGINT)
        started.append(genuine(*arguments, **options))
        return started[0]

    genuine = subprocess.Popen
    monkeypatch.setattr(launch.subprocess, "Popen", start)  # type: ignore[attr-defined]
    monkeypatch.setattr(launch, "command", lambda *_: [sys.executable, "-c", "import time; time.sleep(60)"])
    before = signal.getsignal(signal.SIGINT)
    assert launch.launch(open_browser=False) == 0
    assert started[0].returncode == -signal.SIGTERM
    assert signal.getsignal(signal.SIGINT) is before


def has_ended(pid: int) -> bool:
    """Return whether the process is gone, or a zombie that its new parent has yet to collect."""
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True
    ).stdout.strip()
    return state == "" or state.startswith("Z")


def wait_until(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Wait for `condition`, failing after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def test_the_app_gets_the_files_and_asks_no_other_host(
    tiny_app: Path, tmp_path: Path, open_page: Callable[..., Tab]
) -> None:
    """In a real browser; open_page itself fails on console errors and on requests to other hosts."""
    with serve(tiny_app, tmp_path / "one.csv", tmp_path / "two.csv") as url:
        tab = open_page(url, width=800, height=600, scheme="dark")
        tab.page.get_by_text("Arguments").wait_for()
        tab.settle()
        text = tab.page.locator("body").inner_text()
        assert f"{tmp_path / 'one.csv'}|{tmp_path / 'two.csv'}" in text
        assert "1024" in text
        assert tab.page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
        assert tab.page.get_by_text("Deploy").count() == 0
        tab.close()
    assert not launch.is_healthy(url)


def test_without_a_home_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(MemplanError, match="HOME: found none"):
        launch.launch()
