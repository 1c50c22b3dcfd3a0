"""`memplan plan --emit-c`: the offsets for a program in C."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from memplan_engine.banked.banked_plan import BankedPlan
from memplan_engine.cli.output import check_targets, tell
from memplan_engine.errors import InputError
from memplan_engine.plan import Plan

Emit = Callable[[Plan | BankedPlan], None]


def c_writer(source: Path, header: Path | None, script: Path | None, capacity: int | None) -> Emit | None:
    """What writes a plan as C into the files that are asked for, None where none is; before long work it is
    seen that they can be written. Raises InputError for a script without a header."""
    if header is None:
        if script is not None:
            raise InputError("--emit-ld", "", "no --emit-c", "the header whose arena it places")
        return None
    # Here, not above: who writes no C waits for none of it.
    from memplan_engine.formats.c_code.c_files import (
        ARENA,
        HEADERS,
        SCRIPTS,
        arenas_of_banks,
        copies_in_banks,
        prefix_of,
        section_of,
        write_c,
    )
    from memplan_engine.formats.c_code.c_header import CArena

    check_targets(HEADERS, source, header)
    check_targets(SCRIPTS, source, script)
    prefix_of(header)

    def emit(plan: Plan | BankedPlan) -> None:
        if isinstance(plan, Plan):
            arenas, copies = [CArena(ARENA, plan, section_of(ARENA) if script else "", capacity)], []
        else:
            arenas, copies = arenas_of_banks(plan), copies_in_banks(plan)
            if left := [bank.name for bank in plan.banks.banks if bank.read_only]:
                tell(f"{header}: without {', '.join(left)}: what may only be read is placed by the linker")
        write_c(arenas, header, script, source.name, copies)

    return emit
