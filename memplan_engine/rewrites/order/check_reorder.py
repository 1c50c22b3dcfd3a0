"""The checker of orders and of what proves them. It works from the graph alone and shares no code with the
transform; what is known of op kinds (`op_kinds`) is all that both go by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from memplan_engine.graph import PRODUCED, Graph, Op
from memplan_engine.op_kinds.ordered import draws, has_effect
from memplan_engine.rewrites.order.certificate import (
    ArcKind,
    CutProof,
    Flow,
    FlowArc,
    OrderCertificate,
    Proof,
    ReturnedProof,
)
from memplan_engine.rewrites.reuse.kinds import is_elementwise

MOST_BREACHES = 100


class OrderRule(StrEnum):
    """What an order, or the proof of a bound, has to keep."""

    SAME = "the graphs are the same but for the order of their ops"
    MADE = "a tensor is made before it is read"
    WRITES = "who touches a storage does so after the same writes as before"
    RANDOM = "ops that draw random numbers keep their order"
    EFFECT = "ops that are there for an effect keep their order"
    TOGETHER = "the ops of a branch stay together, in front of the op that calls them"
    ARC = "an arc of a flow is one of the graph"
    ROOM = "no more flows through an arc than its storage has bytes"
    KEPT = "what flows into a node flows out of it"
    WAYS = "there is a flow for each way in which the op can run"
    ENOUGH = "as much flows as is claimed"


@dataclass(frozen=True, slots=True)
class OrderBreach:
    """`rule` is broken at the op or the arc `where`; `found` says how."""

    rule: OrderRule
    where: str
    found: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.rule}{f' ({self.found})' if self.found else ''}"


def check_reorder(
    original: Graph, reordered: Graph, certificate: OrderCertificate | None = None
) -> tuple[OrderBreach, ...]:
    """What is wrong with `reordered` in place of `original`, and with the `certificate`; () when nothing is.

    The order: both graphs have the same ops and nothing else differs; each tensor is made before it is read;
    each op finds every storage it touches after the same writes as in `original`. The certificate: see
    `check_certificate`.
    """
    breaches = _check_same(original, reordered)
    if not breaches:
        breaches = [*_check_reads(reordered), *_check_writes(original, reordered)]
        breaches += _check_kept(original, reordered)
        breaches += _check_together(original, reordered)
    if certificate is not None:
        breaches += check_certificate(original, certificate)
    return tuple(breaches[:MOST_BREACHES])


def _check_same(original: Graph, reordered: Graph) -> list[OrderBreach]:
    if replace(original, ops=()) != replace(reordered, ops=()):
        return [OrderBreach(OrderRule.SAME, original.name, "something other than ops differs")]
    ours, theirs = ({op.name: op for op in graph.ops} for graph in (original, reordered))
    if len(original.ops) != len(reordered.ops):
        found = f"{len(reordered.ops)} ops, not {len(original.ops)}"
        return [OrderBreach(OrderRule.SAME, original.name, found)]
    return [OrderBreach(OrderRule.SAME, name) for name in ours if theirs.get(name) != ours[name]]


def _check_reads(graph: Graph) -> list[OrderBreach]:
    there = {*graph.inputs, *graph.constants}
    breaches = []
    for op in graph.ops:
        missing = [name for name in (*op.inputs, *op.mutates) if name not in there]
        breaches += [OrderBreach(OrderRule.MADE, op.name, name) for name in missing]
        there.update(op.outputs)
    return breaches


def _check_writes(original: Graph, reordered: Graph) -> list[OrderBreach]:
    """Each op with, for every storage that it touches, the writers before it: they must be the same."""

    def history(graph: Graph) -> dict[tuple[str, str], tuple[int, str]]:
        written: dict[str, tuple[int, str]] = {}
        seen = {}
        for op in graph.ops:
            touched, writes = facts.touched[op.name], facts.writes[op.name]
            for storage in touched:
                count, latest = written.get(storage, (0, ""))
                seen[op.name, storage] = (count, latest)
                if storage in writes:
                    written[storage] = (count + 1, op.name)
        return seen

    facts = _Facts(original)
    before, after = history(original), history(reordered)
    return [
        OrderBreach(OrderRule.WRITES, op, f"{storage}, after {after[op, storage][1] or 'no write'}")
        for op, storage in before
        if before[op, storage] != after[op, storage]
    ]


def _check_kept(original: Graph, reordered: Graph) -> list[OrderBreach]:
    facts = _Facts(original)
    breaches = []
    for rule, belongs in ((OrderRule.RANDOM, facts.random), (OrderRule.EFFECT, facts.effects)):
        ours, theirs = (
            [op.name for op in graph.ops if op.name in belongs] for graph in (original, reordered)
        )
        breaches += [
            OrderBreach(rule, new, f"in the place of {old}")
            for old, new in zip(ours, theirs, strict=True)
            if old != new
        ][:1]
    return breaches


def _check_together(original: Graph, reordered: Graph) -> list[OrderBreach]:
    """Check that the ops inside an op come right before it, with its branches in order."""
    places: dict[str, list[int]] = {}
    branches: dict[str, list[str]] = {}
    for graph in (original, reordered):
        places, before = {}, branches
        branches = {}
        for place, op in enumerate(graph.ops):
            for call, branch in op.within:
                places.setdefault(call, []).append(place)
                if branches.setdefault(call, [branch])[-1] != branch:
                    branches[call].append(branch)
    torn = [call for call in places if before[call] != branches[call]]
    calls = {op.name: place for place, op in enumerate(reordered.ops) if op.name in places}
    torn += [call for call, own in places.items() if own != list(range(calls[call] - len(own), calls[call]))]
    return [OrderBreach(OrderRule.TOGETHER, call) for call in dict.fromkeys(torn)]


class _Facts:
    """What the checker needs of a graph: `place` of each op; the storages that it touches and those that it
    writes; the `maker` of each storage that counts, and its bytes; who makes each tensor."""

    def __init__(self, graph: Graph) -> None:
        home = {tensor.name: tensor.storage for tensor in graph.tensors}
        self.home = home
        self.tensors = {tensor.name: tensor for tensor in graph.tensors}
        self.ops = {op.name: op for op in graph.ops}
        self.place = {op.name: place for place, op in enumerate(graph.ops)}
        self.made_by = {name: op.name for op in graph.ops for name in op.outputs}
        self.touched: dict[str, set[str]] = {}
        self.writes: dict[str, set[str]] = {}
        self.random: set[str] = set()
        self.effects: set[str] = set()
        for op in graph.ops:
            reads = {home[name] for name in op.inputs} | {home[name] for name in op.mutates}
            fresh = {home[name] for name in op.outputs} - reads
            self.touched[op.name] = reads | fresh
            self.writes[op.name] = fresh | {home[name] for name in op.mutates}
            if draws(op, not fresh and not op.mutates):
                self.random.add(op.name)
            if has_effect(op):
                self.effects.add(op.name)
        self.nbytes = {s.name: s.nbytes for s in graph.storages if s.role in PRODUCED}
        self.held = {s.name: s.held_by for s in graph.storages if s.held_by}
        self.returned = {home[name] for name in graph.outputs}
        self.maker: dict[str, str] = {}
        for op in graph.ops:
            for storage in self.touched[op.name]:
                self.maker.setdefault(storage, op.name)

    def uses(self, storage: str, op: str) -> bool:
        """Whether the storage is live until `op` has run: it touches it, or holds it."""
        return op in self.touched and (storage in self.touched[op] or self.held.get(storage) == op)

    def must_precede(self, first: str, second: str) -> bool:
        """Whether `first` runs before `second` in every order: what it makes is read or held there, one of
        both writes what both touch, or they keep their order anyway."""
        if first not in self.place or second not in self.place or self.place[first] >= self.place[second]:
            return False
        op = self.ops[second]
        if any(self.made_by.get(name) == first for name in (*op.inputs, *op.mutates)):
            return True
        if any(
            self.held.get(each) == second and self.maker.get(each) == first for each in self.touched[first]
        ):
            return True
        both = self.touched[first] & self.touched[second]
        if both & (self.writes[first] | self.writes[second]):
            return True
        return {first, second} <= self.random or {first, second} <= self.effects

    def may_write_over(self, op: Op) -> set[str]:
        """The storages that `op` could write its output over, by layout and role alone: an elementwise op of
        one output over an input of the same shape, strides and bytes that the graph makes and does not
        return, and of which it reads nothing else."""
        if not is_elementwise(op.kind) or len(op.outputs) != 1 or op.mutates:
            return set()
        output, own = self.tensors[op.outputs[0]], self.home[op.outputs[0]]
        if self.maker.get(own) != op.name:
            return set()
        shown: dict[str, set[tuple[tuple[int, ...], tuple[int, ...] | None, int]]] = {}
        for tensor in (self.tensors[name] for name in op.inputs):
            shown.setdefault(tensor.storage, set()).add((tensor.shape, tensor.strides, tensor.offset))
        return {
            storage
            for storage, views in shown.items()
            if {(shape, strides) for shape, strides, _ in views} == {(output.shape, output.strides)}
            and len(views) == 1
            and self.nbytes.get(storage, -1) == self.nbytes.get(own)
            and storage not in self.returned
        }


def check_certificate(graph: Graph, certificate: OrderCertificate) -> list[OrderBreach]:
    """What is wrong with the proof that no order of `graph` has fewer live bytes at its worst than the
    certificate says; [] when nothing is.

    For a flow it is checked that each arc is one of the graph, that no more flows into a storage than it has
    bytes, that it begins only at ops that have run when the op starts, ends only at the op and at storages
    that are returned, and is lost nowhere else: then any set of ops that may have run by then holds at least
    as many live bytes as flow (weak duality). What the op makes itself comes on top.
    """
    return _check_proof(_Facts(graph), certificate, certificate.proof, frozenset())


Assumed = frozenset[tuple[str, str]]
"""Pairs of ops, the first of which runs first in the orders that a part of a proof speaks of."""


def _check_proof(
    facts: _Facts, certificate: OrderCertificate, proof: Proof, assumed: Assumed
) -> list[OrderBreach]:
    if isinstance(proof, CutProof):
        return _check_cut(facts, certificate, proof, assumed)
    if isinstance(proof, ReturnedProof):
        return _check_returned(facts, certificate.nbytes)
    ops = set(proof.ops)
    if not len(proof.proofs) == len(proof.ops) == len(ops) > 0 or not facts.place.keys() >= ops:
        found = f"{len(proof.proofs)} cases, not one for each of {len(ops)} ops of the graph"
        return [OrderBreach(OrderRule.WAYS, ", ".join(proof.ops[:3]), found)]
    breaches = []
    for end, case in zip(proof.ops, proof.proofs, strict=True):
        pairs = ((end, other) if proof.is_first else (other, end) for other in ops - {end})
        breaches += _check_proof(facts, certificate, case, assumed.union(pairs))
    return breaches


def _check_returned(facts: _Facts, needed: int) -> list[OrderBreach]:
    held = sum(nbytes for name, nbytes in facts.nbytes.items() if name in facts.returned & facts.maker.keys())
    return [OrderBreach(OrderRule.ENOUGH, "outputs", f"{held} of {needed} bytes")] if held < needed else []


def _check_cut(
    facts: _Facts, certificate: OrderCertificate, proof: CutProof, assumed: Assumed
) -> list[OrderBreach]:
    op = facts.ops.get(proof.op)
    if op is None:
        return [OrderBreach(OrderRule.WAYS, proof.op, "no op of the graph")]
    ways = {"", *(facts.may_write_over(op) if certificate.in_place else ())}
    given = {flow.over for flow in proof.flows}
    breaches = [OrderBreach(OrderRule.WAYS, op.name, f"none over {over!r}") for over in ways - given]
    made = sum(nbytes for storage, nbytes in facts.nbytes.items() if facts.maker.get(storage) == op.name)
    for flow in proof.flows:
        if flow.op != op.name or (flow.over and not certificate.in_place):
            breaches.append(OrderBreach(OrderRule.WAYS, flow.op, f"a flow of another case than {op.name}"))
        above = 0 if flow.over else made
        breaches += _check_flow(facts, flow, certificate.nbytes - above, assumed)
    return breaches


def _check_flow(facts: _Facts, flow: Flow, needed: int, assumed: Assumed) -> list[OrderBreach]:
    """What is wrong with `flow`, of which `needed` bytes have to arrive."""
    breaches: list[OrderBreach] = []
    surplus: dict[tuple[bool, str], int] = {}
    into_storage: dict[str, int] = {}
    for arc in flow.arcs:
        place = f"{arc.tail} → {arc.head}"
        if arc.nbytes < 0 or not _is_arc(facts, arc, assumed):
            breaches.append(OrderBreach(OrderRule.ARC, place, str(arc.kind)))
        tail, head = (arc.kind is not ArcKind.TOUCHED, arc.tail), (arc.kind is not ArcKind.MAKES, arc.head)
        surplus[tail] = surplus.get(tail, 0) - arc.nbytes
        surplus[head] = surplus.get(head, 0) + arc.nbytes
        if arc.kind is ArcKind.MAKES:
            into_storage[arc.head] = into_storage.get(arc.head, 0) + arc.nbytes
    breaches += [
        OrderBreach(OrderRule.ROOM, storage, f"{nbytes} of {facts.nbytes.get(storage, 0)} bytes")
        for storage, nbytes in into_storage.items()
        if nbytes > facts.nbytes.get(storage, 0)
    ]
    arrived = 0
    for (is_op, name), nbytes in surplus.items():
        may_begin = is_op and _has_run(facts, flow, name, assumed)
        may_end = name == flow.op if is_op else name in facts.returned
        arrived += nbytes if may_end else 0
        if (nbytes < 0 and not may_begin) or (nbytes > 0 and not may_end):
            breaches.append(OrderBreach(OrderRule.KEPT, name, f"{nbytes:+} bytes"))
    if arrived < needed:
        breaches.append(OrderBreach(OrderRule.ENOUGH, flow.op, f"{arrived} of {needed} bytes"))
    return breaches


def _is_arc(facts: _Facts, arc: FlowArc, assumed: Assumed) -> bool:
    if arc.kind is ArcKind.WAITS:
        return facts.must_precede(arc.head, arc.tail) or (arc.head, arc.tail) in assumed
    if arc.kind is ArcKind.MAKES:
        return facts.maker.get(arc.head) == arc.tail and arc.head in facts.nbytes
    return facts.uses(arc.tail, arc.head)


def _has_run(facts: _Facts, flow: Flow, name: str, assumed: Assumed) -> bool:
    """Whether `name` has run when the flow's op starts, in all orders that it speaks of."""
    if facts.must_precede(name, flow.op) or (name, flow.op) in assumed:
        return True
    return bool(flow.over) and name != flow.op and facts.uses(flow.over, name)
