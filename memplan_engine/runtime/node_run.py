"""Running a flat fx graph node by node, with somebody looking on; values go with their last reader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from memplan_engine.torch_capture.torch_fake import as_exported
from memplan_engine.torch_capture.torch_run import (
    INLINED,
    attribute_of,
    is_arithmetic_on_sizes,
    kind_of,
    takes_item,
    wrapped_mode,
)

Around = Callable[[str, str, Callable[[], Any]], Any]
"""`around(name, kind, call)` runs `call()` for the op `name` and gives what it gave."""


def run_nodes(
    module: GraphModule,
    inputs: Sequence[Any],
    around: Around,
    *,
    read: Callable[[Any], Any] = lambda value: value,
    prefix: str = "",
) -> Any:
    """What `module` returns for `inputs`, one for each placeholder. Ops are called through `around` by the
    names that they have in a memplan Graph: a `getitem` and arithmetic on sizes are none, and sub-graphs that
    only set a mode are run node by node. A value is let go after its last reader, one without readers at
    once; inputs are the caller's to hold. `read` makes the value of a `get_attr` node of the attribute."""
    last = last_readers(module)
    env: dict[Node, Any] = {}
    pending = iter(inputs)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            env[node] = next(pending)
        elif node.op == "get_attr":
            env[node] = read(attribute_of(module, node))
        elif node.op == "output":
            return map_arg(node.args[0], lambda used: env[used])
        else:
            env[node] = _call(node, env, around, read, prefix + node.name)
        for dead in last.get(node, ()):
            env.pop(dead, None)
    return None


def last_readers(module: GraphModule) -> dict[Node, list[Node]]:
    """Each node → the nodes whose values nobody needs after it has run; itself where nobody reads it."""
    reader: dict[Node, Node] = {}
    for node in module.graph.nodes:
        reader[node] = node
        reader.update(dict.fromkeys(node.all_input_nodes, node))
    gone: dict[Node, list[Node]] = {}
    for node, last in reader.items():
        gone.setdefault(last, []).append(node)
    return gone


def _call(node: Node, env: dict[Node, Any], around: Around, read: Callable[[Any], Any], name: str) -> Any:
    arguments: Any = map_arg((node.args, node.kwargs), lambda used: env[used])
    args, kwargs = arguments
    del arguments
    target: Any = node.target
    kind = kind_of(node)
    if kind in INLINED:
        given: list[Any] = list(args)
        at = next(index for index, arg in enumerate(given) if isinstance(arg, GraphModule))
        with wrapped_mode(kind, given[:at]):
            return run_nodes(given[at], given[at + 1 :], around, read=read, prefix=f"{name}.")
    if takes_item(node, env.__getitem__) or is_arithmetic_on_sizes(node):
        return target(*args, **kwargs)
    return around(name, kind, lambda: as_exported(lambda: target(*args, **kwargs)))
