"""A call of an operator on live tensors, real or fake: its features, and its text."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from memplan_engine.calibration.kernel_table import Machine
from memplan_engine.calibration.known_calls import call_text
from memplan_engine.calibration.op_features import Features, Shown, features
from memplan_engine.torch_capture.torch_storages import operator_name, tensors_in

PROCESSORS = Path("/proc/cpuinfo")
"""Where Linux says what its processors are."""
IDENTITY = ("vendor_id", "cpu family", "model", "stepping")
"""What tells kinds of processors apart. Their names do not: virtual machines hide them."""


def features_of_call(operator: Any, args: Any, kwargs: Any, value: Any, threads: int) -> Features:
    """The features of a call of `operator` that gave `value`."""
    return features(_kind(operator), shown_in((args, kwargs)), shown_in(value), threads)


def text_of_call(operator: Any, args: Any, kwargs: Any, value: Any) -> str:
    """The call of `operator` that gave `value` as the table of a calibration has it."""
    arguments = pytree.tree_map(_argument, (args, kwargs))
    words = [*map(str, arguments[0]), *(f"{name}={each}" for name, each in arguments[1].items())]
    return call_text(_kind(operator), shown_in((args, kwargs)), shown_in(value), ", ".join(words))


class _Word(str):
    """A text that is shown without quotes within lists."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _argument(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return _Word("_")
    # A generator would be shown by its address.
    return _Word("generator") if isinstance(leaf, torch.Generator) else leaf


def _kind(operator: Any) -> str:
    return operator_name(operator).replace("::", ".", 1)


def shown_in(value: Any) -> list[Shown]:
    """The tensors in `value`, in order, but for those whose layout is a library's own."""
    return [
        Shown(
            tuple(tensor.shape),
            tuple(tensor.stride()),
            str(tensor.dtype).removeprefix("torch."),
            tensor.numel() * tensor.element_size(),
        )
        for tensor in tensors_in(value)
        if tensor.layout is torch.strided
    ]


def this_machine() -> Machine:
    """What a calibration made in this process holds for."""
    capability = torch.backends.cpu.get_cpu_capability()
    return Machine(torch.__version__, torch.get_num_threads(), capability, _processor())


def _processor() -> str:
    """ "GenuineIntel 6-143-8"; "" where nobody says."""
    found: dict[str, str] = {}
    with suppress(OSError, UnicodeDecodeError):
        for line in PROCESSORS.read_text().splitlines():
            name, _, value = line.partition(":")
            found.setdefault(name.strip(), value.strip())
    vendor, *numbers = (found.get(name, "") for name in IDENTITY)
    return f"{vendor} {'-'.join(numbers)}" if vendor and all(numbers) else ""
