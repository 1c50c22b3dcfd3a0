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
    names = [argument.name for argument in schema.arguments]
    given, shown = (
        dict(zip(names, places, strict=False)) | dict(named)
        for places, named in ((args, kwargs), told or (args, kwargs))
    )
    unsaid = WRITES_UNSAID.get(schema.name, ())
    training = any(given.get(flag) is True for flag in ("training", "train", "use_input_stats"))
    for argument in schema.arguments:
        alias = argument.alias_info
        said = alias is not None and alias.is_write
        if argument.name in shown and (said or (training and argument.name in unsaid)):
            yield shown[argument.name]


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
