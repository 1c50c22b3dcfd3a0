"""Machine code on disk. Each entry stands behind the digest of its content, which is compared before anything
is unpickled, in a folder that nobody but us (or root) may write: what is garbled, or somebody else's, is
compiled anew. Without any folder that can be written kernels are compiled in each process.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import secrets
import shutil
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

_DIGEST_BYTES = hashlib.sha256().digest_size
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_DRAFT_SECONDS = 3600.0
"""Nobody writes for so long: what is older was left by a process that was killed."""
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class CodeCache:
    """What numba's dispatcher of the kernel `name` (file.function) asks for its machine code; `folders` are
    tried in turn. Errors of the file system, and entries that are no good, count as nothing found."""

    def __init__(self, name: str, folders: tuple[Path, ...]) -> None:
        self.name, self.folders = name, folders

    @property
    def cache_path(self) -> str:
        """The folder that is tried first."""
        return str(self.folders[0])

    def load_overload(self, signature: Any, target: Any) -> Any | None:
        """The compilation for `signature`, None where it has to be made."""
        from numba.core.compiler import CompileResult

        target.refresh()
        entry = self._entry(signature, target.codegen())
        for folder in self.folders:
            data = read_checked(folder / entry)
            if data is None:
                continue
            # Sound bytes of a numba that was patched in place may still not be what this one can load.
            with suppress(Exception):
                return CompileResult._rebuild(target, *pickle.loads(data))  # type: ignore[no-untyped-call]
        return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep a compilation in the first folder that takes it."""
        from numba.core.serialize import dumps

        if compiled.lifted or compiled.library.has_dynamic_globals:
            return
        entry = self._entry(signature, compiled.codegen)
        data = dumps(compiled._reduce())  # type: ignore[no-untyped-call]
        for folder in self.folders:
            if write_checked(folder / entry, data):
                return

    def _entry(self, signature: Any, codegen: Any) -> str:
        """The name of the file, from all that the code depends on beside its sources, which name the
        folder."""
        made_by = _made_by(codegen)
        return f"{self.name}-{hashlib.sha256(repr((made_by, signature)).encode()).hexdigest()[:16]}.nbc"


def _made_by(codegen: Any) -> tuple[Any, ...]:
    """The versions and the processor that machine code is for."""
    import llvmlite
    import numba

    return sys.version, numba.__version__, llvmlite.__version__, codegen.magic_tuple()


def machine_digest() -> str:
    """A digest of what machine code depends on here beside its sources: where it is the same, what another
    machine has compiled can be used."""
    from numba.core.registry import cpu_target

    return hashlib.sha256(repr(_made_by(cpu_target.target_context.codegen())).encode()).hexdigest()


def is_ours(found: os.stat_result) -> bool:
    """Whether a file or folder is of this user or of root, and nobody else may write it."""
    if not hasattr(os, "getuid"):
        return True
    return found.st_uid in (0, os.getuid()) and not found.st_mode & _OTHERS_MAY_WRITE


def is_safe(folder: Path) -> bool:
    """Whether `folder` is one, no link to one, and `is_ours`."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and is_ours(found)


def read_checked(path: Path) -> bytes | None:
    """What `write_checked` wrote, None where there is no such file or it has been changed since."""
    if not is_safe(path.parent):
        return None
    try:
        with open(os.open(path, os.O_RDONLY | _NO_FOLLOW), "rb") as file:
            found = os.fstat(file.fileno())
            data = file.read() if stat.S_ISREG(found.st_mode) and is_ours(found) else b""
    except OSError:
        return None
    digest, content = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    return content if hashlib.sha256(content).digest() == digest else None


def write_checked(path: Path, content: bytes) -> bool:
    """Put `content` at `path` behind its digest, whole or not at all; whether that could be done."""
    draft = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if not is_safe(path.parent):
            return False
        try:
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW, 0o644), "wb") as file:
                file.write(hashlib.sha256(content).digest() + content)
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
        _sweep(path.parent)
    except OSError:
        return False
    return True


def _sweep(folder: Path) -> None:
    """Remove the drafts of those who were killed."""
    for draft in folder.glob(".*.part"):
        with suppress(OSError):
            if time.time() - draft.lstat().st_mtime > _DRAFT_SECONDS:
                draft.unlink()
