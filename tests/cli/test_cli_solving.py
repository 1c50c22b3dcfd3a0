"""`memplan plan` while it solves: time limits, Ctrl-C, the live line, and values that cannot be."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from memplan_engine import strategies
from memplan_engine.cli import progress
from memplan_engine.cli.options import DEFAULT_SECONDS, make_limits
from memplan_engine.cli.progress import describe, solve, solve_in_sight
from memplan_engine.errors import InputError
from memplan_engine.strategies.base import Progress, SolveLimits
from memplan_engine.system import count_cores
from tests import ROOT
from tests.cli import cli_slow
from tests.support.buffer_list import BUFFERS


@pytest.fixture
def slow(monkeypatch):
    monkeypatch.setattr(strategies, "known_strategies", cli_slow.with_slow)


# -- a time limit


@pytest.mark.quarantine
def test_a_time_limit_cuts_short_and_the_table_says_so(memplan, slow):
    began = time.monotonic()
    code, out, err = memplan("plan", "list.csv", "--strategy", "patient", "--seconds", "0.3")
    assert (code, err) == (0, "")
    assert 0.3 <= time.monotonic() - began < 3
    rows = dict(line.split(maxsplit=1) for line in out.splitlines() if " " in line)
    assert rows["arena"].strip() == "270 B"
    assert re.fullmatch(r"in\s+[\d.]+ m?s on 1 thread, [\d,]+ nodes", rows["planned"].strip())
    assert re.search(r"^stopped after [\d.]+ m?s by the time limit: best plan so far$", out, re.M)


def test_a_time_limit_for_machines(memplan, slow):
    out = memplan("plan", "list.csv", "--strategy", "patient", "--seconds", "0.2", "--json")[1]
    found = json.loads(out)
    assert (found["cut_short"], found["cut_by"], found["arena_bytes"]) == (True, "the time limit", 270)
    assert found["threads"] == 1
    assert found["nodes"] > 0
    assert 0.2 <= found["seconds"] < 2


def test_a_plan_that_meets_its_bound_is_never_cut_short(memplan):
    found = json.loads(memplan("plan", "list.csv", "--json")[1])
    assert (found["optimal"], found["cut_short"]) == (True, False)
    assert "cut_by" not in found


def test_only_strategies_that_search_have_a_time_limit_of_their_own():
    assert {name: make_limits(name, None).seconds for name in ("auto", "exact", "search", "naive")} == {
        "auto": DEFAULT_SECONDS,
        "exact": DEFAULT_SECONDS,
        "search": DEFAULT_SECONDS,
        "naive": None,
    }
    limits = make_limits("naive", 2.5, seed=7, threads=3)
    assert (limits.seconds, limits.seed, limits.threads, limits.most_threads) == (2.5, 7, 3, 3)
    assert make_limits("auto", None).most_threads == count_cores()


def test_the_options_reach_the_strategy(memplan, monkeypatch):
    seen = []

    class Asked(cli_slow.Patient):
        name = "asked"

        def place(self, problem, limits):
            seen.append((limits.seconds, limits.seed, limits.threads))
            return cli_slow.Naive().place(problem, limits)

    monkeypatch.setattr(strategies, "known_strategies", lambda: {"asked": Asked()})
    memplan("plan", "list.csv", "--strategy", "asked", "--seconds", "5", "--seed", "9", "--threads", "2")
    memplan("plan", "list.csv", "--strategy", "asked")
    assert seen == [(5.0, 9, 2), (None, 0, 0)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seconds", "0"], "--seconds: found 0, expected more than 0"),
        (["--seconds", "-1"], "--seconds: found -1, expected more than 0"),
        (["--seconds", "nan"], "--seconds: found nan, expected more than 0"),
        (["--seconds", "inf"], "--seconds: found inf, expected more than 0, and 1e+09 at most"),
        (["--seconds", "soon"], "Invalid value for '--seconds'"),
        (["--seed", "-1"], "Invalid value for '--seed'"),
        (["--threads", "-1"], "Invalid value for '--threads'"),
        (["--threads", "1.5"], "Invalid value for '--threads'"),
        (
            ["--capacity", "1 XB"],
            "--capacity: found '1 XB', expected bytes below 2^63, or units as in",
        ),
        (["--capacity", "-1"], "--capacity: found '-1'"),
        (["--capacity", "9" * 19], f"--capacity: found '{'9' * 19}'"),
        (["--capacity", ""], "--capacity: found ''"),
        (
            ["--capacity", "1", "--strategy", "naive"],
            "--capacity: found --strategy naive, expected one of auto, exact",
        ),
        (["--core", "core.csv"], "--core: found no --capacity"),
        (["--capacity", "1", "--core", "core.txt"], "core.txt: found the suffix '.txt'"),
        (["--capacity", "1", "--core", "list.csv"], "list.csv: found the input file as the output"),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, list) else "",
)
def test_values_that_cannot_be_are_one_line_and_exit_2(memplan, tmp_path, arguments, message):
    code, out, err = memplan("plan", "list.csv", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"memplan: {message}")
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["list.csv"]


# -- Ctrl-C, in a process of its own


def start(folder, *arguments, **options):
    (folder / "list.csv").write_text(BUFFERS)
    return subprocess.Popen(
        [
            sys.executable,
            str(ROOT / "tests" / "cli" / "cli_slow.py"),
            "plan",
            "list.csv",
            "--strategy",
            *arguments,
        ],
        cwd=folder,
        stdout=subprocess.PIPE,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TERM": "xterm",
            "COLUMNS": "120",
            cli_slow.TELLS: str(folder / "at-work"),
        },
        **options,
    )


class Screen:
    """The terminal end of a process's stderr, read as it is written."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        self.text = ""

    def wait_for(self, pattern: str, seconds: float = 120.0) -> re.Match[str]:
        """Read until `pattern` is on the screen."""
        end = time.monotonic() + seconds
        while not (match := re.search(pattern, self.text)):
            assert time.monotonic() < end, f"no {pattern} on the screen: {self.text!r}"
            self._read()
        return match

    def rest(self) -> str:
        """All that was written, once the process has ended."""
        os.close(self.slave)
        with contextlib.suppress(OSError):
            while self._read():
                pass
        os.close(self.master)
        return self.text

    def _read(self) -> bytes:
        data = os.read(self.master, 65536)
        self.text += data.decode()
        return data


