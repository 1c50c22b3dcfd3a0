"""What the operating system and Python offer: cores and memory, files written whole, modules by name."""

from __future__ import annotations

import ast
import contextlib
import errno
import gc
import os
import secrets
import signal
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from memplan_engine.errors import InputError

PR_SET_PDEATHSIG = 1
DRAFT_LETTERS = 50
"""Of the target's name, in that of its draft: names end at 255 bytes, and a letter may take four."""


def by_name(name: str) -> Any:
    """What `name`, written "package.module:attribute" as entry points are, stands for: imported when somebody
    asks for it, so that registries stay light, and a value is shown by a room that it does not know."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def parse_python(text: str | bytes, mode: Literal["exec", "eval"] = "exec") -> Any:
    """Return the tree that `ast.parse` returns, with garbage collection paused.

    Python 3.11 counts the depth of all trees under construction in one variable. A finalizer or another
    thread that parses during a collection makes the first parse fail with "SystemError: AST constructor
    recursion depth mismatch" (python/cpython issue 106905).

    Raises
    ------
    SyntaxError, ValueError, RecursionError, MemoryError: those of `ast.parse`.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(text, mode=mode)
    finally:
        if collecting:
            gc.enable()


def write_target(path: Path | str) -> Path:
    """Where what is written to `path` goes: links are followed.

    Raises
    ------
    InputError: the folder does not exist, the place may not be written, or it is no regular file.
    """
    with _named(path):
        target = Path(os.path.realpath(path))
        if not target.parent.is_dir():
            raise FileNotFoundError
        if target.exists() and not target.is_file():
            raise InputError(str(path), "", "a folder or a device", "a file that may be written")
        for place in (target.parent, target):
            # A new file takes the place of the old one, which the rights of the folder alone would allow.
            if place.exists() and not os.access(place, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return target


def write_atomically(path: Path | str, data: bytes) -> None:
    """Write `data` to `path`, replacing what stood there, whose permissions stay. On failure, were it that of
    the power, the old file is left as it was; a process that is killed may leave a `.NAME.….part` beside it.

    Raises
    ------
    InputError: what `write_target` raises, or a disk that takes no more.
    """
    target = write_target(path)
    # Beside the target, so that the final move stays on one file system and is atomic.
    draft = target.with_name(f".{target.name[:DRAFT_LETTERS]}.{secrets.token_hex(8)}.part")
    with _named(path):
        try:
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
                if target.exists():
                    draft.chmod(target.stat().st_mode & 0o777)
                file.write(data)
                file.flush()
                # A file system may move a file before it writes its content: without this, a failure of the
                # power in between would leave an empty one.
                os.fsync(file.fileno())
            draft.replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def _named(path: Path | str) -> Iterator[None]:
    """Errors of the system in writing become InputErrors that name `path`."""
    try:
        yield
    except FileNotFoundError:
        # /proc says so of every new file. A relative path of a folder that is gone has no real one.
        with contextlib.suppress(FileNotFoundError):
            if Path(os.path.realpath(path)).parent.is_dir():
                expected = "one that may be written to"
                raise InputError(str(path), "", "a folder that takes no files", expected) from None
        raise InputError(str(path), "", "a folder that does not exist", "an existing folder") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(str(path), "", f"{reason!r} on writing", "a file that may be written") from None


def ended_words(code: int, said: str) -> str:
    """How a process ended that left no answer, from its return code (negative: a signal) and the last line of
    what it `said`."""
    last = said.strip().splitlines()[-1:]
    told = f": {last[0]}" if last else ""
    if code >= 0:
        return f"the process ended with code {code}{told}"
    why = " (the machine ran out of memory, perhaps)" if -code == signal.SIGKILL else ""
    # Real-time signals have numbers only.
    name = next((each.name for each in signal.Signals if each == -code), f"signal {-code}")
    return f"the process was ended by {name}{why}{told}"


def end_with_parent() -> None:
    """Have Linux end this process when the thread that started it is gone, even while it is held."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def count_cores() -> int:
    """The cores that this process may use, 1 or more: those that it is bound to where the system tells
    (Linux), else all of the machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int | None:
    """The machine's memory in bytes; None where it cannot be told."""
    if sys.platform == "win32":
        return _windows_memory()
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
    return pages * size if pages > 0 and size > 0 else None


if sys.platform == "win32":
    import ctypes

    class _MemoryStatus(ctypes.Structure):
        """MEMORYSTATUSEX: its own length, the load in percent, then bytes, those of the machine first."""

        _fields_ = (
            ("length", ctypes.c_uint32),
            ("load", ctypes.c_uint32),
            ("physical", ctypes.c_uint64),
            ("others", ctypes.c_uint64 * 6),
        )

    def _windows_memory() -> int | None:
        status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
        succeeded = ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
        return status.physical if succeeded else None
