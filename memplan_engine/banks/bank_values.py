"""A bank, and the banks of a problem: which buffer may live where, and what its accesses cost there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import gcd, lcm
from typing import TypeVar

import numpy as np

from memplan_engine.errors import InputError
from memplan_engine.kernels.types import Flags, Ints

MAX_BYTES = 2**63 - 1
MOST_BANKS = 16
MOST_COST = 2**61
"""Of all buffers together: sums and differences of costs stay below 2^63."""
ANY = -1
"""Value of `Banks.preferred` for a buffer that prefers no bank."""

Column = TypeVar("Column", Flags, Ints)


@dataclass(frozen=True, slots=True)
class Bank:
    """One memory: `capacity` and `alignment` in bytes, `bandwidth` in bytes per second.

    `capacity` None: as much as is needed. `bandwidth` None: only its rank among the banks says how fast it
    is. `read_only`: only constants may live there, as in flash.
    """

    name: str
    capacity: int | None = None
    alignment: int = 1
    bandwidth: int | None = None
    read_only: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Banks:
    """The banks of a problem of n buffers. Build one with `make_banks`, which checks it.

    `allowed` says which buffer may live in which bank (bool, shape (n, k)), `accessed` how many bytes of it
    are read and written in all (int64, n), `preferred` the bank that it would rather live in (int64, n; ANY
    for none). All arrays are read-only. `weights` is what an access to one byte costs in each bank.
    """

    banks: tuple[Bank, ...]
    allowed: Flags
    accessed: Ints
    preferred: Ints
    weights: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", weigh(self.banks))

    def __len__(self) -> int:
        return len(self.banks)

    @property
    def names(self) -> tuple[str, ...]:
        """The banks' names, in their order."""
        return tuple(bank.name for bank in self.banks)

    @property
    def slowest(self) -> int:
        """The bank whose accesses cost most, the last of equals; one that can be written before one that
        cannot."""
        ranks = [(not bank.read_only, weight) for bank, weight in zip(self.banks, self.weights, strict=True)]
        return max(range(len(ranks)), key=lambda bank: (ranks[bank], bank))

    @property
    def costs(self) -> Ints:
        """What each buffer costs in each bank, int64 of shape (n, k): accessed bytes × the bank's weight, and
        outside of the bank that it prefers more than in any bank that it does not."""
        weights = np.array(self.weights, dtype=np.int64)
        costs = self.accessed[:, None] * weights[None, :]
        elsewhere = (self.preferred != ANY)[:, None] & (self.preferred[:, None] != np.arange(len(self)))
        worst = np.maximum(self.accessed, 1) * (1 + int(weights.max(initial=0)))
        return costs + np.where(elsewhere, worst[:, None], 0)

    @property
    def second(self) -> int:
        """How much cost one second of accesses is; 0 where the banks have no bandwidths."""
        first = self.banks[0]
        return 0 if first.bandwidth is None else first.bandwidth * self.weights[0]

    def select(self, rows: Ints) -> Banks:
        """The same banks for the buffers `rows`."""
        return Banks(
            self.banks,
            _frozen(self.allowed[rows]),
            _frozen(self.accessed[rows]),
            _frozen(self.preferred[rows]),
        )

    def resized(self, before: Ints, after: Ints) -> Banks:
        """The same for buffers that had `before` bytes and now have `after`: accesses in proportion."""
        changed = np.flatnonzero(before != after)
        accessed = self.accessed.copy()
        for row in changed.tolist():
            old, new = int(before[row]), int(after[row])
            accessed[row] = int(accessed[row]) * new // old if old else 2 * new
        return replace(self, accessed=_frozen(accessed))

    def digest(self) -> bytes:
        """All that it says, as bytes."""
        columns = (self.allowed, self.accessed, self.preferred)
        return b"".join([repr(self.banks).encode(), *(column.tobytes() for column in columns)])