@pytest.fixture
def screen():
    return Screen()


def test_the_live_line_and_ctrl_c_give_the_best_plan_so_far(tmp_path, screen):
    process = start(tmp_path, "patient", stderr=screen.slave)
    screen.wait_for(r"arena 270 B · bound 170 B · gap 58\.8 % · [\d.]+ [kM] nodes/s · 0\.\d s")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    text = screen.rest()
    assert process.returncode == 0
    assert re.search(r"^stopped after .*s by Ctrl-C: best plan so far$", out.decode(), re.M)
    assert b"arena                  270 B" in out
    # The line is erased, and the cursor is there again.
    assert text.rstrip().endswith("\x1b[2K")
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l")
    assert "Traceback" not in text


@pytest.mark.quarantine
def test_a_second_ctrl_c_ends_at_once(tmp_path, screen):
    process = start(tmp_path, "deaf", stderr=screen.slave)
    screen.wait_for(r"\d\.\d s")
    process.send_signal(signal.SIGINT)
    screen.wait_for(r"stopping \(Ctrl-C ends at once\)")
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    text = screen.rest()
    assert time.monotonic() - began < 5
    assert (process.returncode, out) == (130, b"")
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l")
    assert "Traceback" not in text


@pytest.mark.quarantine
@pytest.mark.parametrize("gap", [0.01, 0.1, 0.3])
def test_a_second_ctrl_c_is_heard_however_soon_it_comes(tmp_path, gap):
    process = start(tmp_path, "deaf", stderr=subprocess.PIPE)
    wait_until_solving(process, tmp_path)
    process.send_signal(signal.SIGINT)
    time.sleep(gap)
    assert process.poll() is None
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert time.monotonic() - began < 5
    assert (process.returncode, out) == (130, b"")
    assert err.endswith(b"memplan: interrupted before there was a result\n")


def wait_until_solving(process, folder):
    """Wait until the strategy is at work."""
    end = time.monotonic() + 120
    while not (folder / "at-work").exists():
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.01)


def interrupt_when_solving(process, folder):
    """Send Ctrl-C once the strategy is at work."""
    wait_until_solving(process, folder)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    lines = err.splitlines(keepends=True)
    return out, b"".join(line for line in lines if not line.startswith(b"memplan: compiling kernels"))


@pytest.mark.quarantine
def test_into_pipes_there_is_no_live_line_and_json_says_what_cut_it_short(tmp_path):
    process = start(tmp_path, "patient", "--json", stderr=subprocess.PIPE)
    out, err = interrupt_when_solving(process, tmp_path)
    assert (process.returncode, err) == (0, b"")
    found = json.loads(out)
    assert (found["cut_short"], found["cut_by"], found["arena_bytes"]) == (True, "Ctrl-C", 270)


