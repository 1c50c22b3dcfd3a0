"""Plans of one problem side by side, in sentences: which is the smallest, by how much, and whether proved."""

from __future__ import annotations

from collections.abc import Sequence

from memplan_engine.analysis.claims import doubt, optimal_for, workspace_name
from memplan_engine.plan import Plan
from memplan_engine.units import exact, format_bytes, format_percent, format_seconds
from memplan_engine.verdict import Reason

MOST_NAMED = 3
"""Strategies that are named; of more only the number is said."""
CLEARLY = 2.0
"""How many times as long the next one takes where one is called the fastest,"""
NOISE_SECONDS = 0.01
"""and how long at least: of less a busy machine makes what it likes."""


def comparison_words(plans: Sequence[Plan]) -> tuple[str, ...]:
    """Who wins, with the proof; by how much; and what is the same for all, a sentence each.

    `plans` are of one problem; one at least."""
    best, bound = min(plan.arena_bytes for plan in plans), max(plan.bound.nbytes for plan in plans)
    winners = [plan for plan in plans if plan.arena_bytes == best]
    proved = "proved, no arena can be smaller" if best <= bound else _not_proved(best, bound)
    if best <= bound and doubt(plans[0].problem) in (Reason.PARTIAL, Reason.COMPILED):
        proved = f"no arena for {optimal_for(plans[0].problem)} can be smaller"
    verdict = f"{_winners(winners, len(plans), exact(best))}; {proved}"
    return (verdict, *_fastest(winners), *_margin(plans, best), *_same(plans[0], best))


def _winners(winners: Sequence[Plan], count: int, nbytes: str) -> str:
    names = [plan.strategy for plan in winners]
    if len(names) == count > 1:
        return f"all {count} strategies need the same, {nbytes}"
    if len(names) > MOST_NAMED:
        return f"smallest arena {nbytes}, by {len(names)} of {count} strategies"
    *others, last = names
    by = f"{', '.join(others)} and {last}" if others else last
    return f"{'smallest arena' if count > 1 else 'arena'} {nbytes}, by {by}"


def _fastest(winners: Sequence[Plan]) -> tuple[str, ...]:
    """The fastest of several, where it is so each time: times differ from run to run."""
    fastest, *others = sorted(winners, key=lambda plan: plan.seconds)
    if not others or others[0].seconds < max(NOISE_SECONDS, CLEARLY * fastest.seconds):
        return ()
    return (f"fastest of these: {fastest.strategy}, {format_seconds(fastest.seconds)}",)


def _not_proved(best: int, bound: int) -> str:
    over = f"{format_percent((best - bound) / bound)} over " if bound else "above "
    return f"not proved: {over}the lower bound of {format_bytes(bound)}"


def _margin(plans: Sequence[Plan], best: int) -> tuple[str, ...]:
    """By how much the next one is larger, and the last."""
    others = sorted((plan for plan in plans if plan.arena_bytes > best), key=lambda plan: plan.arena_bytes)
    if not others:
        return ()
    first, last = (f"{plan.strategy} {_more(plan.arena_bytes, best)}" for plan in (others[0], others[-1]))
    return (f"next: {first}" + (f"; last: {last}" if len(others) > 1 else ""),)


def _more(nbytes: int, best: int) -> str:
    share = f" (+{format_percent((nbytes - best) / best)})" if best else ""
    return f"+{format_bytes(nbytes - best)}{share}"


def _same(plan: Plan, best: int) -> tuple[str, ...]:
    """What no strategy changes: the arena without any reuse, and what ops hold beside theirs."""
    naive = f"{format_bytes(plan.naive_bytes)} without reuse"
    saved = format_percent(1 - best / plan.naive_bytes) if plan.naive_bytes else ""
    parts = [f"reuse saves {saved} ({naive})" if saved else naive]
    if plan.workspace_bytes:
        name = workspace_name(plan.problem)
        parts.append(f"{format_bytes(plan.workspace_bytes)} of {name} outside the arena")
    return tuple(parts)
