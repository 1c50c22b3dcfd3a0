"""The independent checker of plans over several banks, of their bounds and of cores without room."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from itertools import accumulate, combinations

import numpy as np

from memplan_engine.banked.bank_core import BankCore, CoreKind
from memplan_engine.banked.bank_moves import has_moves
from memplan_engine.banked.banked_plan import WITH_MOVES, BankBoundKind, BankedPlan, Objective, banks_of
from memplan_engine.kernels.types import Flags
from memplan_engine.problem import Problem, select
from memplan_engine.verify.bank_enumeration import costs_of, held_at, misfits, none_is_better, pieces_of
from memplan_engine.verify.move_bounds import moves_bound_fault
from memplan_engine.verify.move_checks import move_faults
from memplan_engine.verify.validate import Report, Rule, Violation, validate_plan


def validate_banked(banked: BankedPlan, *, replay: bool = True) -> Report:
    """Check every rule: each buffer in one bank that it may live in, each bank's plan by `validate_plan`, its
    capacity and alignment, the copies where buffers move, and the bound. What a search proved is searched
    anew where that takes no longer than a moment, and not at all without `replay`."""
    broken = _assignment_faults(banked)
    if broken:
        return Report(tuple(broken), {Rule.BANK: len(broken)})
    violations: list[Violation] = []
    counts: dict[Rule, int] = {}
    for bank, plan in zip(banks_of(banked.problem).banks, banked.plans, strict=True):
        report = validate_plan(plan, replay=replay)
        violations += [
            replace(found, message=f"in {bank.name}, {found.message}") for found in report.violations
        ]
        for rule, count in report.counts.items():
            counts[rule] = counts.get(rule, 0) + count
        if bank.capacity is not None and plan.arena_bytes > bank.capacity:
            message = f"{bank.name}: an arena of {plan.arena_bytes} bytes in a bank of {bank.capacity}"
            violations.append(Violation(Rule.CAPACITY, (), message))
            counts[Rule.CAPACITY] = counts.get(Rule.CAPACITY, 0) + 1
        for row in np.flatnonzero(plan.offsets % bank.alignment):
            message = f"{plan.problem.names[row]}: offset {plan.offsets[row]} in {bank.name}, which asks for "
            violations.append(
                Violation(Rule.ALIGNMENT, (plan.problem.names[row],), f"{message}{bank.alignment}")
            )
            counts[Rule.ALIGNMENT] = counts.get(Rule.ALIGNMENT, 0) + 1
    for message in move_faults(banked) if has_moves(banked.problem) else ():
        violations.append(Violation(Rule.MOVES, (), message))
        counts[Rule.MOVES] = counts.get(Rule.MOVES, 0) + 1
    fault, unchecked = _bound_fault(banked, replay)
    if fault:
        violations.append(Violation(Rule.BOUND, (), fault))
        counts[Rule.BOUND] = counts.get(Rule.BOUND, 0) + 1
    return Report(tuple(violations), counts, "", unchecked)


def core_is_proved(core: BankCore) -> bool | None:
    """Whether the buffers of `core` really have no room; None where that takes more than a moment."""
    banks = banks_of(core.problem)
    if core.kind is CoreKind.ROOM:
        chosen = {banks.names.index(name) for name in core.banks}
        outside = [bank for bank in range(len(banks)) if bank not in chosen]
        live = sum(high - low for row, low, high in held_at(core.problem, core.step))
        limits = [banks.banks[bank].capacity for bank in chosen]
        bound_to_them = not _may_live(core.problem)[:, outside].any()
        return bound_to_them and None not in limits and live > sum(limit or 0 for limit in limits)
    if core.kind is CoreKind.LARGEST:
        limits = [banks.banks[bank].capacity for bank in np.flatnonzero(banks.allowed[0])]
        return all(limit is not None and core.problem.size[0] > limit for limit in limits)
    if core.kind is CoreKind.PACKING:
        bank = banks.names.index(core.banks[0])
        only = bool((banks.allowed.sum(axis=1) == 1).all() and banks.allowed[:, bank].all())
        return only and misfits(core.problem, np.arange(len(core.problem)), bank, banks.banks[bank].capacity)
    capacities = [bank.capacity for bank in banks.banks]
    return none_is_better(core.problem, capacities, None)


def _assignment_faults(banked: BankedPlan) -> list[Violation]:
    problem, banks = banked.problem, banks_of(banked.problem)
    n, count = len(problem), len(banks)
    if len(banked.bank_of) != n or len(banked.plans) != count:
        message = f"{len(banked.bank_of)} banks for {n} buffers, {len(banked.plans)} plans for {count} banks"
        return [Violation(Rule.BANK, (), message)]
    known = (banked.bank_of >= 0) & (banked.bank_of < count)
    lives = known & banks.allowed[np.arange(n), np.where(known, banked.bank_of, 0)]
    faults = [
        Violation(Rule.BANK, (problem.names[row],), f"{problem.names[row]}: it may not live in its bank")
        for row in np.flatnonzero(~lives)
    ]
    for bank, plan in enumerate(banked.plans if not faults else ()):
        rows = np.flatnonzero(banked.bank_of == bank)
        own = select(problem, rows)
        same = own.names == plan.problem.names and own.gaps == plan.problem.gaps
        for key in ("start", "end", "size", "fixed") if same else ():
            same = same and np.array_equal(getattr(own, key), getattr(plan.problem, key))
        if not same or (plan.problem.alignment % own.alignment).any():
            message = f"the plan of {banks.names[bank]} places other buffers than live there"
            faults.append(Violation(Rule.BANK, (), message))
    return faults


def _bound_fault(banked: BankedPlan, search: bool) -> tuple[str, tuple[str, ...]]:
    """What is wrong with the bound, and what of it was not checked."""
    bound, problem = banked.bound, banked.problem
    if bound.value > banked.value:
        return f"the bound {bound.value} is above what the plan has, {banked.value}", ()
    if bound.kind in WITH_MOVES:
        return moves_bound_fault(banked, search)
    if has_moves(problem):
        return f"a bound by {bound.kind} says nothing of plans with moves", ()
    if bound.kind is BankBoundKind.SEARCH:
        if not search:
            return "", ()
        banks = banks_of(problem)
        capacities = [bank.capacity for bank in banks.banks]
        below: int | None = bound.value
        if banked.objective is Objective.PEAK:
            # What is to be refuted is an arena that is one byte smaller.
            capacities[banks.slowest], below = bound.value - 1, None
        outcome = none_is_better(problem, capacities, below)
        if outcome is None:
            return "", ("the search behind the bound over all banks was not repeated: too many assignments",)
        return ("" if outcome else f"an assignment does better than the bound {bound.value}"), ()
    proved = _proved(banked)
    return ("" if proved >= bound.value else f"the certificate proves {proved}, not {bound.value}"), ()


def _proved(banked: BankedPlan) -> int:
    problem, bound, banks = banked.problem, banked.bound, banks_of(banked.problem)
    if bound.kind is BankBoundKind.PRICES and banked.objective is Objective.TRAFFIC:
        return _proved_by_prices(problem, bound.prices, bound.scale)
    if bound.kind is BankBoundKind.ROOM and banked.objective is Objective.PEAK:
        best, slowest, may_live = 0, banks.slowest, _may_live(problem)
        others = [bank for bank in range(len(banks)) if bank != slowest]
        held = held_at(problem, bound.step)
        for chosen in (own for size in range(len(others) + 1) for own in combinations(others, size)):
            limits = [banks.banks[bank].capacity for bank in chosen]
            outside = [bank for bank in others if bank not in chosen]
            live = sum(h - low for row, low, h in held if not may_live[row, outside].any())
            if None not in limits:
                best = max(best, live - sum(limit or 0 for limit in limits))
        return best
    return -1


def _proved_by_prices(problem: Problem, prices: tuple[tuple[int, int, int], ...], scale: int) -> int:
    """The bound that the prices prove: every one 0 or more, at a step, in a bank with a capacity; −1 where
    they are none."""
    banks = banks_of(problem)
    total, points = 0, []
    for bank, own in enumerate(banks.banks):
        priced = sorted((step, price) for which, step, price in prices if which == bank)
        if priced and (own.capacity is None or min(price for _, price in priced) < 0):
            return -1
        total -= sum(price for _, price in priced) * (own.capacity or 0)
        points.append(([step for step, _ in priced], [0, *accumulate(price for _, price in priced)]))
    if scale < 1 or len(prices) != sum(len(steps) for steps, _ in points):
        return -1
    may_live = _may_live(problem)
    for row, costs in enumerate(costs_of(problem)):
        held = pieces_of(problem, row)
        total += min(
            scale * costs[bank]
            + sum(
                (high - low) * (sums[bisect_left(steps, end)] - sums[bisect_left(steps, start)])
                for start, end, low, high in held
            )
            for bank, (steps, sums) in enumerate(points)
            if may_live[row, bank]
        )
    return -(-total // scale)


def _may_live(problem: Problem) -> Flags:
    """Which buffer may live in which bank and is not larger than all of it."""
    banks = banks_of(problem)
    limits = [problem.size.max(initial=0) if b.capacity is None else b.capacity for b in banks.banks]
    flags: Flags = banks.allowed & (problem.size[:, None] <= np.array(limits)[None, :])
    return flags
