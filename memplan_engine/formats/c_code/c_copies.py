"""The copies of a plan with moves as a table of C, and a function that does them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

TAKEN = ("arena", "arenas", "copy", "copies", "do_copies")
"""What no arena may be called in a header that has them."""


class CCopy(NamedTuple):
    """At `step` `nbytes` bytes are copied from `source_offset` of the arena at the place `source` of a header
    to `target_offset` of the one at `target`, all in bytes."""

    step: int
    source: int
    source_offset: int
    target: int
    target_offset: int
    nbytes: int


def copy_table(copies: Sequence[CCopy], variables: Sequence[str], prefix: str) -> Iterator[str]:
    """The lines of the table `PREFIX_copies`, in the order of the steps, and of `PREFIX_do_copies`; the
    arenas are the `variables`."""
    lower, upper = prefix.lower(), prefix.upper()
    yield from ("", "#include <stddef.h>", "#include <string.h>", "")
    yield f"#define {upper}_COPIES {len(copies)}u"
    yield "/* A copy between two arenas at a step of its own: behind whatever runs at earlier steps. */"
    yield "typedef struct {"
    yield "    unsigned long step;"
    yield f"    unsigned char source, target; /* places in {lower}_arenas */"
    yield "    size_t source_offset, target_offset, bytes;"
    yield f"}} {lower}_copy;"
    yield f"static unsigned char *const {lower}_arenas[] = {{{', '.join(variables)}}};"
    yield f"static const {lower}_copy {lower}_copies[{upper}_COPIES] = {{"
    for step, source, source_offset, target, target_offset, nbytes in sorted(copies):
        yield f"    {{{step}ul, {source}, {target}, {source_offset}u, {target_offset}u, {nbytes}u}},"
    yield "};"
    yield "/* Does all copies of the steps first, first + 1, ..., end - 1, in their order. */"
    yield f"static inline void {lower}_do_copies(unsigned long first, unsigned long end)"
    yield "{"
    yield f"    for (unsigned i = 0; i < {upper}_COPIES; ++i) {{"
    yield f"        const {lower}_copy *copy = &{lower}_copies[i];"
    yield "        if (first <= copy->step && copy->step < end)"
    yield f"            memcpy({lower}_arenas[copy->target] + copy->target_offset,"
    yield f"                   {lower}_arenas[copy->source] + copy->source_offset, copy->bytes);"
    yield "    }"
    yield "}"
