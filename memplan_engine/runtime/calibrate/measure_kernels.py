"""Real calls, one by one, with what torch's allocator was asked for inside each operator, and formulas."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from memplan_engine.calibration.fit_formula import ENOUGH, Sample, fit, stated_error
from memplan_engine.calibration.kernel_table import Calibration, Formula
from memplan_engine.calibration.op_features import Features
from memplan_engine.recordings.observation import Level, observed_live
from memplan_engine.runtime.calibrate.calibration_calls import CALLS, Call
from memplan_engine.runtime.calibrate.seen_call import features_of_call, this_machine
from memplan_engine.runtime.observer.observe_run import Observer
from memplan_engine.torch_capture.torch_storages import tensors_in
from memplan_engine.torch_capture.training.torch_recipe import random_state

SEED = 0
Tell = Callable[[str], None]
Key = tuple[str, str]
"""Kind and regime."""


class Measured(NamedTuple):
    """One call of an operator: its features, what its kernel took, and what it held with its tensors."""

    found: Features
    nbytes: int
    footprint: int


class _Calls(Observer):
    """An observer that keeps the features of every operator."""

    def __init__(self, threads: int) -> None:
        super().__init__(name="calibration")
        self.threads = threads
        self.calls: list[tuple[Features, int]] = []

    def dispatched(self, func: Any, args: Any, kwargs: Any) -> Any:
        value = super().dispatched(func, args, kwargs)
        found = features_of_call(func, args, kwargs, value, self.threads)
        held = {each.untyped_storage()._cdata: each.nbytes for each in tensors_in((args, kwargs, value))}
        self.calls.append((found, sum(held.values())))
        return value


def measure(call: Callable[[], Any], given: Any = ()) -> list[Measured]:
    """What the kernels of each operator in `call()` take; `given` are the tensors that it works on.

    Raises
    ------
    InputError: a profiler that is running already. What the call itself raises is passed on.
    """
    observer = _Calls(torch.get_num_threads())
    observer.given(given)
    with observer:
        result = call()
    del result
    taken = observed_live(observer.observation, Level.ALLOCATOR).temporary.tolist()
    return [
        Measured(found, nbytes, nbytes + held)
        for (found, held), nbytes in zip(observer.calls, taken, strict=True)
    ]


SHARES = {"float32": 1.0, "float64": 0.3, "bfloat16": 1.0, "float16": 0.1}
"""Types of which calls are measured, and how many beside those in float32: fewer where networks are rare
(float64), and where convolutions take ten times as long as in float32 (float16)."""


def calibrate(
    tell: Tell = lambda words: None, calls: tuple[Call, ...] = CALLS, dtypes: Sequence[str] = tuple(SHARES)
) -> Calibration:
    """Measure `calls` in each of `dtypes` on this machine, and fit a formula to each kind of operator in each
    regime; `tell` is called with what is being measured.

    Raises
    ------
    InputError: a profiler that is running already.
    """
    samples: dict[Key, list[Sample]] = defaultdict(list)
    with random_state(SEED):
        for place, dtype in enumerate(dtypes):
            for number, call in enumerate(calls):
                done = place * len(calls) + number + 1
                tell(f"measuring {call.name}, {dtype} ({done} of {len(calls) * len(dtypes)})")
                some = replace(call, count=int(call.count * SHARES[dtype]))
                for key, sample in _samples(some, dtype):
                    samples[key].append(sample)
    tell(f"fitting {len(samples)} formulas")
    return Calibration(this_machine(), tuple(_formulas(samples)))


def _samples(call: Call, dtype: str) -> Iterator[tuple[Key, Sample]]:
    """What each call of a family took, with tensors of `dtype`."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        for run in call.draws(SEED):
            try:
                measured = measure(run)
            except (RuntimeError, NotImplementedError):
                # There is no kernel for this type on this machine, and so nothing to predict.
                continue
            for each in measured:
                key = each.found.kind, each.found.regime
                yield key, Sample(each.found.sizes, each.nbytes, each.footprint)
    finally:
        torch.set_default_dtype(before)


def _formulas(samples: Mapping[Key, list[Sample]]) -> Iterator[Formula]:
    fits = {key: fit(those) for key, those in sorted(samples.items())}
    few: dict[str, list[float]] = defaultdict(list)
    for (kind, _), fitted in fits.items():
        if len(fitted.errors) < ENOUGH:
            few[kind] += fitted.errors
    fewest = [error for those in few.values() if len(those) < ENOUGH for error in those]
    for (kind, regime), fitted in fits.items():
        those, errors = samples[kind, regime], fitted.errors
        error = stated_error(errors)
        if error is None:
            # Of too few by themselves: with others like them, and never less than what was seen of these.
            error = stated_error(few[kind] if len(few[kind]) >= ENOUGH else fewest)
            error = None if error is None else max(error, *errors)
        names = sorted({name for sample in those for name in sample.sizes})
        yield Formula(
            kind,
            regime,
            fitted.sums,
            {name: min(sample.sizes.get(name, 0) for sample in those) for name in names},
            {name: max(sample.sizes.get(name, 0) for sample in those) for name in names},
            len(those),
            len(errors),
            float(np.mean(errors)),
            max(errors),
            error,
        )
