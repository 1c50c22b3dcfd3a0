"""`--strategy imported`: the offsets that a file carries, as a plan beside ours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from memplan_engine.cli.options import open_file
from memplan_engine.errors import InputError
from memplan_engine.plan import Plan
from memplan_engine.preparation import Preparation, prepare
from memplan_engine.verify.validate import validate_plan

IMPORTED = "imported"
"""Stands where the name of a strategy does; it makes no plan of a problem, so that it is none."""


def open_imported(file: Path, how: Preparation, **refused: object) -> Plan:
    """The plan that is in `file`: its offsets, whoever made them, under the name `imported`.

    Raises
    ------
    InputError: one of `refused`, options that only a plan which is made takes; a file without offsets for
    all buffers; offsets at which buffers collide.
    """
    for option, value in refused.items():
        if value:
            expected = f"a strategy that plans: --strategy {IMPORTED} shows what is in the file"
            raise InputError(f"--{option}", "", str(value), expected)
    loaded, how = open_file(file, how, as_plan=True)
    if not isinstance(loaded, Plan):
        expected = f"offsets for --strategy {IMPORTED}: without it, or with another one, a plan is made"
        raise InputError(file.name, "", "no plan", expected)
    prepare(loaded, how, file.name)
    if how.alignment is not None:
        expected = "no alignment: the offsets stay as they are in the file"
        raise InputError(file.name, "alignment", str(how.alignment), expected)
    # An arena below the bound would be called optimal.
    report = validate_plan(loaded, replay=False)
    if not report.valid:
        expected = "a plan whose buffers do not collide: `memplan validate` lists what is wrong"
        raise InputError(file.name, "", report.violations[0].message, expected)
    return replace(loaded, strategy=IMPORTED)
