"""Kernels: nothing but arrays in, arrays out. `jit` says when they are interpreted and when compiled.

Compiled kernels are cached on disk in folders, one for each file, named after its source and those of all
kernels that it imports: numba looks only at the file of the function itself, and would go on using a kernel
whose callee in another file has changed. What a change does not reach stays compiled.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent
_IMPORT = re.compile(rf"^from ({re.escape(__name__)}[\w.]+) import ", re.MULTILINE)
_MACHINERY = (f"{__name__}.jit", f"{__name__}.code_cache")
"""No compiled code is made of them."""

listeners: list[Callable[[], None]] = []
"""Whom to tell when numba is about to compile something for the first time: one at most."""


def _find_sources(folder: Path = _HERE, package: str = __name__) -> dict[str, str]:
    """The text of each kernel by its module, those of sub-folders as well."""
    sources = {}
    for path in folder.rglob("[!_]*.py"):
        name = ".".join((package, *path.relative_to(folder).with_suffix("").parts))
        if name not in _MACHINERY:
            sources[name] = path.read_text(encoding="utf-8")
    return sources


def _digests(sources: dict[str, str]) -> dict[str, str]:
    """A digest for each module of all that its compiled code is made of, callees before callers."""
    import hashlib
    from graphlib import TopologicalSorter

    imports = {
        name: [module for module in _IMPORT.findall(text) if module not in _MACHINERY]
        for name, text in sources.items()
    }
    digests: dict[str, str] = {}
    for name in TopologicalSorter(imports).static_order():
        parts = [sources[name], *sorted(digests[module] for module in imports[name])]
        digests[name] = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return digests


@cache
def _all_digests() -> dict[str, str]:
    return _digests(_find_sources())


def sources_digest() -> str:
    """A digest of all kernels' sources."""
    import hashlib

    return hashlib.sha256(repr(sorted(_all_digests().items())).encode()).hexdigest()


def cache_folders(module: str) -> tuple[Path, ...]:
    """Where what is compiled of `module` lies, in the order in which one is looked for that can be used:
    where the user has said in NUMBA_CACHE_DIR, or beside it and in the user's cache."""
    theirs = os.environ.get("NUMBA_CACHE_DIR")
    leaf = f"{module.rpartition('.')[2]}-{_all_digests()[module]}"
    if theirs:
        return (Path(theirs) / leaf,)
    # Here, not above: where the first one has it nobody asks for the second.
    from platformdirs import user_cache_path

    return _HERE / "__pycache__" / leaf, user_cache_path("memplan") / "kernels" / leaf


def on_first_compilation(tell: Callable[[], None]) -> None:
    """Call `tell` once, when a kernel really has to be compiled; never when it comes from the cache. Who asks
    last is told."""
    listeners[:] = [tell]


@cache
def _module_of(file: str) -> str | None:
    return next((module for module in _all_digests() if module.endswith(f".{file}")), None)


_compiled: set[str] = set()


def is_compiled(*names: str) -> bool:
    """Whether the kernels `names`, each as file.function, lie compiled on disk. One that was found there is
    not looked for again."""
    for name in {*names} - _compiled:
        module = _module_of(name.partition(".")[0])
        if module is None:
            continue
        if any(any(folder.glob(f"{name}-*.nbc")) for folder in cache_folders(module)):
            _compiled.add(name)
    return _compiled.issuperset(names)
