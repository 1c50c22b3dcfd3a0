"""A plan over several banks, and why there is none: what `--json` prints, and tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.table import Table

from memplan_engine.analysis.buffer_names import buffer_names
from memplan_engine.banked.bank_core import BankCore
from memplan_engine.banked.banked_plan import WITH_MOVES, BankBoundKind, BankedPlan, Objective
from memplan_engine.feasibility.decision import Verdict
from memplan_engine.reporters.rich_tables import (
    MOST_ROWS,
    folded,
    label_table,
    make_table,
    more,
    numbers,
    plain_text,
)
from memplan_engine.spilling.bank_planner import BankDecision, told
from memplan_engine.units import count_of, exact, format_bytes, format_percent, format_seconds
from memplan_engine.verify.validate import Report

PROOFS = {
    BankBoundKind.PRICES: "prices of bytes",
    BankBoundKind.ROOM: "what the other banks have no room for",
    BankBoundKind.SEARCH: "a search",
    BankBoundKind.MOVES: "prices of bytes",
    BankBoundKind.SWEEP: "a sweep over time",
}


def cost_text(plan: BankedPlan, cost: int) -> str:
    """A cost of accesses: as a time where the banks have bandwidths, else as bytes."""
    second = plan.banks.second
    return format_seconds(cost / second) if second else format_bytes(cost)


def value_text(plan: BankedPlan, value: int) -> str:
    """What the plan minimises, or a bound on it."""
    return exact(value) if plan.objective is Objective.PEAK else cost_text(plan, value)


def verdict_words(plan: BankedPlan) -> str:
    """One sentence: what is proved of an assignment, and by what."""
    banks, proof = plan.banks, PROOFS[plan.bound.kind]
    noun = "traffic" if plan.objective is Objective.TRAFFIC else f"arena of {banks.names[banks.slowest]}"
    least = value_text(plan, plan.bound.value)
    what = "plan with moves between" if plan.bound.kind in WITH_MOVES else "assignment to"
    if plan.optimal:
        return f"optimal: no {what} these banks has less {noun} than {least}, as {proof} proved"
    over = f", {format_percent(plan.gap)} over that" if plan.bound.value else ""
    return f"not proved optimal: the {noun} is at least {least}, as {proof} proved{over}"


def banked_summary(decision: BankDecision) -> dict[str, Any]:
    """The verdict, the banks, the assignment with its offsets, the bound, and the core where there is no
    room; bytes, and costs as `Banks.costs` has them. `plan` and `core` are null where there is none."""
    return {
        "verdict": str(decision.verdict),
        "plan": None if decision.plan is None else plan_summary(decision.plan),
        "core": None if decision.core is None else core_summary(decision.core),
    }


def plan_summary(plan: BankedPlan) -> dict[str, Any]:
    """The figures of a plan over several banks, and where each buffer lives."""
    names, second = plan.banks.names, plan.banks.second
    return {
        "graph": plan.problem.name,
        "objective": str(plan.objective),
        "traffic": plan.traffic,
        "traffic_seconds": plan.traffic / second if second else None,
        "bound": {"value": plan.bound.value, "kind": str(plan.bound.kind)},
        "gap": plan.gap if np.isfinite(plan.gap) else None,
        "optimal": plan.optimal,
        "seconds": plan.seconds,
        "cut_short": plan.cut_short,
        "banks": [bank_summary(plan, bank) for bank in range(len(names))],
        "buffers": [
            {"name": name, "bank": names[bank], "offset": offset, "extra_cost": extra}
            for name, bank, offset, extra in zip(
                plan.problem.names,
                plan.bank_of.tolist(),
                plan.offsets.tolist(),
                plan.extra_costs.tolist(),
                strict=True,
            )
        ],
    }


def bank_summary(plan: BankedPlan, bank: int) -> dict[str, Any]:
    """The figures of one bank of the plan."""
    own, packed, rows = plan.banks.banks[bank], plan.plans[bank], plan.rows(bank)
    spilled = rows[plan.extra_costs[rows] > 0]
    return {
        "name": own.name,
        "capacity_bytes": own.capacity,
        "alignment": own.alignment,
        "bandwidth": own.bandwidth,
        "read_only": own.read_only,
        "arena_bytes": packed.arena_bytes,
        "bound_bytes": packed.bound.nbytes,
        "strategy": packed.strategy,
        "buffers": len(rows),
        "spilled": len(spilled),
        "spilled_bytes": int(plan.problem.size[spilled].sum()),
        "extra_cost": int(plan.extra_costs[rows].sum()),
    }


def core_summary(core: BankCore) -> dict[str, Any]:
    """The buffers without room, and what they need."""
    return {
        "kind": str(core.kind),
        "banks": list(core.banks),
        "needs_bytes": core.nbytes,
        "capacity_bytes": core.capacity,
        "step": core.step,
        "buffers": list(core.problem.names),
    }


def banked_tables(decision: BankDecision, all_rows: bool = False) -> list[RenderableType]:
    """The plan with its banks and what was spilled, or why there is none."""
    if decision.plan is not None:
        return plan_tables(decision.plan, all_rows)
    if decision.verdict is Verdict.UNDECIDED:
        return [plain_text(f"undecided: {told(decision)}", "yellow")]
    assert decision.core is not None
    return [plain_text(f"does not fit: {told(decision)}", "red"), *_core_table(decision.core, all_rows)]


def plan_tables(
    plan: BankedPlan, all_rows: bool = False, facts: Sequence[tuple[str, str]] = ()
) -> list[RenderableType]:
    """The figures of a plan over several banks with `facts` (label, value) besides, a row a bank, and the
    spilled buffers, dearest first."""
    problem = plan.problem
    rows = [
        ("graph", f"{problem.name}, {count_of(len(problem), 'buffer')}, {count_of(problem.steps, 'step')}"),
        ("minimised", f"{plan.objective}, {value_text(plan, plan.value)}"),
        ("traffic", cost_text(plan, plan.traffic)),
        *facts,
        ("planned in", format_seconds(plan.seconds)),
    ]
    parts: list[RenderableType] = [
        label_table(rows),
        bank_table(plan),
        plain_text(verdict_words(plan), style="green" if plan.optimal else ""),
        *_spilled_table(plan, all_rows),
    ]
    if plan.cut_short:
        parts.append(plain_text(f"stopped after {format_seconds(plan.seconds)}", style="yellow"))
    return parts


def bank_table(plan: BankedPlan) -> Table:
    """A row a bank: its capacity and arena, the bound on the arena, what lives there and what it costs."""
    rows = []
    for bank, own in enumerate(plan.banks.banks):
        summary = bank_summary(plan, bank)
        spilled = (
            f"{summary['spilled']:,} ({format_bytes(summary['spilled_bytes'])})" if summary["spilled"] else ""
        )
        rows.append(
            (
                own.name,
                "" if own.capacity is None else format_bytes(own.capacity),
                format_bytes(summary["arena_bytes"]),
                format_bytes(summary["bound_bytes"]),
                f"{summary['buffers']:,}",
                spilled if summary["spilled"] else "",
                cost_text(plan, summary["extra_cost"]) if summary["extra_cost"] else "",
            )
        )
    headings = ("capacity", "arena", "its bound", "buffers", "spilled", "at the cost of")
    return make_table((*folded("bank"), *numbers(*headings)), rows)


def _spilled_table(plan: BankedPlan, all_rows: bool) -> list[RenderableType]:
    extra, rows = plan.extra_costs, plan.spilled
    if not len(rows):
        return []
    rows = rows[np.argsort(-extra[rows], kind="stable")]
    shown = rows if all_rows else rows[:MOST_ROWS]
    labels, names = buffer_names(plan.problem), plan.banks.names
    cells = [
        (
            labels[row],
            names[int(plan.bank_of[row])],
            format_bytes(int(plan.problem.size[row])),
            format_bytes(int(plan.banks.accessed[row])),
            cost_text(plan, int(extra[row])),
        )
        for row in shown.tolist()
    ]
    headings = (*folded("spilled", "to"), *numbers("bytes", "accessed", "at the cost of"))
    return [make_table(headings, cells, rest=more(rows.tolist(), shown.tolist()))]


def _core_table(core: BankCore, all_rows: bool) -> list[RenderableType]:
    problem = core.problem
    rows = [
        (name, format_bytes(int(size)), f"{start:,}", f"{end:,}")
        for name, size, start, end in zip(
            problem.names, problem.size, problem.start, problem.end, strict=True
        )
    ]
    shown = rows if all_rows else rows[:MOST_ROWS]
    return [make_table((*folded("buffer"), *numbers("bytes", "start", "end")), shown, rest=more(rows, shown))]


def report_lines(plan: BankedPlan, report: Report) -> list[RenderableType]:
    """What the validator found in a plan over several banks."""
    names = ", ".join(plan.banks.names)
    if report.valid:
        parts = [plain_text(f"valid: {count_of(len(plan.problem), 'buffer')} in {names}", "green")]
    else:
        counts = ", ".join(f"{rule}: {count:,}" for rule, count in report.counts.items())
        parts = [plain_text(f"invalid: {counts}", "red")]
    found = [plain_text(violation.message) for violation in report.violations[:MOST_ROWS]]
    return [*parts, *found, *(plain_text(text, "yellow") for text in report.unchecked)]


def report_summary(plan: BankedPlan, report: Report) -> dict[str, Any]:
    """The same for machines."""
    return {
        "valid": report.valid,
        "banks": list(plan.banks.names),
        "counts": {rule.name.lower(): count for rule, count in report.counts.items()},
        "violations": [
            {
                "rule": violation.rule.name.lower(),
                "buffers": list(violation.buffers),
                "message": violation.message,
            }
            for violation in report.violations
        ],
        "unchecked": list(report.unchecked),
    }
