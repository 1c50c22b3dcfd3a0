"""What an fx graph takes when `fx.Interpreter` really runs it, entry by entry.

Written without looking at the estimator: bytes are those of the storages that torch still holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.utils._python_dispatch import TorchDispatchMode

from tests.support.measured import LiveStorages, fetch


class EveryOp(TorchDispatchMode):
    """Measures after every op that reaches the dispatcher, also one that a node of the graph calls inside."""

    def __init__(self, live: LiveStorages) -> None:
        super().__init__()
        self.live, self.peak = live, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        value = func(*args, **(kwargs or {}))
        self.live.note(value)
        self.peak = max(self.peak, self.live.nbytes())
        return value


class Measuring(Interpreter):
    """`profile` has one entry for what was there before the first call, then for every call node one just
    after it has run and one after the interpreter has let go of what nobody will read."""

    def __init__(self, module: GraphModule, live: LiveStorages, *, free_unread: bool) -> None:
        super().__init__(module)
        self.live, self.profile = live, [live.nbytes()]
        calls = [node for node in module.graph.nodes if node.op.startswith("call")]
        for node in module.graph.nodes if free_unread and calls else ():
            if not node.users and node.op in ("placeholder", *(call.op for call in calls)):
                # A placeholder is there before the first call, and goes after it.
                goes_after = calls[0] if node.op == "placeholder" else node
                self.user_to_last_uses.setdefault(goes_after, []).append(node)

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        if n.op.startswith("call"):
            self.live.note(value)
            self.profile.append(self.live.nbytes())
        return value


class Entries(dict):
    """The interpreter's values; it drops the dead ones before it looks whether the next node is known."""

    def __init__(self, values: dict[Node, Any], run: Measuring) -> None:
        super().__init__(values)
        self.run = run

    def __contains__(self, node: object) -> bool:
        profile = self.run.profile
        if len(profile) % 2 == 0:
            profile.append(self.run.live.nbytes())
        return super().__contains__(node)


def measure_profile(
    module: GraphModule, inputs: list[Any], kept: Any = (), *, free_unread: bool = False
) -> tuple[list[int], int, Any]:
    """Run `module` on real `inputs`, which are taken out of the list, so that those that nobody else holds go
    with their last reader: the profile, the peak over every dispatched op, and what the graph returns.

    All storages count: inputs, attributes, and those of the tensors in `kept`, which the caller holds. Values
    without readers stay to the end, as the interpreter has it, or go at once with `free_unread`.
    """
    live = LiveStorages()
    attributes = [fetch(module, node) for node in module.graph.nodes if node.op == "get_attr"]
    live.note((inputs, attributes, kept))
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    run = Measuring(module, live, free_unread=free_unread)
    values = Entries(dict(zip(placeholders, inputs, strict=True)), run)
    inputs.clear()
    with torch.no_grad(), EveryOp(live) as mode:
        result = run.run(initial_env=values)
    run.env = {}  # It still holds what the graph returned and what nobody read.
    run.profile += run.profile[-1:] * (len(run.profile) % 2 == 0)
    return run.profile, max(mode.peak, run.profile[0]), result


def measure_pair(
    forward: GraphModule, backward: GraphModule, inputs: Sequence[Any], *, free_unread: bool = False
) -> tuple[list[int], list[int], int]:
    """Run both graphs on real tensors as autograd would: the forward's profile, the backward's with all
    that the caller holds beside it, and the peak over every dispatched op.

    The caller holds the inputs called `primals…`, the tangents, and what the forward returns and the backward
    graph does not take; what is saved for the backward goes with its last reader. Parameters that the
    backward graph does not take are none of its memory.
    """
    before, first, result = measure_profile(forward, list(inputs), inputs, free_unread=free_unread)
    names = [node.name for node in output_nodes(forward.graph)]
    returned = dict(zip(names, result, strict=True))
    del result
    taken, caller = [], []
    for node in backward.graph.nodes:
        if node.op == "placeholder":
            value = returned[node.name] if node.name in returned else ones(node.meta["val"])
            taken.append(value)
            if node.name not in returned or node.name.startswith("primals"):
                caller.append(value)
    inputs_of_backward = {node.name for node in backward.graph.nodes if node.op == "placeholder"}
    caller += [value for name, value in returned.items() if name not in inputs_of_backward]
    value = None
    returned.clear()
    after, second, _ = measure_profile(backward, taken, caller, free_unread=free_unread)
    return before, after, max(first, second)


def output_nodes(graph: Graph) -> list[Node]:
    """What the graph returns, in order, with repetitions and without plain values."""
    (node,) = (node for node in graph.nodes if node.op == "output")
    (values,) = node.args
    return list(values)


def ones(value: Any) -> Any:
    """A real tensor like a fake one, in a storage as large as the fake one's."""
    storage = torch.UntypedStorage(value.untyped_storage().nbytes())
    tensor = torch.empty(0, dtype=value.dtype)
    return tensor.set_(storage, value.storage_offset(), value.shape, value.stride()).fill_(1)
