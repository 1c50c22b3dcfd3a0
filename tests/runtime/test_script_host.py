"""The process from which runs of scripts are forked: shared by runs, unseen by them, and gone in time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from memplan_engine import InputError, MemplanError, observed_peak
from memplan_engine.runtime.process_answer import SAID, answer
from memplan_engine.runtime.scripts import host, host_process
from memplan_engine.runtime.scripts.host import ScriptRun, start_run
from memplan_engine.runtime.scripts.script_run import PROCESS, observe_script, start_script
from memplan_engine.runtime.target import Target
from tests import ROOT
from tests.support.processes import children_of

SLEEPS = "import os, time\nprint('begun', file=open('begun', 'w'))\ntime.sleep(600)\n"
SECONDS = 60.0
"""For what takes less than ten, on a machine that is not busy."""


def script(folder: Path, text: str, name: str = "train.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_there(process: int) -> bool:
    state = Path(f"/proc/{process}/stat")
    try:
        return state.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def host_now() -> int:
    """The process of the host of scripts."""
    return host._hosts[PROCESS].process.pid


@contextmanager
def sleeping(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptRun]:
    """A run that does not end by itself, in `folder`."""
    monkeypatch.chdir(folder)
    asked = folder / "asked"
    asked.mkdir()
    run = start_script(script(folder, SLEEPS), (), Target("cpu", 90), asked)
    try:
        until((folder / "begun").exists)
        yield run
    finally:
        run.end()


def test_runs_share_a_process_that_has_one_thread(tmp_path: Path) -> None:
    path = script(tmp_path, "import sys, torch\ntorch.rand(int(sys.argv[1]))\n")
    peaks, hosts = [], []
    for count in (10, 20):
        peaks.append(observed_peak(observe_script(path, [str(count)]))[0])
        hosts.append(host_now())
    assert peaks == [40, 80]
    assert hosts[0] == hosts[1]
    # NumPy's own leaves by itself where a process is forked.
    assert len(os.listdir(f"/proc/{hosts[0]}/task")) == 1
    assert children_of(hosts[0]) == set()


def test_variables_and_folder_are_those_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
import os, sys
import torch
from beside import SIZE
folder, name, other = sys.argv[1:]
assert os.getcwd() == sys.path[1] == folder
assert os.environ[name] == os.popen(f"echo ${name}").read().strip() == "set"
assert other not in os.environ and not os.popen(f"echo ${other}").read().strip()
torch.rand(SIZE)
"""
    path = script(tmp_path, text)
    names = ["OF_THE_FIRST", "OF_THE_SECOND"]
    for number, (own, other) in enumerate((names, names[::-1]), 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "beside.py").write_text(f"SIZE = {number}\n")
        monkeypatch.chdir(folder)
        with monkeypatch.context() as patch:
            patch.setenv(own, "set")
            assert observed_peak(observe_script(path, [str(folder), own, other]))[0] == 4 * number


