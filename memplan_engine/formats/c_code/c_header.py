"""A plan as a C header that the compiler checks: buffers lie in their arena, aligned, and none that are live
together overlap."""

from __future__ import annotations

import hashlib
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from memplan_engine.errors import InputError
from memplan_engine.formats.c_code.c_copies import CCopy, copy_table
from memplan_engine.formats.c_code.c_names import c_names, c_prefix
from memplan_engine.formats.memplan_json.json_file import dumps
from memplan_engine.plan import Plan
from memplan_engine.units import format_percent

ID_DIGITS = 8
"""Of the SHA-256 in the number that a preprocessor can compare."""


@dataclass(frozen=True, slots=True)
class CArena:
    """One arena of a header: its `name`, the `plan` of what lies there, the `section` that a compiler puts it
    into ("" for the usual one), and the `capacity` of that memory in bytes, None where nobody says."""

    name: str
    plan: Plan
    section: str = ""
    capacity: int | None = None

    @property
    def alignment(self) -> int:
        """Of its first byte, as its buffers need it."""
        return int(self.plan.problem.alignment.max(initial=1))


def c_header(arenas: Sequence[CArena], prefix: str, title: str, copies: Sequence[CCopy] = ()) -> str:
    """C11, or C++17, with macros for the offset and the bytes of each buffer of `arenas`, and for the bytes
    of each arena. All names begin with `prefix`; `title` says what the plan is of. With `copies`
    there is a table of them, and a function that does those of some steps.

    The arenas are defined in the one file that defines PREFIX_DEFINE_ARENAS before it includes the header,
    and declared in others.

    Raises
    ------
    InputError: a `prefix` that is no name of C, an alignment that is no power of two, an arena that is larger
    than its capacity.
    """
    upper = c_prefix(prefix, "prefix").upper()
    for arena in arenas:
        _check(arena)
    buffers = chain.from_iterable(arena.plan.problem.names for arena in arenas)
    names = iter(c_names(buffers, [arena.name for arena in arenas]))
    named = [(arena, [next(names) for _ in range(len(arena.plan.problem))]) for arena in arenas]
    lines = [*_head(arenas, upper, title), *_prologue(upper, arenas)]
    for arena, own in named:
        lines += _arena(arena, prefix, own)
    if copies:
        variables = [_variable(arena, prefix) for arena in arenas]
        lines += copy_table(copies, variables, prefix)
    lines += ["", "#undef " + f"{upper}_ASSERT", "", f"#endif /* {upper}_PLAN_H */", ""]
    return "\n".join(lines)


def _check(arena: CArena) -> None:
    for name, alignment in zip(arena.plan.problem.names, arena.plan.problem.alignment.tolist(), strict=True):
        if alignment & (alignment - 1):
            raise InputError(
                arena.plan.problem.name, name, f"alignment {alignment}", "a power of two, as in C"
            )
    if arena.capacity is not None and arena.plan.arena_bytes > arena.capacity:
        found = f"{arena.plan.arena_bytes} bytes in {arena.name}"
        raise InputError(arena.plan.problem.name, "", found, f"at most its {arena.capacity}")


def _head(arenas: Sequence[CArena], upper: str, title: str) -> Iterator[str]:
    yield f"/* {_comment(title)}"
    for arena in arenas:
        plan = arena.plan
        proved = (
            "proved: no arena is smaller"
            if plan.optimal
            else f"{format_percent(plan.gap)} above its lower bound"
        )
        yield f" * {arena.name}: {len(plan.problem)} buffers in {plan.arena_bytes} bytes, {proved}."
    yield " * Written by memplan: change the plan, not this file. */"
    yield f"#ifndef {upper}_PLAN_H"
    yield f"#define {upper}_PLAN_H"


def _prologue(upper: str, arenas: Sequence[CArena]) -> Iterator[str]:
    digest = hashlib.sha256()
    for arena in arenas:
        digest.update(arena.plan.problem.fingerprint.encode() + arena.plan.offsets.tobytes())
    yield ""
    yield "/* SHA-256 of the buffers with their offsets; its first digits as a number, for #if. */"
    yield f'#define {upper}_PLAN_SHA256 "{digest.hexdigest()}"'
    yield f"#define {upper}_PLAN_ID 0x{digest.hexdigest()[:ID_DIGITS]}u"
    origins = [arena.plan.problem.origin for arena in arenas]
    if origins and (origin := origins[0]) is not None:
        yield "/* SHA-256 of the graph, as memplan JSON. */"
        yield f'#define {upper}_GRAPH_SHA256 "{hashlib.sha256(dumps(origin.graph)).hexdigest()}"'
    yield ""
    yield "#ifdef __cplusplus"
    yield f"#define {upper}_ASSERT(that, why) static_assert(that, why)"
    yield f"#define {upper}_ALIGNAS(bytes) alignas(bytes)"
    yield "#else"
    yield f"#define {upper}_ASSERT(that, why) _Static_assert(that, why)"
    yield f"#define {upper}_ALIGNAS(bytes) _Alignas(bytes)"
    yield "#endif"


