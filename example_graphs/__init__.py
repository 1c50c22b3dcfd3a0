"""Real and teaching graphs to open: models, an ONNX file, buffer lists, a recording, pairs to compare."""

from __future__ import annotations

from functools import cache
from pathlib import Path

PATH = Path(__file__).parent
SUFFIXES = (".json", ".csv", ".onnx", ".pt2", ".pickle")


@cache
def examples() -> tuple[Path, ...]:
    """Return the paths of all example files, sorted. A package's files stay: they are looked for once."""
    return tuple(sorted(path for path in PATH.rglob("*") if path.suffix in SUFFIXES))


def pairs() -> dict[str, tuple[Path, Path]]:
    """Return the pairs made for comparing, name → (base, head)."""
    names = [path.stem.removeprefix("diff_").removesuffix("_base") for path in PATH.glob("diff_*_base.json")]
    return {
        name: (PATH / f"diff_{name}_base.json", PATH / f"diff_{name}_head.json") for name in sorted(names)
    }
