"""Small random graphs with branches and loops, and what a run of them needs, by taking each way in turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from random import Random

from memplan_engine.errors import InputError
from memplan_engine.graph import Graph, Op, Path, Role, Storage, Tensor, check_graph, storage_role
from memplan_engine.lifetimes import lifetimes
from memplan_engine.rewrites.order.check_reorder import check_reorder
from memplan_engine.schedule import sequential


class Nested:
    """Draws ops, some of which call one branch (a loop) or two (a condition), nested up to `depth`."""

    def __init__(self, seed: int, ops: int, depth: int = 2) -> None:
        self.draw, self.depth = Random(seed), depth
        self.tensors = [Tensor("x", (4,), "int8", 4, "x")]
        self.ops: list[Op] = []
        self.sequence(ops, ["x"], ())

    def graph(self) -> Graph:
        """The graph drawn, which returns the last tensor."""
        made = [name for op in self.ops if not op.within for name in op.outputs]
        home = {tensor.name: tensor.storage for tensor in self.tensors}
        roles = {"inputs": {"x"}, "constants": set(), "outputs": {home[made[-1]]}}
        sizes = {tensor.storage: tensor.nbytes for tensor in self.tensors}
        storages = tuple(Storage(name, size, storage_role(name, **roles)) for name, size in sizes.items())
        return check_graph(
            Graph("nested", storages, tuple(self.tensors), tuple(self.ops), ("x",), (made[-1],))
        )

    def sequence(self, count: int, given: list[str], within: Path) -> list[str]:
        """Add `count` ops; the names that can be read behind them."""
        visible = list(given)
        for _ in range(count):
            if len(within) < self.depth and self.draw.random() < 0.35:
                visible.append(self.region(visible, within))
            else:
                visible.append(self.op(visible, within, self.draw.choice([1, 2, 4, 7])))
        return visible

    def op(self, visible: list[str], within: Path, size: int, storage: str = "") -> str:
        """Add one op that makes one tensor; its name."""
        name = f"t{len(self.tensors)}"
        read = self.draw.sample(visible[-4:], min(len(visible), self.draw.choice([1, 1, 2])))
        self.tensors.append(Tensor(name, (size,), "int8", size, storage or name))
        self.ops.append(Op(f"op_{name}", "mix", tuple(read), (name,), within=within))
        return name

    def region(self, visible: list[str], within: Path) -> str:
        """Add an op that calls branches, and these before it; the name of its result."""
        operands = self.draw.sample(visible, min(len(visible), 2))
        result, size = f"t{len(self.tensors)}", self.draw.choice([1, 3, 5])
        self.tensors.append(Tensor(result, (size,), "int8", size, result))
        branches = self.draw.choice([("body",), ("true", "false")])
        for branch in branches:
            path = (*within, (f"op_{result}", branch))
            seen = self.sequence(self.draw.choice([0, 1, 2]), operands, path)
            last = self.op(seen, path, size, result)
        self.ops.append(Op(f"op_{result}", "call", (*operands, last), (result,), within=within))
        return result


def ways(graph: Graph) -> Iterator[Graph]:
    """Yield the graph of each run: one branch of each op, as if there had never been another."""
    branches: dict[str, dict[str, None]] = {}
    for op in graph.ops:
        if op.within:
            branches.setdefault(op.within[0][0], {})[op.within[0][1]] = None
    if not branches:
        yield graph
        return
    call = next(iter(branches))
    for branch in branches[call]:
        kept = [op for op in graph.ops if (call, branch) in op.within or call not in dict(op.within)]
        flat = [
            replace(op, within=tuple(each for each in op.within if each != (call, branch))) for op in kept
        ]
        made = {name for op in flat for name in op.outputs} | {*graph.inputs}
        flat = [replace(op, inputs=tuple(name for name in op.inputs if name in made)) for op in flat]
        tensors = tuple(tensor for tensor in graph.tensors if tensor.name in made)
        yield from ways(replace(graph, ops=tuple(flat), tensors=tensors))


def needed(graph: Graph) -> int:
    """Return the live bytes of the fullest step of any run, inputs not counted."""
    most = 0
    for way in ways(graph):
        size = {s.name: s.nbytes for s in way.storages if s.role is not Role.INPUT}
        spans = lifetimes(way, sequential(way))
        for step in range(len(way.ops)):
            live = (size.get(name, 0) for name, (start, end) in spans.items() if start <= step < end)
            most = max(most, sum(live))
    return most


def least_needed(graph: Graph) -> int:
    """Return the least of `needed` over all orders that the checkers pass."""
    least = needed(graph)
    for ops in permutations(graph.ops):
        ordered = replace(graph, ops=ops)
        try:
            check_graph(ordered)
        except InputError:
            continue
        if not check_reorder(graph, ordered):
            least = min(least, needed(ordered))
    return least
