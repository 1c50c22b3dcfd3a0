"""The checker of bounds on the time of recomputation. It works from the graph alone, in plain Python and in
fractions, and shares no code with what made the proof; what is known of op kinds is all that both go by."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from fractions import Fraction

from memplan_engine.graph import PRODUCED, Graph
from memplan_engine.op_kinds.generators import is_of_own_code
from memplan_engine.op_kinds.ordered import ONCE, draws, has_effect
from memplan_engine.rewrites.recompute.time_proof import PARTS, TimeArc, TimeArcKind, TimeProof
from memplan_engine.rewrites.reuse.kinds import is_concat, is_elementwise


def check_time_proof(
    graph: Graph,
    nanoseconds: Sequence[int],
    proof: TimeProof,
    capacity: int,
    claimed: float,
    *,
    in_place: bool = False,
    redraws: bool = False,
) -> list[str]:
    """What is wrong with the claim that every schedule of `graph`, whose ops take `nanoseconds` each, within
    `capacity` live bytes runs ops again for at least `claimed` ns; [] when nothing is.

    It is checked that each arc is one of the graph and carries no more than it may; that nothing begins but
    at ops that have run by then in every schedule, and nothing ends but at those that have in none and at
    storages that are returned; and that what begins, with the bytes that the op needs itself and less what
    the capacity is worth at the price, comes to the claim. `in_place`: the claim is of schedules, too, in
    which elementwise ops write over what they read and what is concatenated is made where it goes; `redraws`,
    in which ops that draw random numbers run again, too, and with them those that fill the same storage
    before anything reads it.
    """
    if claimed <= 0:
        return []
    facts = _Facts(graph, redraws)
    if in_place:
        facts.nbytes |= dict.fromkeys(facts.joined & facts.nbytes.keys(), 0)
    if proof.op not in facts.place or proof.price < 0 or facts.fills_on(proof.op):
        return [f"{proof.op}: no op of the graph, one of several that fill a storage, or a price below 0"]
    before, behind = facts.before(proof.op), facts.behind(proof.op)
    own = {storage for storage in facts.reads[proof.op] if storage in facts.nbytes}
    wrong: list[str] = []
    surplus: dict[tuple[_Node, str], int] = {}
    for arc in proof.arcs:
        wrong += _wrong_arc(facts, arc)
        tail, head = _ENDS[arc.kind]
        surplus[tail, arc.tail] = surplus.get((tail, arc.tail), 0) + arc.parts
        if arc.head:
            surplus[head, arc.head] = surplus.get((head, arc.head), 0) - arc.parts
    for (kind, name), parts in _carried(proof).items():
        if kind is TimeArcKind.HELD:
            room = Fraction(0) if name in own else proof.price * facts.nbytes.get(name, 0)
        elif name not in facts.again:
            continue
        else:
            room = Fraction(sum(nanoseconds[facts.place[each]] for each in facts.runs(name, before)))
        if parts > room * PARTS:
            wrong.append(f"{name}: {parts} parts through an arc of {float(room * PARTS):.0f}")
    given = 0
    for (node, name), parts in surplus.items():
        if parts > 0 and node is _Node.RAN and name in before:
            given += parts
        elif parts > 0 or (parts < 0 and not (node is _Node.RAN and name in behind)):
            wrong.append(f"{name}: {parts} parts more flow out than in")
    made = 0 if in_place and proof.op in facts.reusing else facts.made_bytes(proof.op)
    held = sum(facts.nbytes[name] for name in own) + made
    proved = Fraction(given, PARTS) + proof.price * (held - capacity)
    if proved < Fraction(claimed):
        wrong.append(f"{proof.op}: {float(proved):.1f} ns of {claimed:.1f}")
    return wrong


class _Node(Enum):
    """What a node says of the first execution of an op."""

    RAN = auto()
    """An op has run."""
    DONE = auto()
    """It has, and does not run again."""
    STORAGE = auto()


_ENDS = {
    TimeArcKind.WAITS: (_Node.RAN, _Node.RAN),
    TimeArcKind.AGAIN: (_Node.RAN, _Node.DONE),
    TimeArcKind.SPOILED: (_Node.RAN, _Node.DONE),
    TimeArcKind.FIRST: (_Node.DONE, _Node.RAN),
    TimeArcKind.HELD: (_Node.DONE, _Node.STORAGE),
    TimeArcKind.READ: (_Node.STORAGE, _Node.DONE),
}


def _carried(proof: TimeProof) -> dict[tuple[TimeArcKind, str], int]:
    """What flows through the arcs that have no room for any amount, all together, by op and by storage."""
    found: dict[tuple[TimeArcKind, str], int] = {}
    for arc in proof.arcs:
        if arc.kind in (TimeArcKind.AGAIN, TimeArcKind.HELD):
            found[arc.kind, arc.head] = found.get((arc.kind, arc.head), 0) + arc.parts
    return found


def _wrong_arc(facts: _Facts, arc: TimeArc) -> list[str]:
    if arc.parts < 0:
        return [f"{arc.tail}: a negative flow"]
    ops = {
        name
        for name, node in zip((arc.tail, arc.head), _ENDS[arc.kind], strict=True)
        if node is not _Node.STORAGE and name
    }
    if any(name not in facts.place or facts.is_further_fill(name) for name in ops):
        right = False
    elif arc.kind is TimeArcKind.WAITS:
        right = arc.head in facts.waits[arc.tail] or arc.head in facts.before(arc.tail)
    elif arc.kind is TimeArcKind.SPOILED:
        right = arc.tail in facts.spoiling(arc.head)
    elif arc.kind is TimeArcKind.HELD:
        right = arc.head in facts.nbytes and facts.maker[arc.head] == arc.tail
    elif arc.kind is TimeArcKind.READ:
        read = facts.reads[arc.head] if arc.head else facts.returned
        right = arc.tail in facts.nbytes and arc.tail in read
    else:
        right = arc.tail == arc.head
    return [] if right else [f"{arc.tail} → {arc.head}: no such arc"]


class _Facts:
    """Of the storages that ops make the bytes, the maker and who reads them; of the ops what they read, which
    may run again, who writes over something that they read or made, and what runs before each. `joined` are
    concatenations, `reusing` may write their results where what they read is. `fills` has, where random
    numbers may be drawn again, by the maker of a storage those that fill it before anything reads it."""

    def __init__(self, graph: Graph, redraws: bool) -> None:
        home = {tensor.name: tensor.storage for tensor in graph.tensors}
        sizes = {s.name: s.nbytes for s in graph.storages if s.role in PRODUCED and s.nbytes}
        joining = [op for op in graph.ops if is_concat(op.kind)]
        self.joined = {home[name] for op in joining for name in op.outputs}
        # These make nothing beside what they read where they write it in place.
        self.reusing = {op.name for op in graph.ops if is_elementwise(op.kind) or is_concat(op.kind)}
        self.ops = [op.name for op in graph.ops]
        self.place = {name: place for place, name in enumerate(self.ops)}
        self.returned = {home[name] for name in graph.outputs}
        self.maker: dict[str, str] = {}
        self.reads: dict[str, set[str]] = {}
        self.again: set[str] = set()
        self.writers: dict[str, set[str]] = {op.name: set() for op in graph.ops}
        self.waits: dict[str, set[str]] = {}
        made_by: dict[str, str] = {}
        touched: dict[str, list[tuple[str, bool]]] = {}
        kept_order: dict[str, str] = {}
        drawing: list[str] = []
        for op in graph.ops:
            inputs = {home[name] for name in (*op.inputs, *op.mutates)}
            outputs = {home[name] for name in op.outputs} - inputs
            begun = {name for name in outputs if name in touched}
            writes = {home[name] for name in op.mutates} | begun
            waits = {made_by[name] for name in (*op.inputs, *op.mutates) if name in made_by}
            for storage in inputs | outputs:
                writing = storage in writes or storage in outputs
                waits |= {other for other, wrote in touched.get(storage, ()) if wrote or writing}
                if storage in writes:
                    for other, _ in touched.get(storage, ()):
                        self.writers[other].add(op.name)
                touched.setdefault(storage, []).append((op.name, writing))
                if storage in sizes:
                    self.maker.setdefault(storage, op.name)
            random, effect = draws(op, not outputs and not op.mutates), has_effect(op)
            for kind, belongs in (("random", random), ("effect", effect)):
                if belongs:
                    waits |= {kept_order[kind]} if kind in kept_order else set()
                    kept_order[kind] = op.name
            made_by |= dict.fromkeys(op.outputs, op.name)
            self.waits[op.name] = waits - {op.name}
            self.reads[op.name] = {
                name for name in inputs | outputs if self.maker.get(name, op.name) != op.name
            }
            if random:
                drawing.append(op.name)
            own = op.kind == ONCE or is_of_own_code(op.kind)
            if not (writes or effect or (random and (own or not redraws))):
                self.again.add(op.name)
        self.fills = self._fills(graph, touched, drawing) if redraws else {}
        self.again |= self.fills.keys()
        self.nbytes = {name: size for name, size in sizes.items() if name in self.maker}

    def _fills(
        self, graph: Graph, touched: dict[str, list[tuple[str, bool]]], drawing: list[str]
    ) -> dict[str, set[str]]:
        """By maker the ops that write to its storage before anything reads it, where these touch nothing more
        that ops make, some of them draw, no other op draws in between, and none writes over what they read.
        """
        home = {tensor.name: tensor.storage for tensor in graph.tensors}
        by_name = {op.name: op for op in graph.ops}
        found: dict[str, set[str]] = {}
        for storage in self.maker:
            own: list[str] = []
            for name, _ in touched[storage]:
                op = by_name[name]
                written = {home[each] for each in op.mutates}
                others = {home[each] for each in (*op.inputs, *op.outputs)} - {storage}
                made = {home[each] for each in op.outputs}
                first = not own and not written and name == self.maker[storage] and made == {storage}
                further = bool(own) and written == {storage} and not others & self.maker.keys()
                if op.kind == ONCE or not (first or (further and made <= {storage})):
                    break
                own.append(name)
            if len(own) > 1 and self._runs_as_one(graph, home, own, drawing):
                found[own[0]] = set(own)
        return found

    def _runs_as_one(self, graph: Graph, home: dict[str, str], own: list[str], drawing: list[str]) -> bool:
        places = [place for place, name in enumerate(drawing) if name in own]
        if not places or places[-1] - places[0] + 1 != len(places):
            return False
        between = [o for o in graph.ops[self.place[own[0]] : self.place[own[-1]]] if o.name not in own]
        read = {home[each] for name in own for each in graph.ops[self.place[name]].inputs}
        return not any(read & {home[each] for each in op.mutates} for op in between)

    def spoiling(self, op: str) -> set[str]:
        """Who writes over what `op` reads or made, and what those do that fill the same storage with it."""
        own = self.fills.get(op, {op})
        return {writer for name in own for writer in self.writers[name]} - own

    def fills_on(self, op: str) -> bool:
        """Whether `op` is one of several that fill a storage."""
        return any(op in own for own in self.fills.values())

    def is_further_fill(self, op: str) -> bool:
        """Whether `op` is one of several that fill a storage, and not the first of them."""
        return op not in self.fills and self.fills_on(op)

    def runs(self, op: str, before: set[str]) -> set[str]:
        """What runs again with `op`: of several that fill a storage only what has surely run `before`."""
        return self.fills[op] & before if op in self.fills else {op} & self.place.keys()

    def before(self, op: str) -> set[str]:
        """What has run before the first execution of `op`, in every schedule."""
        found: set[str] = set()
        stack = list(self.waits[op])
        while stack:
            name = stack.pop()
            if name not in found:
                found.add(name)
                stack += self.waits[name]
        return found

    def behind(self, op: str) -> set[str]:
        """`op`, and what runs behind its first execution in every schedule."""
        found = {op}
        for name in self.ops[self.place[op] + 1 :]:
            if self.waits[name] & found:
                found.add(name)
        return found

    def made_bytes(self, op: str) -> int:
        """What `op` makes itself."""
        return sum(size for storage, size in self.nbytes.items() if self.maker[storage] == op)
