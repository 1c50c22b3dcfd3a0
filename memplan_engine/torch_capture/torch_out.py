"""Whether a PyTorch operator can write its result into memory that it is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def out_variant_of(target: Any) -> bool | None:
    """Whether the operator that a node calls has a native `out` overload with the same arguments.

    Overloads are matched by name and type of every argument: `cat.out` and `cat.names_out` both write into
    `out`, and only one of them takes what `cat.default` takes. Overloads that PyTorch generates compute as
    ever and then copy, so they do not count. None for what is no operator (a Python function).
    """
    import torch

    if isinstance(target, torch._ops.HigherOrderOperator):
        return False
    if not isinstance(target, torch._ops.OpOverload):
        return None
    schema = target._schema
    if not schema.returns or any(argument.alias_info is not None for argument in schema.arguments):
        # In place, or a view: it makes no memory that anybody could give it.
        return False
    return any(
        _writes_the_same(schema, overload)
        for overload in (getattr(target.overloadpacket, name) for name in target.overloadpacket.overloads())
        if torch.Tag.generated not in overload.tags
    )


def _writes_the_same(schema: Any, overload: torch._ops.OpOverload) -> bool:
    """Whether `overload` takes the arguments of `schema`, and one to write into for each thing it returns."""
    arguments = overload._schema.arguments
    written = [argument for argument in arguments if argument.is_out]
    taken = [(argument.name, str(argument.type)) for argument in arguments if not argument.is_out]
    wanted = [(argument.name, str(argument.type)) for argument in schema.arguments]
    return taken == wanted and len(written) == len(schema.returns)
