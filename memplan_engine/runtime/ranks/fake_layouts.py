"""What DTensor works out for each tensor of a list (an optimizer's, of all weights), once for those that are
alike."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from torch.distributed.tensor.placement_types import _StridedShard


def flagged_once(propagate: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """`propagate(strategy, schema)`, which sets the flag that the strided shards among the arguments have,
    or True where they differ: it looks through all of them for each tensor of a list. Now once a call, and
    what it is given then is one argument for each flag."""
    latest: list[Any] = [None, ()]

    @functools.wraps(propagate)
    def propagate_where_strided(strategy: Any, schema: Any) -> None:
        if latest[0] is not schema:
            flagged: dict[bool, Any] = {}
            for spec in schema.args_spec:
                if any(isinstance(each, _StridedShard) for each in spec.placements):
                    flagged.setdefault(spec.use_strided_shard_as_shard_order, spec)
            latest[:] = schema, tuple(flagged.values())
        if latest[1]:
            propagate(strategy, SimpleNamespace(args_spec=latest[1]))

    return propagate_where_strided


class ExpandedOnce:
    """`expand(mesh, schema, placements, ...)`, the strategies of an operator on a mesh of several dimensions,
    which remembers what it gave for inputs of the same layout and shape.

    What it gives is written on afterwards, according to all arguments of a call: so it forgets between calls
    (`afresh`).
    """

    def __init__(self, expand: Callable[..., Any]) -> None:
        functools.update_wrapper(self, expand)
        self._expand = expand
        self._known: dict[Any, Any] = {}

    def afresh(self, propagate: Callable[..., Any]) -> Callable[..., Any]:
        """`propagate`, which begins with nothing remembered."""

        @functools.wraps(propagate)
        def forgetting(*args: Any, **kwargs: Any) -> Any:
            self._known.clear()
            return propagate(*args, **kwargs)

        return forgetting

    def __call__(self, mesh: Any, schema: Any, placements: Any, **how: Any) -> Any:
        """As `expand` does; what stands for the tensors is the whole of what it asks a schema for."""
        inputs = (*schema.args_strategy, *schema.kwargs_strategy)
        flags = tuple(each.strategies[0].output_spec.use_strided_shard_as_shard_order for each in inputs)
        key = (mesh, schema.op, inputs, flags, _frozen(placements), _frozen(sorted(how.items())))
        try:
            found = self._known.get(key)
        except TypeError:
            # Sizes that are symbols.
            return self._expand(mesh, schema, placements, **how)
        if found is None:
            found = self._known[key] = self._expand(mesh, schema, placements, **how)
        return found


def _frozen(value: Any) -> Any:
    return tuple(_frozen(each) for each in value) if type(value) in (list, tuple) else value
