"""What puts a buffer where it stands in an order: the columns that each strategy sorts by, with words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from memplan_engine.analysis.positional import positional_maxima
from memplan_engine.kernels.constructive.breadth import busiest_section
from memplan_engine.problem import Ints, Problem
from memplan_engine.profile import live_bytes
from memplan_engine.strategies.constructive.order_fit import Prepared
from memplan_engine.strategies.constructive.orders import conflicts
from memplan_engine.units import format_bytes


class Unit(StrEnum):
    """What a key counts."""

    BYTES = "bytes"
    STEPS = "steps"
    STEP = "step"
    BUFFERS = "buffers"
    BYTE_STEPS = "byte-steps"
    PLACE = "place"


@dataclass(frozen=True, slots=True)
class Key:
    """One column that an order sorts by: a value a buffer, the largest first when `descending`."""

    name: str
    unit: Unit
    values: tuple[int, ...]
    descending: bool = False

    def words(self, buffer: int) -> str:
        """The value of `buffer`, for people: "512 KiB", "7 steps", "step 4"."""
        value = self.values[buffer]
        if self.unit is Unit.BYTES:
            return format_bytes(value)
        if self.unit is Unit.BYTE_STEPS:
            return f"{format_bytes(value)} × steps"
        if self.unit in (Unit.STEP, Unit.PLACE):
            return f"{self.unit} {value:,}"
        return f"{value:,} {self.unit if value != 1 else self.unit[:-1]}"


def _key(name: str, unit: Unit, values: Ints | Sequence[int], descending: bool = False) -> Key:
    return Key(name, unit, tuple(values.tolist() if isinstance(values, np.ndarray) else values), descending)


def _size(problem: Problem) -> Key:
    return _key("size", Unit.BYTES, problem.size, True)


def _start(problem: Problem) -> Key:
    return _key("start", Unit.STEP, problem.start)


def _lifetime(problem: Problem) -> Key:
    return _key("lifetime", Unit.STEPS, problem.end - problem.start, True)


def _by_size(prepared: Prepared) -> tuple[Key, ...]:
    return _size(prepared.problem), _start(prepared.problem)


def _by_size_then_lifetime(prepared: Prepared) -> tuple[Key, ...]:
    problem = prepared.problem
    return _size(problem), _lifetime(problem), _start(problem)


def _by_area(prepared: Prepared) -> tuple[Key, ...]:
    problem = prepared.problem
    # Python's integers: a product may pass 2^63.
    area = [
        size * length
        for size, length in zip(problem.size.tolist(), (problem.end - problem.start).tolist(), strict=True)
    ]
    return _key("size × lifetime", Unit.BYTE_STEPS, area, True), _start(problem)


def _by_lifetime(prepared: Prepared) -> tuple[Key, ...]:
    problem = prepared.problem
    return _lifetime(problem), _size(problem), _start(problem)


def _by_conflicts(prepared: Prepared) -> tuple[Key, ...]:
    problem = prepared.problem
    count = _key("conflicts", Unit.BUFFERS, conflicts(problem), True)
    return count, _size(problem), _start(problem)


def _by_breadth(prepared: Prepared) -> tuple[Key, ...]:
    problem, pieces, sections = prepared.problem, prepared.pieces, prepared.sections
    live = live_bytes(sections, pieces.high - pieces.low)
    first = np.searchsorted(sections.bounds, problem.start)
    last = np.searchsorted(sections.bounds, problem.end)
    busiest = busiest_section(first, last, live) if len(problem) else first
    return (
        _key("breadth", Unit.BYTES, live[busiest], True),
        _key("busiest step", Unit.STEP, sections.bounds[busiest]),
        _size(problem),
        _start(problem),
    )


def _by_start(prepared: Prepared) -> tuple[Key, ...]:
    return (_start(prepared.problem),)


def _by_start_then_end(prepared: Prepared) -> tuple[Key, ...]:
    return _start(prepared.problem), _key("end", Unit.STEP, prepared.problem.end)


def _by_positional_maximum(prepared: Prepared) -> tuple[Key, ...]:
    problem = prepared.problem
    maxima = positional_maxima(problem)
    position = np.searchsorted(-maxima, -problem.size, side="right") - 1
    least = maxima[position] if len(problem) else position
    return (_key("positional maximum", Unit.BYTES, least, True),)


def _by_size_alone(prepared: Prepared) -> tuple[Key, ...]:
    return (_size(prepared.problem),)


def _in_order_of_the_problem(prepared: Prepared) -> tuple[Key, ...]:
    return (_key("place in the problem", Unit.PLACE, range(len(prepared.problem))),)


_KEYS: dict[str, Callable[[Prepared], tuple[Key, ...]]] = {
    "greedy_by_size": _by_size,
    "greedy_by_breadth": _by_breadth,
    "greedy_by_area": _by_area,
    "greedy_by_lifetime": _by_lifetime,
    "greedy_by_conflicts": _by_conflicts,
    "best_fit_decreasing": _by_size_then_lifetime,
    "first_fit_by_start": _by_start,
    "linear_scan": _by_start_then_end,
    "naive": _in_order_of_the_problem,
    "shared_objects_by_size": _by_size,
    "shared_objects_by_size_improved": _by_positional_maximum,
    "shared_objects_by_breadth": _by_breadth,
    "shared_objects_in_order": _by_start,
    "partition": _by_size_alone,
}


def keys_of(strategy: str, prepared: Prepared) -> tuple[Key, ...]:
    """What `strategy` sorts by, most important first; nothing for one that is not known here. Ties that are
    left go to the first in the problem, but for `shared_objects_by_size_improved`, which goes on by what is
    nearest in time to an object."""
    return _KEYS[strategy](prepared) if strategy in _KEYS else ()
