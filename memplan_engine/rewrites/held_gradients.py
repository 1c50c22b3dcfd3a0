"""Why gradients are held: what reads each of them, and what keeps it from being freed before the others are
there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from memplan_engine.errors import InputError
from memplan_engine.graph import PRODUCED, Graph, Op, Phase, Role
from memplan_engine.rewrites.early_updates import at_once, gradient_spans, gradient_storages, updates_early
from memplan_engine.schedule import dependencies

OVER_ALL = {"_foreach_norm", "_foreach_powsum", "_foreach_max"}
"""Operators on lists of tensors that make numbers of them, to be added up over all."""


class HeldBy(StrEnum):
    """What holds gradients: nothing but the order, in which the optimizer comes last; one op that needs them
    all before any parameter can be updated; passes that add to them; the step, which returns them."""

    ORDER = "the optimizer runs after the whole backward pass"
    TOGETHER = "one op needs all of them"
    ACCUMULATED = "several backward passes add to them"
    RETURNED = "the step returns them"


@dataclass(frozen=True, slots=True)
class HeldGradients:
    """Gradients that are held for one reason, those that are there at once at the fullest moment of a run.

    `nbytes` are those of their storages; `tensors` one each. `op` is what stands in the way, None where
    nothing does but the order or the step itself; `readers` are ops that read them besides and update nothing
    (a norm that is logged). Both know their lines.
    """

    why: HeldBy
    tensors: tuple[str, ...]
    nbytes: int
    op: Op | None = None
    readers: tuple[Op, ...] = ()

    @property
    def free(self) -> bool:
        """Whether each can go as soon as its own update has run."""
        return self.why is HeldBy.ORDER

    @property
    def free_by_hooks(self) -> bool:
        """Return whether a hook of each parameter can update it and let its gradient go."""
        return _free_by_hooks(self.why, self.op)


def held_gradients(graph: Graph) -> tuple[HeldGradients, ...]:
    """The gradients of a training step, by what holds them: the storages that its backward pass makes and its
    optimizer reads. () for any other graph, and where the optimizer runs in the backward pass.

    A reader that depends, through ops of the optimizer alone, on other gradients that are live at the same
    time waits for these: the first op on the way that knows of two is what stands in the way. O(ops + reads)
    operations on sets of gradients, and that once more for each gradient that waits.
    """
    if updates_early(graph):
        return ()
    found = _Gradients(graph)
    groups: dict[tuple[HeldBy, object], list[str]] = {}
    ops: dict[tuple[HeldBy, object], Op | None] = {}
    for storage in found.of:
        why, op = found.reason(storage)
        # One line stands in the way of all that it adds to or reads.
        line = (op.kind, op.source or op.name) if op and why is HeldBy.TOGETHER else None
        groups.setdefault((why, line), []).append(storage)
        ops.setdefault((why, line), op)
    order = list(HeldBy)
    there = {key: at_once(graph, storages) for key, storages in groups.items()}
    return tuple(
        HeldGradients(
            key[0],
            tuple(found.shown[storage] for storage in groups[key] if storage in there[key]),
            sum(found.nbytes[storage] for storage in there[key]),
            ops[key],
            tuple(found.readers(groups[key])),
        )
        for key in sorted(groups, key=lambda key: order.index(key[0]))
    )


def gradients(graph: Graph) -> tuple[str, ...]:
    """Return a tensor of each gradient that only the order holds: among the outputs or, in a recorded run, by
    Python beyond its last reader. In the order of the outputs.

    A gradient that waits for others, or to which several backward passes add, is none of them: a hook has it
    alone, as one pass left it. An update of many parameters in one call does not wait: hooks call it for each
    alone. () where the optimizer runs in the backward pass already.
    """
    if updates_early(graph):
        return ()
    found = _Gradients(graph)
    place = {op.name: index for index, op in enumerate(graph.ops)}
    held_by = {each.name: place.get(each.held_by, -1) for each in graph.storages}
    return tuple(
        name
        for storage, name in found.shown.items()
        if storage in found.of
        and (found.returned[storage] == 1 or held_by[storage] > found.of[storage][-1])
        and _free_by_hooks(*found.reason(storage))
    )


def _free_by_hooks(why: HeldBy, op: Op | None) -> bool:
    return why is HeldBy.ORDER or (why is HeldBy.TOGETHER and op is not None and _is_many_at_once(op))


def _is_many_at_once(op: Op) -> bool:
    """Return whether `op` does for each of many tensors what it would do for that one alone."""
    name = op.kind.removeprefix("aten.")
    return name.startswith(("_foreach_", "_fused_")) and name not in OVER_ALL


def why_no_gradients(graph: Graph) -> str:
    """Return why `gradients` of `graph` has none."""
    if not gradient_storages(graph):
        return "no training step: no op of an optimizer reads what a backward pass makes"
    if updates_early(graph):
        return "the optimizer runs in the backward pass already"
    held = [group for group in held_gradients(graph) if not group.free_by_hooks]
    if not held:
        return "each goes with its last reader already"
    op = held[0].op
    where = f" at {op.source}" if op and op.source else ""
    return f"{held[0].why}{f': {op.kind}{where}' if op else ''}"


def free_gradients(graph: Graph) -> Graph:
    """Return `graph` without holding its `gradients`: each dies with its last reader.

    Raises
    ------
    InputError: there are none.
    """
    held = set(gradients(graph))
    if not held:
        expected = "a whole training step that returns its gradients, each with an update that needs no other"
        if any(group.why is HeldBy.TOGETHER for group in held_gradients(graph)):
            expected = "updates that need one gradient each, not clipped together"
        raise InputError(graph.name, "gradients", why_no_gradients(graph), expected)
    outputs = tuple(name for name in graph.outputs if name not in held)
    freed = {tensor.storage for tensor in graph.tensors if tensor.name in held}
    storages = tuple(
        replace(storage, role=Role.ACTIVATION, held_by="") if storage.name in freed else storage
        for storage in graph.storages
    )
    return replace(graph, outputs=outputs, storages=storages)


class _Gradients:
    """The gradients of `graph`, by storage: `of` has the places of the ops that touch each, `shown` a tensor
    of each, `known` for each op of an optimizer the gradients that it depends on, as bits."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.needs = graph, dependencies(graph)
        self.home = {tensor.name: tensor.storage for tensor in graph.tensors}
        self.nbytes = {storage.name: storage.nbytes for storage in graph.storages}
        self.returned = Counter(self.home[name] for name in graph.outputs)
        self.of = gradient_storages(graph)
        self.bit = {storage: 1 << index for index, storage in enumerate(self.of)}
        self.shown: dict[str, str] = {}
        for name in (*graph.outputs, *self.home):
            self.shown.setdefault(self.home[name], name)
        self.spans = gradient_spans(graph)
        self.known = self._known()
        self.updating = self._updating()

    def _known(self) -> list[int]:
        known = [0] * len(self.graph.ops)
        for storage, places in self.of.items():
            for index in places:
                known[index] |= self.bit[storage]
        for index, op in enumerate(self.graph.ops):
            if op.phase is not Phase.OPTIMIZER:
                known[index] = 0
                continue
            for before in self.needs[index]:
                known[index] |= known[before]
        return known

    def _updating(self) -> set[int]:
        """The ops of an optimizer that a write to something that lives on depends on, by place."""
        made = {storage.name for storage in self.graph.storages if storage.role in PRODUCED}
        updating: set[int] = set()
        for index in reversed(range(len(self.graph.ops))):
            op = self.graph.ops[index]
            lives_on = any(self.home[name] not in made for name in op.mutates)
            if op.phase is Phase.OPTIMIZER and (index in updating or lives_on):
                updating |= {index, *self.needs[index]}
        return updating

    def reason(self, storage: str) -> tuple[HeldBy, Op | None]:
        """What holds `storage`, and the op that stands in the way."""
        ops, places = self.graph.ops, self.of[storage]
        if self.returned[storage] > 1:
            return HeldBy.RETURNED, None
        if together := self._first_together(storage):
            return HeldBy.TOGETHER, together
        for index in places[1:]:
            adds = storage in {self.home[name] for name in ops[index].mutates}
            again = any(op.phase is Phase.FORWARD for op in ops[places[0] : index])
            if adds and again and ops[index].phase is Phase.BACKWARD:
                return HeldBy.ACCUMULATED, ops[index]
        return HeldBy.ORDER, None

    def _first_together(self, storage: str) -> Op | None:
        """The first op on the way to a reader of `storage` that knows of another gradient, too."""
        own, (low, high) = self.bit[storage], self.spans[storage]
        others = 0
        for other, (begin, end) in self.spans.items():
            if other != storage and begin <= high and low <= end:
                others |= self.bit[other]
        first = next((index for index in self.of[storage] if self.known[index] & others), None)
        if first is None:
            return None
        waiting, seen = [first], {first}
        while waiting:
            for before in self.needs[waiting.pop()]:
                joins = self.known[before] & own and self.known[before] & others
                if joins and before not in seen:
                    first = min(first, before)
                    seen.add(before)
                    waiting.append(before)
        return self.graph.ops[first]

    def readers(self, storages: Iterable[str]) -> Iterator[Op]:
        """The ops of an optimizer that read `storages` and on which no update depends, one a line."""
        lines: set[object] = set()
        for index in sorted({index for storage in storages for index in self.of[storage]}):
            op = self.graph.ops[index]
            is_view = all(self.home[name] in self.of for name in op.outputs)
            if op.phase is Phase.OPTIMIZER and index not in self.updating and not is_view:
                line = op.source or op.name
                if line not in lines:
                    yield op
                lines.add(line)
