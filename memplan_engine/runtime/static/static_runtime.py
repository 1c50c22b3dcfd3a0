"""A model as records over registers, with one buffer for all that its operators write where they are told.

After Static Runtime of PyTorch: its memory planner gives every managed storage a slot of its own in one
buffer, as large as the storage has ever been. Here the slots share bytes over time, by any strategy.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import torch
from torch.utils import _pytree as pytree

from memplan_engine.errors import MemplanError
from memplan_engine.lifetimes import DEFAULT_ALIGNMENT
from memplan_engine.plan import Plan
from memplan_engine.runtime.program import Program
from memplan_engine.runtime.signature import check_inputs
from memplan_engine.runtime.slab.insert_slab import OP, insert_slab, slab_device_of
from memplan_engine.runtime.slab.operators import allocate_slab
from memplan_engine.runtime.slab.slab_report import IN_PLACE, share_in_place
from memplan_engine.runtime.static.static_export import Export, call_of, export, returned
from memplan_engine.runtime.static.static_records import Record, Tape, make_tape
from memplan_engine.runtime.static.static_reports import (
    Benchmark,
    MemoryReport,
    Replan,
    WatchedNodes,
    check_turns,
    run_benchmark,
)
from memplan_engine.runtime.static.static_storages import (
    ODD,
    FirstRun,
    Managed,
    Slots,
    find_managed,
    observed,
    part_of,
    without,
)
from memplan_engine.runtime.trial.equality import restoring, written_tensors
from memplan_engine.strategies import get_strategy
from memplan_engine.strategies.base import Strategy

SHAPES = 32
"""For so many different shapes of inputs what was prepared is kept."""
OFF = "out variants are switched off"
log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Shaped:
    """All that depends on the shapes of the inputs: the program for them, its storages, its records without
    a plan, and with `plan` where they were made for one; `proved` once these have run as they should."""

    program: Program
    managed: Managed
    unplanned: Tape
    planned: Tape | None = None
    plan: Plan | None = None
    proved: bool = False


class StaticRuntime:
    """A model that runs over and over in one buffer.

    It is exported with the `example_inputs` (a tuple of arguments, or a dict of keyword arguments, or both
    with `example_kwargs`), in the mode it is in, and called as `forward` is: the same nested outputs, bit for
    bit, inputs and buffers mutated alike. The weights are the model's own. The first run is not planned: it
    shows the storages and their sizes. From the second on those that operators write through `out` variants
    lie in one buffer, planned by `strategy`; the graph's outputs never do. One run at a time: a call while
    another is under way, from whatever thread, is an error.

    Parameters
    ----------
    strategy: a name (`known_strategies()`) or a strategy of one's own; "naive" is a slot for every storage.
    seconds: limit of a strategy that searches.
    cleanup_activations: release the buffer after each run; otherwise it is kept.
    enable_out_variants: without them nothing is planned.
    dynamic_shapes: as `capture` takes them; larger inputs then grow the buffer (`replans`).

    Raises
    ------
    InputError: a model that cannot be exported, an unknown strategy.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        example_inputs: Sequence[Any] | Mapping[str, Any] = (),
        example_kwargs: Mapping[str, Any] | None = None,
        *,
        strategy: str | Strategy = "greedy_by_size",
        seconds: float = 1.0,
        cleanup_activations: bool = True,
        enable_out_variants: bool = True,
        dynamic_shapes: Any = None,
        name: str | None = None,
    ) -> None:
        args, kwargs = call_of(example_inputs, example_kwargs)
        strategy = get_strategy(strategy) if isinstance(strategy, str) else strategy
        self.export: Export = export(module, args, kwargs, dynamic_shapes, name)
        self.module = module
        self.cleanup_activations, self.enable_out_variants = cleanup_activations, enable_out_variants
        self.runs = 0
        self.slots = Slots(self.export.name, strategy, seconds)
        self._replans: list[Replan] = []
        self._shaped: dict[Any, Shaped] = {}
        self._odd: frozenset[str] = frozenset()
        self._slab: torch.Tensor | None = None
        self._tensors = 0
        self._busy = threading.Lock()
        self._latest = self._prepare(self.export.leaves(args, kwargs))

    @property
    def name(self) -> str:
        """The model's."""
        return self.export.name

    @property
    def replans(self) -> tuple[Replan, ...]:
        """When the plan was made anew, and why; the first plan is not among them."""
        return tuple(self._replans)

    @property
    def plan(self) -> Plan | None:
        """The plan of the buffer; None before the first run has ended."""
        return self.slots.plan

    @property
    def tape(self) -> Tape:
        """The records of the latest run, or of the next one where there was none."""
        return self._latest.planned or self._latest.unplanned

    @property
    def records(self) -> tuple[Record, ...]:
        """One for each node."""
        return self.tape.records

    @property
    def buffer_held(self) -> int:
        """Bytes of the buffer that are allocated now."""
        return 0 if self._slab is None else self._slab.untyped_storage().nbytes()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What `forward(*args, **kwargs)` returns; raises as `run` does."""
        return self.run(args, kwargs)

    def run(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """What `forward(*args, **kwargs)` returns.

        Raises
        ------
        InputError, naming the input: arguments of another form, shape, type, device or strides than captured,
            but for dynamic dimensions within their ranges. MemplanError: another run is under way; an
            operator fails, by name.
        """
        # No context managers of Python's here: in a small model each takes as long as an op.
        self._claim()
        try:
            leaves, shaped = self.checked(args, kwargs or {})
            values = self._first(shaped, leaves) if self.runs == 0 else self._planned(shaped, leaves)
            self.runs += 1
            return returned(shaped.program, values, leaves)
        finally:
            self._busy.release()

    def checked(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], Shaped]:
        """The flat inputs of a call, and what there is for their shapes. Raises InputError as `run` does."""
        leaves = self.export.leaves(args, kwargs)
        shaped = self._shaped.get(self._key(leaves))
        if shaped is None:
            shaped = self._prepare(leaves)
        else:
            check_inputs(shaped.program.expected, leaves, self.name)
        self._latest = shaped
        return leaves, shaped

    def refresh_plan(self, shaped: Shaped, leaves: Sequence[Any]) -> Tape:
        """The records of `shaped` for the plan that there is, which is made anew where it is too small."""
        if shaped.planned is not None and shaped.plan is self.slots.plan:
            return shaped.planned
        before = self.slots.nbytes
        grown = self.slots.admit(shaped.managed.slots, shaped.program.graph)
        if grown is not None and self.runs:
            names = (entry.name for entry in self.export.program.expected)
            shapes = [(n, tuple(v.shape)) for n, v in zip(names, leaves, strict=True) if hasattr(v, "shape")]
            replan = Replan(self.runs + 1, before, self.slots.nbytes, grown, tuple(shapes))
            self._replans.append(replan)
            log.warning("%s: %s", self.name, replan)
        plan = self.slots.plan
        shaped.planned, shaped.plan = self._bound(shaped, plan, grown is not None), plan
        shaped.proved = False
        return shaped.planned

    def memory_report(self) -> MemoryReport:
        """The buffer in figures; before the first run has ended there is none."""
        managed, plan = self._latest.managed, self.slots.plan
        extra = self._latest.program.state[len(self.export.program.state) :]
        return MemoryReport(
            self.slots.strategy if isinstance(self.slots.strategy, str) else self.slots.strategy.name,
            self.slots.nbytes,
            self.buffer_held,
            self.slots.slots_bytes,
            0 if plan is None else plan.bound.nbytes,
            len(self.slots.slots),
            self._tensors,
            sum(slot.nbytes for slot in self.slots.slots.values()),
            share_in_place(managed.storages, managed.returned),
            sum(tensor.nbytes for tensor in extra),
            tuple(entry for entry in managed.storages if entry.way not in IN_PLACE),
            len(self._replans),
        )

    def benchmark(
        self,
        args: Sequence[Any] | Mapping[str, Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        warmup: int = 2,
        runs: int = 10,
    ) -> Benchmark:
        """Milliseconds of this runtime, of eager and of torch's interpreter of fx graphs, in turns.

        Raises
        ------
        InputError: as `run` does; fewer than 0 warm-ups or than 1 run.
        """
        check_turns(warmup, runs, self.name)
        # On copies: the model may write its inputs. What it writes into its buffers is put back at the end.
        call = call_of(args, kwargs)
        places, named = pytree.tree_map_only(torch.Tensor, lambda leaf: leaf.detach().clone(), call)
        with self.one_at_a_time():
            leaves, shaped = self.checked(places, named)
        program = shaped.program
        written = written_tensors(program, [*program.state, *leaves])
        with restoring(written, torch.initial_seed()), torch.no_grad():
            if self.runs == 0:
                self.run(places, named)
            with self.one_at_a_time():
                leaves, shaped = self.checked(places, named)
                tape = self.refresh_plan(shaped, leaves)
            watched = WatchedNodes(tape, {op.name: op.kind for op in program.graph.ops}, warmup)
            calls = (
                lambda: self.run(places, named),
                lambda: self.module(*places, **named),
                lambda: shaped.program.interpret(places, named),
                lambda: self._watched(places, named, watched),
            )
            return run_benchmark(self.name, calls, watched, runs)

    def _watched(self, args: Sequence[Any], kwargs: Mapping[str, Any], watched: WatchedNodes) -> None:
        """One iteration in which every record is timed."""
        began = perf_counter_ns()
        with self.one_at_a_time():
            leaves, _ = self.checked(args, kwargs)
            with self.buffer():
                watched.setup.append(perf_counter_ns() - began)
                watched.tape.watched(leaves, watched.around)

    @contextmanager
    def one_at_a_time(self) -> Iterator[None]:
        """Raise MemplanError where a run is under way."""
        self._claim()
        try:
            yield
        finally:
            self._busy.release()

    def _claim(self) -> None:
        if not self._busy.acquire(blocking=False):
            raise MemplanError(
                f"{self.name}: a run is under way already; give each thread a runtime of its own"
            )

    @contextmanager
    def buffer(self) -> Iterator[None]:
        """With the buffer allocated."""
        self._hold()
        try:
            yield
        finally:
            self._let_go()

    def _hold(self) -> None:
        if self._slab is None:
            return
        storage, nbytes = self._slab.untyped_storage(), self._slab.shape[0]
        if storage.nbytes() < nbytes:
            try:
                storage.resize_(nbytes)
            except RuntimeError as error:
                found = f"{self.name}: {nbytes} bytes are more than {self._slab.device} can allocate"
                raise MemplanError(found) from error

    def _let_go(self) -> None:
        if self._slab is not None and self.cleanup_activations:
            self._slab.untyped_storage().resize_(0)

    def _first(self, shaped: Shaped, leaves: Sequence[Any]) -> list[Any]:
        """A run without a plan, which sees what is made; then the plan."""
        watch = FirstRun()
        with torch.no_grad():
            values, out = watch.run(shaped.unplanned, leaves)
        managed = observed(shaped.managed, shaped.program.graph, watch, out)
        self._odd = frozenset(shaped.managed.slots.keys() - managed.slots.keys())
        names = {tensor.name for tensor in shaped.program.graph.tensors}
        self._tensors = sum(len(names.intersection(watch.shared.get(name, ()))) for name in managed.slots)
        shaped.managed = managed
        self.refresh_plan(shaped, leaves)
        return values

    def _planned(self, shaped: Shaped, leaves: Sequence[Any]) -> list[Any]:
        tape = self.refresh_plan(shaped, leaves)
        with torch.no_grad():
            self._hold()
            try:
                if shaped.proved:
                    return tape.run(leaves)
                before = tape.layouts()
                values = tape.run(leaves)
                self._prove(tape, before)
                shaped.proved = True
                return values
            finally:
                self._let_go()

    def _prove(self, tape: Tape, before: list[tuple[int, torch.Size, tuple[int, ...]]]) -> None:
        """Raise MemplanError where an operator gave its result another shape than was captured: it may have
        written where others lie."""
        for old, new in zip(before, tape.layouts(), strict=True):
            if old != new:
                record = next(
                    r for r in tape.records if r.out and old[0] in (index for _, index in r.keywords)
                )
                shapes = f"shape {tuple(new[1])}, captured as {tuple(old[1])}"
                if new[1] == old[1]:
                    shapes = f"strides {tuple(new[2])}, captured as {tuple(old[2])}"
                self._shaped.clear()
                raise MemplanError(f"{self.name}: op {record.op!r} ({record.kind}) gave {shapes}")

    def _bound(self, shaped: Shaped, plan: Plan | None, anew: bool) -> Tape:
        """The records of `shaped` with their tensors where `plan` has them."""
        mine = shaped.managed.slots.keys()
        if plan is None or not mine:
            return shaped.unplanned
        program = shaped.program
        module = insert_slab(program, part_of(plan, mine))
        with _lasting():
            if anew or self._slab is None:
                self._allocate(plan.arena_bytes, slab_device_of(module))
            with self.buffer():
                return make_tape(module, program.state, self.name, self._slab, OP)

    def _allocate(self, nbytes: int, device: torch.device) -> None:
        """Another buffer in place of the one there is."""
        if self._slab is not None:
            # Records made for it are stale, and would keep its memory.
            self._slab.untyped_storage().resize_(0)
        self._slab = allocate_slab(nbytes, DEFAULT_ALIGNMENT, device)

    def _prepare(self, leaves: Sequence[Any]) -> Shaped:
        """What there is to know of inputs of these shapes, before any of them was run."""
        with _lasting():
            program = self.export.specialised(leaves)
            tape = make_tape(program.module, program.state, self.name)
        managed = find_managed(program)
        if not self.enable_out_variants:
            managed = without(managed, managed.slots.keys(), OFF)
        managed = without(managed, self._odd, ODD)
        shaped = Shaped(program, managed, tape)
        if len(self._shaped) >= SHAPES:
            self._shaped.pop(next(iter(self._shaped)))
        self._shaped[self._key(leaves)] = shaped
        return shaped

    def _key(self, leaves: Sequence[Any]) -> Any:
        # Which convolutions can be told where to write depends on the number of threads.
        threads = torch.get_num_threads()
        if not self.export.symbols.ranges:
            return threads
        return threads, *(tuple(leaf.shape) for leaf in leaves if isinstance(leaf, torch.Tensor))


@contextmanager
def _lasting() -> Iterator[None]:
    """Tensors made here can be written by later runs, inside of inference mode and outside."""
    with torch.inference_mode(False), torch.no_grad():
        yield
