"""`memplan plan` while it solves: time limits, Ctrl-C, the live line, and values that cannot be."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading

import pytest

from memplan_engine import strategies
from memplan_engine.cli import options, progress
from memplan_engine.cli.options import make_limits
from memplan_engine.cli.progress import describe, solve, solve_in_sight
from memplan_engine.errors import InputError
from memplan_engine.strategies.base import Progress, SolveLimits
from memplan_engine.system import count_cores
from tests import ROOT
from tests.cli import cli_slow
from tests.support.buffer_list import BUFFERS
from tests.support.waiting import HANG_SECONDS, wait_until


@pytest.fixture
def slow(monkeypatch):
    monkeypatch.setattr(strategies, "known_strategies", cli_slow.with_slow)


# -- a time limit


def test_a_time_limit_cuts_short_and_the_table_says_so(memplan, slow):
    code, out, err = memplan("plan", "list.csv", "--strategy", "patient", "--seconds", "0.01")
    assert (code, err) == (0, "")
    rows = dict(line.split(maxsplit=1) for line in out.splitlines() if " " in line)
    assert rows["arena"].strip() == "270 B"
    assert re.fullmatch(r"in\s+[\d.]+ m?s on 1 thread, [\d,]+ nodes", rows["planned"].strip())
    assert re.search(r"^stopped after [\d.]+ m?s by the time limit: best plan so far$", out, re.M)


def test_a_time_limit_for_machines(memplan, slow):
    out = memplan("plan", "list.csv", "--strategy", "patient", "--seconds", "0.01", "--json")[1]
    found = json.loads(out)
    assert (found["cut_short"], found["cut_by"], found["arena_bytes"]) == (True, "the time limit", 270)
    assert found["threads"] == 1
    assert found["nodes"] > 0


def test_a_plan_that_meets_its_bound_is_never_cut_short(memplan):
    found = json.loads(memplan("plan", "list.csv", "--json")[1])
    assert (found["optimal"], found["cut_short"]) == (True, False)
    assert "cut_by" not in found


def test_only_strategies_that_search_have_a_time_limit_of_their_own():
    assert {name: make_limits(name, None).seconds for name in ("auto", "exact", "search", "naive")} == {
        "auto": options.DEFAULT_SECONDS,
        "exact": options.DEFAULT_SECONDS,
        "search": options.DEFAULT_SECONDS,
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


# -- Ctrl-C on a terminal, in another process


@pytest.fixture
def start(tmp_path):
    """`start(strategy, screen)` plans in a child whose stderr is `screen`, once the strategy is at work."""
    (tmp_path / "list.csv").write_text(BUFFERS)
    at_work = tmp_path / "at-work"
    # A terminal that can erase a line, whichever the tests run in.
    terminal = {"TERM": "xterm", "COLUMNS": "120", "PYTHONUTF8": "1"}
    begun = []

    def start_one(strategy, screen):
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.cli_slow", "plan", "list.csv", "--strategy", strategy],
            cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=screen.slave,
            env={**os.environ, **terminal, "PYTHONPATH": str(ROOT), cli_slow.TELLS: str(at_work)},
        )  # fmt: skip
        begun.append(process)
        wait_until(lambda: at_work.exists() or process.poll() is not None, screen.look)
        assert process.poll() is None, screen.look()
        return process

    yield start_one
    for process in begun:
        process.kill()
        process.communicate()


class Screen:
    """The terminal end of a process's stderr, read as it is written."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        self.written = b""

    def look(self) -> str:
        """Return all that has been written so far."""
        while select.select([self.master], [], [], 0)[0]:
            try:
                self.written += os.read(self.master, 65536)
            except OSError:  # The other end is closed.
                break
        return self.written.decode(errors="replace")

    def wait_for(self, pattern: str) -> None:
        """Read until `pattern` is on the screen."""
        wait_until(lambda: re.search(pattern, self.look()), self.look)


@pytest.fixture
def screen():
    screen = Screen()
    yield screen
    os.close(screen.slave)
    os.close(screen.master)


