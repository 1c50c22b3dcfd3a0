"""Joint graphs as torch's own partitioner cuts them: their bytes, and their work beside the default cut."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from memplan_engine.analysis.op_costs import op_work
from memplan_engine.analysis.torch_budgets import TorchBudget
from memplan_engine.graph import Graph, check_graph
from memplan_engine.op_kinds.ordered import has_effect
from memplan_engine.rewrites.order.heuristics import INDUCTOR
from memplan_engine.rewrites.order.order_problem import order_problem, peak_in_order


def torch_budget(budget: float, base: Graph, cut: Graph) -> TorchBudget:
    """The point of `cut`, the joint graph at `budget`, beside the default partition `base`; neither has ops
    that nobody reads."""
    more = Counter(op_work(cut))
    more.subtract(Counter(op_work(base)))
    changed = ((work, times) for work, times in sorted(more.items()) if times and work.nbytes)
    return TorchBudget(budget, least_peak(cut), tuple(changed))


def least_peak(graph: Graph) -> int:
    """Live bytes at the worst step, in the best of the order given and Inductor's three rules."""
    problem = order_problem(graph)
    return min(peak_in_order(graph), *(problem.peak(rule(problem.arrays)) for rule in INDUCTOR.values()))


def without_unread(graph: Graph) -> Graph:
    """`graph` without ops that nobody reads and that have no effect: the default partition leaves fused
    attention in twice, and torch's min-cut partitioner would win by not running it."""
    read = {name for op in graph.ops for name in (*op.inputs, *op.mutates)} | set(graph.outputs)
    kept = tuple(op for op in graph.ops if op.mutates or has_effect(op) or read & set(op.outputs))
    made = {name for op in kept for name in op.outputs} | {*graph.inputs, *graph.constants}
    tensors = tuple(tensor for tensor in graph.tensors if tensor.name in made)
    homes = {tensor.storage for tensor in tensors}
    storages = tuple(storage for storage in graph.storages if storage.name in homes)
    return check_graph(replace(graph, ops=kept, tensors=tensors, storages=storages))
