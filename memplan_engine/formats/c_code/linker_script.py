"""What a linker script has to say of the arenas of a header."""

from __future__ import annotations

from collections.abc import Sequence

from memplan_engine.errors import InputError
from memplan_engine.formats.c_code.c_header import CArena
from memplan_engine.formats.c_code.c_names import c_prefix


def linker_script(arenas: Sequence[CArena]) -> str:
    """A piece to INCLUDE within the SECTIONS of a script of GNU ld or lld: each arena in the region of MEMORY
    that bears its name in capital letters, nothing of it in the image, and an error where it does not fit.

    Raises
    ------
    InputError: an arena without a section.
    """
    lines = ["/* INCLUDE this within SECTIONS { }, before .bss; the names behind > are regions of MEMORY. */"]
    for arena in arenas:
        if not arena.section:
            expected = "a section for each arena that a linker script is to place"
            raise InputError("linker script", arena.name, "no section", expected)
        region = c_prefix(arena.name, "arena").upper()
        lines += [
            f"{arena.section} (NOLOAD) : ALIGN({arena.alignment})",
            "{",
            f"  KEEP(*({arena.section}))",
            f"}} > {region}",
        ]
        if arena.capacity is not None:
            told = f"{arena.section} needs more than the {arena.capacity} bytes of {arena.name}"
            lines.append(f'ASSERT(SIZEOF({arena.section}) <= {arena.capacity}, "{told}")')
    return "\n".join([*lines, ""])
