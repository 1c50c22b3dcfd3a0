"""The plain arguments of an op, as a capture keeps them."""

from __future__ import annotations

from memplan_engine.graph import Op


def numbers(op: Op, name: str) -> tuple[int, ...] | None:
    """The argument `name` of `op`; None where it is not known."""
    return next((values for key, values in op.arguments if key == name), None)


def number(op: Op, name: str) -> int | None:
    """The argument `name` where it is one number; None where it is not known."""
    found = numbers(op, name)
    return found[0] if found is not None and len(found) == 1 else None


def flag(op: Op, name: str) -> bool:
    """Whether the argument `name` is known and true."""
    return bool(number(op, name))
