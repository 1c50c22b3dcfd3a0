"""A diff as Rich tables for people and as plain values for machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from memplan_engine.analysis.buffer_names import without_module
from memplan_engine.analysis.claims import claim_summary
from memplan_engine.analysis.provenance import OP_PROPERTIES, Provenance, ops_at
from memplan_engine.diffing.culprits import Explanation, explain
from memplan_engine.diffing.regression import Diff, Limit
from memplan_engine.diffing.rewritten import RewrittenOp
from memplan_engine.diffing.rows import DiffRow, ModuleRow, PeakRow, diff_rows, module_rows
from memplan_engine.plan import Plan
from memplan_engine.profile import Held, Load
from memplan_engine.reporters.diff_culprits import change_of_holder, explanation_summary, line_text, story
from memplan_engine.reporters.diff_words import (
    OTHER_PEAK,
    change,
    counted_sentences,
    counts_sentence,
    figures,
    headline,
    lifetimes,
    matched_sentence,
    moment_sentence,
    names,
    notes,
    peak_sentence,
    rewrite_rows,
    rewrite_sentence,
    rewritten_of,
    sentence_case,
    verdict,
    warning,
)
from memplan_engine.reporters.rich_tables import (
    MOST_ROWS,
    folded,
    in_graph,
    make_table,
    modules,
    named,
    numbers,
    paths,
    plain_text,
)
from memplan_engine.units import exact, format_bytes, format_signed


def diff_summary(diff: Diff, limit: Limit | None = None) -> dict[str, Any]:
    """The whole diff; byte counts are exact integers, deltas head minus base."""
    moment = diff.moment
    return {
        "base": _side(diff.base, diff.base_load, diff.base_held),
        "head": _side(diff.head, diff.head_load, diff.head_held),
        "arena_delta_bytes": diff.arena_delta,
        "demand_delta_bytes": diff.demand_delta,
        "packing_loss_delta_bytes": diff.packing_delta,
        "workspace_delta_bytes": diff.workspace_delta,
        "total_delta_bytes": diff.total_delta,
        "causes_bytes": {cause.name.lower(): nbytes for cause, nbytes in diff.causes.items()},
        "peak_elsewhere_bytes": diff.elsewhere,
        "peak_moved": diff.peak_moved,
        "explained_at": {
            "peak_of": "base" if moment is diff.base_moment else "head",
            "base_step": moment.base_step,
            "head_step": moment.head_step,
            "base_bytes": moment.base_bytes,
            "head_bytes": moment.head_bytes,
            "footing": moment.footing.name.lower(),
        },
        "explanation": explanation_summary(diff, explain(diff)),
        "related": diff.related,
        "matched": {
            "buffers": len(diff.matching.pairs[0]),
            "share": diff.share,
            "bytes_share": diff.bytes_share,
            "how": {how.name.lower(): count for how, count in diff.matching.counts().items()},
        },
        "counts": {kind.name.lower(): count for kind, count in diff.counts.items()},
        **({"limit": _limit(diff, limit)} if limit else {}),
        "rewritten": _rewrite_summary(rewritten_of(diff)),
        "modules": [_module(row) for row in module_rows(diff, moment)],
        "changes": [_row(row) for row in diff_rows(diff)],
    }


def _side(plan: Plan, load: Load, held: Held) -> dict[str, Any]:
    return {
        "graph": plan.problem.name,
        "strategy": plan.strategy,
        "cut_short": plan.cut_short,
        "buffers": len(plan.problem),
        **claim_summary(plan.problem),
        "arena_bytes": plan.arena_bytes,
        "workspace_bytes": plan.workspace_bytes,
        "total_bytes": plan.total_bytes,
        "demand_bytes": load.peak,
        "packing_loss_bytes": plan.arena_bytes - load.peak,
        "held_peak_bytes": held.peak_bytes,
        "held_peak_step": held.peak_step,
        "peak_step": load.peak_step,
        "peak_ops": [op.name for op in ops_at(plan.problem, load.peak_step)],
    }


def _limit(diff: Diff, limit: Limit) -> dict[str, Any]:
    return {
        "allowed_bytes": limit.allowed(diff),
        "regression": limit.exceeded(diff),
        "verdict": verdict(diff, limit),
    }


def _module(row: ModuleRow) -> dict[str, Any]:
    return {
        "module": row.module,
        "base_bytes": row.base_bytes,
        "head_bytes": row.head_bytes,
        "delta_bytes": row.delta,
        "buffers": [
            {
                "name": part.name,
                "base_bytes": part.base_bytes,
                "head_bytes": part.head_bytes,
                "delta_bytes": part.delta,
                "cause": part.cause.name.lower() if part.cause else None,
                **_origin(part.provenance),
            }
            for part in row.parts
        ],
    }


def _row(row: DiffRow) -> dict[str, Any]:
    return {
        "base": row.base or None,
        "head": row.head or None,
        "base_bytes": row.base_bytes,
        "head_bytes": row.head_bytes,
        "delta_bytes": row.delta,
        "at_peak_bytes": row.at_peak,
        "base_lifetime": row.base_lifetime,
        "head_lifetime": row.head_lifetime,
        "changes": [kind.name.lower() for kind in row.changes],
        "matched_by": row.how.name.lower() if row.how else None,
        **_origin(row.provenance),
    }


def _origin(provenance: Provenance) -> dict[str, Any]:
    return {
        "kind": provenance.kind,
        **{told.name: told.of(provenance.maker) for told in OP_PROPERTIES},
        "source": str(provenance.source) if provenance.source else "",
        "code": provenance.source.code if provenance.source else "",
    }


def diff_tables(diff: Diff, limit: Limit | None = None, every_row: bool = False) -> list[RenderableType]:
    """The headline, who is to blame, the peak by module, and the buffers that changed."""
    found, rewritten = explain(diff), rewritten_of(diff)
    both = f"{diff.base.problem.name} → {diff.head.problem.name}"
    parts: list[RenderableType] = [plain_text(f"{both}: {headline(diff)}", style="bold")]
    if sentence := warning(diff):
        parts.append(plain_text(f"warning: {sentence}", style="yellow"))
    parts += map(plain_text, map(sentence_case, story(diff, found)))
    if rewritten:
        parts.append(plain_text(sentence_case(rewrite_sentence(diff, rewritten))))
    parts += [
        plain_text(""),
        _headline_table(diff),
        *(plain_text(note, style="yellow") for note in notes(diff)),
    ]
    parts += map(plain_text, counted_sentences(diff))
    parts.append(plain_text(peak_sentence(diff)))
    if found.culprits or found.elsewhere:
        parts += [_culprits_table(diff, found, every_row), plain_text(moment_sentence(diff))]
    parts += [plain_text(""), plain_text(matched_sentence(diff)), plain_text(counts_sentence(diff))]
    if rewritten:
        parts.append(_rewrite_table(diff, rewritten, every_row))
    if not diff.same:
        parts += [_peak_table(diff, every_row), _changes_table(diff, every_row)]
    if limit:
        style = "bold red" if limit.exceeded(diff) else "green"
        parts += [plain_text(verdict(diff, limit), style=style)]
    return parts


def _headline_table(diff: Diff) -> Table:
    rows = (
        (label, exact(before), exact(after), change(before, after)) for label, before, after in figures(diff)
    )
    return make_table(("", *numbers("base", "head", "change")), rows, box=None, pad_edge=False)


def _culprits_table(diff: Diff, found: Explanation, every_row: bool) -> Table:
    """What Δdemand is made of, by line: a row for each culprit, summed up below."""
    sizes, largest = numbers("adds", "tensors"), ("the largest", *in_graph())
    columns = ("why", *sizes, *largest, *paths("line"), *folded("its last use"))
    shown = found.culprits if every_row else found.culprits[:MOST_ROWS]
    rows = (
        (
            str(culprit.fate or culprit.cause),
            format_signed(culprit.nbytes),
            f"{len(culprit.buffers):,}",
            *named(culprit.largest.label, culprit.largest.name),
            line_text(culprit.source) if culprit.source else "",
            change_of_holder(culprit.largest.base_holder, culprit.largest.head_holder),
        )
        for culprit in shown
    )
    table = make_table(columns, rows, "what changed at this peak, by line")
    _add_rest(table, len(found.culprits) - len(shown))
    if found.elsewhere:
        other = OTHER_PEAK.format("head" if found.delta < 0 else "base")
        table.add_row(other, format_signed(found.elsewhere))
    table.add_row("demand", format_signed(found.delta), style="bold")
    return table


def _peak_table(diff: Diff, every_row: bool) -> Table:
    """The moment that is explained, by module."""
    sizes = numbers("base", "head", "change")
    columns = ("module and buffer", *in_graph(), *sizes, "why", *paths("source"))
    rows: list[tuple[str, ...]] = []
    headings = []
    remaining = total = len(diff.moment.base) if every_row else MOST_ROWS
    for module in module_rows(diff, diff.moment):
        if remaining <= 0:
            break
        headings.append(len(rows))
        rows.append((module.module or "(no module)", "", *_sizes(module), "", ""))
        for part in module.parts[:remaining]:
            label, name = named(without_module(part.label), part.name)
            source = str(part.provenance.source or "")
            rows.append((f"  {label}", name, *_sizes(part), str(part.cause or ""), source))
        remaining = max(0, remaining - len(module.parts))
    table = make_table(columns, rows, "at this peak, by module")
    for row in headings:
        table.rows[row].style = "bold"
    _add_rest(table, len(diff.moment.base) - (total - remaining))
    return table


def _sizes(row: ModuleRow | PeakRow) -> tuple[str, str, str]:
    return format_bytes(row.base_bytes), format_bytes(row.head_bytes), format_signed(row.delta)


def _changes_table(diff: Diff, every_row: bool) -> Table:
    title = f"changed buffers: {counts_sentence(diff)}"
    headings = ("base", "head", "change", "at the peak", "lifetime")
    columns = (
        "buffer",
        *in_graph(),
        *numbers(*headings),
        *folded("what"),
        *modules("module"),
        *paths("source"),
    )
    shown = diff_rows(diff, None if every_row else MOST_ROWS)
    rows = (
        (
            *named(*names(row)),
            format_bytes(row.base_bytes) if row.base else "",
            format_bytes(row.head_bytes) if row.head else "",
            format_signed(row.delta),
            format_signed(row.at_peak),
            lifetimes(row),
            ", ".join(row.changes),
            row.provenance.module,
            str(row.provenance.source or ""),
        )
        for row in shown
    )
    table = make_table(columns, rows, title)
    _add_rest(table, diff.changed - len(shown))
    return table


def _add_rest(table: Table, count: int) -> None:
    if count > 0:
        table.add_row(f"and {count:,} more", style="dim")


def _rewrite_table(diff: Diff, rows: Sequence[RewrittenOp], every_row: bool = False) -> Table:
    """The rows, the first of them unless `every_row`; those beyond are counted."""
    shown = rewrite_rows(diff.head, rows if every_row else rows[:MOST_ROWS])
    lines = (
        (
            str(row["what"]),
            *named(str(row["op"]), str(row["in graph"])),
            f"{row['step before']:,} → {row['step after']:,}",
            format_bytes(int(row["bytes"])),
            str(row["source"]),
        )
        for row in shown
    )
    columns = ("", "op", *in_graph(), *numbers("step", "makes"), *paths("source"))
    table = make_table(columns, lines, "what the rewrite did, by op")
    if len(rows) > len(shown):
        table.add_row(f"and {len(rows) - len(shown):,} more")
    return table


def _rewrite_summary(rows: Sequence[RewrittenOp]) -> list[dict[str, Any]]:
    """The same for machines; bytes exact."""
    return [
        {
            "what": row.what.name.lower(),
            "op": row.op.name,
            "kind": row.op.kind,
            "base_step": row.before,
            "head_step": row.after,
            "tensor": row.tensor,
            "bytes": row.nbytes,
            "source": str(row.op.source or ""),
        }
        for row in rows
    ]
