"""Safety mode: a run inside the arena in which every op is watched, and the first one at fault is named."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from memplan_engine.errors import InputError, MemplanError
from memplan_engine.graph import MAX_BYTES, Op, Role
from memplan_engine.plan import Plan
from memplan_engine.runtime.program import Program, flat_outputs
from memplan_engine.runtime.slab.binding import Binding, Region, bind
from memplan_engine.runtime.slab.insert_slab import OP, WRITES, build, memplan
from memplan_engine.runtime.slab.operators import allocate_slab, done
from memplan_engine.runtime.slab.slab_choice import check_values
from memplan_engine.torch_capture.torch_run import brief

GUARD = 64
"""Bytes between buffers, unless told otherwise."""
POISON = 0xFF
"""What bytes hold that belong to no live buffer: as floating-point numbers, NaN."""
QUIET = (done, memplan.allocate_tensor.default, memplan.release_slab.default)


@dataclass(frozen=True, slots=True)
class SafeRun:
    """A run that went through: what forward returned, how many ops were watched, how many bytes of the arena
    were compared in all, and the size of the guarded arena in bytes. `guard` is 0 where buffers lay at their
    very offsets."""

    value: Any
    ops: int
    compared_bytes: int
    arena_bytes: int
    guard: int


def run_safely(
    program: Program,
    plan: Plan,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    guard: int = GUARD,
    force: bool = False,
) -> SafeRun:
    """Run `program` once, with everything that `plan` has in the slab (policy `all`), and watch every op.

    All bytes that belong to no live buffer are poisoned: at the start, and again when a buffer's planned
    lifetime ends. A second copy of the arena is kept; after each op every byte must
    be as it was, but for the buffers that this op writes. This stands for a checksum of each buffer between
    its writer and its readers, and says which bytes changed. Before an op runs, the buffers that it reads
    must be live in the plan, and a buffer that begins must not share a byte with one that is live.

    `guard` bytes are kept free on both sides of each buffer: the offsets are spread apart, so that what
    shares bytes over time still does. A forced plan with overlaps, and one with writes in place, runs at its
    very offsets instead.

    Raises
    ------
    MemplanError, naming op, buffer and bytes: a buffer that begins on a live one, an op that makes a buffer
        before its start or reads one after its end, an op that writes outside of what it makes or mutates.
        InputError: what `bind` refuses (with `force` not overlaps and lifetimes), inputs other than captured,
        a guard below 0.
    """
    if guard < 0:
        raise InputError(program.name, "guard", f"{guard} bytes", "0 or more bytes")
    check_values(program.module, program.name)
    binding = bind(program.graph, plan, force=force)
    if guard and not binding.overlaps and not binding.overwrites:
        guard = _whole(binding, guard)
        binding = spread(binding, guard)
    else:
        guard = 0
    inputs = program.inputs(args, kwargs)
    watch = _Watch(build(program.module, binding, "all"), binding)
    with torch.no_grad():
        values = watch.run(*inputs)
    value = program.outputs(flat_outputs(values), inputs)
    return SafeRun(value, watch.ops, watch.compared, binding.arena_bytes, guard)


def spread(binding: Binding, guard: int) -> Binding:
    """The same binding with at least `guard` free bytes on both sides of every live buffer.

    An offset moves up by one guard, and by one more for each place at or below it at which some buffer ends.
    Buffers that share no bytes stay apart, and of two that have the same bytes one after the other each has
    them still. Guards are a multiple of all alignments.
    """
    guard = _whole(binding, guard)
    edges = sorted({region.high for region in binding.regions.values()})

    def moved(region: Region) -> Region:
        low = region.low + guard * (1 + bisect_right(edges, region.low))
        return replace(region, low=low, high=low + region.high - region.low)

    regions = {name: moved(region) for name, region in binding.regions.items()}
    arena = max((region.high for region in regions.values()), default=0) + guard
    if arena > MAX_BYTES:
        raise InputError(binding.graph.name, "guard", f"{guard} bytes", "an arena of at most 2^63-1 bytes")
    return replace(binding, regions=regions, arena_bytes=arena)


def _whole(binding: Binding, guard: int) -> int:
    """At least `guard` bytes, a multiple of all alignments."""
    unit = lcm(1, *set(binding.plan.problem.alignment.tolist()))
    return -(-guard // unit) * unit


class _Watch(Interpreter):
    """Runs a module that `build` made, node by node, and looks at the arena after each."""

    def __init__(self, module: GraphModule, binding: Binding) -> None:
        super().__init__(module)
        self.extra_traceback = False
        self.binding = binding
        # A sub-graph that only sets a mode is one node, and has several ops.
        self.ops_of: dict[str, list[Op]] = {}
        for op in binding.graph.ops:
            self.ops_of.setdefault(op.name.split(".")[0], []).append(op)
        self.arena = self.shadow = torch.empty(0, dtype=torch.uint8)
        self.placed = {
            node.meta[WRITES]: binding.regions[node.meta[WRITES]]
            for node in module.graph.nodes
            if WRITES in node.meta
        }
        self.live: dict[str, Region] = {}
        self.begun: set[str] = set()
        self.current = ""
        self.ops = self.compared = 0

    def run_node(self, n: Node) -> Any:
        """One node, between the checks before and after it."""
        if n.target is memplan.allocate_slab.default:
            return self._open_arena(*n.args)
        if n.op == "output":
            self._check_returned()
        ops = self.ops_of.get(n.meta.get(OP, ""))
        if n.op != "call_function" or ops is None:
            return super().run_node(n)
        if ops[-1].name != self.current:
            self.current = ops[-1].name
            self.ops += len(ops)
            for op in ops:
                self._begin(op)
        if WRITES in n.meta:
            self._open(n.meta[WRITES], ops[0])
        try:
            value = super().run_node(n)
        except MemplanError:
            raise
        except Exception as error:
            raise MemplanError(f"{self._name(ops[-1])} failed in the arena: {brief(error)}") from error
        if n.target not in QUIET:
            self._compare(ops)
        return value

    def _name(self, op: Op) -> str:
        return f"{self.binding.graph.name}: op {op.name!r} ({op.kind})"

    def _open_arena(self, *args: Any) -> torch.Tensor:
        nbytes, unit, device = args
        self.arena = allocate_slab(nbytes, unit, device)
        self.arena.fill_(POISON)
        self.shadow = self.arena.clone()
        return self.arena

    def _begin(self, op: Op) -> None:
        """The step of `op` begins: what ended before it is poisoned, and what it reads must be live. What it
        makes outside of the slab has its place in the plan as well."""
        step = self.binding.step_of_op[op.name]
        for name in [name for name, region in self.live.items() if region.end <= step]:
            region = self.live.pop(name)
            self.arena[region.low : region.high] = self.shadow[region.low : region.high] = POISON
        for tensor in (*op.inputs, *op.mutates):
            storage = self.binding.tensors[tensor].storage
            planned = self.binding.regions.get(storage)
            if planned is not None and storage not in self.live and storage in self.begun:
                raise MemplanError(
                    f"{self._name(op)} at step {step} reads buffer {storage!r}, bytes {_bytes(planned)}, "
                    f"which is live only during steps {planned.start} to {planned.end - 1}"
                )
        for storage in {self.binding.tensors[name].storage for name in op.outputs}:
            if storage in self.binding.regions.keys() - self.placed.keys() - self.begun:
                self._open(storage, op)

    def _open(self, storage: str, op: Op) -> None:
        """Room for `storage` is made: no live buffer may have any of its bytes."""
        if storage in self.live:
            return
        self.begun.add(storage)
        region = self.binding.regions[storage]
        step = self.binding.step_of_op[op.name]
        if step < region.start:
            raise MemplanError(
                f"{self._name(op)} at step {step} makes buffer {storage!r}, bytes {_bytes(region)}, "
                f"which is live only during steps {region.start} to {region.end - 1}"
            )
        overwritten = self.binding.overwrites.get(storage, frozenset()) & self.live.keys()
        for name in overwritten:
            # They are read and written over by this very op.
            del self.live[name]
        for other in self.live.values():
            low, high = max(region.low, other.low), min(region.high, other.high)
            if low < high:
                raise MemplanError(
                    f"{self._name(op)} makes buffer {storage!r} at bytes {_bytes(region)}, of which "
                    f"{low}–{high - 1} ({high - low} bytes) belong to {other.storage!r}, which is live"
                )
        self.live[storage] = region

    def _check_returned(self) -> None:
        """What the graph returns must have been live to the end."""
        for storage in self.binding.graph.storages:
            name, region = storage.name, self.binding.regions.get(storage.name)
            if storage.role is not Role.OUTPUT or region is None:
                continue
            if region.end < self.binding.spans[name][1]:
                raise MemplanError(
                    f"{self.binding.graph.name}: after the last op the graph returns buffer {name!r}, bytes "
                    f"{_bytes(region)}, which is live only during steps {region.start} to {region.end - 1}"
                )

    def _compare(self, ops: Sequence[Op]) -> None:
        """Every byte but those of the buffers that `ops` make or mutate is as it was."""
        changed: set[str] = set()
        for op in ops:
            names = {self.binding.tensors[name].storage for name in op.outputs}
            step = self.binding.step_of_op[op.name]
            changed |= {self.binding.tensors[name].storage for name in op.mutates}
            changed |= {name for name in names if self.binding.spans[name][0] == step}
        changed &= self.live.keys() & self.placed.keys()
        written = sorted((self.live[name].low, self.live[name].high) for name in changed)
        begin = 0
        for low, high in [*written, (len(self.arena), len(self.arena))]:
            if begin < low:
                self.compared += low - begin
                if not torch.equal(self.arena[begin:low], self.shadow[begin:low]):
                    raise MemplanError(self._damage(ops[-1], begin, low))
            begin = max(begin, high)
        for low, high in written:
            self.shadow[low:high] = self.arena[low:high]

    def _damage(self, op: Op, begin: int, end: int) -> str:
        """What changed in bytes `[begin, end)` that `op` had no business in."""
        places = (self.arena[begin:end] != self.shadow[begin:end]).nonzero().flatten()
        low, high = begin + int(places[0]), begin + int(places[-1])
        owner = next((r for r in self.live.values() if r.low <= low < r.high), None)
        what = f"which belong to buffer {owner.storage!r}" if owner else self._free(low)
        return f"{self._name(op)} wrote into bytes {low}–{high} of the arena, {what}"

    def _free(self, place: int) -> str:
        """Where among the live buffers the free byte `place` lies."""
        below = max((r for r in self.live.values() if r.high <= place), key=lambda r: r.high, default=None)
        if below is None:
            return "which belong to no live buffer"
        return f"free bytes {place - below.high} behind buffer {below.storage!r} ({_bytes(below)})"


def _bytes(region: Region) -> str:
    return f"{region.low}–{region.high - 1}"
