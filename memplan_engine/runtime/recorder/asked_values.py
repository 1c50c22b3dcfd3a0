"""Values that leave torch: `.item()`, `.tolist()`, `.numpy()` and formats of fake tensors, which C++ would
read in memory that is not there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._python_dispatch import _disable_current_modes

from memplan_engine.runtime.recorder.assumed_values import Assumed
from memplan_engine.runtime.recorder.branches import in_while, is_own
from memplan_engine.runtime.recorder.checks import passing
from memplan_engine.runtime.recorder.unknown_count import UnknownCount
from memplan_engine.torch_capture.torch_fake import MOST_ELEMENTS, patched
from memplan_engine.torch_capture.torch_source import is_users
from memplan_engine.torch_capture.training.torch_answers import unknown
from memplan_engine.torch_capture.training.torch_values import KnownValues

PLACE = "fake run"
INHERITED = ("item", "numpy", "tensor_split", "__format__", "__index__", "__bool__", "__float__", "__int__")
"""Methods that fake tensors have from all others."""


class _Memory:
    """The memory of an array: it holds the tensor, as those do that share its memory."""

    def __init__(self, values: NDArray[Any], tensor: torch.Tensor) -> None:
        self.values, self.tensor = values, tensor
        self.__array_interface__ = values.__array_interface__


class AskedValues:
    """Answers to the user's code: values that are known, and what is `assumed` of others."""

    def __init__(self, values: KnownValues, assumed: Assumed, source: str) -> None:
        self.values, self.assumed, self.source = values, assumed, source

    def item(self, tensor: torch.Tensor) -> Any:
        """A whole number that nobody knows counts, where a line of the user's asks for it outside of a model;
        a float is calculated with."""
        counts = _is_whole(tensor) and not self.assumed.within_model()
        # Above: the method of the class, and who has called it.
        if (counts or tensor.is_floating_point()) and self._is_asked(tensor, sys._getframe(2)):
            return self._number(tensor)
        return torch._C.TensorBase.item(tensor)

    def _number(self, tensor: torch.Tensor) -> Any:
        if tensor.is_floating_point():
            # An operator, at which the host waits for the device.
            torch._C.TensorBase.item(tensor)
        return self.assumed.each(tensor)

    def formatted(self, tensor: torch.Tensor, form: str) -> str:
        """Return `f"{tensor:form}"`: that of a number, or, of an unknown one without a form, of a tensor."""
        if tensor.dim() or (not form and self.values.of(tensor) is None):
            return object.__format__(tensor, form)
        if not self._is_asked(tensor, sys._getframe(2)):
            return format(torch._C.TensorBase.item(tensor), form)
        return format(self.assumed.each(tensor), form)

    def as_index(self, tensor: torch.Tensor) -> Any:
        """Return `tensor` as a whole number: a size, a place, an element of a list that becomes a tensor."""
        if _is_stored(tensor) and not (tensor.is_floating_point() or tensor.is_complex()):
            return self._stored(tensor, int)
        if _is_whole(tensor) and self.values.of(tensor) is None:
            # A bound of a slice, say: `x[i : i + 3]`.
            raise unknown(self.source, PLACE, f"the value of a tensor of shape {tuple(tensor.shape)}")
        return torch._C.TensorBase.__index__(tensor)

    def _stored(self, tensor: torch.Tensor, kind: type) -> Any:
        """Return the element of a tensor that C++ is making of a list; it asks below all modes."""
        known = self.values.listed(tensor)
        if known is None:
            self.values.has_guessed = True
            return kind()
        return kind(known if tensor.dim() == 0 else np.asarray(known).item())

    def as_number(self, tensor: torch.Tensor, kind: type) -> Any:
        """`float(tensor)` or `int(tensor)`, which must be plain: not of what a model computes."""
        if _is_stored(tensor) and not tensor.is_complex():
            return self._stored(tensor, kind)
        if self._steers(tensor) and self._is_asked(tensor, sys._getframe(2)):
            raise unknown(self.source, PLACE, f"the value of a tensor of shape {tuple(tensor.shape)}")
        return kind(torch._C.TensorBase.item(tensor))

    def as_truth(self, tensor: torch.Tensor) -> bool:
        """Return `bool(tensor)`: of what the user's own code asks for outside of a model, as of `.item()`."""
        frame = sys._getframe(2)
        asks = is_own(frame) and not self.assumed.within_model() and self._is_asked(tensor, frame)
        if not asks or tensor.is_complex() or (tensor.dtype is torch.bool and passing(frame) is not None):
            return torch._C.TensorBase.__bool__(tensor)
        if in_while(frame):
            raise unknown(self.source, PLACE, f"the value of a tensor of shape {tuple(tensor.shape)}")
        return bool(self._number(tensor))

    def split(self, tensor: torch.Tensor, places: Any, dim: int = 0) -> Any:
        """Return `tensor.tensor_split(places, dim)`, of which C++ would read the places."""
        if isinstance(places, FakeTensor) and places.dim() and places.device.type == "cpu":
            known = self.values.listed(places)
            if known is None:
                raise unknown(self.source, PLACE, f"the values of a tensor of shape {tuple(places.shape)}")
            places = known
        return torch._C.TensorBase.tensor_split(tensor, places, dim)

    def _steers(self, tensor: torch.Tensor) -> bool:
        return tensor.is_floating_point() and self.assumed.within_model()

    def _is_asked(self, tensor: torch.Tensor, frame: FrameType) -> bool:
        """Return whether a line of the user's asks for one number that is not known."""
        return tensor.numel() == 1 and is_users(frame.f_code.co_filename) and self.values.of(tensor) is None

    def tolist(self, tensor: torch.Tensor) -> Any:
        """Return `tensor` as lists of lists."""
        known = self.values.listed(tensor)
        if known is not None:
            return known
        self._check(tensor)
        filled = np.empty(tuple(tensor.shape), dtype=object)
        # `full` would make plain floats of them.
        filled[...] = self.assumed.each(tensor)
        return filled.tolist()

    def numpy(self, tensor: torch.Tensor, **how: Any) -> Any:
        """Return `tensor` as an array, which holds it."""
        if tensor.requires_grad or tensor.device.type != "cpu":
            # With torch's own messages.
            return torch._C.TensorBase.numpy(tensor, **how)
        known = self.values.of(tensor)
        if known is not None:
            values = torch._C.TensorBase.numpy(known)
        else:
            self._check(tensor, tensor.is_floating_point())
            values = np.full(tuple(tensor.shape), self.assumed.each(tensor), dtype=_numpy_type(tensor))
        return np.asarray(_Memory(values, tensor))

    def made(self, make: Callable[..., torch.Tensor], data: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Return `make(data)`, whose elements may be counts of unknown value."""
        try:
            return make(data, *args, **kwargs)
        except (RuntimeError, TypeError) as error:
            if UnknownCount.__name__ not in str(error):
                raise
        self.values.has_guessed = True
        return make(_plain(data), *args, **kwargs)

    def _check(self, tensor: torch.Tensor, answered: bool = True) -> None:
        if not answered or tensor.dtype is torch.bool or tensor.numel() > MOST_ELEMENTS:
            raise unknown(self.source, PLACE, f"the values of a tensor of shape {tuple(tensor.shape)}")


@contextmanager
def answering_python(values: KnownValues, assumed: Assumed, source: str) -> Iterator[None]:
    """With answers to `.item()`, `.tolist()`, `.numpy()` and formats of fake tensors."""
    asked = AskedValues(values, assumed, source)
    with patched(
        (FakeTensor, "tolist", _method(asked.tolist)),
        (torch, "tensor_split", _method(asked.split)),
        *((torch, name, partial(asked.made, getattr(torch, name))) for name in ("tensor", "as_tensor")),
    ):
        answers: tuple[Callable[..., Any], ...] = (
            *(asked.item, asked.numpy, asked.split, asked.formatted, asked.as_index, asked.as_truth),
            *(partial(asked.as_number, kind=kind) for kind in (float, int)),
        )
        for name, answer in zip(INHERITED, answers, strict=True):
            setattr(FakeTensor, name, _method(answer))
        try:
            yield
        finally:
            for name in INHERITED:
                delattr(FakeTensor, name)


def _method(answer: Callable[..., Any]) -> Callable[..., Any]:
    """`answer` as a method of what it is asked about."""

    def method(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return answer(tensor, *args, **kwargs)

    return method


def _is_stored(tensor: torch.Tensor) -> bool:
    """Return whether the one number of `tensor` is asked for where C++ keeps all modes out, as it does while
    it makes a tensor of a list."""
    excluded = torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.Python)
    return tensor.numel() == 1 and excluded


def _plain(data: Any) -> Any:
    """Return `data` with numbers in place of counts."""
    if isinstance(data, (list, tuple)):
        return [_plain(each) for each in data]
    return data.value if isinstance(data, UnknownCount) else data


def _is_whole(tensor: torch.Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool)


def _numpy_type(tensor: torch.Tensor) -> Any:
    with unset_fake_temporarily(), _disable_current_modes():
        return torch.empty(0, dtype=tensor.dtype, device="cpu").numpy().dtype
