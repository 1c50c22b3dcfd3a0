"""What kernels take for themselves during a run on fake tensors, by a calibration."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from memplan_engine.calibration.fit_formula import LEAST
from memplan_engine.calibration.kernel_table import Calibration
from memplan_engine.calibration.op_features import Features
from memplan_engine.errors import InputError
from memplan_engine.recordings.observed_flow import Flow, flow_alive, flow_peak
from memplan_engine.runtime.calibrate.seen_call import features_of_call
from memplan_engine.torch_capture.torch_storages import tensors_in
from memplan_engine.units import count_of, format_bytes, format_percent

MOST_KINDS = 5
"""Kinds of operators that nothing was measured of are named up to so many."""


def check_calibration(calibration: Calibration | None, device: str, source: str) -> None:
    """Raise InputError for a calibration where the kernels are those of another `device` than the CPU, or of
    another version of torch."""
    if calibration is None:
        return
    if device != "cpu":
        expected = "the device cpu, on which it was measured"
        raise InputError(source, "calibration", f"the device {device}", expected)
    measured, running = (text.partition("+")[0] for text in (calibration.machine.torch, torch.__version__))
    if measured != running:
        expected = f"one by torch {running}: memplan calibrate"
        raise InputError(source, "calibration", f"one by torch {measured}", expected)


class CalibratedOps:
    """A number of bytes an op, in order."""

    def __init__(self, calibration: Calibration) -> None:
        self.calibration = calibration
        self.nbytes, self.footprint = array("q"), array("q")
        self.found: list[Features | None] = []

    def begin(self) -> None:
        """An op begins; it takes nothing unless it is called."""
        self.nbytes.append(0)
        self.footprint.append(0)
        self.found.append(None)

    def called(self, operator: Any, args: Any, kwargs: Any, value: Any) -> None:
        """The op that began last is this call, and has given `value`."""
        if operator.is_view:
            return
        found = features_of_call(operator, args, kwargs, value, self.calibration.machine.threads)
        self.found[-1], self.nbytes[-1] = found, self.calibration.nbytes(found)
        held = {each.untyped_storage()._cdata: each.nbytes for each in tensors_in((args, kwargs, value))}
        self.footprint[-1] = sum(held.values()) + self.nbytes[-1]

    def laid_over(self, flow: Flow) -> Flow:
        """`flow` with these bytes, and how good they are in words."""
        flow = replace(flow, scratch=np.array(self.nbytes, dtype=np.int64))
        machine = self.calibration.machine
        where = f"measured with {count_of(machine.threads, 'thread')}, {machine.capability}"
        words = f"{self._words(flow_peak(flow)[1])}; {self._most(flow)}; {where}"
        return replace(flow, calibration=words)

    def _most(self, flow: Flow) -> str:
        """The peak if every formula were as far too low as it was at worst: the true one may be at another
        op than the predicted one. There is no such limit where an op is outside of the shapes measured."""
        called = [found for found in self.found if found is not None]
        if not all(map(self.calibration.is_inside, called)):
            return "no upper limit: what is outside of these shapes may take more"
        formulas = [found and self.calibration.formula(found) for found in self.found]
        errors = np.array([formula.worst_error if formula else 0.0 for formula in formulas])
        footprint = np.maximum(np.array(self.footprint, dtype=np.float64), LEAST)
        most = float((flow_alive(flow) + errors * footprint).max(initial=0.0))
        return f"{format_bytes(int(most))} with every formula at its worst held-out error"

    def _words(self, peak: int) -> str:
        """How many ops lie outside of what was measured, and the error of the formula at the peak."""
        called = [found for found in self.found if found is not None]
        inside = sum(map(self.calibration.is_inside, called))
        words = [f"{inside} of {len(called)} operators within the calibrated shapes"]
        unknown = Counter(found.kind for found in called if self.calibration.formula(found) is None)
        if unknown:
            most = [kind for kind, _ in unknown.most_common(MOST_KINDS)]
            rest = f" and {len(unknown) - MOST_KINDS} more" * (len(unknown) > MOST_KINDS)
            words.append(f"nothing known of {', '.join(most)}{rest}, taken as 0")
        at = self.found[peak] if peak >= 0 else None
        formula = None if at is None else self.calibration.formula(at)
        if at is not None and formula is not None:
            error = f"{format_percent(formula.mean_error)} on average, {format_percent(formula.worst_error)}"
            where = "" if self.calibration.is_inside(at) else ", outside the calibrated shapes"
            words.append(f"held-out error of the formula at the peak {error} at worst{where}")
        return "; ".join(words)
