"""The calls that a model makes, each run alone on real tensors: what its kernels take, to the byte."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from memplan_engine.calibration.op_features import Features
from memplan_engine.recordings.observation import Level, observed_live
from memplan_engine.recordings.observed_flow import Flow
from memplan_engine.runtime.calibrate.measure_kernels import SEED, Tell
from memplan_engine.runtime.calibrate.seen_call import features_of_call, text_of_call
from memplan_engine.runtime.observer.observe_run import Observer
from memplan_engine.system import memory_bytes
from memplan_engine.torch_capture.torch_run import brief
from memplan_engine.torch_capture.torch_storages import tensors_in
from memplan_engine.torch_capture.training.torch_recipe import random_state

MOST_OF_MEMORY = 0.4
"""The share of the machine's memory that the tensors of a call may have: its kernels may take as much."""
ELSEWHERE = ("c10d", "_c10d_functional", "symm_mem")
"""Operators that wait for other processes."""
EVERY = 200
"""Calls after which it is told how far the measuring is."""


@dataclass(frozen=True, slots=True)
class Blank:
    """A tensor without its values. Those of one call that are the same tensor have one `number`."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    number: int

    @property
    def length(self) -> int:
        """Elements of the storage that it needs."""
        if not prod(self.shape):
            return 0
        return 1 + sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True))


class AskedCall(NamedTuple):
    """A call of `operator`, with blanks in place of tensors; `nbytes` is what these and its results have,
    `found` what a formula would be asked."""

    operator: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    nbytes: int
    found: Features


class CallLog:
    """Notes each distinct call of a run on fake tensors: `calls`, by text."""

    def __init__(self) -> None:
        self.calls: dict[str, AskedCall] = {}

    def begin(self) -> None:
        """An op begins."""

    def called(self, operator: Any, args: Any, kwargs: Any, value: Any) -> None:
        """The op that began last is this call, and has given `value`."""
        if operator.is_view or operator.namespace in ELSEWHERE:
            return
        text = text_of_call(operator, args, kwargs, value)
        if text not in self.calls:
            held = {each.untyped_storage()._cdata: each.nbytes for each in tensors_in((args, kwargs, value))}
            places, names = pytree.tree_map_only(torch.Tensor, _Blanks(), (args, kwargs))
            found = features_of_call(operator, args, kwargs, value, torch.get_num_threads())
            self.calls[text] = AskedCall(operator, places, names, sum(held.values()), found)

    def laid_over(self, flow: Flow) -> Flow:
        """`flow` as it is."""
        return flow


class _Blanks:
    """Makes the blanks of one call."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    def __call__(self, tensor: torch.Tensor) -> Blank:
        shape, strides = tuple(tensor.shape), tuple(tensor.stride())
        key = tensor.untyped_storage()._cdata, tensor.storage_offset(), shape, strides, tensor.dtype
        return Blank(shape, strides, tensor.dtype, self._numbers.setdefault(key, len(self._numbers)))


class MeasuredCalls(NamedTuple):
    """What the kernels of each call took, bytes, by its text; and why each other could not be run alone."""

    nbytes: dict[str, int]
    failed: dict[str, str]


def measure_calls(calls: Mapping[str, AskedCall], tell: Tell = lambda words: None) -> MeasuredCalls:
    """Run each of `calls` alone, on tensors of random numbers, zeros where they are whole; `tell` is called
    with how far it is.

    Raises
    ------
    InputError: a profiler that is running already.
    """
    measured = MeasuredCalls({}, {})
    most = MOST_OF_MEMORY * (memory_bytes() or float("inf"))
    with random_state(SEED), torch.no_grad():
        for number, (text, call) in enumerate(calls.items()):
            if number % EVERY == 0:
                tell(f"measuring the model's calls ({number + 1} of {len(calls)})")
            if call.nbytes > most:
                measured.failed[text] = "its tensors are too large for this machine"
                continue
            try:
                measured.nbytes[text] = _taken(call)
            except (RuntimeError, ValueError, TypeError, IndexError, MemoryError) as error:
                # Values that it does not take (a singular matrix), a kernel that is not there.
                measured.failed[text] = brief(error)
    return measured


def _taken(call: AskedCall) -> int:
    """What the kernels of `call` take beside its tensors and results, bytes."""
    made: dict[int, torch.Tensor] = {}

    def real(blank: Blank) -> torch.Tensor:
        if blank.number not in made:
            made[blank.number] = _real(blank)
        return made[blank.number]

    args, kwargs = pytree.tree_map_only(Blank, real, (call.args, call.kwargs))
    observer = Observer(levels=[Level.ALLOCATOR], each_operator=False, name="calibration")
    with observer:
        result = observer.around("call", "call", lambda: call.operator(*args, **kwargs))
    del result
    return int(observed_live(observer.observation, Level.ALLOCATOR).temporary[0])


def _real(blank: Blank) -> torch.Tensor:
    storage = torch.zeros(blank.length, dtype=blank.dtype)
    if blank.dtype.is_floating_point or blank.dtype.is_complex:
        # Types of one byte know no random numbers.
        storage = storage.uniform_() if storage.element_size() > 1 and not blank.dtype.is_complex else storage
    elif blank.dtype is torch.bool:
        storage.fill_(True)
    return storage.as_strided(blank.shape, blank.strides)
