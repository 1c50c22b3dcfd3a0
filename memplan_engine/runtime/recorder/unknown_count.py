"""Numbers that a predicted run does not know: how many answers were right, how large results are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NoReturn

from memplan_engine.errors import InputError
from memplan_engine.torch_capture.torch_fake import STEP_RECORDED, patched
from memplan_engine.torch_capture.torch_source import located
from memplan_engine.torch_capture.training.torch_origins import who_asks

Compared = Callable[[str], None]
"""Called with the place of a number on which a branch depends."""
SIZES = f"sizes that follow from the inputs or from torch.manual_seed, {STEP_RECORDED}"


def _value(other: Any) -> Any:
    return other.value if isinstance(other, UnknownCount) else other


class UnknownCount:
    """Stands for a number that was asked for at `place`: it is added, divided, compared and written as
    `value`. `compared`, where given, is called before a comparison, also one of a quotient. A size, a place
    or a number of rounds it cannot be: what a run takes would depend on it.

    Raises
    ------
    InputError: where Python asks what whole number it is. torch catches it and raises a TypeError instead, of
        which `telling_of_counts` makes the InputError again.
    """

    refused: ClassVar[list[InputError]] = []
    """The last error of this kind."""

    def __init__(self, value: int, place: str, compared: Compared | None = None) -> None:
        self.value, self.place, self.compared = value, place, compared

    def __reduce__(self) -> Any:
        return UnknownCount, (self.value, self.place)

    def _like(self, value: Any) -> Any:
        if isinstance(value, int):
            return UnknownCount(value, self.place, self.compared)
        if self.compared is not None and type(value) is float:
            return UnknownNumber(value, self.place, self.compared)
        return value

    def _compared(self) -> int:
        """Return the value, on which a branch is about to depend."""
        if self.compared is not None:
            self.compared(self.place)
        return self.value

    def __add__(self, other: Any) -> Any:
        return self._like(self.value + _value(other))

    def __sub__(self, other: Any) -> Any:
        return self._like(self.value - _value(other))

    def __rsub__(self, other: Any) -> Any:
        return self._like(_value(other) - self.value)

    def __mul__(self, other: Any) -> Any:
        return self._like(self.value * _value(other))

    __radd__, __rmul__ = __add__, __mul__

    def __truediv__(self, other: Any) -> Any:
        # It may be 0 by now, as a difference.
        return self._like(self.value / (_value(other) or 1))

    def __rtruediv__(self, other: Any) -> Any:
        return self._like(_value(other) / (self.value or 1))

    def __floordiv__(self, other: Any) -> Any:
        return self._like(self.value // (_value(other) or 1))

    def __rfloordiv__(self, other: Any) -> Any:
        return self._like(_value(other) // (self.value or 1))

    def __mod__(self, other: Any) -> Any:
        return self._like(self.value % (_value(other) or 1))

    def __rmod__(self, other: Any) -> Any:
        return self._like(_value(other) % (self.value or 1))

    def __pow__(self, other: Any) -> Any:
        return self._like(self.value ** _value(other))

    def __rpow__(self, other: Any) -> Any:
        return self._like(_value(other) ** self.value)

    def __neg__(self) -> Any:
        return self._like(-self.value)

    def __abs__(self) -> Any:
        return self._like(abs(self.value))

    def __round__(self, digits: int | None = None) -> Any:
        return self

    def __eq__(self, other: object) -> Any:
        # Of a tensor each element is compared.
        return self._compared() == _value(other)

    def __lt__(self, other: Any) -> Any:
        return self._compared() < _value(other)

    def __le__(self, other: Any) -> Any:
        return self._compared() <= _value(other)

    def __gt__(self, other: Any) -> Any:
        return self._compared() > _value(other)

    def __ge__(self, other: Any) -> Any:
        return self._compared() >= _value(other)

    def __hash__(self) -> int:
        return hash(self.value)

    def __bool__(self) -> bool:
        return bool(self._compared())

    def __float__(self) -> float:
        return float(self.value)

    def __index__(self) -> NoReturn:
        found = f"a whole number, asked for {self.place}, that is used as a size or a place {who_asks()}"
        self.refused[:] = [InputError("fake run", "", found, SIZES)]
        raise self.refused[0]

    __int__ = __index__

    def __format__(self, form: str) -> str:
        return format(self.value, form)

    def __repr__(self) -> str:
        return repr(self.value)


@contextmanager
def telling_of_counts() -> Iterator[None]:
    """With counts written to JSON, and the errors of torch that is given one in their own words.

    Raises
    ------
    InputError: an error of torch's about a count.
    """
    default = json.JSONEncoder.default

    def written(encoder: json.JSONEncoder, value: Any) -> Any:
        return value.value if isinstance(value, UnknownCount) else default(encoder, value)

    UnknownCount.refused.clear()
    try:
        with patched((json.JSONEncoder, "default", written)):
            yield
    except (TypeError, IndexError, RuntimeError) as error:
        if UnknownCount.refused and isinstance(error, TypeError):
            raise UnknownCount.refused[0] from error
        if UnknownCount.__name__ not in str(error):
            raise
        found = located("a whole number that is not known, used", error)
        raise InputError("fake run", "", found, SIZES) from error


class UnknownNumber(float):
    """Stands for a float that is asked for at `place`, of what a run computes: it is calculated with and
    written as the `value`. `compared` is called where a branch or a size depends on it; without, that is an
    error.
    What `float()`, `math` or NumPy make of it is a plain number.

    Raises
    ------
    InputError: where it is compared or made whole, without `compared`.
    """

    place: str
    compared: Compared | None

    def __new__(cls, value: float, place: str, compared: Compared | None = None) -> UnknownNumber:
        """Return `value`, asked for at `place`."""
        number = super().__new__(cls, value)
        number.place, number.compared = place, compared
        return number

    def __reduce__(self) -> Any:
        return float, (float(self),)

    def __float__(self) -> float:
        return float.__add__(self, 0.0)

    def __round__(self, digits: Any = None) -> Any:
        return self._steering("__round__") if digits is None else _carried("__round__")(self, digits)

    def _steering(self, name: str, *others: Any) -> Any:
        """Return what the method `name` of floats gives, on which a branch or a size depends."""
        if self.compared is None:
            found = f"a number, asked for {self.place}, that a branch or a size depends on"
            raise InputError("fake run", "", found, f"branches and {SIZES}")
        self.compared(self.place)
        return getattr(float, name)(self, *others)

    __hash__ = float.__hash__


def _carried(name: str) -> Any:
    """The operator `name` of floats, whose result is as little known."""

    def operator(self: UnknownNumber, *others: Any) -> Any:
        result = getattr(float, name)(self, *others)
        return UnknownNumber(result, self.place, self.compared) if type(result) is float else result

    return operator


def _steered(name: str) -> Any:
    """The method `name` of floats, on whose result a branch or a size depends."""

    def method(self: UnknownNumber, *others: Any) -> Any:
        return self._steering(name, *others)

    return method


for _name in ("add", "sub", "mul", "truediv", "radd", "rsub", "rmul", "rtruediv", "pow", "neg", "abs"):
    setattr(UnknownNumber, f"__{_name}__", _carried(f"__{_name}__"))
for _name in ("eq", "ne", "lt", "le", "gt", "ge", "bool", "int", "trunc", "floor", "ceil"):
    setattr(UnknownNumber, f"__{_name}__", _steered(f"__{_name}__"))
