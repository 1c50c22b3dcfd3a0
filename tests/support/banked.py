"""Small problems with banks, and the best assignments of them by looking at all."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np

from memplan_engine.banked.banked_plan import with_banks
from memplan_engine.banks.bank_values import Bank
from memplan_engine.problem import FREE, Problem, make_problem


def drawn_problem(seed: int, banks: int = 2, most: int = 6) -> Problem:
    """Up to `most` buffers over six steps, with banks that are too small as often as not."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, most + 1))
    start = rng.integers(0, 5, n)
    end = start + 1 + rng.integers(0, 3, n)
    size = rng.integers(1, 7, n)
    problem = make_problem(start, end, size, alignment=rng.choice([1, 1, 2], n), name=f"drawn {seed}")
    own = [Bank(f"b{bank}", int(rng.integers(2, 12)), int(rng.choice([1, 1, 2]))) for bank in range(banks)]
    if rng.random() < 0.6:
        own[-1] = Bank("last")
    if rng.random() < 0.5:
        own = [Bank(b.name, b.capacity, b.alignment, int(rng.integers(1, 5))) for b in own]
    allowed = rng.random((n, banks)) < 0.8
    allowed[~allowed.any(axis=1)] = True
    preferred = np.where(rng.random(n) < 0.8, -1, rng.integers(0, banks, n))
    accessed = size * rng.integers(0, 5, n)
    return with_banks(problem, own, allowed=allowed, accessed=accessed, preferred=preferred)


def packs(problem: Problem, rows: list[int], bank: int, capacity: int | None) -> bool:
    """Whether `rows` fit into the bank: in some order each at the lowest offset that is free."""
    if capacity is None or not rows:
        return True
    unit = problem.banks.banks[bank].alignment if problem.banks else 1
    return any(_stacks(problem, order, unit, capacity) for order in permutations(rows))


def _stacks(problem: Problem, order: tuple[int, ...], unit: int, capacity: int) -> bool:
    placed: list[tuple[int, int, int, int]] = []
    for row in order:
        start, end, size = (int(getattr(problem, key)[row]) for key in ("start", "end", "size"))
        assert problem.fixed[row] == FREE
        step = int(np.lcm(problem.alignment[row], unit))
        offset = 0
        while any(
            start < e and s < end and offset < high and low < offset + size for s, e, low, high in placed
        ):
            offset += step
        if offset + size > capacity:
            return False
        placed.append((start, end, offset, offset + size))
    return True


def best_by_hand(problem: Problem, peak: bool = False) -> int | None:
    """The least cost of all assignments that fit, or with `peak` the least capacity of the slowest bank; None
    if none fits."""
    banks = problem.banks
    assert banks is not None
    best: int | None = None
    costs = banks.costs
    for chosen in product(range(len(banks)), repeat=len(problem)):
        if not all(banks.allowed[row, bank] for row, bank in enumerate(chosen)):
            continue
        rows = [[row for row, bank in enumerate(chosen) if bank == which] for which in range(len(banks))]
        if not all(packs(problem, rows[bank], bank, own.capacity) for bank, own in enumerate(banks.banks)):
            continue
        if peak:
            own = rows[banks.slowest]
            value = next(c for c in range(200) if packs(problem, own, banks.slowest, c))
        else:
            value = sum(int(costs[row, bank]) for row, bank in enumerate(chosen))
        best = value if best is None else min(best, value)
    return best
