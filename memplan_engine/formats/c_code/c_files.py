"""The files of a plan in C: a header, and a piece of a linker script."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from memplan_engine.banked.bank_moves import copies_of
from memplan_engine.banked.banked_plan import BankedPlan
from memplan_engine.errors import InputError
from memplan_engine.formats.c_code.c_copies import TAKEN, CCopy
from memplan_engine.formats.c_code.c_header import CArena, c_header
from memplan_engine.formats.c_code.c_names import c_names
from memplan_engine.formats.c_code.linker_script import linker_script
from memplan_engine.system import write_atomically, write_target

HEADERS, SCRIPTS = (".h", ".hh", ".hpp"), (".ld", ".lds", ".x")
ARENA = "arena"
"""What the arena of a plan is called where it is the only one."""


def section_of(arena: str) -> str:
    """The section of an arena that a linker is to place, unless somebody says otherwise."""
    return f".memplan.{arena}"


def arenas_of_banks(plan: BankedPlan) -> list[CArena]:
    """An arena for each bank of `plan` that may be written to, called as it is, in a section of its own."""
    names = [name.lower() for name in c_names(plan.banks.names, TAKEN)]
    each = zip(names, plan.banks.banks, plan.plans, strict=True)
    return [
        CArena(name, own, section_of(name), bank.capacity) for name, bank, own in each if not bank.read_only
    ]


def copies_in_banks(plan: BankedPlan) -> list[CCopy]:
    """The copies between the banks of `plan`, each from and to an arena of `arenas_of_banks` by its place."""
    offsets, bank_of = plan.offsets.tolist(), plan.bank_of.tolist()
    writable = [bank for bank, own in enumerate(plan.banks.banks) if not own.read_only]
    return [
        CCopy(
            copy.step,
            writable.index(bank_of[copy.source]),
            offsets[copy.source],
            writable.index(bank_of[copy.target]),
            offsets[copy.target],
            copy.nbytes,
        )
        for copy in copies_of(plan.problem)
    ]


def prefix_of(header: Path) -> str:
    """What all names of `header` begin with: what it is called itself."""
    prefix = re.sub(r"[^A-Za-z0-9]+", "_", header.stem).strip("_")
    if not prefix[:1].isalpha():
        raise InputError(
            str(header), "", f"the name {header.stem!r}", "one that begins with a letter, as names of C do"
        )
    return prefix


def write_c(
    arenas: Sequence[CArena],
    header: Path,
    script: Path | None = None,
    title: str = "",
    copies: Sequence[CCopy] = (),
) -> None:
    """Write the header of `arenas` with the `copies` between them, and the piece of a linker script that
    places them; none where one of the two could not be written.

    Raises
    ------
    InputError: as `c_header` and `linker_script` do, or a place that cannot be written.
    """
    text = c_header(arenas, prefix_of(header), title or arenas[0].plan.problem.name, copies)
    placing = linker_script(arenas) if script else ""
    for target in filter(None, (header, script)):
        write_target(target)
    write_atomically(header, text.encode())
    if script:
        write_atomically(script, placing.encode())
