"""The JSON of a calibration: formulas for what kernels take for themselves, and the machine they hold for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import FailFast, Field

from memplan_engine.calibration.kernel_table import Calibration, Formula, Machine
from memplan_engine.errors import InputError
from memplan_engine.formats.memplan_json.json_base import Count, Strict, load_as, render
from memplan_engine.system import write_atomically

Sizes = dict[str, Count]
"""Bytes, or multiples, by the name of a size of a call ("x", "in0", …)."""
Share = Annotated[float, Field(ge=0)]
FORMAT: Literal["memplan/calibration"] = "memplan/calibration"


class MachineEntry(Strict):
    """torch's version, how many threads it used, and the instructions of its kernels."""

    torch: str
    threads: Count
    capability: str


class FormulaEntry(Strict):
    """What kernels of one kind take in one regime: the largest of `sums`, each a sum of multiples of sizes of
    the call; none means nothing. `low` and `high` bound what was measured, bytes. `judged` samples, to which
    the formula was not fitted, say how far it is off, as a share of all that an op holds."""

    kind: str
    regime: str
    sums: Annotated[tuple[Sizes, ...], FailFast()]
    low: Sizes
    high: Sizes
    samples: Count
    judged: Count
    mean_error: Share
    worst_error: Share


class CalibrationFile(Strict):
    """A file in the format memplan/calibration, version 1."""

    format: Literal["memplan/calibration"]
    version: Literal[1]
    machine: MachineEntry
    formulas: Annotated[tuple[FormulaEntry, ...], FailFast()]


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
        }
        for each in calibration.formulas
    )
    where = {"torch": machine.torch, "threads": machine.threads, "capability": machine.capability}
    return CalibrationFile.model_validate(
        {"format": FORMAT, "version": 1, "machine": where, "formulas": entries}
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
    machine = Machine(file.machine.torch, file.machine.threads, file.machine.capability)
    return Calibration(machine, tuple(Formula(**each.model_dump()) for each in file.formulas))


def dump_calibration(calibration: Calibration) -> bytes:
    """`calibration` as memplan JSON in UTF-8; raises InputError for names that are no valid text."""
    return render(lambda: file_of_calibration(calibration), "calibration")


def write_calibration(calibration: Calibration, path: Path | str) -> None:
    """Write `calibration` to `path`, atomically; raises InputError when that cannot be done."""
    write_atomically(path, dump_calibration(calibration))


def load_calibration(path: Path | str) -> Calibration:
    """The calibration in the file `path`; raises InputError when it is none, naming the field."""
    path = Path(path)
    return calibration_from(load_as(CalibrationFile, path, FORMAT), path.name)
