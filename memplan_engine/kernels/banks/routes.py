"""Ways of buffers through banks: one bank at each step of a life, with a copy wherever the bank changes.

Buffer b is live in the steps `[start[b], end[b])`. What is known of each of them stands at `first[b] + step −
start[b]` of the flat columns: `access`, the bytes that ops access, and `path`, the bank. `weight[b, k]` is
what an accessed byte costs in bank k, NO_BANK where b may not live; a copy accesses all of a buffer in both
banks. `moves[b]` says whether b may change its bank. The costs of accesses are multiplied by `scale`; a copy
costs `fee` besides, and a byte of bank k at a step `price[k, step]`. `load[k, step]` may reach
`room[k, step]`.
"""

from __future__ import annotations

import numpy as np

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Flags, Ints

NO_BANK = -1
NO_ROUTE = 2**62


@kernel
def route(
    buffer: int, start: Ints, end: Ints, first: Ints, size: Ints, access: Ints, weight: Ints, moves: Flags,
    scale: int, fee: int, price: Ints, room: Ints, load: Ints, back: Ints, path: Ints,
) -> int:  # fmt: skip
    """Write the cheapest way of `buffer` that has room at each step to `path`, and give what it costs;
    NO_ROUTE where there is none. `back` is scratch, banks × the longest life. Of equal ways it stays."""
    banks, begin, own = len(price), first[buffer], size[buffer]
    life = end[buffer] - start[buffer]
    cost, following = np.full(banks, 0, dtype=np.int64), np.full(banks, 0, dtype=np.int64)
    for place in range(life):
        step = start[buffer] + place
        for bank in range(banks):
            paid, origin = NO_ROUTE, bank
            if weight[buffer, bank] >= 0 and load[bank, step] + own <= room[bank, step]:
                paid = cost[bank]
                if place > 0 and moves[buffer]:
                    for other in range(banks):
                        if other != bank and cost[other] < NO_ROUTE:
                            both = weight[buffer, other] + weight[buffer, bank]
                            copied = cost[other] + scale * own * both + fee
                            if copied < paid:
                                paid, origin = copied, other
                if paid < NO_ROUTE:
                    paid += scale * access[begin + place] * weight[buffer, bank] + own * price[bank, step]
            following[bank] = paid
            back[place * banks + bank] = origin
        for bank in range(banks):
            cost[bank] = following[bank]
    chosen = 0
    for bank in range(banks):
        if cost[bank] < cost[chosen]:
            chosen = bank
    total = cost[chosen]
    if total < NO_ROUTE:
        for place in range(life - 1, -1, -1):
            path[begin + place] = chosen
            chosen = back[place * banks + chosen]
    return total


@kernel
def route_in_order(
    order: Ints, start: Ints, end: Ints, first: Ints, size: Ints, access: Ints, weight: Ints, moves: Flags,
    scale: int, fee: int, price: Ints, room: Ints, load: Ints, back: Ints, path: Ints, paid: Ints,
) -> int:  # fmt: skip
    """Give the buffers of `order` one after another the cheapest way that has room, count them in `load`, and
    write what each pays to `paid`; who finds none has NO_BANK in `path`. How many these are."""
    homeless = 0
    for buffer in order:
        paid[buffer] = route(
            buffer, start, end, first, size, access, weight, moves, scale, fee, price, room, load, back, path
        )
        if paid[buffer] >= NO_ROUTE:
            homeless += 1
            for place in range(first[buffer], first[buffer + 1]):
                path[place] = NO_BANK
            continue
        for place in range(first[buffer], first[buffer + 1]):
            load[path[place], start[buffer] + place - first[buffer]] += size[buffer]
    return homeless


@kernel
def count_routes(
    order: Ints, sign: int, start: Ints, first: Ints, size: Ints, path: Ints, load: Ints
) -> None:
    """Count the buffers of `order` in `load` where their ways lie, with `sign` −1 count them out."""
    for buffer in order:
        for place in range(first[buffer], first[buffer + 1]):
            if path[place] >= 0:
                load[path[place], start[buffer] + place - first[buffer]] += sign * size[buffer]


@kernel
def cost_of_routes(
    order: Ints, first: Ints, size: Ints, access: Ints, weight: Ints, scale: int, fee: int, path: Ints
) -> int:
    """What the accesses and copies of the buffers of `order` cost on their ways, all of which they have."""
    total = 0
    for buffer in order:
        for place in range(first[buffer], first[buffer + 1]):
            total += scale * access[place] * weight[buffer, path[place]]
            if place > first[buffer] and path[place] != path[place - 1]:
                both = weight[buffer, path[place]] + weight[buffer, path[place - 1]]
                total += scale * size[buffer] * both + fee
    return total
