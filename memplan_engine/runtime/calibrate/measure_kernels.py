"""Real calls, one by one, with what torch's allocator was asked for inside each operator, and formulas."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from memplan_engine.calibration.fit_formula import Sample, fit
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


def calibrate(tell: Tell = lambda words: None, calls: tuple[Call, ...] = CALLS) -> Calibration:
    """Measure `calls` on this machine, and fit a formula to each kind of operator in each regime; `tell` is
    called with what is being measured.

    Raises
    ------
    InputError: a profiler that is running already.
    """
    samples: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    with random_state(SEED):
        for number, call in enumerate(calls):
            tell(f"measuring {call.name} ({number + 1} of {len(calls)})")
            for run in call.draws(SEED):
                for each in measure(run):
                    key = (each.found.kind, each.found.regime)
                    samples[key].append(Sample(each.found.sizes, each.nbytes, each.footprint))
    tell(f"fitting {len(samples)} formulas")
    return Calibration(this_machine(), tuple(_formulas(samples)))


def _formulas(samples: dict[tuple[str, str], list[Sample]]) -> Iterator[Formula]:
    for (kind, regime), those in sorted(samples.items()):
        fitted = fit(those)
        names = sorted(those[0].sizes)
        yield Formula(
            kind,
            regime,
            fitted.sums,
            {name: min(sample.sizes[name] for sample in those) for name in names},
            {name: max(sample.sizes[name] for sample in those) for name in names},
            len(those),
            fitted.judged,
            fitted.mean_error,
            fitted.worst_error,
        )
