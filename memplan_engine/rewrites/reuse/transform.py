"""Both transforms, one after the other, with their proof; and what they save of the same graph."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Unpack

from memplan_engine.analysis.peak import find_peak
from memplan_engine.bounds import lower_bound
from memplan_engine.errors import PlanError
from memplan_engine.graph import Graph
from memplan_engine.lifetimes import DEFAULT_ALIGNMENT, PlanningOptions, Unread
from memplan_engine.planner import QUICK_SECONDS, make_plan
from memplan_engine.profile import load_of
from memplan_engine.rewrites.reuse.check_reuse import check_reuse
from memplan_engine.rewrites.reuse.concat import place_concats
from memplan_engine.rewrites.reuse.in_place import write_in_place
from memplan_engine.rewrites.reuse.reused import Reason, Reused, reused_problem
from memplan_engine.schedule import Schedule, check_schedule, sequential
from memplan_engine.strategies.base import SolveLimits, Strategy, limits_were_budget


def reuse(
    graph: Graph,
    schedule: Schedule | None = None,
    *,
    in_place: bool = True,
    concat: bool = True,
    **options: Unpack[PlanningOptions],
) -> Reused:
    """`graph` with the reuse that is asked for, checked by `check_reuse`; with neither, as it is.

    In-place writes come first: a block inside a concatenation covers no storage any more, and an op could no
    longer write into it. An op that writes into its input can also keep that input out of a concatenation, so
    where concatenations alone give the lower peak they are what remains of both. Plan with the same
    `options`; `plan_inputs` makes no difference here.

    Raises
    ------
    InputError: `alignment` below 1; a schedule that the graph cannot run by. PlanError: the checker's first
    breach; a defect of a transform.
    """
    alignment = options.get("alignment", DEFAULT_ALIGNMENT)
    unread = options.get("unread", Unread.FREED)
    schedule = sequential(graph) if schedule is None else check_schedule(graph, schedule, graph.name)
    first = write_in_place(graph, schedule) if in_place else Reused(graph, schedule)
    if not concat:
        return _checked(graph, first, alignment)
    second = place_concats(first.graph, schedule, alignment=alignment, unread=unread)
    both = Reused(
        second.graph,
        schedule,
        in_place=first.in_place,
        concats=second.concats,
        kept=(*first.kept, *second.kept),
        windows=second.windows,
    )
    if not in_place:
        return _checked(graph, both, alignment)
    alone = place_concats(graph, schedule, alignment=alignment, unread=unread)
    problems = (reused_problem(reused, alignment=alignment, unread=unread) for reused in (both, alone))
    peaks = [load_of(problem).peak for problem in problems]
    return _checked(graph, alone if peaks[1] < peaks[0] else both, alignment)


def _checked(graph: Graph, reused: Reused, alignment: int) -> Reused:
    breaches = check_reuse(graph, reused.graph, reused.schedule, alignment=alignment)
    if breaches:
        raise PlanError(f"{graph.name}: reuse is not sound: {breaches[0]}")
    return reused


@dataclass(frozen=True, slots=True)
class Saving:
    """One way to run the graph; all figures in bytes.

    `peak` is the most that is live at one step, `bound` the lower bound on any arena, `arena` what the
    plan needs. `ops` counts the ops that write in place or join without copying everything or a part,
    `nbytes` what they no longer need or copy, summed over the ops.
    """

    name: str
    peak: int
    bound: int
    arena: int
    ops: int
    nbytes: int
    reused: Reused


@limits_were_budget
def savings(
    graph: Graph,
    schedule: Schedule | None = None,
    *,
    strategy: str | Strategy = "auto",
    limits: SolveLimits | None = None,
    **options: Unpack[PlanningOptions],
) -> tuple[Saving, ...]:
    """The graph planned four times: "baseline", "in place", "concat" and "both", in that order.

    Each is planned by `strategy`; `alignment` in bytes. An arena may grow although the peak falls, since no
    strategy but an exact one places every problem as well as can be: the figures are what they are.

    Raises
    ------
    InputError: `alignment` below 1. PlanError: as `make_plan`.
    """
    variants = (
        ("baseline", False, False),
        ("in place", True, False),
        ("concat", False, True),
        ("both", True, True),
    )
    limits, rows = limits or SolveLimits(QUICK_SECONDS), []
    for name, in_place, concat in variants:
        reused = reuse(graph, schedule, in_place=in_place, concat=concat, **options)
        problem = reused_problem(reused, **options)
        plan = make_plan(problem, strategy, limits=limits.again())
        rows.append(
            Saving(
                name,
                find_peak(problem).nbytes,
                lower_bound(problem).nbytes,
                plan.arena_bytes,
                len({rewrite.op for rewrite in reused.rewrites}),
                sum(rewrite.nbytes for rewrite in reused.rewrites),
                reused,
            )
        )
    return tuple(rows)


def savings_table(rows: tuple[Saving, ...]) -> list[dict[str, object]]:
    """`rows` as plain values, one dictionary a row; `saved` is against the first row, in bytes."""
    return [
        {
            "way": row.name,
            "arena_bytes": row.arena,
            "bound_bytes": row.bound,
            "peak_bytes": row.peak,
            "saved_bytes": rows[0].arena - row.arena,
            "ops": row.ops,
            "reused_bytes": row.nbytes,
        }
        for row in rows
    ]


def rewrites_table(reused: Reused) -> list[dict[str, object]]:
    """The ops that were rewritten, in place first, by step; byte counts exact."""
    return [
        {
            "op": rewrite.op,
            "kind": rewrite.kind,
            "step": rewrite.step,
            "way": way,
            "tensor": rewrite.tensor,
            "output": rewrite.output,
            "bytes": rewrite.nbytes,
            "at": rewrite.at,
        }
        for way, rewrites in (("in place", reused.in_place), ("concat", reused.concats))
        for rewrite in rewrites
    ]


def kept_table(reused: Reused) -> list[dict[str, object]]:
    """What was left as it was and why, largest first, ties in the order of the ops."""
    return [
        {
            "op": kept.op,
            "kind": kept.kind,
            "step": kept.step,
            "tensor": kept.tensor,
            "output": kept.output,
            "bytes": kept.nbytes,
            "reason": str(kept.reason),
            "other": kept.other,
        }
        for kept in sorted(reused.kept, key=lambda kept: (-kept.nbytes, kept.step))
    ]


def reasons(reused: Reused) -> dict[Reason, int]:
    """How often each reason stood in the way, the most frequent first."""
    return dict(Counter(kept.reason for kept in reused.kept).most_common())
