"""memplan: plans the memory of neural-network graphs, proves how good the plan is, and shows it.

The public names stand in `__init__.pyi`; each is imported when somebody asks for it, so that `memplan` starts
quickly and a program that only reads a file waits for no other kind of file.
"""

from typing import Any

import lazy_loader

_FORMER = {
    "Budget": "SolveLimits",
    "Fit": "FitReport",
    "Subject": "RunTarget",
    "Trial": "RunOutcome",
    "alive_at": "live_at",
    "subject_of": "run_target",
    "try_plan": "run_in_plan",
}
"""What public names were called before; gone with version 1.0."""

_find, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name in _FORMER:
        import warnings

        now = _FORMER[name]
        message = f"memplan_engine.{name} is now called {now}; the old name goes with version 1.0"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return _find(now)
    return _find(name)
