"""Buffers into banks by their live bytes: one after another, and exchanges that lower the cost.

`load[k, s]` is the live bytes of bank k in section s; the pieces `first[b] … first[b + 1] − 1` of buffer b
take `width[p]` bytes in the sections `[start[p], end[p])`. The pieces that meet the sections of block s //
`block` are `meets[met_first[s // block]] …`. The load may reach `room[k, s]`.
"""

from __future__ import annotations

import numpy as np

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Flags, Ints

NOWHERE = -1


@kernel
def has_room(
    buffer: int, bank: int, first: Ints, start: Ints, end: Ints, width: Ints, room: Ints, load: Ints
) -> bool:
    """Whether the live bytes of `bank` stay within its room with `buffer` in it."""
    for piece in range(first[buffer], first[buffer + 1]):
        for section in range(start[piece], end[piece]):
            if load[bank, section] + width[piece] > room[bank, section]:
                return False
    return True


@kernel
def add_load(
    buffer: int, bank: int, sign: int, first: Ints, start: Ints, end: Ints, width: Ints, load: Ints
) -> None:
    """Count `buffer` in `bank`, with `sign` −1 count it out."""
    for piece in range(first[buffer], first[buffer + 1]):
        for section in range(start[piece], end[piece]):
            load[bank, section] += sign * width[piece]


@kernel
def insert_in_order(
    order: Ints,
    ranked: Ints,
    first: Ints,
    start: Ints,
    end: Ints,
    width: Ints,
    room: Ints,
    load: Ints,
    bank_of: Ints,
) -> int:
    """Put the buffers of `order` one after another into the first bank of their row of `ranked` (ended by
    NOWHERE) that has room; those that find none stay NOWHERE in `bank_of`. How many these are."""
    homeless = 0
    for buffer in order:
        bank_of[buffer] = NOWHERE
        for bank in ranked[buffer]:
            if bank == NOWHERE:
                break
            if has_room(buffer, bank, first, start, end, width, room, load):
                add_load(buffer, bank, 1, first, start, end, width, load)
                bank_of[buffer] = bank
                break
        if bank_of[buffer] == NOWHERE:
            homeless += 1
    return homeless


@kernel
def exchange(
    order: Ints, ranked: Ints, cost: Ints, first: Ints, start: Ints, end: Ints, width: Ints, owner: Ints,
    met_first: Ints, meets: Ints, block: int, room: Ints, load: Ints, bank_of: Ints, homeless_cost: int,
    stop: Flags,
) -> int:  # fmt: skip
    """Take the buffers of `order` into cheaper banks, where others that lose less leave for them; a buffer
    without a bank costs `homeless_cost`. How much cost was saved."""
    saved = 0
    moved = np.empty(len(bank_of), dtype=np.int64)
    for buffer in order:
        if stop[0]:
            break
        home = bank_of[buffer]
        now = homeless_cost if home == NOWHERE else cost[buffer, home]
        for bank in ranked[buffer]:
            if bank in (NOWHERE, home) or cost[buffer, bank] >= now:
                break
            if home != NOWHERE:
                add_load(buffer, home, -1, first, start, end, width, load)
            add_load(buffer, bank, 1, first, start, end, width, load)
            bank_of[buffer] = bank
            gain, count = now - cost[buffer, bank], 0
            while gain > 0:
                section = _fullest(buffer, bank, first, start, end, room, load)
                if section == NOWHERE:
                    break
                near = meets[met_first[section // block] : met_first[section // block + 1]]
                leaves, goes, loss = _cheapest_to_leave(
                    buffer, bank, section, ranked, cost, first, start, end, width, owner, near, room,
                    load, bank_of,
                )  # fmt: skip
                gain -= loss
                if leaves == NOWHERE:
                    gain = 0
                    break
                add_load(leaves, bank, -1, first, start, end, width, load)
                add_load(leaves, goes, 1, first, start, end, width, load)
                moved[count] = leaves
                bank_of[leaves] = goes
                count += 1
            if gain > 0:
                saved += gain
                break
            _put_back(moved[:count], bank, first, start, end, width, load, bank_of)
            add_load(buffer, bank, -1, first, start, end, width, load)
            if home != NOWHERE:
                add_load(buffer, home, 1, first, start, end, width, load)
            bank_of[buffer] = home
    return saved


@kernel
def _put_back(
    moved: Ints, bank: int, first: Ints, start: Ints, end: Ints, width: Ints, load: Ints, bank_of: Ints
) -> None:
    """All of `moved` back into `bank`."""
    for other in moved:
        add_load(other, bank_of[other], -1, first, start, end, width, load)
        add_load(other, bank, 1, first, start, end, width, load)
        bank_of[other] = bank


@kernel
def _fullest(buffer: int, bank: int, first: Ints, start: Ints, end: Ints, room: Ints, load: Ints) -> int:
    """The section of `buffer` in which `bank` passes its room most; NOWHERE if it never does."""
    worst, most = NOWHERE, 0
    for piece in range(first[buffer], first[buffer + 1]):
        for section in range(start[piece], end[piece]):
            if load[bank, section] - room[bank, section] > most:
                worst, most = section, load[bank, section] - room[bank, section]
    return worst


@kernel
def _cheapest_to_leave(
    buffer: int,
    bank: int,
    section: int,
    ranked: Ints,
    cost: Ints,
    first: Ints,
    start: Ints,
    end: Ints,
    width: Ints,
    owner: Ints,
    near: Ints,
    room: Ints,
    load: Ints,
    bank_of: Ints,
) -> tuple[int, int, int]:
    """Who of `bank` in `section` loses least for each byte of use there, where it goes, and what it loses;
    NOWHERE if nobody can leave."""
    leaves, goes, loss = NOWHERE, NOWHERE, 0
    best = np.inf
    over = load[bank, section] - room[bank, section]
    for piece in near:
        other, held = owner[piece], width[piece]
        if bank_of[other] != bank or other == buffer or held == 0:
            continue
        if not start[piece] <= section < end[piece]:
            continue
        for target in ranked[other]:
            if target == NOWHERE:
                break
            if target == bank:
                continue
            ratio = max(0, cost[other, target] - cost[other, bank]) / min(held, over)
            if ratio >= best:
                break
            if has_room(other, target, first, start, end, width, room, load):
                best = ratio
                leaves, goes, loss = other, target, cost[other, target] - cost[other, bank]
                break
    return leaves, goes, loss
