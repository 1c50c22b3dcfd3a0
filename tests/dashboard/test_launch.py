"""The dashboard's launcher: local, silent, without telemetry, and stopped with Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from memplan_dashboard import launch
from memplan_dashboard.serving import server

from memplan_engine.cli import app as command_line
from memplan_engine.errors import MemplanError, MissingDependencyError
from tests import ROOT
from tests.support.browser import import_path, reserved_port
from tests.support.page_socket import PageSocket, texts
from tests.support.waiting import HANG_SECONDS, wait_until

TINY_APP = """
import sys
import streamlit as st
st.text("|".join(sys.argv[1:]))
st.text(st.get_option("server.maxUploadSize"))
"""


@pytest.fixture
def tiny_app(tmp_path: Path) -> Path:
    app = tmp_path / "app.py"
    app.write_text(TINY_APP)
    return app


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A socket that listens on a port of this machine; the port after it is free."""
    while True:
        with socket.socket() as taken, socket.socket() as free:
            taken.bind(("127.0.0.1", 0))
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError, OverflowError):
                # Where it can be bound, no other program is given it meanwhile.
                free.bind(("127.0.0.1", taken.getsockname()[1] + 1))
                if sys.platform != "linux":
                    free.close()
                taken.listen()
                yield taken
                return


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


class ToldToEnd(subprocess.Popen[bytes]):
    """A server whose input ends as soon as its launcher waits for it."""

    def wait(self, timeout: float | None = None) -> int:
        assert self.stdin is not None
        self.stdin.close()
        return super().wait(timeout)


@pytest.mark.parametrize(("screen", "wanted", "opened"), [("", True, 0), (":0", True, 1), (":0", False, 0)])
def test_a_browser_opens_only_where_there_is_a_screen(
    monkeypatch: pytest.MonkeyPatch, screen: str, wanted: bool, opened: int
) -> None:
    """A stand-in that ends with its input takes the server's place."""
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("DISPLAY", screen)
    monkeypatch.setattr(sys, "platform", "linux")
    calls: list[str] = []
    monkeypatch.setattr("webbrowser.open", calls.append)
    monkeypatch.setattr(launch, "is_healthy", lambda url: True)
    monkeypatch.setattr(launch.subprocess, "Popen", ToldToEnd)  # type: ignore[attr-defined]
    stand_in = [sys.executable, "-c", "import sys; sys.stdin.read(); sys.exit(7)"]
    monkeypatch.setattr(launch, "command", lambda *_: stand_in)
    assert launch.launch(open_browser=wanted) == 7
    assert len(calls) == opened


