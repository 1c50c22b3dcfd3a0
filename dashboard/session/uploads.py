"""What people have uploaded: to each browser its own, kept by content, for as long as it comes back.

A browser is known by a cookie that the server gives it. Whoever has none keeps uploads for one session.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import streamlit as st
from memplan_dashboard.serving.door import VISITOR_COOKIE, VISITOR_DAYS, visitor_of
from platformdirs import user_cache_path

from memplan_engine import InputError, MemplanError
from memplan_engine.units import format_bytes

KINDS = ("upload", "run", "ranks", "history")
"""What can be uploaded, as keys begin: documents, runs, which the page Run shows, ranks, which the page
Devices does, and stores of history, which the page History does."""
MOST_UPLOADS = 50
"""Of one visitor and kind; the oldest make room for the next."""
MOST_BYTES = 2 << 30
"""Of one visitor, all kinds together; the oldest make room, too."""
MOST_BYTES_IN_ALL = 8 << 30
"""Of all visitors; beyond it nothing is taken, for nobody's uploads make room for another's."""
DRAFT_SECONDS = 3600.0
"""Nobody writes for so long: what is older was left by a server that was killed."""
MOST_NAME_BYTES = 200
"""A file system takes 255."""
RULES = (
    f"Kept for this browser only, for {VISITOR_DAYS} days after its last visit. At most "
    f"{MOST_UPLOADS} files and {format_bytes(MOST_BYTES)}: the oldest are removed first."
)

_KEY = re.compile(rf"({'|'.join(KINDS)}):([0-9a-f]{{16}})", re.ASCII)
_SEPARATORS = frozenset('/\\:*?"<>|')
_one_at_a_time = threading.Lock()


def keep(name: str, content: bytes, kind: str = KINDS[0]) -> tuple[str, bool]:
    """Keep an uploaded file; its key, and whether it is new. Raises MemplanError where there is no room."""
    digest = hashlib.sha256(content).hexdigest()[:16]
    path = folder() / kind / digest / safe_name(name)
    with _one_at_a_time:
        if path.exists():
            return f"{kind}:{digest}", False
        before = find(f"{kind}:{digest}")
        try:
            if before:
                before.rename(path)
            else:
                _make_room(path.name, len(content), kind)
                _write(path, content)
        except OSError as error:
            raise MemplanError(
                f"{path.name}: cannot be kept in {_store()}: {error.strerror}; XDG_CACHE_HOME names another "
                "folder for it"
            ) from error
    return f"{kind}:{digest}", True


def keep_readable(name: str, content: bytes, read: Callable[[str], object], kind: str = KINDS[0]) -> str:
    """Keep an uploaded file that `read` can open; its key. Raises MemplanError for another, which is
    forgotten again."""
    key, is_new = keep(name, content, kind)
    try:
        read(key)
    except MemplanError:
        if is_new:
            drop(key)
        raise
    return key


def listed(kind: str = KINDS[0]) -> dict[str, str]:
    """The visitor's uploads of a kind, key → file name, the latest first."""
    return {f"{kind}:{path.parent.name}": path.name for path in _latest_first(folder(), kind)}


def find(key: str) -> Path | None:
    """The visitor's upload of that key; None where there is none."""
    match = _KEY.fullmatch(key)
    return next((folder() / match[1] / match[2]).glob("*"), None) if match else None


def drop(key: str) -> None:
    """Forget an upload of the visitor's; anything else is left alone."""
    if path := find(key):
        _remove(path)


def come_back() -> None:
    """The visitor is here: the uploads stay."""
    if folder().exists():
        os.utime(folder())


def folder() -> Path:
    """Where the visitor's uploads lie, a folder of each kind."""
    return _store() / visitor()


def visitor() -> str:
    """Who is visiting: a browser, or, where it takes no cookie, a session."""
    known = visitor_of(st.context.cookies.get(VISITOR_COOKIE))
    if known is None:
        known = st.session_state.setdefault("visitor", secrets.token_urlsafe(32))
    # Not the cookie itself: who sees the folder must not be able to come as its owner.
    return hashlib.sha256(known.encode()).hexdigest()[:32]


def safe_name(name: str) -> str:
    """`name` as a file can be called that lies in a folder of ours: what is harmless stays as it is."""
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", name))[-1]
    kept = "".join("_" if _is_harmful(letter) else letter for letter in last)
    short = kept.encode()[-MOST_NAME_BYTES:].decode(errors="ignore")
    return short.strip(" .") or "upload"


def _is_harmful(letter: str) -> bool:
    """Whether it is a control character or of those that turn text around, a separator, or no character."""
    return letter in _SEPARATORS or unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def _make_room(name: str, nbytes: int, kind: str) -> None:
    """Remove the visitor's oldest until `nbytes` more are within the limits; raises MemplanError where that
    is not enough."""
    if nbytes > MOST_BYTES:
        raise InputError(name, "", format_bytes(nbytes), f"at most {format_bytes(MOST_BYTES)} to upload")
    _forget_the_gone()
    own = folder()
    for draft in own.glob("*.part"):
        if _age(draft) > DRAFT_SECONDS:
            draft.unlink(missing_ok=True)
    kept = _latest_first(own)
    of_kind = [path for path in kept if path.parent.parent.name == kind]
    going = of_kind[MOST_UPLOADS - 1 :]
    left = [path for path in kept if path not in going]
    while left and _bytes(left) + nbytes > MOST_BYTES:
        going.append(left.pop())
    in_all = _bytes(path for path in _store().glob("*/*/*/*") if path not in going)
    if in_all + nbytes > MOST_BYTES_IN_ALL:
        raise MemplanError(
            f"{name}: found {format_bytes(nbytes)}, expected what is left: the uploads of all visitors "
            f"take {format_bytes(in_all)} of {format_bytes(MOST_BYTES_IN_ALL)}"
        )
    for path in going:
        _remove(path)


def _write(path: Path, content: bytes) -> None:
    """All of the file or nothing of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = folder() / f"{secrets.token_hex(8)}.part"
    try:
        part.write_bytes(content)
        part.rename(path)
    except OSError:
        part.unlink(missing_ok=True)
        _remove(path)
        raise


def _forget_the_gone() -> None:
    """Remove what belongs to visitors who have not come back."""
    for each in _store().glob("*"):
        if _age(each) > VISITOR_DAYS * 86_400:
            shutil.rmtree(each, ignore_errors=True)


def _latest_first(own: Path, kind: str = "*") -> list[Path]:
    return sorted(own.glob(f"{kind}/*/*"), key=_age)


def _bytes(paths: Iterator[Path] | list[Path]) -> int:
    return sum(path.stat().st_size for path in paths if path.exists())


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return float("inf")


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    if path.parent.exists() and not any(path.parent.iterdir()):
        path.parent.rmdir()


def _store() -> Path:
    return user_cache_path("memplan") / "uploads"
