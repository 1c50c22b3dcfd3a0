"""The most that a model may need. Nothing heavy is imported here: pytest reads markers by it."""

from __future__ import annotations

from dataclasses import dataclass, fields

from memplan_engine.errors import InputError
from memplan_engine.units import UNITS_TAKEN, parse_bytes


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Bytes, None for no limit: of the `arena`; of the `peak`, the most bytes live at one step, temporaries
    included; and of what PyTorch's caching allocator has `reserved` in an eager run, as it is predicted."""

    arena: int | None = None
    peak: int | None = None
    reserved: int | None = None


NO_CEILINGS = Ceilings()
CEILINGS = tuple(each.name for each in fields(Ceilings))


def parse_ceiling(given: object, source: str) -> int | None:
    """ "52MiB" or a number of bytes → bytes, None for None; raises InputError naming `source`."""
    if given is None or (isinstance(given, int) and not isinstance(given, bool) and given >= 0):
        return given
    if isinstance(given, str):
        return parse_bytes(given, source)
    raise InputError(source, "", repr(given), f"bytes, or {UNITS_TAKEN}")
