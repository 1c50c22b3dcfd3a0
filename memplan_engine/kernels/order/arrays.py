"""What the kernels of this folder take: units of ops and the storages that they make and touch, as arrays."""

from __future__ import annotations

from typing import NamedTuple

from memplan_engine.kernels.types import Flags, Ints


class OrderArrays(NamedTuple):
    """Units 0 … n − 1, in an order in which they can run, and storages 0 … m − 1.

    Lists stand one behind the other: those of unit v are `before[before_of[v] : before_of[v + 1]]`, and so
    on. before, after: the units that must have run before v, and those that wait for it. made: the storages
    that v makes; used: those of others that it touches; over: those among `used` that it may write over when
    nobody else needs them any more. users: who touches a storage, without its maker. size, in bytes. kept:
    the storage is returned. out: bytes of all that v makes.
    """

    before_of: Ints
    before: Ints
    after_of: Ints
    after: Ints
    made_of: Ints
    made: Ints
    used_of: Ints
    used: Ints
    over_of: Ints
    over: Ints
    users_of: Ints
    users: Ints
    maker: Ints
    size: Ints
    kept: Flags
    out: Ints
