"""A run as Rich tables for people."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.table import Table

from memplan_engine.formats.memplan_json.run_format import ProfileEntry, RunFile, SlabEntry, peak_of
from memplan_engine.reporters.rich_tables import MOST_ROWS, folded, label_table, make_table, numbers
from memplan_engine.reporters.run_words import (
    WAYS,
    check_sentence,
    counted_sentence,
    difference_sentence,
    equality_sentence,
    kernel_bytes,
    reasons,
    signed,
    slab_sentence,
    times,
)
from memplan_engine.units import exact, format_bytes, format_percent, format_seconds

MOST_KINDS = 12
BARE: dict[str, Any] = {"box": None, "pad_edge": False}


def run_tables(run: RunFile, all_rows: bool = False) -> list[RenderableType]:
    """The figures of a run; what came into the slab; temporaries, what was left out, and times."""
    parts: list[RenderableType] = [_figures(run)]
    if run.slab and (run.slab.ways or run.slab.views):
        parts += ["", _ways(run.slab)]
        if run.slab.left:
            parts += ["", _left(run.slab, all_rows)]
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
        told = ", ".join(f"{name} {text}" for name, text in times(run.profile).items())
        rows.append(("an iteration", f"{told}; medians of {run.profile.runs} by turns"))
        rows.append(("setup", f"{format_seconds(run.profile.setup)}, export and planning included"))
    return label_table(rows)


def _peaks(run: RunFile) -> list[tuple[str, str]]:
    labels = {"predicted": "predicted peak", "dispatch": "measured peak", "allocator": "allocator's peak"}
    found = []
    for name, curve in run.curves.items():
        nbytes, place = peak_of(curve)
        text = exact(nbytes) + (f" at {run.ops[place]}" if place >= 0 else "")
        if name == "dispatch" and (told := difference_sentence(run)):
            text += f", {told}" + " beside the prediction" * bool(run.difference)
        elif name == "allocator" and run.predicted:
            off = nbytes - peak_of(run.predicted)[0]
            text += f", {signed(off)} beside the prediction" if off else ", as predicted"
        found.append((labels[name], text))
    return found


def _ways(slab: SlabEntry) -> Table:
    whole = sum(way.storages for way in slab.ways), sum(way.bytes for way in slab.ways)
    rows: list[tuple[str, ...]] = []
    for way in slab.ways:
        shares = (part / max(all_, 1) for part, all_ in zip((way.storages, way.bytes), whole, strict=True))
        count, nbytes = (format_percent(share) for share in shares)
        rows.append((way.way, f"{way.storages:,}", count, format_bytes(way.bytes), nbytes, WAYS[way.way]))
    nodes = (("views", slab.views), ("in place", slab.in_place))
    rows += [
        (label, f"{found:,} nodes", "", "", "", "no memory of their own") for label, found in nodes if found
    ]
    columns = ("way", *numbers("storages", "share", "bytes", "share"), "")
    return make_table(columns, rows, "What ops make", **BARE)


def _left(slab: SlabEntry, all_rows: bool) -> Table:
    rows = reasons(slab.left)
    title = _title("Not written in place", len(rows), all_rows)
    columns = ("kind", "way", *numbers("storages", "bytes"), *folded("reason"))
    cells = (
        (row.kind, row.way, f"{row.storages:,}", format_bytes(row.nbytes), row.reason)
        for row in (rows if all_rows else rows[:MOST_ROWS])
    )
    return make_table(columns, cells, title, **BARE)


def _temporaries(run: RunFile, all_rows: bool) -> Table:
    rows = sorted(run.temporaries, key=lambda taker: -kernel_bytes(taker))
    title = _title("Ops that hold memory for themselves", len(rows), all_rows)
    columns = (*folded("op", "kind"), *numbers("taken by kernels", "made inside", "in all, B"))
    cells = (
        (
            taker.op,
            taker.kind,
            format_bytes(kernel_bytes(taker)),
            format_bytes(taker.inside_bytes),
            f"{taker.bytes:,}",
        )
        for taker in (rows if all_rows else rows[:MOST_ROWS])
    )
    return make_table(columns, cells, title, **BARE)


def _kinds(profile: ProfileEntry, all_rows: bool) -> Table:
    title = _title("Time of ops by kind, one by one", len(profile.kinds), all_rows, MOST_KINDS)
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
    return make_table(("kind", *numbers("ops", "as it is", "in the slab", "share")), cells, title, **BARE)


def _title(text: str, rows: int, all_rows: bool, most: int = MOST_ROWS) -> str:
    return text if all_rows or rows <= most else f"{text} (the first {most} of {rows:,}; --all for all)"
