"""A plan in which buffers move between banks, beside the one in which they stay: what `--moves` prints."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType

from memplan_engine.banked.bank_moves import BankCopy, copies_of
from memplan_engine.banked.banked_plan import BankedPlan
from memplan_engine.feasibility.decision import Verdict
from memplan_engine.reporters.banks.bank_tables import (
    banked_tables,
    core_summary,
    cost_text,
    plan_summary,
    plan_tables,
)
from memplan_engine.reporters.rich_tables import plain_text
from memplan_engine.spilling.moves.move_planner import MoveDecision, told_moves
from memplan_engine.units import format_bytes, format_percent


def moves_summary(decision: MoveDecision) -> dict[str, Any]:
    """The verdict, the plan with its copies, what it would cost without moves, and the core where there is no
    room. Of each copy: its step, the buffers and banks it goes from and to, and bytes."""
    plan, still, core = decision.plan, decision.still.plan, decision.still.core
    return {
        "verdict": str(decision.verdict),
        "plan": None if plan is None else plan_summary(plan) | {"copies": copy_rows(plan)},
        "without_moves": None
        if still is None
        else {"traffic": still.traffic, "bound": {"value": still.bound.value, "kind": str(still.bound.kind)}},
        "core": core_summary(core) if core is not None and decision.verdict is Verdict.DOES_NOT_FIT else None,
    }


def copy_rows(plan: BankedPlan) -> list[dict[str, Any]]:
    """The copies of a plan, by step."""
    return [
        {
            "step": copy.step,
            "source": plan.problem.names[copy.source],
            "target": plan.problem.names[copy.target],
            "from": _bank(plan, copy.source),
            "to": _bank(plan, copy.target),
            "bytes": copy.nbytes,
        }
        for copy in copies_of(plan.problem)
    ]


def moves_tables(decision: MoveDecision, all_rows: bool = False) -> list[RenderableType]:
    """The plan with its copies and what it would cost without, or why there is none."""
    plan, still = decision.plan, decision.still.plan
    if plan is None:
        if decision.verdict is Verdict.DOES_NOT_FIT:
            return banked_tables(decision.still, all_rows)
        return [plain_text(f"undecided: {told_moves(decision)}", "yellow")]
    without = "no plan" if still is None else cost_text(plan, still.traffic)
    if still is not None and still.traffic > plan.traffic:
        without += f": moves save {format_percent(1 - plan.traffic / still.traffic)}"
    return plan_tables(plan, all_rows, [("without moves", without), ("copies", _copies(plan))])


def _copies(plan: BankedPlan) -> str:
    copies = copies_of(plan.problem)
    if not copies:
        return "none: nothing is gained by moving"
    told = []
    for one in range(len(plan.banks)):
        for other in range(len(plan.banks)):
            own = [copy for copy in copies if _ends(plan, copy) == (one, other)]
            if own:
                nbytes = format_bytes(sum(copy.nbytes for copy in own))
                told.append(
                    f"{len(own):,} from {plan.banks.names[one]} to {plan.banks.names[other]} ({nbytes})"
                )
    return ", ".join(told)


def _ends(plan: BankedPlan, copy: BankCopy) -> tuple[int, int]:
    return int(plan.bank_of[copy.source]), int(plan.bank_of[copy.target])


def _bank(plan: BankedPlan, row: int) -> str:
    return plan.banks.names[int(plan.bank_of[row])]
