"""Banks as people write them: `sram=256KiB,bandwidth=4GB,alignment=64`, and `sram|dram` in a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from memplan_engine.banks.bank_values import ANY, Bank, Banks, make_banks
from memplan_engine.errors import InputError
from memplan_engine.kernels.types import Ints
from memplan_engine.units import parse_bytes

WRITTEN = "NAME, NAME=CAPACITY, and perhaps bandwidth=BYTES_PER_SECOND, alignment=BYTES or read-only"
UNLIMITED = "unlimited"
PREFERS = "?"
"""Behind the name of a bank that a buffer would rather live in."""


def parse_bank(text: str, source: str = "--bank", before: Sequence[Bank] = ()) -> Bank:
    """ "sram=256KiB,bandwidth=4GB/s,alignment=64", "dram", "flash=2MiB,read-only" as a Bank. What it does not
    say is as in the bank of its name in `before`; "sram=unlimited" takes a capacity away. Raises InputError
    naming `source` for what is no bank."""
    head, *parts = (part.strip() for part in text.split(","))
    name, sign, capacity = (part.strip() for part in head.partition("="))
    if not name or (sign and not capacity):
        raise InputError(source, "", repr(text[:40]), WRITTEN)
    bank = next((bank for bank in before if bank.name == name), Bank(name))
    said: dict[str, Any] = {}
    if capacity:
        said["capacity"] = None if capacity == UNLIMITED else parse_bytes(capacity, f"{source} {name[:40]}")
    for part in parts:
        key, _, value = (piece.strip() for piece in part.partition("="))
        if part == "read-only":
            said["read_only"] = True
        elif key in ("bandwidth", "alignment") and key not in said:
            said[key] = parse_bytes(value.removesuffix("/s"), f"{source} {name[:40]}, {key}")
        else:
            raise InputError(source, name[:40], repr(part[:40]), WRITTEN)
    return replace(bank, **said)


def parse_choice(text: str, names: Sequence[str], source: str, place: str) -> tuple[list[int], int]:
    """ "sram|dram" or "sram?" among the banks `names`: those that a buffer may live in (none named: none of
    its own), and the one that it prefers. Raises InputError for one that is not among them, and for two that
    are preferred.
    """
    allowed: list[int] = []
    preferred = ANY
    for part in filter(None, (piece.strip() for piece in text.split("|"))):
        name = part.removesuffix(PREFERS)
        if name not in names:
            raise InputError(source, place, f"the bank {name[:40]!r}", f"one of {', '.join(names)}")
        if name == part:
            allowed.append(names.index(name))
        elif preferred != ANY:
            raise InputError(source, place, repr(text[:60]), "one bank at most that is preferred")
        else:
            preferred = names.index(name)
    return allowed, preferred


def bank_names(text: str) -> list[str]:
    """The banks that such a text names."""
    parts = (part.strip().removesuffix(PREFERS) for part in text.split("|"))
    return [part for part in parts if part]


def choices_of(banks: Banks) -> tuple[str, ...]:
    """What `parse_choice` reads, a text a buffer: "" for one that may live in every bank which is not
    read-only, and prefers none."""
    usual = [not bank.read_only for bank in banks.banks]
    texts = []
    for allowed, preferred in zip(banks.allowed.tolist(), banks.preferred.tolist(), strict=True):
        own = [] if allowed == usual else [n for n, fine in zip(banks.names, allowed, strict=True) if fine]
        texts.append("|".join([*own, *([] if preferred == ANY else [banks.names[preferred] + PREFERS])]))
    return tuple(texts)


def banks_from(
    banks: Sequence[Bank],
    size: Ints,
    texts: Sequence[str],
    accessed: Ints | None,
    source: str,
    place: Callable[[int], str],
) -> Banks:
    """The Banks of buffers of `size` bytes, with a text of `choices_of` for each, or none; errors name the
    `place` of a buffer. Raises InputError as `parse_choice` and `make_banks` do."""
    usual = np.array([not bank.read_only for bank in banks])
    allowed = np.tile(usual, (len(size), 1))
    preferred = np.full(len(size), ANY, dtype=np.int64)
    names = [bank.name for bank in banks]
    for row, text in enumerate(texts):
        if text:
            chosen, preferred[row] = parse_choice(text, names, source, place(row))
            if chosen:
                allowed[row] = np.isin(np.arange(len(banks)), chosen)
    return make_banks(banks, size, allowed=allowed, accessed=accessed, preferred=preferred, source=source)
