"""Numbers that a predicted run does not know: how many answers were right, how large results are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NoReturn

from memplan_engine.errors import InputError
from memplan_engine.torch_capture.torch_fake import STEP_RECORDED, patched
from memplan_engine.torch_capture.torch_source import located
from memplan_engine.torch_capture.training.torch_origins import who_asks

SIZES = f"sizes that follow from the inputs or from torch.manual_seed, {STEP_RECORDED}"


def _value(other: Any) -> Any:
    return other.value if isinstance(other, UnknownCount) else other


class UnknownCount:
    """Stands for a number that was asked for at `place`: it is added, divided, compared and written as
    `value`. A size, a place or a number of rounds it cannot be: what a run takes would depend on it.

    Raises
    ------
    InputError: where Python asks what whole number it is. torch catches it and raises a TypeError instead, of
        which `telling_of_counts` makes the InputError again.
    """

    refused: ClassVar[list[InputError]] = []
    """The last error of this kind."""

    def __init__(self, value: int, place: str) -> None:
        self.value, self.place = value, place

    def _like(self, value: Any) -> Any:
        return UnknownCount(value, self.place) if isinstance(value, int) else value

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
        return self.value / (_value(other) or 1)

    def __rtruediv__(self, other: Any) -> Any:
        return _value(other) / (self.value or 1)

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
        return self.value == _value(other)

    def __lt__(self, other: Any) -> Any:
        return self.value < _value(other)

    def __le__(self, other: Any) -> Any:
        return self.value <= _value(other)

    def __gt__(self, other: Any) -> Any:
        return self.value > _value(other)

    def __ge__(self, other: Any) -> Any:
        return self.value >= _value(other)

    def __hash__(self) -> int:
        return hash(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

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
    """Stands for a float that a model asks for at `place`, of what it computes: it is calculated with and
    written as the `value`. No branch and no size may depend on it.

    Raises
    ------
    InputError: where it is compared or rounded.
    """

    place: str

    def __new__(cls, value: float, place: str) -> UnknownNumber:
        """`value`, asked for at `place`."""
        number = super().__new__(cls, value)
        number.place = place
        return number

    def _refuse(self, *_: Any) -> NoReturn:
        found = f"a number, asked for {self.place}, that a branch or a size depends on"
        raise InputError("fake run", "", found, f"branches and {SIZES}")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = _refuse
    __int__ = __round__ = __trunc__ = __floor__ = __ceil__ = _refuse
    __hash__ = float.__hash__


def _carried(name: str) -> Any:
    """The operator `name` of floats, whose result is as little known."""

    def operator(self: UnknownNumber, *others: Any) -> Any:
        result = getattr(float, name)(self, *others)
        return UnknownNumber(result, self.place) if type(result) is float else result

    return operator


for _name in ("add", "sub", "mul", "truediv", "radd", "rsub", "rmul", "rtruediv", "pow", "neg", "abs"):
    setattr(UnknownNumber, f"__{_name}__", _carried(f"__{_name}__"))
