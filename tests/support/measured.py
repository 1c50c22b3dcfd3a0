"""Live bytes of a graph that really runs, measured by the storages that torch still holds.

Written without looking at the engine: nothing here knows of lifetimes, views or owners. A storage counts
from the moment some op of torch returns a tensor in it until torch itself lets go of it (`StorageWeakRef`),
whoever held it: an argument, a tuple, a tensor that autograd saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.multiprocessing.reductions import StorageWeakRef
from torch.profiler import ProfilerActivity, profile
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


class LiveStorages:
    """The storages seen so far, but for those of `given`, and which of them torch still holds."""

    def __init__(self, given: Any = ()) -> None:
        self.given = {storage._cdata for storage in storages_in(given)}
        self.seen: dict[int, tuple[StorageWeakRef, int]] = {}

    def note(self, value: Any) -> None:
        """See every tensor in `value`."""
        for storage in storages_in(value):
            if storage._cdata not in self.given and storage._cdata not in self.seen:
                self.seen[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())

    def nbytes(self) -> int:
        """Bytes of the storages seen that are still there."""
        self.seen = {key: pair for key, pair in self.seen.items() if not pair[0].expired()}
        return sum(nbytes for _, nbytes in self.seen.values())


def storages_in(value: Any) -> Iterable[torch.UntypedStorage]:
    """The storages of the tensors in `value`."""
    return [leaf.untyped_storage() for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def measure_graph_module(
    module: GraphModule, inputs: Sequence[Any], *, unread: str = "freed"
) -> dict[str, int]:
    """Run `module` on real `inputs`, one for each placeholder; for each call node, by name and in order, the
    bytes of the storages made in the run that are live just after it, its own inputs included.

    Values are let go after their last use; those that nobody uses at once ("freed") or, as by
    `fx.Interpreter`, never ("held"). Inputs and attributes of the module are not counted. A `getitem` is a
    call node, too: take the nodes that you know as steps.
    """
    attributes = {node.target: fetch(module, node) for node in module.graph.nodes if node.op == "get_attr"}
    live = LiveStorages((list(inputs), list(attributes.values())))
    last = last_uses(module.graph.nodes, unread)
    env: dict[Node, Any] = {}
    given = iter(inputs)
    after: dict[str, int] = {}
    with torch.no_grad():
        for node in module.graph.nodes:
            if node.op == "output":
                break
            if node.op == "placeholder":
                env[node] = next(given)
            elif node.op == "get_attr":
                env[node] = attributes[node.target]
            else:
                env[node] = call(module, node, env)
                live.note(env[node])
                after[node.name] = live.nbytes()
            for dead in last.get(node, ()):
                del env[dead]
    return after


def call(module: GraphModule, node: Node, env: dict[Node, Any]) -> Any:
    """Run one node; its arguments are let go on return."""
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda used: env[used])
    function = fetch(module, node) if node.op == "call_module" else node.target
    return function(*args, **kwargs)  # type: ignore[operator]


def fetch(module: GraphModule, node: Node) -> Any:
    value: Any = module
    for part in str(node.target).split("."):
        value = getattr(value, part)
    return value


def last_uses(nodes: Iterable[Node], unread: str) -> dict[Node, list[Node]]:
    """Each node → the nodes whose values go after it has run."""
    assert unread in ("freed", "held"), unread
    user: dict[Node, Node] = {}
    for node in nodes:
        if unread == "freed":
            user[node] = node
        user.update(dict.fromkeys(node.all_input_nodes, node))
    gone: dict[Node, list[Node]] = {}
    for node, reader in user.items():
        gone.setdefault(reader, []).append(node)
    return gone


class PeakMode(TorchDispatchMode):
    """Measures after every op that reaches torch's dispatcher below autograd."""

    def __init__(self, given: Any = ()) -> None:
        super().__init__()
        self.live, self.peak = LiveStorages(given), 0
        self.after: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        value = func(*args, **(kwargs or {}))
        self.live.note(value)
        self.after.append((str(func), self.live.nbytes()))
        self.peak = max(self.peak, self.after[-1][1])
        return value


def measure_call(function: Callable[[], Any], given: Any = ()) -> int:
    """Peak of the live bytes, over every dispatched op, while `function()` runs as ordinary Python: an eager
    training step, say. Storages of the tensors in `given` (parameters, inputs) are not counted."""
    with PeakMode(given) as mode:
        function()
    return mode.peak


def allocations(call: Callable[[], Any]) -> list[int]:
    """Return the bytes of each allocation that torch's CPU allocator makes while `call()` runs."""
    return [nbytes for nbytes in _memory_events(call) if nbytes > 0]


def most_allocated(call: Callable[[], Any]) -> int:
    """Return the most bytes that torch's CPU allocator has given out at once while `call()` runs."""
    return max(accumulate(_memory_events(call)), default=0)


def _memory_events(call: Callable[[], Any]) -> list[int]:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        call()
    events = recorded.profiler.kineto_results.events()  # type: ignore[union-attr]
    return [event.nbytes() for event in events if event.name() == "[memory]"]
