"""A run as Rich tables for people, and the sentences and groups that the dashboard shows, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from memplan_engine.formats.memplan_json.run_format import (
    CheckEntry,
    EqualityEntry,
    LeftEntry,
    OrderEntry,
    ProfileEntry,
    RunFile,
    SlabEntry,
    TakerEntry,
    peak_of,
)
from memplan_engine.reporters.rich_tables import MOST_ROWS, folded, label_table, make_table, numbers
from memplan_engine.scope import RUN_OF_GRAPH, Scope, scope_words
from memplan_engine.units import exact, format_bytes, format_percent, format_seconds, format_signed

MOST_KINDS = 12
BARE: dict[str, Any] = {"box": None, "pad_edge": False}
WAYS = {
    "native": "written in place by the op's own out overload",
    "equivalent": "written in place by bitwise-equal operators",
    "generated": "computed as usual, then copied into the slab",
    "copied": "allocated dynamically, then copied into the slab",
    "left": "still allocated dynamically",
}
CURVES = {
    "predicted": "predicted",
    "dispatch": "measured, dispatch level",
    "allocator": "measured, allocator level",
}
IN_PLACE = ("native", "equivalent")
CHOOSING = frozenset({"cond", "while_loop", "scan", "map_impl"})
"""Kinds of ops that run a branch of several, or one again and again."""
LESS = "another branch, or a later turn of a loop, would hold more"


def run_tables(run: RunFile, all_rows: bool = False) -> list[RenderableType]:
    """The figures of a run; what came into the slab; temporaries, what was left out, and times."""
    parts: list[RenderableType] = [_figures(run)]
    if run.slab and (run.slab.ways or run.slab.views):
        parts += ["", _slab_table(run.slab)]
        if run.slab.left:
            parts += ["", _left_out_table(run.slab, all_rows)]
    if run.temporaries:
        parts += ["", _temporaries(run, all_rows)]
    if run.profile and run.profile.kinds:
        parts += ["", _kinds(run.profile, all_rows)]
    return parts


def _figures(run: RunFile) -> Table:
    mode = ", training mode" if run.training else ""
    kind = "functional graph" if run.functional else "graph as captured"
    rows: list[tuple[str, str] | tuple[str, str, str]] = [
        ("model", f"{run.name}, {len(run.ops):,} ops, {kind}{mode}")
    ]
    if run.order:
        rows.append(("order", order_sentence(run.order)))
    if run.plan:
        source = f" from {run.plan.file}" if run.plan.file else ""
        bound = f"bound {format_bytes(run.plan.bound_bytes)}"
        rows.append(("plan", f"{run.plan.strategy}{source}, arena {exact(run.plan.arena_bytes)}, {bound}"))
    if run.slab:
        rows.append(("slab", f"{exact(run.slab.bytes)}, {slab_sentence(run.slab)}"))
    rows += _peaks(run)
    rows.append(("counted", counted_sentence(run)))
    if run.equality:
        style = "green" if run.equality.exact else "red"
        rows.append(("result", equality_sentence(run.equality), style))
    if run.check:
        rows.append(("safety", check_sentence(run.check), "red" if run.check.fault else "green"))
    if run.profile:
        medians = ", ".join(f"{name} {text}" for name, text in times(run.profile).items())
        rows.append(("iteration", f"{medians}; medians of {run.profile.runs} interleaved runs"))
        rows.append(("setup", f"{format_seconds(run.profile.setup)}, export and planning included"))
    return label_table(rows)


def order_sentence(order: OrderEntry) -> str:
    """ "12 of the ops moved, live bytes 32 KiB → 16 KiB, fewest of all orders"."""
    source = f" by {order.file}" if order.file else ""
    moved = f"{order.moved:,} ops moved{source}" if order.moved else f"no op moved{source}"
    live = f"live bytes {format_bytes(order.live_before)} → {format_bytes(order.live_after)}"
    if order.bound_bytes is None:
        return f"{moved}, {live}"
    if order.bound_bytes >= order.live_after:
        return f"{moved}, {live}, proved the fewest of all orders"
    return f"{moved}, {live}, no order has fewer than {format_bytes(order.bound_bytes)}"


def _peaks(run: RunFile) -> list[tuple[str, str]]:
    labels = {"predicted": "predicted peak", "dispatch": "measured peak", "allocator": "allocator's peak"}
    rows = []
    for name, curve in run.curves.items():
        nbytes, op = peak_of(curve)
        text = exact(nbytes) + (f" at {run.ops[op]}" if op >= 0 else "")
        if name == "dispatch" and (sentence := difference_sentence(run)):
            text += f", {sentence}" + " off the prediction" * bool(run.difference)
            if (run.difference or 0) < 0 and not CHOOSING.isdisjoint(run.kinds):
                text += ": " + LESS
        elif name == "allocator" and run.predicted:
            off = nbytes - peak_of(run.predicted)[0]
            text += f", {signed(off)} off the prediction" if off else ", as predicted"
        rows.append((labels[name], text))
    return rows


def _slab_table(slab: SlabEntry) -> Table:
    whole = sum(way.storages for way in slab.ways), sum(way.bytes for way in slab.ways)
    rows: list[tuple[str, ...]] = []
    for way in slab.ways:
        shares = (part / max(all_, 1) for part, all_ in zip((way.storages, way.bytes), whole, strict=True))
        count, nbytes = (format_percent(share) for share in shares)
        rows.append((way.way, f"{way.storages:,}", count, format_bytes(way.bytes), nbytes, WAYS[way.way]))
    nodes = (("views", slab.views), ("in place", slab.in_place))
    rows += [
        (label, f"{number:,} nodes", "", "", "", "allocate nothing") for label, number in nodes if number
    ]
    columns = ("way", *numbers("storages", "share", "bytes", "share"), "")
    return make_table(columns, rows, "Op outputs", **BARE)


def _left_out_table(slab: SlabEntry, all_rows: bool) -> Table:
    rows = reasons(slab.left)
    title = _title("Not written in place", len(rows), all_rows)
    columns = ("kind", "way", *numbers("storages", "bytes"), *folded("reason"))
    cells = (
        (row.kind, row.way, f"{row.storages:,}", format_bytes(row.nbytes), row.reason)
        for row in (rows if all_rows else rows[:MOST_ROWS])
    )
    return make_table(columns, cells, title, **BARE)


def _temporaries(run: RunFile, all_rows: bool) -> Table:
    rows = sorted(run.temporaries, key=lambda entry: -kernel_bytes(entry))
    title = _title("Ops with temporaries or scratch", len(rows), all_rows)
    columns = (*folded("op", "kind"), *numbers("kernel scratch", "temporaries", "total, B"))
    cells = (
        (
            entry.op,
            entry.kind,
            format_bytes(kernel_bytes(entry)),
            format_bytes(entry.inside_bytes),
            f"{entry.bytes:,}",
        )
        for entry in (rows if all_rows else rows[:MOST_ROWS])
    )
    return make_table(columns, cells, title, **BARE)


def _kinds(profile: ProfileEntry, all_rows: bool) -> Table:
    title = _title("Op time by kind, run one at a time", len(profile.kinds), all_rows, MOST_KINDS)
    whole = sum(kind.slab for kind in profile.kinds)
    cells = (
        (
            kind.kind,
            f"{kind.ops:,}",
            format_seconds(kind.plain),
            format_seconds(kind.slab),
            format_percent(kind.slab / whole) if whole else "",
        )
        for kind in (profile.kinds if all_rows else profile.kinds[:MOST_KINDS])
    )
    return make_table(("kind", *numbers("ops", "original", "in the slab", "share")), cells, title, **BARE)


def _title(text: str, rows: int, all_rows: bool, most: int = MOST_ROWS) -> str:
    return text if all_rows or rows <= most else f"{text} (the first {most} of {rows:,}; --all for all)"


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
    totals: dict[tuple[str, str, str], list[int]] = {}
    for entry in left:
        counts = totals.setdefault((entry.kind, entry.way, entry.reason), [0, 0])
        counts[0] += 1
        counts[1] += entry.bytes
    rows = [Reason(*key, *counts) for key, counts in totals.items()]
    return sorted(rows, key=lambda row: -row.nbytes)


def kernel_bytes(entry: TakerEntry) -> int:
    """What the kernels of an op take, beside what the operators inside it make."""
    return entry.bytes - entry.inside_bytes


def equality_sentence(equality: EqualityEntry) -> str:
    """ "bitwise equal to eager", or the largest difference and where it begins."""
    if equality.exact:
        frozen = (
            "; Python state (schedules, counters) is frozen there" if "step" in equality.reference else ""
        )
        return f"bitwise equal to {equality.reference}{frozen}"
    if equality.largest is None:
        sentence = f"cannot be compared with {equality.reference}: {equality.output}"
    else:
        sentence = f"differs from {equality.reference} by up to {equality.largest:.3g} in {equality.output}"
    if equality.unrepeatable:
        sentence += f" (eager itself is not repeatable: two eager steps differ in {equality.unrepeatable})"
    return f"{sentence}, first at op {equality.op}" if equality.op else sentence


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
    if run.curves.keys() == {"predicted"}:
        return "; ".join((scope_words(Scope(run.scope)), *run.remarks))
    return f"predicted: {scope_words(Scope(run.scope))}; measured: {RUN_OF_GRAPH}"


def signed(nbytes: int) -> str:
    """ "+1.5 KiB (+1,536 B)", "−12 B", "0 B"."""
    sign, size = ("−" if nbytes < 0 else "+"), abs(nbytes)
    return format_signed(nbytes) + (f" ({sign}{size:,} B)" if size >= 1024 else "")


def check_sentence(check: CheckEntry) -> str:
    """What safety mode found, or how much it looked at."""
    if check.fault:
        return check.fault
    guards = f"guards of {check.guard} B" if check.guard else "no guards"
    return f"{check.ops:,} ops watched, {format_bytes(check.compared_bytes)} compared, {guards}: no fault"


def slab_sentence(slab: SlabEntry) -> str:
    """ "policy native, 93.1 % of the bytes written in place"."""
    return f"policy {slab.policy}, {100 * slab.share:.1f} % of the bytes written in place"


def times(profile: ProfileEntry) -> dict[str, str]:
    """Each way of running with its seconds an iteration, and how that lies beside the first."""
    runs = {"eager": profile.eager, "interpreter": profile.interpreter, "in the slab": profile.slab}
    measured = {name: seconds for name, seconds in runs.items() if seconds is not None}
    base = next(iter(measured.values()))
    return {
        name: format_seconds(seconds) + (f" (×{seconds / base:.2f})" if index and base else "")
        for index, (name, seconds) in enumerate(measured.items())
    }
