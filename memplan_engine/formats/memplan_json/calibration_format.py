"""The JSON of a calibration: formulas for what kernels take for themselves, and the machine they hold for."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from pydantic import FailFast, Field

from memplan_engine.calibration.kernel_table import Calibration, Formula, Machine
from memplan_engine.errors import InputError
from memplan_engine.formats.memplan_json.json_base import Count, Strict, load_as, render
from memplan_engine.system import write_atomically

Sizes = dict[str, Count]
"""Bytes by the name of a size of a call ("x", "in0", …)."""
MOST_FACTOR = 1_000_000
"""Multiples of a size: with it no value leaves 64 bits by more than Python's whole numbers hold."""
Factor = Annotated[int, Field(ge=-MOST_FACTOR, le=MOST_FACTOR)]
Share = Annotated[float, Field(ge=0)]
FORMAT: Literal["memplan/calibration"] = "memplan/calibration"


class MachineEntry(Strict):
    """torch's version, how many threads it used, the instructions of its kernels, and family, model and
    stepping of the processor ("" where nobody knows, as in version 1)."""

    torch: str
    threads: Count
    capability: str
    processor: str = ""


class FormulaEntry(Strict):
    """What kernels of one kind take in one regime: the largest of `sums`, each a sum of multiples of sizes of
    the call; none means nothing, and less than nothing is nothing. `low` and `high` bound what was measured,
    bytes. `judged` samples, to which the formula was not fitted, say how far it is off, as a share of all
    that an op holds: the mean, the worst, and the `error` that at most 5 % of further calls exceed (in
    version 2; none where too few were measured)."""

    kind: str
    regime: str
    sums: Annotated[tuple[dict[str, Factor], ...], FailFast()]
    low: Sizes
    high: Sizes
    samples: Count
    judged: Count
    mean_error: Share
    worst_error: Share
    error: Share | None = None


class CalibrationFile(Strict):
    """A file in the format memplan/calibration, version 1 or 2. `calls` (version 2) are calls that were
    measured themselves, each by its tensors and other arguments as text, with the bytes that its kernels
    took."""

    format: Literal["memplan/calibration"]
    version: Literal[1, 2]
    machine: MachineEntry
    formulas: Annotated[tuple[FormulaEntry, ...], FailFast()]
    calls: dict[str, Count] = Field(default_factory=dict)


def file_of_calibration(calibration: Calibration) -> CalibrationFile:
    """`calibration` as a file."""
    machine = calibration.machine
    entries = tuple(
        {
            "kind": each.kind,
            "regime": each.regime,
            "sums": tuple(dict(one) for one in each.sums),
            "low": dict(each.low),
            "high": dict(each.high),
            "samples": each.samples,
            "judged": each.judged,
            "mean_error": each.mean_error,
            "worst_error": each.worst_error,
            "error": each.error,
        }
        for each in calibration.formulas
    )
    return CalibrationFile.model_validate(
        {
            "format": FORMAT,
            "version": 2,
            "machine": asdict(machine),
            "formulas": entries,
            "calls": dict(calibration.calls),
        }
    )


def calibration_from(file: CalibrationFile, source: str) -> Calibration:
    """The calibration of a file; raises InputError naming the field that is not sound in `source`."""
    seen: set[tuple[str, str]] = set()
    for number, each in enumerate(file.formulas):
        place = f"field formulas[{number}]"
        if (each.kind, each.regime) in seen:
            raise InputError(source, place, f"{each.kind!r}, {each.regime!r} twice", "one formula for each")
        seen.add((each.kind, each.regime))
        unknown = {name for one in each.sums for name in one}.difference(each.high)
        if unknown:
            raise InputError(source, f"{place}.sums", repr(min(unknown)), "sizes that have a low and a high")
        if each.low.keys() != each.high.keys():
            raise InputError(source, f"{place}.low", "other sizes than in high", "the same sizes")
    machine = Machine(**file.machine.model_dump())
    return Calibration(machine, tuple(Formula(**each.model_dump()) for each in file.formulas), file.calls)


def dump_calibration(calibration: Calibration) -> bytes:
    """`calibration` as memplan JSON in UTF-8; raises InputError for names that are no valid text."""
    return render(lambda: file_of_calibration(calibration), "calibration")


def write_calibration(calibration: Calibration, path: Path | str) -> None:
    """Write `calibration` to `path`, atomically; raises InputError when that cannot be done."""
    write_atomically(path, dump_calibration(calibration))


def load_calibration(path: Path | str) -> Calibration:
    """The calibration in the file `path`; raises InputError when it is none, naming the field."""
    path = Path(path)
    return calibration_from(load_as(CalibrationFile, path, FORMAT, newest=2), path.name)
