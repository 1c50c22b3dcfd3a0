"""Numba kernels: nothing but arrays in, arrays out.

Compiled kernels are cached on disk in a folder named after all kernel sources together: numba looks only at
the file of the function itself, and would go on using a kernel whose callee in another file has changed.
"""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path

from numba import config

_HERE = Path(__file__).parent
_SOURCES = sorted(_HERE.glob("[!_]*.py"))


def _cache_folder() -> str:
    digest = hashlib.sha256()
    for source in _SOURCES:
        digest.update(source.read_bytes())
    return str(_HERE / "__pycache__" / f"kernels-{digest.hexdigest()[:16]}")


def _import_kernels() -> None:
    """Import every kernel while numba's cache folder is ours, unless the user has set one."""
    theirs = config.CACHE_DIR  # type: ignore[attr-defined]
    if not theirs:
        config.CACHE_DIR = _cache_folder()  # type: ignore[attr-defined]
    try:
        for source in _SOURCES:
            importlib.import_module(f"{__name__}.{source.stem}")
    finally:
        config.CACHE_DIR = theirs  # type: ignore[attr-defined]


_compiled: set[str] = set()


def is_compiled(*names: str) -> bool:
    """Whether the kernels `names`, each as file.function, lie compiled on disk. One that was found there is
    not looked for again."""
    folder = Path(config.CACHE_DIR or _cache_folder())  # type: ignore[attr-defined]
    _compiled.update(name for name in {*names} - _compiled if any(folder.rglob(f"{name}-*.nbc")))
    return _compiled.issuperset(names)


_import_kernels()
