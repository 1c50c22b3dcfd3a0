"""Real and teaching graphs to open: captured models, an ONNX file, buffer lists."""

from __future__ import annotations

from pathlib import Path

PATH = Path(__file__).parent
SUFFIXES = (".json", ".csv", ".onnx", ".pt2")


def examples() -> list[Path]:
    """Return the paths of all example files, sorted."""
    return sorted(path for path in PATH.rglob("*") if path.suffix in SUFFIXES)
