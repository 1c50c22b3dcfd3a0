"""What a run is said to be: sentences and groups that the command line and the dashboard share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memplan_engine.scope import RUN_OF_GRAPH, Scope, scope_words
from memplan_engine.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from memplan_engine.formats.memplan_json.run_format import (
        CheckEntry,
        EqualityEntry,
        LeftEntry,
        ProfileEntry,
        RunFile,
        SlabEntry,
        TakerEntry,
    )

WAYS = {
    "native": "written in place by the op's own out overload",
    "equivalent": "written in place by operators that give the same bits",
    "generated": "computed as ever, then copied into the slab",
    "copied": "made by the allocator, then copied into the slab",
    "left": "left with the allocator",
}
CURVES = {
    "predicted": "predicted",
    "dispatch": "measured, dispatch level",
    "allocator": "measured, allocator level",
}
IN_PLACE = ("native", "equivalent")


@dataclass(frozen=True, slots=True)
class Reason:
    """Storages of one kind of op that are not written in place, for one reason."""

    kind: str
    way: str
    reason: str
    storages: int
    nbytes: int


def reasons(left: Sequence[LeftEntry]) -> list[Reason]:
    """`left` by kind, way and reason, the most bytes first."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for entry in left:
        counts = found.setdefault((entry.kind, entry.way, entry.reason), [0, 0])
        counts[0] += 1
        counts[1] += entry.bytes
    rows = [Reason(*key, *counts) for key, counts in found.items()]
    return sorted(rows, key=lambda row: -row.nbytes)


def kernel_bytes(taker: TakerEntry) -> int:
    """What the kernels of an op take, beside what the operators inside it make."""
    return taker.bytes - taker.inside_bytes


def equality_sentence(equality: EqualityEntry) -> str:
    """ "bit for bit equal to eager", or the largest difference and where it begins."""
    if equality.exact:
        frozen = (
            "; what Python counts (schedules, calls) is frozen there" if "step" in equality.reference else ""
        )
        return f"bit for bit equal to {equality.reference}{frozen}"
    if equality.largest is None:
        told = f"cannot be compared with {equality.reference}: {equality.output}"
    else:
        told = f"differs from {equality.reference} by up to {equality.largest:.3g} in {equality.output}"
    if equality.unrepeatable:
        told += f" (eager itself is not repeatable: two eager steps differ in {equality.unrepeatable})"
    return f"{told}, first at op {equality.op}" if equality.op else told


def difference_sentence(run: RunFile) -> str:
    """How the measured peak lies beside the predicted one; "" when one of them is not known."""
    off = run.difference
    if off is None:
        return ""
    return "as predicted, to the byte" if off == 0 else signed(off)


def counted_sentence(run: RunFile) -> str:
    """What the curves count: "predicted: the graph's storages …; measured: what one real run of the captured
    graph allocated …"."""
    if not run.predicted:
        return scope_words(Scope.EAGER)
    return f"predicted: {scope_words(Scope(run.scope))}; measured: {RUN_OF_GRAPH}"


def signed(nbytes: int) -> str:
    """ "+1.5 KiB (+1,536 B)", "−12 B", "0 B"."""
    if not nbytes:
        return "0 B"
    sign, size = ("−" if nbytes < 0 else "+"), abs(nbytes)
    exact = f"{sign}{size:,} B"
    return f"{sign}{format_bytes(size)} ({exact})" if size >= 1024 else exact


def check_sentence(check: CheckEntry) -> str:
    """What safety mode found, or how much it looked at."""
    if check.fault:
        return check.fault
    guards = f"guards of {check.guard} B" if check.guard else "no guards"
    return (
        f"{check.ops:,} ops watched, {format_bytes(check.compared_bytes)} compared, {guards}: nothing wrong"
    )


def slab_sentence(slab: SlabEntry) -> str:
    """ "policy native, 93.1 % of the bytes written in place"."""
    return f"policy {slab.policy}, {100 * slab.share:.1f} % of the bytes written in place"


def times(profile: ProfileEntry) -> dict[str, str]:
    """Each way of running with its seconds an iteration, and how that lies beside the first."""
    known = {"eager": profile.eager, "interpreter": profile.interpreter, "in the slab": profile.slab}
    found = {name: seconds for name, seconds in known.items() if seconds is not None}
    base = next(iter(found.values()))
    return {
        name: format_seconds(seconds) + (f" (×{seconds / base:.2f})" if place and base else "")
        for place, (name, seconds) in enumerate(found.items())
    }
