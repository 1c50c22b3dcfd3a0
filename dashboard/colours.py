"""Colourings of the rectangles: those of the engine, which draws reports and figures in the same colours."""

from __future__ import annotations

from memplan_engine.colouring import (
    CATEGORIES,
    COLOURINGS,
    MAGNITUDES,
    NO_PHASE,
    OTHER,
    PHASE_COLOURS,
    PHASE_ORDER,
    SAVED,
    Colouring,
    by_kind,
    by_lifetime,
    by_module,
    by_phase,
    by_role,
    by_size,
)

__all__ = [
    "CATEGORIES",
    "COLOURINGS",
    "MAGNITUDES",
    "NO_PHASE",
    "OTHER",
    "PHASE_COLOURS",
    "PHASE_ORDER",
    "SAVED",
    "Colouring",
    "by_kind",
    "by_lifetime",
    "by_module",
    "by_phase",
    "by_role",
    "by_size",
]
