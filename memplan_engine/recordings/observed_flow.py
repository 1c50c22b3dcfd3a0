"""What the ops of an observed run read, write and make, and what became of each storage."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from memplan_engine.graph import Source
from memplan_engine.problem import Ints
from memplan_engine.scope import Basis, Scope
from memplan_engine.units import count_of

BEFORE, HELD = -1, -1
"""In place of the op that made a storage: none, it was there before the run. In place of the op after which
it went: none, it was still there at the end."""
NO_SOURCE = -1
HOST = -1
"""The number of the device that is no accelerator."""
Numbers = tuple[tuple[int, ...], ...]
"""Of each op the numbers of some storages, ascending."""


class Stage(StrEnum):
    """The part of a run that an op belongs to. RECOMPUTE: what a checkpoint runs again in a backward pass."""

    FORWARD = "forward"
    RECOMPUTE = "recompute"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


class Category(StrEnum):
    """What a storage is for.

    ACTIVATION: made in a forward pass, or again by a checkpoint, and, where there is a backward pass, read in
    it. TEMPORARY: made by an op and none of the others. WEIGHT: also buffers, and what else a model keeps
    between calls. STATE: what optimizers keep between steps. KV_CACHE: keys and values of the tokens so far,
    of a run whose cache is known (`inference_of`). UNKNOWN: first seen as an argument, made by nobody that
    was watched. Buffers between ranks are told apart by the collective that fills or reads them;
    COMMUNICATION is any other.
    """

    WEIGHT = "weight"
    INPUT = "input"
    STATE = "optimizer state"
    GRADIENT = "gradient"
    ACTIVATION = "activation"
    KV_CACHE = "KV cache"
    TEMPORARY = "temporary"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_REDUCE = "all-reduce"
    POINT_TO_POINT = "point to point"
    COMMUNICATION = "communication"
    UNKNOWN = "unknown"


KEPT = frozenset({Category.WEIGHT, Category.STATE})
"""What lives on between steps."""


@dataclass(frozen=True, slots=True, eq=False)
class ObservedStorages:
    """The m storages that a run has touched or was given, in the order in which it met them. `nbytes` bytes;
    `maker` is the op that made each, BEFORE for what was there; `released` the last op that had begun when
    torch let go of it, HELD for what was there at the end. `shapes` and `dtypes` are those of the first
    tensor that showed it; `names` are those of weights and inputs, "" for others."""

    names: tuple[str, ...]
    nbytes: Ints
    categories: tuple[Category, ...]
    maker: Ints
    released: Ints
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    device: Ints

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True, eq=False)
class Flow:
    """Of each op of a run the storages that it `reads`, `writes` in place and `makes`, its stage, the path of
    its module ("" for none), the place of its line in `sources` (NO_SOURCE for none), its device (−1 is the
    CPU) and its stream. `steps` training steps were run, 0 of what is none, of which the last is here;
    `step_peaks` are the most bytes that each held beside what was there when it began. `assumed` says in
    words what was not known (values, the device), and what was taken for it; with `doubts`, some of these, a
    real run may hold something else. `scratch` is, by a calibration, what the kernel of each op takes for
    itself, bytes; None where nobody has asked. `calibration` then says in words how good that is. `waits` are
    storages that another stream had used when they went (`record_stream`), each with the last op that had
    begun when the host had waited for that stream, HELD if it never has: up to there the allocator may keep
    its block from others. With `compiled` an op came from what `torch.compile` makes, and ran as its Python.
    `stopped`: a script was ended with the last of its `steps`, before its own end. `batches` is how many each
    data loader gave each time that had more, 0 where none had."""

    reads: Numbers
    writes: Numbers
    makes: Numbers
    stages: tuple[Stage, ...]
    modules: tuple[str, ...]
    source: Ints
    sources: tuple[Source, ...]
    device: Ints
    stream: Ints
    storages: ObservedStorages
    steps: int = 0
    step_peaks: tuple[int, ...] = ()
    assumed: tuple[str, ...] = ()
    scratch: Ints | None = None
    calibration: str = ""
    waits: tuple[tuple[int, int], ...] = ()
    compiled: bool = False
    doubts: tuple[str, ...] = ()
    stopped: bool = False
    batches: int = 0

    @property
    def basis(self) -> Basis:
        """What its figures rest on; what lies on the host apart."""
        notes = []
        if self.stopped:
            steps = f"of the first {count_of(self.steps, 'training step')}"
            notes.append(f"{steps}: what the script does after that is not counted")
        if self.batches:
            notes.append(
                f"of a data loader with more than {self.batches:,} batches the first {self.batches:,}"
            )
        return Basis(tuple(notes), self.assumed, self.doubts)

    @property
    def scope(self) -> Scope:
        """What the figures of the run count."""
        if self.compiled:
            return Scope.UNCOMPILED if self.scratch is None else Scope.UNCOMPILED_WITH_KERNELS
        return Scope.PREDICTED if self.scratch is None else Scope.PREDICTED_WITH_KERNELS

    def source_of(self, op: int) -> Source | None:
        """The line of the user's code that `op` comes from."""
        place = int(self.source[op])
        return None if place == NO_SOURCE else self.sources[place]


def made_by_op(maker: Ints, ops: int) -> Numbers:
    """Of each op the storages that it makes, given the maker of each storage."""
    made: list[list[int]] = [[] for _ in range(ops)]
    for number, op in enumerate(maker.tolist()):
        if op != BEFORE:
            made[op].append(number)
    return tuple(map(tuple, made))