def _arena(arena: CArena, prefix: str, names: list[str]) -> Iterator[str]:
    upper, plan = prefix.upper(), arena.plan
    own = c_prefix(arena.name, "arena").upper()
    size = f"{upper}_{own}_BYTES"
    yield ""
    yield f"/* {arena.name} */"
    yield f"#define {size} {_number(plan.arena_bytes)}"
    if arena.capacity is not None:
        yield f"#define {upper}_{own}_CAPACITY {_number(arena.capacity)}"
        yield f'{upper}_ASSERT({size} <= {upper}_{own}_CAPACITY, "{arena.name} holds the plan");'
    yield f"#ifndef {upper}_{own}_ATTRIBUTES"
    attributes = f' __attribute__((section("{arena.section}")))' if arena.section else ""
    yield f"#define {upper}_{own}_ATTRIBUTES{attributes}"
    yield "#endif"
    variable = _variable(arena, prefix)
    room = f"[{size}]" if plan.arena_bytes else "[1]"
    yield f"#ifdef {upper}_DEFINE_ARENAS"
    yield f"{upper}_ALIGNAS({arena.alignment}) unsigned char {variable}{room} {upper}_{own}_ATTRIBUTES;"
    yield "#else"
    yield f"extern {upper}_ALIGNAS({arena.alignment}) unsigned char {variable}{room};"
    yield "#endif"
    yield f"#define {upper}_{own}_AT(buffer) (&{variable}[{upper}_##buffer##_OFFSET])"
    yield from _buffers(plan, upper, names, size)
    yield ""
    yield "/* (name, offset, bytes, first step, step after the last): X is called for each. */"
    yield f"#define {upper}_{own}_BUFFERS(X) \\"
    problem = plan.problem
    columns = (names, problem.start.tolist(), problem.end.tolist())
    for name, start, end in zip(*columns, strict=True):
        yield f"    X({name}, {upper}_{name}_OFFSET, {upper}_{name}_BYTES, {start}, {end}) \\"
    yield ""


def _variable(arena: CArena, prefix: str) -> str:
    return f"{prefix.lower()}_{c_prefix(arena.name, 'arena').lower()}"


def _buffers(plan: Plan, upper: str, names: list[str], size: str) -> Iterator[str]:
    problem = plan.problem
    columns = (plan.offsets, problem.size, problem.alignment)
    for name, said, offset, nbytes, alignment in zip(
        names, problem.names, *(column.tolist() for column in columns), strict=True
    ):
        yield ""
        yield f"#define {upper}_{name}_OFFSET {_number(offset)} /* {_comment(said)} */"
        yield f"#define {upper}_{name}_BYTES {_number(nbytes)}"
        inside = f"{upper}_{name}_OFFSET + {upper}_{name}_BYTES <= {size}"
        aligned = f" && {upper}_{name}_OFFSET % {alignment}u == 0u" if alignment > 1 else ""
        yield f'{upper}_ASSERT({inside}{aligned}, "{name} lies in its arena");'
    yield ""
    for below, above in neighbours(plan):
        one, other = names[below], names[above]
        told = f'"{one} and {other} are live together"'
        apart = f"{upper}_{one}_OFFSET + {upper}_{one}_BYTES <= {upper}_{other}_OFFSET"
        yield f"{upper}_ASSERT({apart}, {told});"


def neighbours(plan: Plan) -> Iterator[tuple[int, int]]:
    """Pairs of buffers (indices) that are live together, the lower one first, so that no two overlap in the
    plan where those of each pair do not: each buffer with those next to it when its life begins. Those with
    gaps and those without bytes are left out."""
    problem, offsets = plan.problem, plan.offsets.tolist()
    taken = [index for index in range(len(problem)) if problem.size[index] and index not in problem.gaps]
    ends, live = sorted(taken, key=problem.end.__getitem__), list[tuple[int, int]]()
    ended = 0
    for index in sorted(taken, key=problem.start.__getitem__):
        while ended < len(ends) and problem.end[ends[ended]] <= problem.start[index]:
            gone = (offsets[ends[ended]], ends[ended])
            place = bisect_left(live, gone)
            if place < len(live) and live[place] == gone:
                del live[place]
            ended += 1
        if problem.end[index] <= problem.start[index]:
            continue
        own = (offsets[index], index)
        place = bisect_left(live, own)
        if place:
            yield live[place - 1][1], index
        if place < len(live):
            yield index, live[place][1]
        insort(live, own)


def _number(value: int) -> str:
    return f"{value}u" if value < 2**32 else f"{value}ull"


def _comment(text: str) -> str:
    """`text` on one line of ASCII, so that it ends no comment and has no trigraph, of which -Wall warns."""
    plain = " ".join(text.split()).encode("ascii", "backslashreplace").decode()
    return plain.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")
