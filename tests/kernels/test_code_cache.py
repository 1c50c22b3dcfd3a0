"""Machine code on disk: however its files are damaged, kernels give the same results and repair the cache."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL
from typing import Any

import numpy as np
import pytest

from memplan_engine import kernels
from memplan_engine.kernels import code_cache
from memplan_engine.kernels.code_cache import CodeCache, read_checked, write_checked
from memplan_engine.kernels.constructive.stack import stack_up
from memplan_engine.kernels.jit import Kernel
from tests import ROOT
from tests.support.fork_server import die_at
from tests.support.waiting import HANG_SECONDS

CONTENT = bytes(range(256)) * 40
KILLS = 8
PROGRAM = """
import os, signal
import numpy as np
from numba.core import event
from memplan_engine.kernels.constructive.stack import stack_up

class Listener(event.Listener):
    def on_start(self, event):
        if event.kind == "numba:compile":
            compiled.append(event.data["dispatcher"].py_func.__name__)
        else:
            passes.append(event)
            if len(passes) == int(os.environ.get("KILL_AT_PASS", "0")):
                os.kill(os.getpid(), signal.SIGKILL)
    def on_end(self, event):
        pass

compiled, passes = [], []
event.register("numba:compile", Listener())
event.register("numba:run_pass", Listener())
one = np.ones(3, dtype=np.int64)
print(stack_up.compiled(one * 100, one * 64, 0).tolist(), len(passes), compiled.count("stack_up"))
"""


def launch(**environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env={**os.environ, **environment}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def said(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 0, err
    assert err == ""
    return out.strip()


def compilations(folder: Path | str) -> int:
    """Return how often a kernel is compiled in its first call, with its cache in `folder`."""
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            compiled.append(event.data["dispatcher"].py_func.__name__)

        def on_end(self, event: Any) -> None:
            pass

    compiled: list[str] = []
    one = np.ones(3, dtype=np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUMBA_CACHE_DIR", str(folder))
        with event.install_listener("numba:compile", Listener()):
            assert Kernel(stack_up.function).compiled(one * 100, one * 64, 0).tolist() == [0, 128, 256]
    return compiled.count("stack_up")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache that this process has filled."""
    folder = tmp_path_factory.mktemp("cache")
    assert compilations(folder) == 1
    return folder


def entry(folder: Path) -> Path:
    (found,) = folder.rglob("stack.stack_up-*.nbc")
    return found


