"""What an operator writes in place: the arguments that its schema says, and those that it does not say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
