"""The ops of a graph in the order with the fewest live bytes at the worst step, and the proof."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from memplan_engine.control_flow import branch_graph, contract, regions
from memplan_engine.graph import Graph
from memplan_engine.rewrites.order.cases import CaseTree, write_out
from memplan_engine.rewrites.order.certificate import OrderCertificate, ReturnedProof
from memplan_engine.rewrites.order.order_problem import OrderProblem, bytes_inside, order_problem
from memplan_engine.rewrites.order.order_search import OrderSearch, ProvedBy, Tell
from memplan_engine.rewrites.reuse.in_place import take_over
from memplan_engine.strategies.base import SolveLimits

DEFAULT_SECONDS = 10.0
"""Limit of a search without limits: what a graph may take that is not proved before."""


@dataclass(frozen=True, slots=True)
class Reordered:
    """`graph` has the ops of the graph it came from in the best order found; all else is as it was.

    `live_before` and `live_after` are the live bytes at the worst step, inputs and weights not counted;
    `bound_bytes` is what every order needs that keeps the dependencies. `in_place`: all three with ops that
    write over inputs which die with them, as `reuse` lets them. `proved_by` says what the bound rests on, and
    `certificate` is what can be checked of it; None where that is the exhaustive search alone, where there is
    nothing to prove, and, with `in_place`, where it would hang on what the graph does not tell of layouts.
    `found_by` says what made the order, `states` how many closed sets were searched.
    """

    graph: Graph
    live_before: int
    live_after: int
    bound_bytes: int
    proved_by: ProvedBy
    certificate: OrderCertificate | None
    in_place: bool
    found_by: str
    seconds: float
    states: int

    @property
    def saved_bytes(self) -> int:
        """By how much the live bytes at the worst step fall."""
        return self.live_before - self.live_after

    @property
    def proved(self) -> bool:
        """Whether no order is better."""
        return self.bound_bytes >= self.live_after


def reorder(
    graph: Graph,
    limits: SolveLimits | None = None,
    on_progress: Tell | None = None,
    *,
    in_place: bool = False,
    brief: bool = False,
) -> Reordered:
    """The order of the ops of `graph` with the fewest live bytes at the worst step, one op a step.

    All orders count that keep what `schedule.dependencies` says: data, writes, random numbers, effects. With
    `in_place` an op may write over an input that dies with it: give the result to `reuse`. Never worse than
    the order given. A `brief` search reads no clock: it gives the same each time, and ends in a moment. A
    search whose `limits` have nodes and no seconds reads none either; states, cuts and moves count as nodes.
    It ends with a proof, when `limits` end it (10 s by default), or when `on_progress` returns True, and then
    has the best order and the bound so far. Ops inside another op stay there in their
    order: what is around them is ordered with that op as a whole, and there is no certificate.
    """
    limits = limits or SolveLimits(None if brief else DEFAULT_SECONDS)
    if any(op.within for op in graph.ops):
        return _branch_by_branch(graph, limits, on_progress, in_place=in_place, brief=brief)
    table = take_over(graph) if in_place else None
    problem = order_problem(graph, take_over=table)
    single = order_problem(graph, merge=False, take_over=table)
    before = single.peak(range(len(graph.ops)))
    search = OrderSearch(problem, limits, on_progress)
    search.begin()
    with limits.running():
        (search.run_briefly if brief else search.run)()
    order = problem.ops_of(search.order.tolist())
    # Where nothing is won the order stays as it was given: to merge ops into units is to move them.
    ops = graph.ops if search.peak >= before else tuple(graph.ops[index] for index in order)
    return Reordered(
        replace(graph, ops=ops),
        before,
        search.peak,
        search.bound,
        search.proved_by,
        _certificate(problem, search, in_place),
        in_place,
        search.found_by,
        limits.elapsed,
        search.states,
    )


def _branch_by_branch(
    graph: Graph, limits: SolveLimits, on_progress: Tell | None, *, in_place: bool, brief: bool
) -> Reordered:
    """Do as `reorder` does, for a graph with ops inside others. Those keep their order, and the bound holds
    for any order of theirs."""
    by_name = {op.name: op for op in graph.ops}
    spans: dict[str, tuple[int, int]] = {}
    inner: dict[str, list[Reordered]] = {}
    for region in regions(graph):
        name = graph.ops[region.call].name
        spans[name] = region.first, region.call
        inner[name] = [
            reorder(branch_graph(graph, region, branch), limits.again(), in_place=in_place, brief=brief)
            for branch in region.branches
        ]

    def closed(nbytes: Callable[[Reordered], int]) -> Graph:
        inside = {
            name: max(bytes_inside(graph, by_name[name], each.graph, nbytes(each)) for each in branches)
            for name, branches in inner.items()
        }
        return contract(graph, inside)

    def peak(contracted: Graph, names: Sequence[str]) -> int:
        place = {op.name: index for index, op in enumerate(contracted.ops)}
        table = take_over(contracted) if in_place else None
        problem = order_problem(contracted, merge=False, take_over=table)
        return problem.peak([place[name] for name in names])

    given = closed(lambda each: each.live_before)
    least = closed(lambda each: each.bound_bytes)
    outer = reorder(least, limits, on_progress, in_place=in_place, brief=brief)
    before = peak(given, [op.name for op in given.ops])
    after = peak(given, [op.name for op in outer.graph.ops])
    ops = graph.ops
    if after < before:
        ops = tuple(
            each
            for op in outer.graph.ops
            for each in (*graph.ops[slice(*spans.get(op.name, (0, 0)))], by_name[op.name])
        )
    return replace(
        outer,
        graph=replace(graph, ops=ops),
        live_before=before,
        live_after=min(before, after),
        certificate=None,
        seconds=limits.elapsed,
        states=outer.states + sum(each.states for branches in inner.values() for each in branches),
    )


def _certificate(problem: OrderProblem, search: OrderSearch, in_place: bool) -> OrderCertificate | None:
    """The flows between ops: the units of the search are merged, and a checker knows of none. Nor does it
    know which ops cannot write over an input although they look as if they could: it wants flows for those
    ways, too."""
    if search.bound == 0 or search.proved_by is ProvedBy.SEARCH:
        return None
    if search.proved_by is ProvedBy.RETURNED:
        return OrderCertificate(search.bound, ReturnedProof(), in_place)
    table = take_over(problem.graph, doubts=False) if in_place else None
    single = order_problem(problem.graph, merge=False, take_over=table)
    by_cases = search.proved_by is ProvedBy.CASES
    tree = search.tree if by_cases and search.tree else CaseTree((), search.bound, search.unit)
    proof = write_out(tree, problem, single, search.bound)
    return OrderCertificate(search.bound, proof, in_place) if proof else None
