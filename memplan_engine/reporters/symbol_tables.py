"""Symbolic sizes as Rich tables for people and as plain values for machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from memplan_engine.analysis.claims import claim_summary, counted, workspace_name
from memplan_engine.analysis.peak import find_peak
from memplan_engine.graph import Graph, Symbol
from memplan_engine.plan import Plan
from memplan_engine.problem import Problem
from memplan_engine.profile import workspace_of
from memplan_engine.reporters.rich_tables import make_table, numbers, plain_text
from memplan_engine.scope import Scope, scope_summary
from memplan_engine.symbolic import BucketTable, MemorySchema, RangeReport, Sweep, to_text
from memplan_engine.symbolic.partition import STRATEGY as PARTITION
from memplan_engine.units import format_bytes, format_percent

MOST_FORMULA = 2_000
COUNTED = "the graph's storages; temporaries inside ops are not among these figures"
FORMULAS = "formulas and partitions are of storages alone"
SCOPED = scope_summary(Scope.GRAPH, COUNTED)
SHARING = (
    "the partitions hold for every value; their offsets change with their sizes, and memplan symbols "
    "has these as formulas"
)


def symbols_summary(graph: Graph, schema: MemorySchema, at: Mapping[str, int]) -> dict[str, Any]:
    """Symbols, formulas and the partition schema; bytes at `at`, hints for the rest. `peak_bytes` is of
    storages, `held_peak_bytes` also of what ops hold."""
    here = schema.problem.at(at)
    workspace = _most(here)
    return {
        "graph": graph.name,
        **scope_summary(here.scope, _counted(here)),
        "symbols": [_entry(symbol) for symbol in graph.symbols],
        "formulas": sorted({storage.formula for storage in graph.storages if storage.formula}),
        "peak": to_text(schema.peak_size()),
        "memory_size": to_text(schema.memory_size()),
        "partitions": [to_text(size) for size in schema.size_by_partition()],
        "peak_bytes": schema.peak(at),
        "memory_bytes": schema.memory_bytes(at),
        "workspace_bytes": workspace,
        "total_bytes": schema.memory_bytes(at) + workspace,
        "held_peak_bytes": find_peak(here).nbytes,
        "usage": schema.usage(at),
    }


def _entry(symbol: Symbol) -> dict[str, Any]:
    entry = asdict(symbol)
    for name in ("called", "given"):
        if not entry[name]:
            del entry[name]
    return entry


def symbols_tables(
    graph: Graph, schema: MemorySchema, at: Mapping[str, int], names: bool | None
) -> list[RenderableType]:
    """The symbols, then the schema: its partitions, sizes and usage; `names` None leaves out its steps."""
    symbols = (
        (
            str(symbol),
            f"{symbol.low:,}",
            "no limit" if symbol.high is None else f"{symbol.high:,}",
            "data-dependent" if symbol.hint is None else f"{symbol.hint:,}",
        )
        for symbol in graph.symbols
    )
    table = make_table(("symbol", *numbers("from", "to", "hint")), symbols, graph.name)
    columns = (schema.partitions, schema.size_by_partition(), schema.sizes_at(at))
    rows = (
        (str(number), f"{len(members):,}", _formula(formula), format_bytes(size))
        for number, (members, formula, size) in enumerate(zip(*columns, strict=True))
    )
    headings = ("partition", "buffers", "size in bytes", *numbers("here"))
    partitions = make_table(headings, rows, "memory schema")
    lines = [
        f"peak: {_formula(schema.peak_size())} bytes, {format_bytes(schema.peak(at))} here",
        f"memory size: {format_bytes(schema.memory_bytes(at))} here, of which the peak "
        f"uses {format_percent(schema.usage(at))}",
    ]
    here = schema.problem.at(at)
    if workspace := _most(here):
        name, peak = workspace_name(here), find_peak(here)
        total = format_bytes(schema.memory_bytes(at) + workspace)
        lines.append(
            f"with {name}: {total} here, {format_bytes(workspace)} of it outside the partitions; "
            f"at most {format_bytes(peak.nbytes)} live at step {peak.step:,}"
        )
    lines.append(f"counted: {_counted(here)}")
    steps = [] if names is None else [Text(schema.table(names=names))]
    return [table, partitions, *map(plain_text, lines), *steps]


def _most(here: Problem) -> int:
    scratch = workspace_of(here)
    return scratch.shared + scratch.unique


def _counted(here: Problem) -> str:
    return f"{counted(here)}; {FORMULAS}"


def counted_line(words: str = COUNTED) -> Text:
    """What the figures of these tables count."""
    return plain_text(f"counted: {words}")


def _formula(expression: Any) -> str:
    text = to_text(expression)
    return text if len(text) <= MOST_FORMULA else f"{text[: MOST_FORMULA - 1]}…"


def range_summary(plan: Plan, report: RangeReport) -> dict[str, Any]:
    """What the offsets of `plan` are worth over the symbols' range."""
    failure = report.failure
    return {
        "strategy": plan.strategy,
        **SCOPED,
        "valid": report.valid,
        "proof": str(report.proof),
        "reason": report.reason,
        "ranges": {name: [low, high] for name, low, high in report.ranges},
        "unlimited": list(report.unlimited),
        "points": report.points,
        "impossible": report.impossible,
        "arena_bytes": report.arena_bytes,
        "limits": dict(report.limits),
        "failure": None
        if failure is None
        else {
            "values": dict(failure.values),
            "buffers": list(failure.buffers),
            "message": failure.message,
        },
    }