def test_the_live_line_and_ctrl_c_give_the_best_plan_so_far(start, screen):
    process = start("patient", screen)
    screen.wait_for(r"arena 270 B · bound 170 B · gap 58\.8 % · [\d.]+( [kM])? nodes/s · \d+\.\d s")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=HANG_SECONDS)
    text = screen.look()
    assert process.returncode == 0
    assert re.search(r"^stopped after .*s by Ctrl-C: best plan so far$", out.decode(), re.M)
    assert b"arena                  270 B" in out
    # The line is erased, and the cursor is there again.
    assert text.rstrip().endswith("\x1b[2K")
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l")
    assert "Traceback" not in text


def test_a_second_ctrl_c_ends_a_strategy_that_does_not_listen(start, screen):
    process = start("deaf", screen)
    process.send_signal(signal.SIGINT)
    screen.wait_for(r"stopping \(Ctrl-C ends at once\)")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=HANG_SECONDS)
    text = screen.look()
    assert (process.returncode, out) == (130, b"")
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l")
    assert text.endswith("memplan: interrupted before there was a result\r\n")
    assert "Traceback" not in text


# -- Ctrl-C while a strategy is at work, in this process


@pytest.fixture
def interrupted(slow, monkeypatch):
    """Each slow strategy gets a Ctrl-C once it is at work."""
    monkeypatch.setattr(cli_slow, "tell", lambda: os.kill(os.getpid(), signal.SIGINT))


def test_into_pipes_there_is_no_live_line_and_json_says_what_cut_it_short(memplan, interrupted):
    before = signal.getsignal(signal.SIGINT)
    code, out, err = memplan("plan", "list.csv", "--strategy", "patient", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["cut_short"], found["cut_by"], found["arena_bytes"]) == (True, "Ctrl-C", 270)
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_before_there_is_a_plan_is_one_line(memplan, interrupted):
    code, out, err = memplan("plan", "list.csv", "--strategy", "empty")
    assert (code, out) == (2, "")
    assert err == "memplan: list: empty was stopped before every buffer had its offset\n"


def test_two_interrupts_that_python_takes_for_one_are_two():
    """The handler runs once for both while another thread keeps the interpreter to itself."""
    limits = SolveLimits()

    def work():
        before = sys.getswitchinterval()
        sys.setswitchinterval(HANG_SECONDS)
        try:
            # In this thread at once, so that the system makes no single one of them either.
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        finally:
            sys.setswitchinterval(before)
        wait_until(lambda: limits.stopped)
        return "finished"

    before = signal.getsignal(signal.SIGINT), signal.set_wakeup_fd(-1)
    with pytest.raises(KeyboardInterrupt):
        solve_in_sight(work, limits)
    assert (signal.getsignal(signal.SIGINT), signal.set_wakeup_fd(-1)) == before


def test_an_interrupt_inside_the_handler_of_another_one_is_the_second(monkeypatch):
    """Python runs a handler wherever the main thread is, so also in the midst of itself."""
    inner, limits = [signal.SIGINT], SolveLimits()

    @contextlib.contextmanager
    def counted():
        def arrived():
            if inner:
                signal.raise_signal(inner.pop())
            return 1

        yield arrived

    def work():
        os.kill(os.getpid(), signal.SIGINT)
        wait_until(lambda: limits.stopped)
        return "finished"

    monkeypatch.setattr(progress, "_counted", counted)
    with pytest.raises(KeyboardInterrupt):
        solve_in_sight(work, limits)
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


def test_a_solve_is_watched_from_the_thread_that_asked_and_runs_in_another():
    limits, looks, threads = SolveLimits(), [], []

    def work():
        threads.append(threading.current_thread())

        def visit():
            limits.counter[0] += 1
            return limits.stopped

        wait_until(visit)
        return "done"

    def watch(progress):
        threads.append(threading.current_thread())
        looks.append(progress.nodes)
        wait_until(lambda: limits.counter[0] > progress.nodes)
        if len(looks) == 3:
            limits.cancel()

    assert solve(work, limits, watch, every=0.001) == "done"
    assert looks[:3] == sorted(set(looks[:3]))
    assert threads[0] is not threading.main_thread()
    assert set(threads[1:]) == {threading.main_thread()}


def test_what_the_work_raises_comes_out_and_what_the_watch_raises_cancels():
    def fails():
        raise InputError("work", "", "a reason", "none")

    with pytest.raises(InputError, match="work: found a reason"):
        solve(fails, SolveLimits())
    limits = SolveLimits()

    def watch(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solve(lambda: wait_until(lambda: limits.stopped), limits, watch, every=0.001)
    assert limits.stopped
