"""What ExecuTorch asks to be planned of one graph module, on one clock with the modules that it calls.

`cond`, `map` and `scan` call graph modules. ExecuTorch plans each of them by itself, from the first byte of
the arena, and reserves what the largest needs as long as the method runs. Here a call takes as many steps as
the nodes that it runs, the branches of a `cond` one behind the other, and all is one problem.

The outputs of a branch are moved to those of the `cond` as pointers, not as bytes (`MoveCall`): from then on
the `cond`'s output lies where the branch made it. So both branches make it in the bytes of the `cond`'s own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from memplan_engine.errors import PlanError

PLANNED = "non_const_buffer_sizes"
"""The key in the meta of a module that ExecuTorch has had planned."""
COND = "cond"
DEFAULT_MEMORY = 1
"""The memory of tensors that ask for none: 0 has the constants."""


class Spec(Protocol):
    """What is read of ExecuTorch's `TensorSpec`; `lifetime` is the first and the last node, both in it."""

    mem_id: int | None
    lifetime: list[int | None]
    storage_base_offset: int
    alignment: int

    @property
    def storage_base(self) -> Spec | None:
        """The tensor in whose bytes it lies."""

    @property
    def allocated_memory(self) -> int:
        """Bytes, rounded up to the alignment."""

    def realign(self, new_alignment: int) -> int:
        """Ask for another alignment."""


@dataclass(frozen=True, slots=True)
class Call:
    """The node `at` that calls `regions`. `moved` has, for a `cond`, its outputs each with what the branches
    return for it: None for what they pass on from outside; `operands` is what the node reads."""

    at: int
    regions: tuple[Region, ...]
    moved: tuple[tuple[Spec, tuple[Spec | None, ...]], ...]
    operands: tuple[Spec, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """One graph module: its specs, each with its first and its last node of `nodes`, and its calls."""

    nodes: int
    lives: tuple[tuple[Spec, int, int], ...]
    calls: tuple[Call, ...]


@dataclass(slots=True)
class Life:
    """A buffer: from the step `start` to the step `end`, both inclusive; the specs that lie in it."""

    start: int
    end: int
    specs: list[Spec] = field(default_factory=list)


def make_region(specs: Iterable[Spec], module: Any, known: Any) -> Region:
    """The region of a graph module of which `specs` are to be planned; `known` maps the modules that it calls
    to their regions.

    Raises
    ------
    PlanError: a spec without a lifetime.
    """
    lives = []
    for spec in specs:
        start, end = spec.lifetime
        if start is None or end is None:
            raise PlanError("a tensor without a lifetime: found none, expected the first and the last node")
        lives.append((spec, start, end))
    nodes = list(module.graph.nodes)
    calls = tuple(_calls(module, nodes, known)) if getattr(module, "input_mem_buffer_sizes", None) else ()
    return Region(len(nodes), tuple(lives), calls)


def _calls(module: Any, nodes: Sequence[Any], known: Any) -> Iterator[Call]:
    for at, node in enumerate(nodes):
        called = [getattr(module, each.target) for each in node.args if getattr(each, "op", "") == "get_attr"]
        called = [each for each in called if PLANNED in getattr(each, "meta", {})]
        if called:
            regions = tuple(known[each] for each in called)
            moved: list[tuple[Spec, tuple[Spec | None, ...]]] = []
            if getattr(node.target, "__name__", "") == COND:
                returned = [_returned(each, region) for each, region in zip(called, regions, strict=True)]
                moved = list(zip(_flat(node.meta["spec"]), zip(*returned, strict=True), strict=True))
            read = (
                spec for each in _flat(node.args) for spec in _flat(getattr(each, "meta", {}).get("spec"))
            )
            operands = tuple(spec for spec in read if hasattr(spec, "lifetime"))
            yield Call(at, regions, tuple(moved), operands)


def _returned(module: Any, region: Region) -> list[Spec | None]:
    own = {id(spec) for spec, _, _ in region.lives}
    last = list(module.graph.nodes)[-1]
    return [spec if id(spec) in own else None for spec in _flat(last.meta["spec"])]


def _flat(tree: Any) -> list[Any]:
    if isinstance(tree, (list, tuple)):
        return [each for branch in tree for each in _flat(branch)]
    return [tree]


def memory_of(spec: Spec) -> int:
    """The number of the memory in which it lies."""
    return DEFAULT_MEMORY if spec.mem_id is None else spec.mem_id


class Clock:
    """All that a region and the regions that it calls need, on one clock."""

    def __init__(self, region: Region) -> None:
        self.lives: dict[int, Life] = {}
        """By the identity of each spec; specs that share their bytes share one."""
        self.steps = 0
        self._run(region)
        for spec in [spec for life in self.buffers() for spec in life.specs]:
            self._hold_bases(spec)

    def buffers(self) -> list[Life]:
        """Each once, in the order in which they begin."""
        found = {id(life): life for life in self.lives.values()}
        return sorted(found.values(), key=lambda life: (life.start, life.end))

    def _run(self, region: Region) -> None:
        first, last = [], []
        calls = {call.at: call for call in region.calls}
        for at in range(region.nodes):
            first.append(self.steps)
            for called in calls[at].regions if at in calls else ():
                self._run(called)
            self.steps += 1
            last.append(self.steps - 1)
        for spec, start, end in region.lives:
            self.lives[id(spec)] = Life(first[start], last[end], [spec])
        for call in region.calls:
            self._move(call, last)

    def _move(self, call: Call, last: list[int]) -> None:
        """Have outputs of branches and of their `cond` share their bytes. Where they cannot, what a branch
        returns is held for as long as the `cond`'s output, which is then a pointer to it."""
        times = Counter(id(each) for _, returned in call.moved for each in returned)
        for output, returned in call.moved:
            own = self.lives.get(id(output))
            made = [self.lives[id(each)] for each in returned if each is not None]
            alone = all(
                each is not None
                and each.storage_base is None
                and times[id(each)] == 1
                and memory_of(each) == memory_of(output)
                for each in returned
            )
            if own is not None and alone:
                specs = [spec for life in (own, *made) for spec in life.specs]
                end = max(own.end, *(life.end for life in made))
                shared = Life(min(life.start for life in made), end, specs)
                self.lives |= {id(spec): shared for spec in specs}
                continue
            until = output.lifetime[1]
            end = own.end if own else last[-1 if until is None else until]
            passed_on = call.operands if None in returned else ()
            for life in (*made, *(self.lives[id(each)] for each in passed_on if id(each) in self.lives)):
                life.end = max(life.end, end)

    def _hold_bases(self, spec: Spec) -> None:
        """The tensors in whose bytes `spec` lies are there as long as it."""
        life, base = self.lives[id(spec)], spec.storage_base
        while base is not None:
            held = self.lives.get(id(base))
            if held is None:
                raise PlanError("a tensor in the bytes of one that is not planned: plan both, or neither")
            held.start, held.end = min(held.start, life.start), max(held.end, life.end)
            base = base.storage_base