def range_tables(plan: Plan, report: RangeReport) -> list[RenderableType]:
    """One line with the verdict, and how far each symbol may go by itself."""
    style = "green" if report.valid else "bold red"
    limits = dict(report.limits)
    rows = []
    for name, low, high in report.ranges:
        fails = limits.get(name)
        end = f"{high:,}{', no limit known' if name in report.unlimited else ''}"
        rows.append((name, f"{low:,}", end, "nowhere" if fails is None else f"{fails:,}"))
    columns = ("symbol", *numbers("from", "to", "offsets fail from"))
    table = make_table(columns, rows, f"{plan.strategy}, {plan.problem.name}")
    lines = [plain_text(report.summary, style)]
    if plan.strategy == PARTITION and not report.valid:
        lines.append(plain_text(SHARING))
    return [*lines, table, counted_line()]


def buckets_summary(table: BucketTable) -> dict[str, Any]:
    """The buckets with what each needs and wastes; bytes."""
    return {
        "symbol": table.symbol,
        "others": dict(table.others),
        **claim_summary(table.buckets[0].plan.problem),
        "arena_bytes": table.arena_bytes,
        "separate_bytes": table.separate_bytes,
        "table_bytes": table.table_bytes,
        "buckets": [
            {
                "low": bucket.low,
                "high": bucket.high,
                "arena_bytes": bucket.arena_bytes,
                "workspace_bytes": bucket.plan.workspace_bytes,
                "total_bytes": bucket.arena_bytes + bucket.plan.workspace_bytes,
                "worst_waste_bytes": bucket.worst_waste,
                "worst_at": bucket.worst_at,
                "mean_waste_bytes": bucket.mean_waste,
                "valid": bucket.report.valid,
                "proof": str(bucket.report.proof),
            }
            for bucket in table.buckets
        ],
    }


def buckets_table(graph: str, table: BucketTable) -> Table:
    """A row a bucket, and what keeping all of them takes."""
    others = "".join(f", {name} {value:,}" for name, value in table.others)
    workspace = any(bucket.plan.workspace_bytes for bucket in table.buckets)
    headings = ("arena", *["with workspace"] * workspace, "mean waste", "worst waste", "at")
    rows = []
    for bucket in table.buckets:
        verdict = f"hold: {bucket.report.proof}" if bucket.report.valid else bucket.report.summary
        if bucket.report.impossible:
            verdict += f"; at {bucket.report.impossible} values tried there are no sizes"
        cells = (
            f"{bucket.low:,} to {bucket.high:,}",
            format_bytes(bucket.arena_bytes),
            *[format_bytes(bucket.arena_bytes + bucket.plan.workspace_bytes)] * workspace,
            format_bytes(round(bucket.mean_waste)),
            format_bytes(bucket.worst_waste),
            f"{bucket.worst_at:,}",
            verdict,
        )
        rows.append(cells)
    sizes = (
        f"one arena for all: {format_bytes(table.arena_bytes)}; one each: "
        f"{format_bytes(table.separate_bytes)}; the offsets themselves: {format_bytes(table.table_bytes)}"
    )
    columns = (table.symbol, *numbers(*headings), "offsets")
    return make_table(columns, rows, f"{graph}{others}", caption=sizes)


def sweep_summary(sweep: Sweep) -> dict[str, Any]:
    """The columns of a sweep; bytes."""
    return asdict(sweep) | {"others": dict(sweep.others), **scope_summary(sweep.scope)}


def sweep_table(graph: str, sweep: Sweep) -> Table:
    """A row a value; the hint is marked."""
    others = "".join(f", {name} {value:,}" for name, value in sweep.others)
    beside = any(sweep.workspace)
    headings = (sweep.strategy, *["with workspace"] * beside, "over bound", "partition plan", "over bound")
    columns = (sweep.values, sweep.bound, sweep.arena, sweep.partition, sweep.workspace)
    rows = (
        (
            f"{value:,}{' ← hint' if value == sweep.hint else ''}",
            format_bytes(bound),
            format_bytes(arena),
            *[format_bytes(arena + workspace)] * beside,
            _over(arena, bound),
            format_bytes(partition),
            _over(partition, bound),
        )
        for value, bound, arena, partition, workspace in zip(*columns, strict=True)
    )
    left_out = ", ".join(f"{value:,}" for value in sweep.skipped)
    caption = f"skipped, because a size is negative or fractional there: {left_out}" if left_out else ""
    return make_table(
        numbers(sweep.symbol, "lower bound", *headings), rows, f"{graph}{others}", caption=caption
    )


def _over(nbytes: int, bound: int) -> str:
    return format_percent(nbytes / bound - 1) if bound else ""
