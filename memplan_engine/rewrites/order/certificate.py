"""What proves that no order needs fewer bytes: flows, one for an op, or a tree of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum


class ArcKind(StrEnum):
    """What an arc of a flow says of every closed set of ops that has its tail, and what it may carry."""

    WAITS = "waits"
    """From an op to one that runs before it in every order: if the first has run, so has the second; any
    amount."""
    MAKES = "makes"
    """From an op to a storage that it makes: as many bytes as the storage has."""
    TOUCHED = "touched"
    """From a storage to an op that touches it, other than its maker; any amount."""


@dataclass(frozen=True, slots=True)
class FlowArc:
    """`nbytes` flow from `tail` to `head`, names of ops and storages as `kind` says."""

    kind: ArcKind
    tail: str
    head: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class Flow:
    """A flow from ops that have run when `op` starts to `op` and to storages that are returned. Whatever else
    has run by then, as many bytes as flow are live beside what the op itself makes. With `over` it speaks of
    the orders in which the op writes its output over that storage, and is the last to touch it."""

    op: str
    arcs: tuple[FlowArc, ...]
    over: str = ""


@dataclass(frozen=True, slots=True)
class CutProof:
    """While `op` runs, this much is live in every order: a flow for each way in which it can run, the first
    for that in which it writes over nothing."""

    op: str
    flows: tuple[Flow, ...]


@dataclass(frozen=True, slots=True)
class CasesProof:
    """Of `ops` one runs before all others, or, unless `is_first`, after all others: for each a proof for the
    orders in which that is the one."""

    ops: tuple[str, ...]
    is_first: bool
    proofs: tuple[Proof, ...]


@dataclass(frozen=True, slots=True)
class ReturnedProof:
    """What ops make and the graph returns is live once the last op runs, whichever that is: no flow."""

    flows: tuple[Flow, ...] = field(default=(), init=False)


Proof = CutProof | CasesProof | ReturnedProof


@dataclass(frozen=True, slots=True)
class OrderCertificate:
    """No order of the graph has fewer than `nbytes` live bytes at its worst. `in_place`: not even where ops
    write over inputs that die with them."""

    nbytes: int
    proof: Proof
    in_place: bool = False

    @property
    def flows(self) -> tuple[Flow, ...]:
        """All of its flows."""
        return tuple(flows_of(self.proof))

    @property
    def arcs(self) -> int:
        """How many arcs its flows have in all."""
        return sum(len(flow.arcs) for flow in self.flows)


def flows_of(proof: Proof) -> Iterator[Flow]:
    """All flows of a proof."""
    if isinstance(proof, CasesProof):
        for case in proof.proofs:
            yield from flows_of(case)
    else:
        yield from proof.flows
