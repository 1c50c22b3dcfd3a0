"""Errors a user can cause. Each one says where, what was found and what was expected, on one line."""

from __future__ import annotations

INTERRUPTED = 130
"""The exit code after Ctrl-C: 128 and the number of SIGINT, as shells count."""


class MemplanError(Exception):
    """Root of every error that a user can cause; the CLI prints it and exits with `exit_code`."""

    exit_code = 2


class InputError(MemplanError):
    """A file or value that cannot be read as what it claims to be.

    Parameters
    ----------
    source: the file (or other origin) that was read.
    place: the row, field, node or tensor in it; empty when the whole file is meant.
    found: what stands there.
    expected: what should stand there.
    """

    def __init__(self, source: str, place: str, found: str, expected: str) -> None:
        self.source, self.place, self.found, self.expected = source, place, found, expected
        where = f"{source}: {place}" if place else source
        # Nothing is found where there is nothing.
        told = found if found.startswith("no such ") else f"found {found}"
        super().__init__(one_line(f"{where}: {told}, expected {expected}"))


class PlanError(MemplanError):
    """A problem that a strategy, or any strategy, cannot place."""


class MissingDependencyError(MemplanError):
    """An optional package is needed and is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}: pip install 'memplan[{extra}]'")


def one_line(text: str, limit: int = 600) -> str:
    """Fold `text` to one printable line of at most `limit` characters: messages may quote hostile files."""
    folded = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return folded if len(folded) <= limit else folded[: limit - 1] + "…"
