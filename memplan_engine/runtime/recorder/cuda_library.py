"""The library of `cuda_guard.cpp`: compiled where it is first asked for, kept in the user's cache.

What is kept lies behind its digest and is loaded from a copy of the very bytes that were checked
(`kernels.code_cache`): what is cut short, garbled or somebody else's is compiled anew. Two processes at once
both compile, and each puts its own in place whole. Without a folder that can be written each compiles anew.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import torch

from memplan_engine.kernels.code_cache import read_checked, write_checked
from memplan_engine.runtime.scratch import scratch_folder

SOURCE = Path(__file__).with_name("cuda_guard.cpp")
COMPILERS = ("c++", "g++", "clang++")
"""Looked for in this order, where CXX names none."""
FLAGS = ("-std=c++20", "-O0", "-shared", "-fPIC", "-w")
"""C++20 is what the headers of torch 2.13 ask for. Nothing in it takes time to run: it takes 6 s to compile
unoptimised, 7 s with -O1."""
SECONDS = 300.0
"""A compiler that is not through by then is ended: fifty times what it takes."""
ANSWER_SECONDS = 60.0
"""For a compiler to say which one it is."""


class NoGuardError(Exception):
    """There is no library, in words that say why."""


def guard_content() -> bytes:
    """The bytes of the library, from the cache or compiled.

    Raises
    ------
    NoGuardError: no compiler, or one that cannot compile it against this torch; a system but Linux.
    """
    if sys.platform != "linux":
        # Neither tried there, nor is there a way to have a process end with the one that started it.
        raise NoGuardError(f"no device guard on {platform.system()}")
    compiler = _compiler()
    name = f"cuda_guard-{_digest(compiler)}.so"
    for folder in cache_folders():
        content = read_checked(folder / name)
        if content is not None:
            return content
    content = _compile(compiler)
    for folder in cache_folders():
        if write_checked(folder / name, content):
            break
    return content


def cache_folders() -> tuple[Path, ...]:
    """Where it is kept, in the order in which one is looked for that can be used."""
    from platformdirs import user_cache_path

    return (user_cache_path("memplan") / "cuda",)


def _compiler() -> tuple[str, ...]:
    """The command that compiles, as CXX has it (`ccache g++`) or the first that is there."""
    theirs = os.environ.get("CXX", "").split()
    for name, *options in [theirs] if theirs else [[name] for name in COMPILERS]:
        path = shutil.which(name)
        if path is not None:
            return path, *options
    raise NoGuardError(f"no C++ compiler ({' '.join(theirs) or ', '.join(COMPILERS)})")


@cache
def _version(compiler: tuple[str, ...]) -> str:
    """What the compiler says that it is."""
    try:
        said = subprocess.run(
            [*compiler, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ANSWER_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        raise NoGuardError(f"a C++ compiler that does not answer ({' '.join(compiler)})") from None
    return said.stdout.decode(errors="replace")


def _digest(compiler: tuple[str, ...]) -> str:
    """Of all that the library follows from."""
    parts = (SOURCE.read_text(encoding="utf-8"), torch.__version__, str(torch.version.git_version))
    made_by = (*parts, torch.__file__, *compiler, _version(compiler), *FLAGS, platform.machine())
    return hashlib.sha256("\n".join(made_by).encode()).hexdigest()[:16]


def _compile(compiler: tuple[str, ...]) -> bytes:
    """The bytes of the library."""
    home = Path(torch.__file__).parent
    headers = (home / "include", home / "include" / "torch" / "csrc" / "api" / "include")
    with scratch_folder() as folder:
        target = folder / "cuda_guard.so"
        libraries = (f"-L{home / 'lib'}", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{home / 'lib'}")
        includes = [f"-I{path}" for path in headers]
        name = " ".join(compiler)
        command = [*compiler, *FLAGS, *includes, str(SOURCE), "-o", str(target), *libraries]
        try:
            ended = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, cwd=folder
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NoGuardError(f"the C++ compiler {name} fails: {type(error).__name__}") from None
        if ended.returncode or not target.is_file():
            lines = [line for line in ended.stderr.decode(errors="replace").splitlines() if "error" in line]
            said = lines[0][:200] if lines else f"exit code {ended.returncode}"
            raise NoGuardError(f"the C++ compiler {name} fails: {said}")
        return target.read_bytes()


def loaded_guard(content: bytes) -> ctypes.PyDLL:
    """The library of these bytes; its functions are called with Python's lock held, for they are short."""
    # In no folder: one for temporary files may be such that nothing in it can be run.
    with open(os.memfd_create("cuda_guard"), "wb") as file:
        file.write(content)
        file.flush()
        library = ctypes.PyDLL(f"/proc/self/fd/{file.fileno()}")
    library.memplan_install.argtypes = (ctypes.c_int, ctypes.c_long, ctypes.c_int)
    library.memplan_heard.argtypes = (ctypes.c_void_p, ctypes.c_int)
    library.memplan_synchronize.argtypes = (ctypes.c_int,)
    library.memplan_synchronize.restype = None
    library.memplan_exchange_card.argtypes = (ctypes.c_int,)
    library.memplan_stream.argtypes = (ctypes.c_int,)
    library.memplan_stream.restype = ctypes.c_int64
    library.memplan_set_stream.argtypes = (ctypes.c_int, ctypes.c_int64)
    library.memplan_set_stream.restype = None
    return library
