"""What kernels take for themselves during a run on fake tensors, by a calibration."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from memplan_engine.calibration.fit_formula import LEAST
from memplan_engine.calibration.kernel_table import Calibration, Formula, Machine
from memplan_engine.calibration.op_features import Features
from memplan_engine.recordings.observed_flow import Flow, flow_live, flow_peak
from memplan_engine.runtime.calibrate.seen_call import features_of_call, text_of_call
from memplan_engine.torch_capture.torch_storages import tensors_in
from memplan_engine.units import count_of, format_bytes, format_percent

MOST_KINDS = 5
"""Kinds of operators that nothing was measured of are named up to so many."""


class CalibratedOps:
    """A number of bytes an op, in order, by a calibration, `here` on a machine that may be another one."""

    def __init__(self, calibration: Calibration, here: Machine) -> None:
        self.calibration, self.here = calibration, here
        self.nbytes, self.footprint, self.exact = array("q"), array("q"), array("b")
        self.found: list[Features | None] = []

    def begin(self) -> None:
        """An op begins; it takes nothing unless it is called."""
        self.nbytes.append(0)
        self.footprint.append(0)
        self.exact.append(False)
        self.found.append(None)

    def called(self, operator: Any, args: Any, kwargs: Any, value: Any) -> None:
        """The op that began last is this call, and has given `value`."""
        if operator.is_view:
            return
        table = self.calibration
        self.found[-1] = found = features_of_call(operator, args, kwargs, value, table.machine.threads)
        known = table.calls.get(text_of_call(operator, args, kwargs, value)) if table.calls else None
        self.exact[-1] = known is not None
        self.nbytes[-1] = table.nbytes(found) if known is None else known
        held = {each.untyped_storage()._cdata: each.nbytes for each in tensors_in((args, kwargs, value))}
        self.footprint[-1] = sum(held.values())

    def laid_over(self, flow: Flow) -> Flow:
        """`flow` with these bytes, and how good they are in words."""
        flow = replace(flow, scratch=np.array(self.nbytes, dtype=np.int64))
        machine = self.calibration.machine
        where = f"measured with {count_of(machine.threads, 'thread')}, {machine.capability}"
        other = machine.unlike(self.here)
        if other:
            where += f"; this machine is another one ({other}), on which kernels may take something else"
        parts = (*self._known(), *self._shares(), *self._at_peak(flow), self._between(flow), where)
        return replace(flow, calibration="; ".join(parts))

    def _known(self) -> Iterator[str]:
        """How many ops were measured themselves or lie within what was measured, and what is not known."""
        table = self.calibration
        asked = [found for found, exact in zip(self.found, self.exact, strict=True) if found and not exact]
        inside, exact = sum(map(table.is_inside, asked)), sum(self.exact)
        of = f"of {len(asked) + exact} operators"
        within = "within the calibrated shapes"
        if exact:
            yield f"{exact} {of} measured themselves, {inside} more {within}"
        else:
            yield f"{inside} {of} {within}"
        unknown = Counter(found.kind for found in asked if table.formula(found) is None)
        if unknown:
            most = [kind for kind, _ in unknown.most_common(MOST_KINDS)]
            rest = f" and {len(unknown) - MOST_KINDS} more" * (len(unknown) > MOST_KINDS)
            yield f"nothing known of {', '.join(most)}{rest}, taken as 0"

    def _shares(self) -> Iterator[str]:
        """Where the bytes of all kernels together come from."""
        total = sum(self.nbytes)
        if total:
            exact = sum(nbytes for nbytes, known in zip(self.nbytes, self.exact, strict=True) if known)
            yield (
                f"of all that kernels take {format_percent(exact / total)} by calls measured themselves, "
                f"{format_percent(1 - exact / total)} by formulas"
            )

    def _at_peak(self, flow: Flow) -> Iterator[str]:
        """How good the kernel's bytes are at the peak."""
        peak = flow_peak(flow)[1]
        found = self.found[peak] if peak >= 0 else None
        if found is None:
            return
        if self.exact[peak]:
            yield "the kernel at the peak was measured itself"
            return
        formula = self.calibration.formula(found)
        if formula is not None:
            where = "" if formula.covers(found.sizes) else ", outside the calibrated shapes"
            yield f"the formula at the peak is {_error_text(formula)}{where}"

    def _between(self, flow: Flow) -> str:
        """The peak if every kernel took as much less, or more, as its formula may be off: the true one may be
        at another op than the predicted one. There is no upper limit where an op is outside of the shapes
        measured."""
        n = len(self.found)
        low, high = np.zeros(n), np.zeros(n)
        limited = True
        for op, (found, exact) in enumerate(zip(self.found, self.exact, strict=True)):
            if found is None or exact:
                low[op] = high[op] = self.nbytes[op]
                continue
            formula = self.calibration.formula(found)
            error = None if formula is None else limit_of(formula)
            if formula is None or error is None or error >= 1 or not formula.covers(found.sizes):
                limited = False
                continue
            low[op], high[op] = _span(self.nbytes[op], self.footprint[op], error)
        assert flow.scratch is not None
        alone = flow_live(flow) - flow.scratch
        least = format_bytes(int((alone + low).max(initial=0.0)))
        if not limited:
            return (
                f"peak at least {least}, with no upper limit: what is outside of these shapes may take more"
            )
        most = format_bytes(int(np.ceil((alone + high).max(initial=0.0))))
        span = least if least == most else f"{least} to {most}"
        return f"peak {span} where each formula is within its error"


def limit_of(formula: Formula) -> float:
    """The error that further calls shall keep within; in tables of version 1, the worst that was seen."""
    return formula.worst_error if formula.error is None else formula.error


def _error_text(formula: Formula) -> str:
    if formula.error is None:
        return f"off by up to {format_percent(formula.worst_error)} on {formula.judged} calls held out"
    return f"within {format_percent(formula.error)} of what the op holds for 95 % of calls held out"


def _span(nbytes: int, held: int, error: float) -> tuple[float, float]:
    """What a kernel may take, bytes, that is said to take `nbytes` beside the `held` tensors, where that is
    off by up to `error` of both together, as they were measured: |nbytes − true| ≤ error · (held + true)."""
    slack = error * max(held, LEAST)
    return max(0.0, (nbytes - slack) / (1 + error)), (nbytes + slack) / (1 - error)
