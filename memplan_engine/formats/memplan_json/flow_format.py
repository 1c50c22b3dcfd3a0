"""The JSON of an observation that says of every op what it did: version 2, a column a field."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import FailFast

from memplan_engine.errors import InputError
from memplan_engine.formats.memplan_json.graph_format import SourceEntry
from memplan_engine.formats.memplan_json.json_base import Count, Counts, Names, Shape, Strict, check_length
from memplan_engine.formats.memplan_json.observation_format import (
    LevelsEntry,
    ObservationFile,
    Places,
    below,
    file_of_observation,
    observation_from,
    ops_from,
    stacks_from,
)
from memplan_engine.graph import MAX_BYTES, Source
from memplan_engine.problem import Ints
from memplan_engine.recordings.allocator_recording import Rows
from memplan_engine.recordings.observation import Level, Observation, flow_changes
from memplan_engine.recordings.observed_flow import (
    BEFORE,
    HELD,
    Category,
    Flow,
    ObservedStorages,
    Stage,
    made_by_op,
)

Lists = Annotated[tuple[Counts, ...], FailFast()]
CPU, STREAM = -1, 0


class StoragesEntry(Strict):
    """The storages that a run touched or was given. `maker` is the op that made each (−1: it was there),
    `released` the last op that had begun when it went (−1: it stayed). `shapes` and `dtypes` are those of the
    first tensor that showed it; without `device` all are on the CPU."""

    names: Names
    nbytes: Counts
    categories: Annotated[tuple[Category, ...], FailFast()]
    maker: Places
    released: Places
    shapes: Annotated[tuple[Shape, ...], FailFast()]
    dtypes: Names
    device: Places = ()


class FlowEntry(Strict):
    """Of each op the storages that it reads and writes, as places in `storages`, its stage, its module, and
    the place of its line in `sources` (−1 for none). `steps` training steps were run, of which the last is
    here; `assumed` are values that were not known and what was taken for them. With `doubts`, some of these,
    a run may hold something else; a file without has doubts about all of them. `stopped`: a script was ended
    with the last of its steps. `batches` is how many each data loader gave that had more, 0 where none had.
    `scratch`, where a calibration
    says it, is what the kernel of each op takes for itself, bytes, and `calibration` how good that is.
    `waiting` are places of storages that another stream had used when they went, `waited` the op after which
    the host knew that stream to be done (−1: never). `compiled`: `torch.compile` compiles some of the run,
    which ran as its Python."""

    reads: Lists
    writes: Lists
    stages: Annotated[tuple[Stage, ...], FailFast()]
    modules: Names
    source: Places
    sources: Annotated[tuple[SourceEntry, ...], FailFast()] = ()
    device: Places = ()
    stream: Counts = ()
    storages: StoragesEntry
    steps: Count = 0
    step_peaks: Counts = ()
    assumed: Names = ()
    scratch: Counts = ()
    calibration: str = ""
    waiting: Counts = ()
    waited: Places = ()
    compiled: bool = False
    doubts: tuple[str, ...] | None = None
    stopped: bool = False
    batches: Count = 0


class FlowFile(ObservationFile):
    """A file in the format memplan/observation, version 2: what became of each storage stands in `flow`, and
    the changes at the level "dispatch" follow from it."""

    version: Literal[2]  # type: ignore[assignment]
    levels: LevelsEntry = LevelsEntry()
    flow: FlowEntry


def file_with_flow(observation: Observation) -> FlowFile:
    """`observation`, which has a flow, as a file."""
    flow = observation.flow
    assert flow is not None
    levels: dict[Level, Rows] = {
        level: rows for level, rows in observation.changes.items() if level is not Level.DISPATCH
    }
    head = file_of_observation(replace(observation, changes=levels, flow=None))
    storages = flow.storages
    entry = {
        "reads": flow.reads,
        "writes": flow.writes,
        "stages": flow.stages,
        "modules": flow.modules,
        "source": _numbers(flow.source),
        "sources": tuple({"file": s.file, "line": s.line, "code": s.code} for s in flow.sources),
        "device": _numbers(flow.device, CPU),
        "stream": _numbers(flow.stream, STREAM),
        "storages": {
            "names": storages.names,
            "nbytes": _numbers(storages.nbytes),
            "categories": storages.categories,
            "maker": _numbers(storages.maker),
            "released": _numbers(storages.released),
            "shapes": storages.shapes,
            "dtypes": storages.dtypes,
            "device": _numbers(storages.device, CPU),
        },
        "steps": flow.steps,
        "step_peaks": flow.step_peaks,
        "assumed": flow.assumed,
        "scratch": () if flow.scratch is None else _numbers(flow.scratch),
        "calibration": flow.calibration,
        "waiting": tuple(storage for storage, _ in flow.waits),
        "waited": tuple(op for _, op in flow.waits),
        "compiled": flow.compiled,
        "doubts": flow.doubts,
        "stopped": flow.stopped,
        "batches": flow.batches,
    }
    return FlowFile.model_validate({**head.model_dump(), "version": 2, "flow": entry})


def observation_with_flow(file: FlowFile, source: str) -> Observation:
    """The checked observation; raises InputError naming what is not sound in `source`."""
    ops = ops_from(file, source)
    entry, n = file.flow, len(ops)
    columns = ("reads", "writes", "stages", "modules", "source")
    for name in (*columns, *(name for name in ("device", "stream") if getattr(entry, name))):
        check_length(getattr(entry, name), n, f"flow.{name}", source, each="op")
    scratch = None
    if entry.scratch or entry.calibration:
        check_length(entry.scratch, n, "flow.scratch", source, each="op")
        if (most := max(entry.scratch, default=0)) > MAX_BYTES // 4:
            raise InputError(source, "field flow.scratch", str(most), "below 2^61 bytes")
        scratch = np.array(entry.scratch, dtype=np.int64)
    storages = _storages(entry.storages, n, source)
    below(entry.source, len(entry.sources), "flow.source", source)
    for name in ("reads", "writes"):
        _check_live(getattr(entry, name), storages, f"flow.{name}", source)
    flow = Flow(
        entry.reads,
        entry.writes,
        made_by_op(storages.maker, n),
        entry.stages,
        entry.modules,
        np.array(entry.source, dtype=np.int64),
        tuple(Source(each.file, each.line, each.code) for each in entry.sources),
        _column(entry.device, n, CPU),
        _column(entry.stream, n, STREAM),
        storages,
        entry.steps,
        entry.step_peaks,
        entry.assumed,
        scratch,
        entry.calibration,
        _waits(entry, storages, n, source),
        entry.compiled,
        entry.assumed if entry.doubts is None else entry.doubts,
        entry.stopped,
        entry.batches,
    )
    others = {}
    if file.levels.allocator is not None:
        others = dict(observation_from(file, source).changes)
    changes = {Level.DISPATCH: flow_changes(flow, ops), **others}
    return Observation(
        file.name, ops, changes, file.kernels, stacks_from(file, source), file.nanoseconds, flow
    )


def _storages(entry: StoragesEntry, ops: int, source: str) -> ObservedStorages:
    m = len(entry.names)
    for name in ("nbytes", "categories", "maker", "released", "shapes", "dtypes"):
        check_length(getattr(entry, name), m, f"flow.storages.{name}", source, each="storage")
    if entry.device:
        check_length(entry.device, m, "flow.storages.device", source, each="storage")
    for name in ("maker", "released"):
        below(getattr(entry, name), ops, f"flow.storages.{name}", source)
    if (total := sum(entry.nbytes)) > MAX_BYTES // 4:
        raise InputError(source, "field flow.storages.nbytes", f"a sum of {total}", "a sum below 2^61")
    for number, (maker, released) in enumerate(zip(entry.maker, entry.released, strict=True)):
        if released not in (HELD, max(released, maker)):
            place = f"field flow.storages.released[{number}]"
            raise InputError(source, place, str(released), f"{maker}, the op that makes it, or a later one")
    nbytes, maker_of, released_at = (
        np.array(column, dtype=np.int64) for column in (entry.nbytes, entry.maker, entry.released)
    )
    return ObservedStorages(
        entry.names,
        nbytes,
        entry.categories,
        maker_of,
        released_at,
        entry.shapes,
        entry.dtypes,
        _column(entry.device, m, CPU),
    )


def _waits(
    entry: FlowEntry, storages: ObservedStorages, ops: int, source: str
) -> tuple[tuple[int, int], ...]:
    """The storages that wait, each with the op until which it does."""
    check_length(entry.waited, len(entry.waiting), "flow.waited", source, each="waiting storage")
    below(entry.waiting, len(storages), "flow.waiting", source)
    below(entry.waited, ops, "flow.waited", source)
    waits = tuple(zip(entry.waiting, entry.waited, strict=True))
    for number, (storage, op) in enumerate(waits):
        released = int(storages.released[storage])
        if released == HELD or op not in (HELD, max(op, released + 1)):
            place = f"field flow.waited[{number}]"
            expected = f"an op after {released}, after which storage {storage} goes"
            raise InputError(source, place, str(op), expected if released != HELD else "a storage that goes")
    if len({storage for storage, _ in waits}) < len(waits):
        raise InputError(source, "field flow.waiting", "a storage twice", "each once")
    return waits


def _check_live(column: Any, storages: ObservedStorages, place: str, source: str) -> None:
    """Raise InputError for an op that touches a storage which is not there yet, or no more."""
    maker, released = storages.maker.tolist(), storages.released.tolist()
    for op, numbers in enumerate(column):
        below(numbers, len(storages), f"{place}[{op}]", source)
        for number in numbers:
            begins = maker[number] == BEFORE or maker[number] < op
            if not begins or (released[number] != HELD and released[number] < op):
                found = f"storage {number}, there from op {maker[number]} to op {released[number]}"
                raise InputError(source, f"field {place}[{op}]", found, "a storage that is there")


def _numbers(column: Ints, usual: int | None = None) -> tuple[int, ...]:
    """`column` as it is written: nothing where all of it is as usual."""
    return () if usual is not None and (column == usual).all() else tuple(column.tolist())


def _column(entry: tuple[int, ...], n: int, usual: int) -> Ints:
    return np.array(entry or (usual,) * n, dtype=np.int64)
