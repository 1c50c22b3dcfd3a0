"""Numba kernels: nothing but arrays in, arrays out.

Compiled kernels are cached on disk in folders, one for each file, named after its source and those of all
kernels that it imports: numba looks only at the file of the function itself, and would go on using a kernel
whose callee in another file has changed. What a change does not reach stays compiled.
"""

from __future__ import annotations

import hashlib
import importlib
import re
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from numba import config

_HERE = Path(__file__).parent
_IMPORT = re.compile(rf"^from ({re.escape(__name__)}[\w.]+) import ", re.MULTILINE)


def _find_sources(folder: Path = _HERE, package: str = __name__) -> dict[str, str]:
    """The text of each kernel by its module, those of sub-folders as well."""
    found = {}
    for path in folder.rglob("[!_]*.py"):
        name = ".".join((package, *path.relative_to(folder).with_suffix("").parts))
        found[name] = path.read_text(encoding="utf-8")
    return found


def _digests(sources: dict[str, str]) -> dict[str, str]:
    """A digest for each module of all that its compiled code is made of, callees before callers."""
    imports = {name: list(_IMPORT.findall(text)) for name, text in sources.items()}
    digests: dict[str, str] = {}
    for name in TopologicalSorter(imports).static_order():
        parts = [sources[name], *sorted(digests[each] for each in imports[name])]
        digests[name] = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return digests


_DIGESTS = _digests(_find_sources())


def _cache_folder(module: str) -> Path:
    """Where what is compiled of `module` lies, unless the user has said where."""
    return _HERE / "__pycache__" / f"{module.rpartition('.')[2]}-{_DIGESTS[module]}"


def _import_kernels() -> None:
    """Import every kernel while numba's cache folder is that of its file, unless the user has set one.

    Callees come first: one that its caller imports would be cached in the caller's folder.
    """
    theirs = config.CACHE_DIR  # type: ignore[attr-defined]
    try:
        for module in _DIGESTS:
            config.CACHE_DIR = theirs or str(_cache_folder(module))  # type: ignore[attr-defined]
            importlib.import_module(module)
    finally:
        config.CACHE_DIR = theirs  # type: ignore[attr-defined]


@cache
def _module_of(file: str) -> str | None:
    return next((module for module in _DIGESTS if module.endswith(f".{file}")), None)


_compiled: set[str] = set()


def is_compiled(*names: str) -> bool:
    """Whether the kernels `names`, each as file.function, lie compiled on disk. One that was found there is
    not looked for again."""
    for name in {*names} - _compiled:
        module = _module_of(name.partition(".")[0])
        if module is None:
            continue
        folder = Path(config.CACHE_DIR or _cache_folder(module))  # type: ignore[attr-defined]
        if any(folder.rglob(f"{name}-*.nbc")):
            _compiled.add(name)
    return _compiled.issuperset(names)


_import_kernels()