def weigh(banks: Sequence[Bank]) -> tuple[int, ...]:
    """What an access to one byte costs in each bank, as whole numbers: by bandwidth, so that costs compare as
    times; without bandwidths 0 in the first bank, 1 in the second, 2 in the third …"""
    bandwidths = [bank.bandwidth for bank in banks if bank.bandwidth is not None]
    if len(bandwidths) < len(banks):
        return tuple(range(len(banks)))
    common = lcm(*bandwidths)
    weights = [common // bandwidth for bandwidth in bandwidths]
    unit = gcd(*weights)
    return tuple(weight // unit for weight in weights)


def make_banks(
    banks: Sequence[Bank],
    size: Ints,
    *,
    allowed: Flags | None = None,
    accessed: Sequence[int] | Ints | None = None,
    preferred: Sequence[int] | Ints | None = None,
    source: str = "banks",
) -> Banks:
    """Check the columns and freeze them into the Banks of buffers of `size` bytes.

    By default each buffer may live in every bank that is not read-only, is written once and read once, and
    prefers none.

    Raises
    ------
    InputError: no bank or more than MOST_BANKS; two of one name; an alignment or bandwidth below 1;
        bandwidths of some banks only; columns of unequal length; a buffer that may live nowhere; costs that
        pass 2^61.
    """
    n, banks = len(size), tuple(banks)
    _check(banks, source)
    writable = np.array([not bank.read_only for bank in banks])
    flags = np.tile(writable, (n, 1)) if allowed is None else np.array(allowed, dtype=np.bool_)
    counted = 2 * size if accessed is None else np.array(accessed, dtype=np.int64)
    wished = np.full(n, ANY, dtype=np.int64) if preferred is None else np.array(preferred, dtype=np.int64)
    for key, column in (("allowed", flags), ("accessed", counted), ("preferred", wished)):
        if len(column) != n:
            raise InputError(source, f"column {key}", f"{len(column)} values", f"{n}, one for each buffer")
    if flags.shape != (n, len(banks)):
        raise InputError(source, "column allowed", f"{flags.shape[1]} banks", f"{len(banks)}")
    nowhere = np.flatnonzero(~flags.any(axis=1))
    if len(nowhere):
        raise InputError(source, f"buffer {nowhere[0]}", "no bank that it may live in", "one or more")
    if (counted < 0).any() or (wished < ANY).any() or (wished >= len(banks)).any():
        raise InputError(
            source, "banks", "a negative number or an unknown bank", "0 or more, and known banks"
        )
    made = Banks(banks, _frozen(flags), _frozen(counted), _frozen(wished))
    # Each buffer once in the dearest bank, and once more where it prefers another.
    if (sum(counted.tolist()) + n) * (2 * max(made.weights) + 1) > MOST_COST:
        expected = "rounder bandwidths: their least common multiple makes costs whole numbers below 2^61"
        raise InputError(source, "bandwidth", ", ".join(str(bank.bandwidth) for bank in banks), expected)
    return made


def _check(banks: tuple[Bank, ...], source: str) -> None:
    if not 1 <= len(banks) <= MOST_BANKS:
        raise InputError(source, "banks", f"{len(banks)} banks", f"1 to {MOST_BANKS}")
    for place, bank in enumerate(banks):
        where = f"bank {bank.name!r}"
        if bank.name in (other.name for other in banks[:place]):
            raise InputError(source, where, "the name twice", "a name for each bank")
        if not bank.name or bank.name != bank.name.strip() or set(bank.name) & set("|,;=?\n"):
            raise InputError(source, where, "such a name", "letters and digits, without any of | , ; = ?")
        for key in ("capacity", "alignment", "bandwidth"):
            value, least = getattr(bank, key), int(key != "capacity")
            if value is not None and not least <= value <= MAX_BYTES:
                raise InputError(source, where, f"{key} {value}", f"{least} to 2^63 - 1")
    with_bandwidth = [bank.name for bank in banks if bank.bandwidth is not None]
    if with_bandwidth and len(with_bandwidth) < len(banks):
        found = f"the bandwidth of {', '.join(with_bandwidth)} only"
        raise InputError(source, "banks", found, "the bandwidth of every bank, or of none")


def _frozen(column: Column) -> Column:
    column.flags.writeable = False
    return column
