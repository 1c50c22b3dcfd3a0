"""A run as Rich tables for people."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table

from memplan_engine.formats.memplan_json.run_format import ProfileEntry, RunFile, SlabEntry, peak_of
from memplan_engine.reporters.plan_tables import MOST_ROWS, plain_text
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
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    mode = ", training mode" if run.training else ""
    kind = "functional graph" if run.functional else "graph as captured"
    rows: list[tuple[str, str, str]] = [("model", f"{run.name}, {len(run.ops):,} ops, {kind}{mode}", "")]
    if run.plan:
        source = f" from {run.plan.file}" if run.plan.file else ""
        bound = f"bound {format_bytes(run.plan.bound_bytes)}"
        rows.append(
            ("plan", f"{run.plan.strategy}{source}, arena {exact(run.plan.arena_bytes)}, {bound}", "")
        )
    if run.slab:
        rows.append(("slab", f"{exact(run.slab.bytes)}, {slab_sentence(run.slab)}", ""))
    rows += [(label, text, "") for label, text in _peaks(run)]
    rows.append(("counted", counted_sentence(run), ""))
    if run.equality:
        style = "green" if run.equality.exact else "red"
        rows.append(("result", equality_sentence(run.equality), style))
    if run.check:
        rows.append(("safety", check_sentence(run.check), "red" if run.check.fault else "green"))
    if run.profile:
        told = ", ".join(f"{name} {text}" for name, text in times(run.profile).items())
        rows.append(("an iteration", f"{told}; medians of {run.profile.runs} by turns", ""))
        rows.append(("setup", f"{format_seconds(run.profile.setup)}, export and planning included", ""))
    for label, value, style in rows:
        table.add_row(label, plain_text(value, style))
    return table


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
    table = Table(title="What ops make", title_justify="left", pad_edge=False, box=None)
    table.add_column("way")
    for heading in ("storages", "share", "bytes", "share"):
        table.add_column(heading, justify="right")
    table.add_column("")
    whole = sum(way.storages for way in slab.ways), sum(way.bytes for way in slab.ways)
    for way in slab.ways:
        shares = (part / max(all_, 1) for part, all_ in zip((way.storages, way.bytes), whole, strict=True))
        count, nbytes = (format_percent(share) for share in shares)
        table.add_row(way.way, f"{way.storages:,}", count, format_bytes(way.bytes), nbytes, WAYS[way.way])
    for label, count_ in (("views", slab.views), ("in place", slab.in_place)):
        if count_:
            table.add_row(label, f"{count_:,} nodes", "", "", "", "no memory of their own")
    return table


def _left(slab: SlabEntry, all_rows: bool) -> Table:
    rows = reasons(slab.left)
    title = _title("Not written in place", len(rows), all_rows)
    table = Table(title=title, title_justify="left", pad_edge=False, box=None)
    for heading in ("kind", "way"):
        table.add_column(heading)
    table.add_column("storages", justify="right")
    table.add_column("bytes", justify="right")
    table.add_column("reason", overflow="fold")
    for row in rows if all_rows else rows[:MOST_ROWS]:
        cells = (row.kind, row.way, f"{row.storages:,}", format_bytes(row.nbytes), row.reason)
        table.add_row(*map(plain_text, cells))
    return table


def _temporaries(run: RunFile, all_rows: bool) -> Table:
    rows = sorted(run.temporaries, key=lambda taker: -kernel_bytes(taker))
    title = _title("Ops that hold memory for themselves", len(rows), all_rows)
    table = Table(title=title, title_justify="left", pad_edge=False, box=None)
    for heading in ("op", "kind"):
        table.add_column(heading, overflow="fold")
    for heading in ("taken by kernels", "made inside", "in all, B"):
        table.add_column(heading, justify="right")
    for taker in rows if all_rows else rows[:MOST_ROWS]:
        sizes = format_bytes(kernel_bytes(taker)), format_bytes(taker.inside_bytes), f"{taker.bytes:,}"
        table.add_row(*map(plain_text, (taker.op, taker.kind, *sizes)))
    return table


def _kinds(profile: ProfileEntry, all_rows: bool) -> Table:
    title = _title("Time of ops by kind, one by one", len(profile.kinds), all_rows, MOST_KINDS)
    table = Table(title=title, title_justify="left", pad_edge=False, box=None)
    table.add_column("kind")
    for heading in ("ops", "as it is", "in the slab", "share"):
        table.add_column(heading, justify="right")
    whole = sum(kind.slab for kind in profile.kinds)
    for kind in profile.kinds if all_rows else profile.kinds[:MOST_KINDS]:
        table.add_row(
            plain_text(kind.kind),
            f"{kind.ops:,}",
            format_seconds(kind.plain),
            format_seconds(kind.slab),
            format_percent(kind.slab / whole) if whole else "",
        )
    return table


def _title(text: str, rows: int, all_rows: bool, most: int = MOST_ROWS) -> str:
    return text if all_rows or rows <= most else f"{text} (the first {most} of {rows:,}; --all for all)"