@pytest.mark.quarantine
def test_ctrl_c_before_there_is_a_plan_is_one_line(tmp_path):
    process = start(tmp_path, "empty", stderr=subprocess.PIPE)
    out, err = interrupt_when_solving(process, tmp_path)
    assert (process.returncode, out) == (2, b"")
    assert err == b"memplan: list: empty was stopped before every buffer had its offset\n"


@pytest.mark.quarantine
def test_ctrl_c_while_reading_ends_with_130_and_one_line(tmp_path):
    script = "\n".join(
        (
            "import os, signal, time",
            "from memplan_engine.cli import options",
            "from memplan_engine.cli.main import main",
            "signal.signal(signal.SIGINT, signal.default_int_handler)",
            "def interrupted(*_): os.kill(os.getpid(), signal.SIGINT); time.sleep(30)",
            "options.load = interrupted",
            "main()",
        )
    )
    (tmp_path / "list.csv").write_text(BUFFERS)
    line = [sys.executable, "-c", script, "plan", "list.csv"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, timeout=120)
    assert (done.returncode, done.stdout) == (130, b"")
    assert done.stderr == b"memplan: interrupted before there was a result\n"


@pytest.mark.quarantine
def test_two_interrupts_that_python_takes_for_one_are_two():
    """The handler runs once for both while another thread keeps the interpreter to itself."""

    def busy():
        end = time.monotonic() + 0.05
        while time.monotonic() < end:
            pass

    def work():
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            busy()
        return "finished"

    def patient():
        began = sys.getswitchinterval()
        sys.setswitchinterval(30)
        try:
            return work()
        finally:
            sys.setswitchinterval(began)
            time.sleep(0.5)

    before = signal.getsignal(signal.SIGINT), signal.set_wakeup_fd(-1)
    with pytest.raises(KeyboardInterrupt):
        solve_in_sight(patient, SolveLimits())
    assert (signal.getsignal(signal.SIGINT), signal.set_wakeup_fd(-1)) == before


@pytest.mark.quarantine
def test_an_interrupt_inside_the_handler_of_another_one_is_the_second(monkeypatch):
    """Python runs a handler wherever the main thread is, so also in the midst of itself."""
    inner = [signal.SIGINT]

    @contextlib.contextmanager
    def counted():
        def arrived():
            if inner:
                signal.raise_signal(inner.pop())
            return 1

        yield arrived

    def work():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)
        return "finished"

    monkeypatch.setattr(progress, "_counted", counted)
    with pytest.raises(KeyboardInterrupt):
        solve_in_sight(work, SolveLimits())
    assert not inner


# -- the live line


def test_what_the_live_line_says():
    assert describe(Progress(3.21, 1536, 1024, 4_815_000)) == (
        "arena 1.5 KiB · bound 1 KiB · gap 50.0 % · 1.5 M nodes/s · 3.2 s"
    )
    assert describe(Progress(0.5, None, None)) == "0.5 s"
    assert describe(Progress(2.0, 10, None, 100)) == "arena 10 B · 50 nodes/s · 2.0 s"
    assert describe(Progress(1.0, None, 7, 20_000), stopping=True) == (
        "bound 7 B · 20.0 k nodes/s · 1.0 s · stopping (Ctrl-C ends at once)"
    )


# -- the thread behind it


@pytest.mark.quarantine
def test_a_solve_is_watched_from_the_thread_that_asked_and_runs_in_another():
    limits, looks, threads = SolveLimits(), [], []

    def work():
        threads.append(threading.current_thread())
        end = time.monotonic() + 10
        while not limits.stopped and time.monotonic() < end:
            limits.counter[0] += 1
            time.sleep(0.001)
        return "done"

    def watch(progress):
        threads.append(threading.current_thread())
        looks.append(progress.nodes)
        if len(looks) == 3:
            limits.cancel()

    assert solve(work, limits, watch, every=0.02) == "done"
    assert len(looks) >= 3
    assert looks == sorted(looks)
    assert looks[2] > looks[0]
    assert threads[0] is not threading.main_thread()
    assert set(threads[1:]) == {threading.main_thread()}


@pytest.mark.quarantine
def test_what_the_work_raises_comes_out_and_what_the_watch_raises_cancels():
    def fails():
        raise InputError("work", "", "a reason", "none")

    with pytest.raises(InputError, match="work: found a reason"):
        solve(fails, SolveLimits())
    limits = SolveLimits()

    def watch(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solve(lambda: time.sleep(0.3), limits, watch, every=0.01)
    assert limits.stopped
