"""First use of a kernel compiles it: say so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import event


class _FirstCompilation(event.Listener):
    def __init__(self, tell: Callable[[], None]) -> None:
        self.tell: Callable[[], None] | None = tell

    def on_start(self, event: Any) -> None:
        """Tell once."""
        if self.tell:
            tell, self.tell = self.tell, None
            tell()

    def on_end(self, event: Any) -> None:
        """Nothing to say."""


def on_first_compilation(tell: Callable[[], None]) -> None:
    """Call `tell` once, when a kernel really has to be compiled; never when it comes from the cache."""
    event.register("numba:compile", _FirstCompilation(tell))  # type: ignore[no-untyped-call]