def counted(storages: ObservedStorages) -> NDArray[np.bool_]:
    """Which of the storages some figure is of: those of the accelerators, where a run has any, else all."""
    on_device: NDArray[np.bool_] = storages.device >= 0
    return on_device if on_device.any() else np.ones(len(storages), dtype=bool)


def devices_of(flow: Flow) -> tuple[int, ...]:
    """The devices that figures are of, ascending: the accelerators that a run has used, else the CPU."""
    device = flow.storages.device
    return tuple(np.unique(device[counted(flow.storages)]).tolist()) or (HOST,)


def fullest_device(flow: Flow) -> int:
    """The device with the most bytes at once, state and inputs among them; of equals the first."""
    devices = devices_of(flow)
    if len(devices) == 1:
        return devices[0]
    return max(devices, key=lambda each: (_there_before(flow, each) + flow_peak(flow, each)[0], -each))


def _lies_on(flow: Flow, device: int | None) -> NDArray[np.bool_]:
    """Which storages lie on `device`, the fullest one for None."""
    chosen: NDArray[np.bool_] = flow.storages.device == (fullest_device(flow) if device is None else device)
    return chosen


def _there_before(flow: Flow, device: int) -> int:
    there = _lies_on(flow, device) & (flow.storages.maker == BEFORE)
    return int(flow.storages.nbytes[there].sum())


def state_bytes(flow: Flow, device: int | None = None) -> int:
    """Bytes of weights, buffers, what else a model keeps and what optimizers keep on a device (the fullest
    one unless given), as they were before the run."""
    storages = flow.storages
    return sum(
        nbytes
        for nbytes, category, maker, counts in zip(
            storages.nbytes.tolist(),
            storages.categories,
            storages.maker.tolist(),
            _lies_on(flow, device).tolist(),
            strict=True,
        )
        if category in KEPT and maker == BEFORE and counts
    )


def flow_live(flow: Flow, device: int | None = None) -> Ints:
    """The live bytes on a device (the fullest one unless given) during each op of storages that the run
    made, weights and inputs not among them, and of what kernels take for themselves, where that is known."""
    storages, n = flow.storages, len(flow.stages)
    made = (storages.maker != BEFORE) & _lies_on(flow, device)
    change = np.zeros(n + 1, dtype=np.int64)
    np.add.at(change, storages.maker[made], storages.nbytes[made])
    gone = made & (storages.released != HELD)
    np.add.at(change, storages.released[gone] + 1, -storages.nbytes[gone])
    live: Ints = np.cumsum(change)[:n]
    return live if flow.scratch is None else live + flow.scratch


def flow_peak(flow: Flow, device: int | None = None) -> tuple[int, int]:
    """The most live bytes on a device (the fullest one unless given) during an op, and which op that was
    (the first; −1 when there is none)."""
    live = flow_live(flow, device)
    return (int(live.max()), int(live.argmax())) if len(live) else (0, -1)


def host_peak(flow: Flow) -> tuple[int, int]:
    """The most bytes on the host during an op of a run on accelerators, those that were there before among
    them, and which op that was (the first; −1 when there is none). (0, −1) of a run on the host itself."""
    if devices_of(flow) == (HOST,):
        return 0, -1
    nbytes, op = flow_peak(replace(flow, scratch=None), HOST)
    return nbytes + _there_before(flow, HOST), op


def settled_flow(flow: Flow, replaced: Collection[int] = ()) -> Flow:
    """`flow` of a run that has made its own model: what it keeps between steps counts as there before. What
    it let go of before its last op (a model that another one replaced) it did not keep, nor the storages
    `replaced`, which were gone after the last op, but before the run was over. State that took the place of
    older state (the history of LBFGS) was not there before: the older one was, and counts itself."""
    storages = flow.storages
    kept = np.array([category in KEPT for category in storages.categories], dtype=bool)
    kept &= (storages.released == HELD) | (storages.released >= len(flow.stages) - 1)
    kept[list(replaced)] = False
    kept[list(_successors(storages, kept))] = False
    maker = np.where(kept, BEFORE, storages.maker)
    settled = replace(storages, maker=maker, released=np.where(kept, HELD, storages.released))
    return replace(flow, storages=settled, makes=made_by_op(maker, len(flow.stages)))


def _successors(storages: ObservedStorages, kept: NDArray[np.bool_]) -> Iterator[int]:
    """The storages of optimizers' state among those `kept` that came after one of the same size, which was
    let go of."""
    first: dict[int, int] = {}
    state = [row for row, each in enumerate(storages.categories) if each is Category.STATE]
    for row in state:
        if not kept[row]:
            nbytes, maker = int(storages.nbytes[row]), int(storages.maker[row])
            first[nbytes] = min(first.get(nbytes, maker), maker)
    for row in state:
        if kept[row] and storages.maker[row] > first.get(int(storages.nbytes[row]), storages.maker[row]):
            yield row


def step_peaks(flow: Flow, ends: Sequence[int]) -> tuple[int, ...]:
    """The most live bytes on the fullest device in each of the steps that end before the ops `ends`."""
    live, starts = flow_live(flow), (0, *ends)[: len(ends)]
    return tuple(int(live[start:end].max(initial=0)) for start, end in zip(starts, ends, strict=True))
