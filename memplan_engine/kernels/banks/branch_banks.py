"""Depth-first search over assignments to banks, with prices of bytes as its bound; it can be continued."""

from __future__ import annotations

from memplan_engine.kernels.banks.insert import NOWHERE, add_load, has_room
from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Flags, Ints

DEPTH, SPENT, PAID, BEST, LIMIT, NODES = 0, 1, 2, 3, 4, 5
"""Entries of `state`: how many buffers are assigned; what they cost above their cheapest reduced costs; what
they cost; the cost of the best assignment so far; the largest SPENT that may still lead to a better one; the
nodes visited."""


@kernel
def branch_banks(
    order: Ints, ranked: Ints, extra: Ints, cost: Ints, scale: int,
    first: Ints, start: Ints, end: Ints, width: Ints, room: Ints, load: Ints,
    barred_first: Ints, barred: Ints, barred_bank: Ints, missing: Ints,
    tried: Ints, bank_of: Ints, best_of: Ints, state: Ints, most_nodes: int, stop: Flags,
) -> bool:  # fmt: skip
    """Go on with the search for at most `most_nodes` nodes; whether it is through.

    `ranked` are the banks of each buffer by `extra`, what they cost above its cheapest in units of
    1/`scale`, ended by NOWHERE. Group g of buffers must not be in bank `barred_bank[g]` all together:
    `missing[g]` of them are not there, and buffer b is in the groups `barred[barred_first[b]] …`. `tried` is
    the place in `ranked` up to which each depth has come. An assignment that is better than BEST lowers it
    and stands in `best_of`.
    """
    n, nodes = len(order), 0
    while nodes < most_nodes and not stop[0]:
        if state[DEPTH] == n:
            if state[PAID] < state[BEST]:
                state[LIMIT] -= scale * (state[BEST] - state[PAID])
                state[BEST] = state[PAID]
                best_of[:] = bank_of
            state[DEPTH] -= 1
        depth = state[DEPTH]
        if depth < 0:
            return True
        buffer = order[depth]
        bank = bank_of[buffer]
        if bank != NOWHERE:
            add_load(buffer, bank, -1, first, start, end, width, load)
            _count(buffer, bank, 1, barred_first, barred, barred_bank, missing)
            state[SPENT] -= extra[buffer, bank]
            state[PAID] -= cost[buffer, bank]
            bank_of[buffer] = NOWHERE
        chosen, place = NOWHERE, tried[depth]
        while place < ranked.shape[1] and chosen == NOWHERE:
            bank = ranked[buffer, place]
            if bank == NOWHERE or state[SPENT] + extra[buffer, bank] > state[LIMIT]:
                break
            place += 1
            if has_room(buffer, bank, first, start, end, width, room, load) and not _is_barred(
                buffer, bank, barred_first, barred, barred_bank, missing
            ):
                chosen = bank
        if chosen == NOWHERE:
            tried[depth] = 0
            state[DEPTH] = depth - 1
            continue
        add_load(buffer, chosen, 1, first, start, end, width, load)
        _count(buffer, chosen, -1, barred_first, barred, barred_bank, missing)
        state[SPENT] += extra[buffer, chosen]
        state[PAID] += cost[buffer, chosen]
        bank_of[buffer] = chosen
        tried[depth] = place
        state[DEPTH] = depth + 1
        state[NODES] += 1
        nodes += 1
    return bool(state[DEPTH] < 0)


@kernel
def _count(
    buffer: int, bank: int, change: int, barred_first: Ints, barred: Ints, barred_bank: Ints, missing: Ints
) -> None:
    """Of the groups of `buffer` in `bank`, `change` members more are missing."""
    for place in range(barred_first[buffer], barred_first[buffer + 1]):
        if barred_bank[barred[place]] == bank:
            missing[barred[place]] += change


@kernel
def _is_barred(
    buffer: int, bank: int, barred_first: Ints, barred: Ints, barred_bank: Ints, missing: Ints
) -> bool:
    """Whether `buffer` is the last that a group misses in `bank`."""
    for place in range(barred_first[buffer], barred_first[buffer + 1]):
        if barred_bank[barred[place]] == bank and missing[barred[place]] == 1:
            return True
    return False
