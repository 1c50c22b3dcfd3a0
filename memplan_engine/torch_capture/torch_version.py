"""Which PyTorch is installed, and whether it is the one that memplan was measured on."""

from __future__ import annotations

import warnings
from functools import cache

from memplan_engine.errors import MissingDependencyError

MEASURED = "2.13"
"""What kernels allocate was measured on this release, and its private interfaces are the ones in use."""


def require_torch(purpose: str) -> None:
    """Raise MissingDependencyError where torch is not installed; warn once of releases but MEASURED."""
    try:
        import torch
    except ImportError:
        raise MissingDependencyError("torch", "torch", purpose) from None
    _warn_unless_measured(str(torch.__version__))


@cache
def _warn_unless_measured(version: str) -> None:
    if version.split(".")[:2] != MEASURED.split("."):
        warnings.warn(
            f"memplan was measured on torch {MEASURED}, and this is torch {version}: the bytes that kernels "
            "allocate may be others, and what rests on torch's private interfaces may fail; "
            "`memplan run --check` compares a plan with a real run",
            stacklevel=3,
        )
