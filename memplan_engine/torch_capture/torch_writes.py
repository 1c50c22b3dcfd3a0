"""What an operator writes in place: the arguments that its schema says, and those that it does not say; and
whether it can write its result into memory that it is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch.fx import Node

WRITES_UNSAID = {
    "aten::batch_norm": ("running_mean", "running_var"),
    "aten::native_batch_norm": ("running_mean", "running_var"),
    "aten::cudnn_batch_norm": ("running_mean", "running_var"),
    "aten::instance_norm": ("running_mean", "running_var"),
    "aten::mkldnn_rnn_layer_backward": ("workspace",),
}
"""Arguments written in training although the operator's schema does not say so."""


def written_values(
    target: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    told: tuple[Sequence[Any], Mapping[str, Any]] | None = None,
) -> Iterator[Any]:
    """The arguments that the operator `target` writes, called with these; with `told`, which has the form of
    `(args, kwargs)`, what stands for them there. Of what has no schema none are known."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return
    given = arguments_of(target, args, kwargs)
    shown = arguments_of(target, *told) if told else given
    unsaid = WRITES_UNSAID.get(schema.name, ())
    training = any(given.get(flag) is True for flag in ("training", "train", "use_input_stats"))
    for argument in schema.arguments:
        alias = argument.alias_info
        said = alias is not None and alias.is_write
        if argument.name in shown and (said or (training and argument.name in unsaid)):
            yield shown[argument.name]


def arguments_of(
    target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], defaults: bool = False
) -> dict[str, Any]:
    """The arguments of a call of the operator `target` by the names of its schema; with `defaults` also those
    that were not given. Of what has no schema only `kwargs` are known."""
    schema = getattr(target, "_schema", None)
    arguments = [] if schema is None else schema.arguments
    unsaid = {each.name: each.default_value for each in arguments if defaults and each.has_default_value()}
    return {**unsaid, **dict(zip((each.name for each in arguments), args, strict=False)), **kwargs}


def gives_views(target: Any) -> bool:
    """Whether the schema of the operator `target` says that it returns an argument or a view of one."""
    schema = getattr(target, "_schema", None)
    return schema is not None and any(result.alias_info is not None for result in schema.returns)


def is_repeatable(target: Any) -> bool:
    """Whether the operator `target` gives the same for the same arguments: nothing random, and no memory
    whose content nobody knows."""
    import torch

    schema = getattr(target, "_schema", None)
    return (
        schema is not None
        and "empty" not in schema.name
        and torch.Tag.nondeterministic_seeded not in target.tags
    )


def written_nodes(node: Node) -> Iterator[Node]:
    """The nodes whose results `node` writes in place."""
    import torch

    for value in written_values(node.target, node.args, node.kwargs):
        found: list[Node] = []
        torch.fx.node.map_arg(value, found.append)
        yield from found


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
    return out_overload(target, generated=False) is not None


def out_overload(target: Any, generated: bool) -> torch._ops.OpOverload | None:
    """The overload that takes the arguments of the operator `target`, by name and type of every one, and one
    to write into for each thing that it returns: torch's own or, `generated`, one that computes as ever and
    then copies. None where there is none, and for what makes no memory: in place, a view, no operator."""
    import torch

    if not isinstance(target, torch._ops.OpOverload):
        return None
    schema, packet = target._schema, target.overloadpacket
    if not schema.returns or any(argument.alias_info is not None for argument in schema.arguments):
        return None
    wanted = [(argument.name, str(argument.type)) for argument in schema.arguments]
    for name in packet.overloads():
        overload: torch._ops.OpOverload = getattr(packet, name)
        arguments = overload._schema.arguments
        written = [argument for argument in arguments if argument.is_out]
        taken = [(argument.name, str(argument.type)) for argument in arguments if not argument.is_out]
        right_kind = (torch.Tag.generated in overload.tags) is generated
        if right_kind and taken == wanted and len(written) == len(schema.returns):
            return overload
    return None
