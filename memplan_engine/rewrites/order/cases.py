"""Proofs by cases: of some ops one runs first, or last; in each case there are cuts that hold for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from memplan_engine.kernels.order.ends import first_ends, last_ends
from memplan_engine.kernels.types import Flags
from memplan_engine.rewrites.order.certificate import ArcKind, CasesProof, Proof, flows_of
from memplan_engine.rewrites.order.cut_bound import NOBODY, Cuts, Pair
from memplan_engine.rewrites.order.order_problem import OrderProblem

Named = TypeVar("Named", int, str)


@dataclass(slots=True, eq=False)
class CaseTree:
    """A proof of `bound` bytes in all orders that keep `pairs`: a cut of `unit`, or a case for each unit of
    `ends`, in which that one is the first of them, or the last."""

    pairs: tuple[Pair, ...]
    bound: int
    unit: int
    ends: tuple[int, ...] = ()
    is_first: bool = True
    cases: tuple[CaseTree, ...] = ()

    def split(self, pair: Pair, *found: tuple[int, int]) -> tuple[CaseTree, ...]:
        """The two cases of `pair`: which of both runs first. `found` has the bound and the unit of each."""
        self.ends = pair
        orders = (pair, pair[::-1])
        self.cases = tuple(
            CaseTree((*self.pairs, order), *one) for order, one in zip(orders, found, strict=True)
        )
        return self.cases


def prove_by_ends(cuts: Cuts, target: int, stop: Flags) -> CaseTree | None:
    """A tree of one level that proves `target` bytes, by what runs first of some units or by what runs last;
    None where there is none, or it was stopped."""
    o, net = cuts.problem.arrays, cuts.network
    for is_first, ends_of in ((True, first_ends), (False, last_ends)):
        net.room[:] = cuts.rooms
        ends = tuple(ends_of(o, net, target, stop).tolist())
        if ends:
            cases = (CaseTree(_apart(unit, ends, is_first), target, unit) for unit in ends)
            return CaseTree((), target, NOBODY, ends, is_first, tuple(cases))
    return None


def write_out(tree: CaseTree, problem: OrderProblem, single: OrderProblem, target: int) -> Proof | None:
    """The proof with its flows, between ops: `single` is the problem in which each op is a unit. Cases of
    which no use is made are left out. None where that does not need `target` bytes."""
    if not tree.cases or (tree.unit != NOBODY and tree.bound >= target):
        pairs = tuple((problem.main[one], problem.main[other]) for one, other in tree.pairs)
        return Cuts(single, pairs).proof(problem.main[tree.unit], target)
    names = tuple(problem.graph.ops[problem.main[unit]].name for unit in tree.ends)
    written = []
    for case, name in zip(tree.cases, names, strict=True):
        proof = write_out(case, problem, single, target)
        if proof is None or not any(_uses(proof, *pair) for pair in _apart(name, names, tree.is_first)):
            return proof
        written.append(proof)
    return CasesProof(names, tree.is_first, tuple(written))


def _apart(one: Named, ends: Sequence[Named], is_first: bool) -> tuple[tuple[Named, Named], ...]:
    """What runs before what where `one` is the first of `ends`, or the last."""
    others = (other for other in ends if other != one)
    return tuple((one, other) if is_first else (other, one) for other in others)


def _uses(proof: Proof, first: str, second: str) -> bool:
    """Whether it matters to a flow of `proof` that `first` runs before `second`."""
    waits = (ArcKind.WAITS, second, first)
    return any(
        (arc.kind, arc.tail, arc.head) == waits or (flow.op == second and arc.tail == first)
        for flow in flows_of(proof)
        for arc in flow.arcs
    )