def test_modules_of_the_current_folder_are_for_scripts_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_OF_A_TEST", "anew")
    monkeypatch.chdir(tmp_path)
    for name in ("json", "sympy", "memplan_engine"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('mine')\n")
    (tmp_path / "sizes.py").write_text("SIZE = 3\n")
    assert observed_peak(observe_script(script(tmp_path, "import sizes, torch\ntorch.rand(sizes.SIZE)\n")))[0]


def test_other_variables_that_torch_reads_on_import_take_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import os, torch\nassert os.environ['TORCH_OF_A_TEST'] == '{}'\ntorch.rand(3)\n"
    hosts = []
    for value in ("a", "a", "b"):
        monkeypatch.setenv("TORCH_OF_A_TEST", value)
        observe_script(script(tmp_path, text.format(value)))
        hosts.append(host_now())
    assert hosts[0] == hosts[1] != hosts[2]
    until(lambda: not is_there(hosts[0]))


def test_a_process_that_is_not_asked_any_more_ends_after_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sleeping(tmp_path, monkeypatch) as run:
        before = host_now()
        monkeypatch.setenv("TORCH_OF_A_TEST", "later")
        observe_script(script(tmp_path, "import torch\ntorch.rand(3)\n", "other.py"))
        assert before != host_now()
        assert is_there(run.process)
        assert is_there(before)
    until(lambda: not is_there(before))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_a_run_that_is_killed_is_told_by_its_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    with sleeping(tmp_path, monkeypatch) as run:
        assert os.getpgid(run.process) == run.process
        assert run.poll() is None
        assert run.wait(0.01) is None
        os.kill(run.process, number)
        assert run.wait(SECONDS) == run.poll() == run.returncode == -number
        with pytest.raises(MemplanError, match=f"train.py: the process was ended by {number.name}"):
            answer(tmp_path / "asked", -number, "train.py")
    assert is_there(host_now())


def test_what_crashes_is_told_by_its_signal(tmp_path: Path) -> None:
    with pytest.raises(MemplanError, match=r"train\.py: the process was ended by SIGSEGV$"):
        observe_script(script(tmp_path, "import ctypes\nctypes.string_at(0)\n"))


def test_what_is_registered_for_the_end_is_done(tmp_path: Path) -> None:
    text = "import atexit, torch\ntorch.rand(3)\natexit.register(lambda: open({!r}, 'w').close())\n"
    observe_script(script(tmp_path, text.format(str(tmp_path / "done"))))
    assert (tmp_path / "done").exists()


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit", 0, ""),
        ("raise SystemExit('no more')", 1, "no more"),
        ("raise ValueError('odd')", 1, "ValueError: odd"),
        ("import os\n    os._exit(7)", 7, ""),
        ("print('of no matter')\n    import sys\n    print('said', file=sys.stderr)", 0, "said"),
    ],
)
def test_a_run_ends_as_a_process_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, code: int, says: str
) -> None:
    """The module is found by the variable, so this host is one of its own."""
    (tmp_path / "of_a_test.py").write_text(f"def main(folder):\n    {text}\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    said = tmp_path / SAID
    assert start_run("of_a_test", tmp_path, said, "a test").wait(SECONDS) == code
    assert said.read_text().strip().endswith(says)
    assert bool(said.read_text()) == bool(says)


def test_torch_that_cannot_be_imported_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('libtorch.so is half')\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    path = script(tmp_path, "import torch\n")
    for _ in range(2):
        with pytest.raises(
            MemplanError, match=r"^train\.py: .* with code 1: ImportError: libtorch.so is half$"
        ):
            observe_script(path)


def test_a_host_that_is_gone_between_runs_is_replaced(tmp_path: Path) -> None:
    path = script(tmp_path, "import torch\ntorch.rand(3)\n")
    observe_script(path)
    before = host_now()
    os.kill(before, signal.SIGKILL)
    # At once: nobody may have noticed.
    assert observed_peak(observe_script(path))[0] == 12
    assert host_now() != before


def test_a_run_ends_with_its_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with sleeping(tmp_path, monkeypatch) as run:
        os.kill(host_now(), signal.SIGKILL)
        assert run.wait(SECONDS) == -signal.SIGKILL
        until(lambda: not is_there(run.process))


def test_runs_of_several_threads_are_their_own(tmp_path: Path) -> None:
    text = "import sys, torch\nn = int(sys.argv[1])\nassert n != 3, 'three'\ntorch.rand(n)\n"
    path = script(tmp_path, text)
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(observe_script, path, [str(number)]) for number in range(1, 9)]
    with pytest.raises(InputError, match="three"):
        runs.pop(2).result()
    assert [observed_peak(run.result())[0] for run in runs] == [4, 8, 16, 20, 24, 28, 32]
    assert children_of(host_now()) == set()


STARTS = f"""
import os, sys, threading, time
from memplan_engine.runtime.scripts import host, script_run
threading.Thread(target=script_run.observe_script, args=(sys.argv[1],), daemon=True).start()
while not os.path.exists("begun"):
    time.sleep(0.02)
# One that lives on, and knows nothing of hosts.
child = os.fork()
if child == 0:
    assert host._hosts == {{}} and not host._alive
    os.write(1, f"fork {{os.getpid()}}\\n".encode())
    time.sleep({SECONDS})
    os._exit(0)
os.write(1, f"host {{host._hosts[script_run.PROCESS].process.pid}}\\n".encode())
time.sleep({SECONDS})
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_stays_when_the_starter_is_killed(tmp_path: Path, how: signal.Signals) -> None:
    """Though what it has forked lives on, with copies of all that it had open."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-c", STARTS, str(script(tmp_path, SLEEPS))]
    starter = subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=environment)
    left: set[int] = set()
    try:
        assert starter.stdout is not None
        said = dict(starter.stdout.readline().split() for _ in range(2))
        own, fork = int(said["host"]), int(said["fork"])
        (run,) = children_of(own)
        left = {own, fork, run}
        starter.send_signal(how)
        assert starter.wait() == -how
        until(lambda: not is_there(own) and not is_there(run))
        assert is_there(fork)
    finally:
        starter.kill()
        for each in filter(is_there, left):
            os.kill(each, signal.SIGKILL)


def test_what_nobody_asks_gives_its_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_process, "IDLE_SECONDS", 0.01)
    (asks, ask), (answers, tell), wakes = os.pipe(), os.pipe(), os.pipe()
    host_process._Host(asks, tell, wakes).serve()
    for number in (asks, ask, answers, tell, *wakes):
        os.close(number)