def start_launcher(app: Path, home: Path, port: int) -> subprocess.Popen[str]:
    """Start the launcher in `home`, which is empty and where nobody is called user yet."""
    script = (
        "import sys; from pathlib import Path; from memplan_dashboard import launch; "
        f"launch.STARTUP_SECONDS = {HANG_SECONDS}; "
        f"sys.exit(launch.launch([Path('x.csv')], port={port}, app=Path({str(app)!r})))"
    )
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": import_path()}
    return subprocess.Popen(
        [sys.executable, "-c", script], cwd=home, env=env, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def address_of(launcher: subprocess.Popen[str]) -> tuple[str, list[str]]:
    """Return the address that the launcher prints once the server answers, and the lines before it."""
    assert launcher.stdout is not None
    printed: list[str] = []
    while "Ctrl-C" not in (line := launcher.stdout.readline()):
        assert line, f"the launcher ended early: {printed}"
        printed.append(line)
    found = re.search(r"http://127\.0\.0\.1:\d+", line)
    assert found, line
    return found[0], printed


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_starts_without_a_prompt_and_stops_without_a_trace(
    tmp_path: Path, tiny_app: Path, listener: socket.socket
) -> None:
    """A first start in a new home asks nothing and writes nothing, and nothing is left running."""
    home = tmp_path / "home"
    home.mkdir()
    taken = listener.getsockname()[1]
    launcher = start_launcher(tiny_app, home, taken)
    url, printed = address_of(launcher)
    assert f"memplan: port {taken} is in use, taking {url.rpartition(':')[2]}\n" in printed
    with PageSocket(url) as page:
        assert texts(page.run()) == [str(home / "x.csv"), "1024"]
    launcher.send_signal(signal.SIGINT)
    rest, _ = launcher.communicate(timeout=HANG_SECONDS)
    assert launcher.returncode == 0
    assert "Traceback" not in rest
    assert not launch.is_healthy(url)
    assert list(home.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_killed_launcher_leaves_no_server(tmp_path: Path, tiny_app: Path) -> None:
    with reserved_port() as port:
        launcher = start_launcher(tiny_app, tmp_path, port)
        url, _ = address_of(launcher)
        children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children")
        pids = [int(word) for word in children.read_text().split()] if children.exists() else []
        launcher.kill()
        launcher.communicate(timeout=HANG_SECONDS)
        wait_until(lambda: not launch.is_healthy(url) and all(map(has_ended, pids)))


@pytest.mark.skipif(os.name != "posix", reason="process groups")
def test_stop_ends_what_the_server_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that ignores the polite signal and has a child: both are gone afterwards."""
    note = tmp_path / "child"
    script = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])\n"
        f"open({str(note)!r}, 'w').write(f'{{child.pid}}\\n')\n"
        "time.sleep(1000)\n"
    )
    server = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    wait_until(lambda: note.exists() and note.read_text().endswith("\n"))
    child = int(note.read_text())
    monkeypatch.setattr(launch, "STOP_SECONDS", 0.2)
    launch.stop(server)
    assert server.returncode == -signal.SIGKILL
    wait_until(lambda: has_ended(child))


STUBBORN = """
import signal, subprocess, sys
from pathlib import Path

def note_it(number, frame):
    Path(sys.argv[1], "asked").touch()

signal.signal(signal.SIGTERM, note_it)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
draft = Path(sys.argv[1], "draft")
draft.write_text(str(child.pid))
draft.rename(Path(sys.argv[1], "child"))
while True:
    signal.pause()
"""
"""A server that only notes a polite signal, and has a child."""


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_second_ctrl_c_ends_a_stubborn_server_and_its_child_at_once(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from memplan_dashboard import launch\n"
        f"launch.STOP_SECONDS = launch.STARTUP_SECONDS = {HANG_SECONDS}\n"
        f"folder = {str(tmp_path)!r}\n"
        f"launch.command = lambda *_: [sys.executable, '-c', {STUBBORN!r}, folder]\n"
        "launch.is_healthy = lambda url: Path(folder, 'child').exists()\n"
        "sys.exit(launch.launch(open_browser=False))\n"
    )
    launcher = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    address_of(launcher)
    child = int((tmp_path / "child").read_text())
    launcher.send_signal(signal.SIGINT)
    wait_until((tmp_path / "asked").exists)
    assert launcher.poll() is None
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(HANG_SECONDS) == 0
    wait_until(lambda: has_ended(child))


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_while_the_server_starts_waits_until_there_is_one(
    monkeypatch: pytest.MonkeyPatch, name: str, presses: int
) -> None:
    """An exception inside `Popen` would leave a process that nothing ends. A closed terminal is like it."""
    number = getattr(signal, name)
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        for _ in range(presses):
            signal.raise_signal(number)
        started.append(genuine(*arguments, **options))
        return started[0]

    genuine = subprocess.Popen
    monkeypatch.setattr(launch.subprocess, "Popen", start)  # type: ignore[attr-defined]
    monkeypatch.setattr(launch, "command", lambda *_: [sys.executable, "-c", "import time; time.sleep(1000)"])
    before = signal.getsignal(number)
    assert launch.launch(open_browser=False) == 0
    assert started[0].returncode == -signal.SIGTERM
    assert signal.getsignal(number) == before


def has_ended(pid: int) -> bool:
    """Return whether the process is gone, or a zombie that its new parent has yet to collect."""
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True
    ).stdout.strip()
    return state == "" or state.startswith("Z")


def test_without_a_home_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(MemplanError, match="HOME: found none"):
        launch.launch()
