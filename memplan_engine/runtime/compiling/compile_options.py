"""What `torch.compile(model, backend="memplan", options={…})` may be given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch._dynamo.exc import ShortenTraceback

from memplan_engine.accelerators.presets import Accelerator, accelerator
from memplan_engine.errors import InputError
from memplan_engine.runtime.compiling.compiled_graphs import CompiledGraph
from memplan_engine.units import parse_bytes

SOURCE = "torch.compile, backend memplan"
DEVICE = accelerator("a100-80")
NAMES = ("budget", "capacity", "device", "on_report", "seconds")


class _AsItIs(ShortenTraceback):
    """What Dynamo raises as it is: everything else of a backend it wraps into an error of its own."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args, first_useful_frame=None)


class OptionError(InputError, _AsItIs):
    """An option that cannot be read as what it claims to be; it comes out of the first call of the model."""


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """`capacity`: live bytes that the ops of a graph shall keep to, weights and inputs not counted, or None;
    `budget`: the same as a share of what they take as traced. `seconds`: the limit of each search. `device`:
    by whose roofline it is modelled what running again takes. `on_report` hears of each graph."""

    capacity: int | None = None
    budget: float | None = None
    seconds: float = 5.0
    device: Accelerator = DEVICE
    on_report: Callable[[CompiledGraph], object] | None = None

    def capacity_of(self, peak: int) -> int | None:
        """The live bytes that are asked for of a graph that takes `peak`; None where none are."""
        return self.capacity if self.budget is None else int(self.budget * peak)


def read_options(options: Mapping[str, Any] | None) -> CompileOptions:
    """The options as the user gave them.

    Raises
    ------
    OptionError: an unknown one, a capacity that is no number of bytes, a budget that is no share, both of
        them, a limit that is no number of seconds, an unknown device, a listener that cannot be called.
    """
    given = dict(options or {})
    if unknown := sorted(set(map(str, given)) - set(NAMES)):
        raise OptionError(SOURCE, "options", repr(unknown[0]), f"some of {', '.join(NAMES)}")
    if given.get("capacity") is not None and given.get("budget") is not None:
        raise OptionError(SOURCE, "options", "capacity and budget", "one of them")
    return CompileOptions(
        _capacity(given.get("capacity")),
        _number(given.get("budget"), "budget", "a share of the peak, above 0 and at most 1", 1.0),
        _number(given.get("seconds", 5.0), "seconds", "a number of seconds above 0") or 5.0,
        _device(given.get("device")),
        _listener(given.get("on_report")),
    )


def _capacity(value: Any) -> int | None:
    expected = "a number of bytes, as 2147483648 or '2GiB'"
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise OptionError(SOURCE, "capacity", repr(value), expected)
    try:
        return parse_bytes(str(value))
    except InputError as error:
        raise OptionError(SOURCE, "capacity", error.found, expected) from None


def _number(value: Any, name: str, expected: str, most: float = float("inf")) -> float | None:
    if value is None:
        return None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 < value <= most:
        raise OptionError(SOURCE, name, repr(value), expected)
    return float(value)


def _device(value: Any) -> Accelerator:
    if value is None:
        return DEVICE
    try:
        return accelerator(str(value))
    except InputError as error:
        raise OptionError(SOURCE, "device", error.found, error.expected) from None


def _listener(value: Any) -> Callable[[CompiledGraph], object] | None:
    if value is not None and not callable(value):
        raise OptionError(SOURCE, "on_report", repr(value), "a function of a CompiledGraph")
    listener: Callable[[CompiledGraph], object] | None = value
    return listener