def test_what_is_in_the_cache_is_not_compiled_again(filled: Path) -> None:
    assert compilations(filled) == 0
    assert said(launch(NUMBA_CACHE_DIR=str(filled))) == "[0, 128, 256] 0 0"
    assert not list(filled.rglob("*.part"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_that_compile_at_once_and_are_killed_leave_a_cache_that_works(tmp_path: Path) -> None:
    draw = random.Random(16)
    both = [launch(NUMBA_CACHE_DIR=str(tmp_path / "first")) for _ in range(2)]
    passes = max(int(said(each).split()[-2]) for each in both)
    assert passes > 20
    killed = 0
    for number in range(KILLS):
        folder = tmp_path / str(number)
        # One of them is killed while it compiles, or both.
        ends = draw.sample(range(1, passes + 1), draw.choice((1, 1, 2)))
        kills = [str(at) for at in ends] + ["0"] * (2 - len(ends))
        both = [launch(NUMBA_CACHE_DIR=str(folder), KILL_AT_PASS=kill) for kill in kills]
        for each in both:
            each.communicate(timeout=HANG_SECONDS)
        # The other one may have filled the cache before this one compiles: it lives, then.
        codes = [each.returncode for each in both]
        assert set(codes) <= {0, -SIGKILL}
        killed += codes.count(-SIGKILL)
        assert said(launch(NUMBA_CACHE_DIR=str(folder))).startswith("[0, 128, 256] ")
        assert said(launch(NUMBA_CACHE_DIR=str(folder))) == "[0, 128, 256] 0 0"
    assert killed > 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_kill_between_any_two_steps_of_writing_leaves_old_or_new(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "entry"
    assert write_checked(path, b"before")
    seen = []
    for line in range(1, 60):
        if (child := os.fork()) == 0:
            die_at(line, write_checked.__code__)
            write_checked(path, CONTENT)
            os._exit(0)
        if os.waitpid(child, 0)[1] == 0:
            break
        seen.append(read_checked(path))
        assert write_checked(path, b"before")
    assert read_checked(path) == CONTENT
    assert seen == sorted(seen, key=(b"before", CONTENT).index)  # type: ignore[arg-type]
    assert set(seen) == {b"before", CONTENT}
    # What they left goes when it is old.
    drafts = [*path.parent.glob(".*.part")]
    assert drafts
    os.utime(drafts[0], (0, 0))
    assert write_checked(path, CONTENT)
    assert [*path.parent.glob(".*.part")] == drafts[1:]


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "something").touch()


def poison(path: Path) -> None:
    """A pickle that would write a file, as numba's own cache would load it."""
    path.write_bytes(b"cos\nmkdir\n(V" + os.fsencode(path.with_name("ran")) + b"\ntR.")


@pytest.mark.parametrize("harm", [cut, flip, empty, replace_by_folder, poison])
def test_a_damaged_file_is_compiled_again_and_then_good(filled: Path, harm: Callable[[Path], None]) -> None:
    path = entry(filled)
    harm(path)
    assert compilations(filled) == 1
    assert entry(filled).is_file()
    assert not path.with_name("ran").exists()
    assert compilations(filled) == 0


def test_a_folder_that_others_may_write_is_not_read_and_not_written(filled: Path) -> None:
    folder = entry(filled).parent
    kept = entry(filled).read_bytes()
    folder.chmod(0o777)
    try:
        assert compilations(filled) == 1
        assert entry(filled).read_bytes() == kept
    finally:
        folder.chmod(0o755)


def test_without_any_place_kernels_are_compiled_each_time() -> None:
    """A file takes the place of the folder: not even root can write below it."""
    assert compilations("/dev/null") == compilations("/dev/null") == 1


def test_every_byte_counts(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "entry"
    assert read_checked(path) is None
    assert write_checked(path, CONTENT)
    assert read_checked(path) == CONTENT
    whole = path.read_bytes()
    for place in [*range(40), *range(40, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:place])
        assert read_checked(path) is None
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        assert read_checked(path) is None
    path.write_bytes(whole + b"\0")
    assert read_checked(path) is None
    assert write_checked(path, CONTENT)
    assert read_checked(path) == CONTENT
    assert [each.name for each in path.parent.iterdir()] == ["entry"]


def test_files_and_folders_of_others_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cache" / "entry"
    before = os.umask(0)
    try:
        assert write_checked(path, CONTENT)
    finally:
        os.umask(before)
    assert (path.parent.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o755, 0o644)
    path.chmod(0o666)
    assert read_checked(path) is None
    path.chmod(0o644)
    (tmp_path / "link").symlink_to(path.parent)
    assert read_checked(tmp_path / "link" / "entry") is None
    assert not write_checked(tmp_path / "link" / "entry", CONTENT)
    (path.parent / "other").symlink_to(path)
    assert read_checked(path.parent / "other") is None
    # Somebody else's; what is root's has root's word, as the program itself has.
    monkeypatch.setattr(os, "getuid", lambda: 4321)
    os.chown(path, 1234, -1) if os.geteuid() == 0 else None
    assert (read_checked(path) is None) == (os.geteuid() == 0 or path.stat().st_uid != 0)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EDQUOT])
def test_a_disk_that_takes_nothing_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    path = tmp_path / "cache" / "entry"
    assert write_checked(path, b"before")

    def refuse(self: Path, target: Path) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "replace", refuse)
    assert not write_checked(path, CONTENT)
    assert read_checked(path) == b"before"
    assert [each.name for each in path.parent.iterdir()] == ["entry"]


def test_the_folders_that_are_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = f"{kernels.__name__}.constructive.place"
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    beside, in_home = kernels.cache_folders(module)
    assert beside.parent == ROOT / "memplan_engine" / "kernels" / "__pycache__"
    assert in_home.is_absolute()
    assert in_home.name == beside.name
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert kernels.cache_folders(module) == (tmp_path / beside.name,)


def test_what_one_folder_refuses_the_next_one_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Path] = []

    def write(path: Path, data: bytes) -> bool:
        taken.append(path)
        return len(taken) > 1

    monkeypatch.setattr(code_cache, "write_checked", write)
    cache = CodeCache("stack.stack_up", (tmp_path / "first", tmp_path / "second", tmp_path / "third"))

    class Compiled:
        lifted = ()

        class library:  # noqa: N801
            has_dynamic_globals = False

        class codegen:  # noqa: N801
            magic_tuple = staticmethod(lambda: ("cpu",))

        _reduce = staticmethod(lambda: ("code",))

    cache.save_overload("signature", Compiled)
    assert [path.parent.name for path in taken] == ["first", "second"]
    assert cache.cache_path == str(tmp_path / "first")
