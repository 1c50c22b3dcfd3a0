"""The offline plan of a TensorFlow Lite model: offsets that TensorFlow Lite for Microcontrollers takes from
it.

The metadata `OfflineMemoryAllocation` is a list of 32-bit integers: the version 1, the number of subgraphs,
that of tensors, then of each tensor of each subgraph the bytes from the start of the arena, -1 for what the
runtime is to place (tflite-micro, docs/memory_management.md and micro_allocation_info.cc).
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from memplan_engine.errors import InputError
from memplan_engine.formats.flat_tables import FlatFile, Table
from memplan_engine.formats.tflite_model.tflite_graph import TfliteModel, read_model
from memplan_engine.formats.tflite_model.tflite_schema import (
    BUFFER_DATA,
    BUFFER_OFFSET,
    GRAPH_OPERATORS,
    IDENTIFIER,
    METADATA_BUFFER,
    METADATA_NAME,
    MODEL_BUFFERS,
    MODEL_FIELDS,
    MODEL_METADATA,
    MODEL_SUBGRAPHS,
    MODEL_VERSION,
    OPERATOR_LARGE,
)
from memplan_engine.graph import Graph
from memplan_engine.plan import Plan
from memplan_engine.planner import adopt, as_problem
from memplan_engine.problem import Ints
from memplan_engine.system import write_atomically, write_target

NAME = b"OfflineMemoryAllocation"
HEADER = 3
"""Numbers before the offsets."""
VERSIONS = 0, 1
"""The runtime does not look at it: Vela writes 0."""
ONLINE = -1
ARENA_ALIGNMENT = 16
"""Of every tensor, as the runtime's kernels expect it."""
BLOCK = 64
"""What stands in a file is moved by whole blocks: all alignments within it stay."""
MOST_OFFSET = 2**31 - 1


def offline_offsets(model: TfliteModel) -> Ints | None:
    """(tensors of all subgraphs,) the offsets in the file, ONLINE where the runtime places; None without any.

    Raises
    ------
    InputError: a plan of another version or length, which the runtime would take as it is.
    """
    root, place = model.file.root(), f"metadata {NAME.decode()}"
    entry = next((each for each in root.tables(MODEL_METADATA) if each.content(METADATA_NAME) == NAME), None)
    if entry is None:
        return None
    buffers, number = root.tables(MODEL_BUFFERS), entry.number(METADATA_BUFFER, "I")
    if number >= len(buffers):
        raise InputError(model.file.name, place, f"buffer {number}", f"one of {len(buffers)} buffers")
    data = buffers[number].content(BUFFER_DATA)
    told = np.frombuffer(data, "<i4", len(data) // 4).astype(np.int64)
    tensors = sum(map(len, model.tensors))
    if len(data) != 4 * (HEADER + tensors) or told[0] not in VERSIONS or told[2] != tensors:
        found = f"{len(data)} bytes that say version and length {told[:HEADER:2].tolist()}"
        expected = f"{4 * (HEADER + tensors)} bytes, version 0 or 1, {tensors} tensors"
        raise InputError(model.file.name, place, found, expected)
    offsets = told[HEADER:]
    if offsets.min(initial=0) < ONLINE:
        raise InputError(model.file.name, place, f"the offset {offsets.min()}", "offsets of 0 or more, or -1")
    return offsets


def plan_in_file(model: TfliteModel, graph: Graph) -> Plan | None:
    """The plan in the file, of `graph` which was read from it; None where there is none, or where it leaves
    tensors to the runtime. Raises InputError as `offline_offsets` does."""
    offsets = offline_offsets(model)
    if offsets is None:
        return None
    at = dict(zip((label for labels in model.labels for label in labels), offsets.tolist(), strict=True))
    problem = as_problem(graph, alignment=ARENA_ALIGNMENT, plan_inputs=True)
    placed = [at[name] for name in problem.names]
    return None if ONLINE in placed else adopt(problem, np.array(placed, np.int64))


def write_offline_plan(source: Path, plan: Plan, target: Path) -> None:
    """Write the model in `source`, of which `plan` is one, to `target` with the offsets of `plan`,
    atomically. All that was in it stays, in its order; an offline plan that was there is replaced.

    Raises
    ------
    InputError: a plan of buffers, of another model, or in another order; offsets that are no multiples of 16
    or beyond 2^31 bytes; a model with content behind its tables, as those above 2 GB have.
    """
    target = write_target(target)
    model = read_model(source)
    offsets = _offsets(model, plan, source)
    data = struct.pack(f"<{HEADER + len(offsets)}i", 1, len(model.subgraphs), len(offsets), *offsets)
    write_atomically(target, _with_metadata(model.file, data))


def _offsets(model: TfliteModel, plan: Plan, source: Path) -> list[int]:
    problem = plan.problem
    if problem.origin is None:
        raise InputError(problem.name, "", "a plan of buffers", f"a plan of the graph in {source.name}")
    own, graph = model.graph(source.stem), problem.origin.graph
    if sorted(op.name for op in own.ops) != sorted(op.name for op in graph.ops):
        raise InputError(source.name, "", "a plan with other ops", "a plan of the graph in this model")
    steps = problem.origin.schedule.step_of_op
    if [op.name for op in own.ops] != [graph.ops[index].name for index in np.argsort(steps, kind="stable")]:
        expected = "that of the model, which the runtime keeps to: without --reorder and --schedule"
        raise InputError(source.name, "", "another order of the ops", expected)
    if len(set(steps)) < len(steps):
        raise InputError(source.name, "", "ops that run side by side", "one op a step: without --streams")
    wrong = plan.offsets[plan.offsets % ARENA_ALIGNMENT != 0]
    if len(wrong):
        expected = f"multiples of {ARENA_ALIGNMENT}: --alignment {ARENA_ALIGNMENT}"
        raise InputError(source.name, "", f"the offset {wrong[0]}", expected)
    if plan.arena_bytes > MOST_OFFSET:
        raise InputError(source.name, "", f"{plan.arena_bytes} bytes", "an arena below 2^31 bytes")
    home = dict(zip(problem.names, plan.offsets.tolist(), strict=True))
    at = {each.name: home[each.storage] + each.offset for each in graph.tensors if each.storage in home}
    return [at.get(label, ONLINE) for labels in model.labels for label in labels]


def _with_metadata(file: FlatFile, plan: bytes) -> bytes:
    """`file` behind a new root table, whose lists of buffers and of metadata have an entry more: offsets in
    FlatBuffers lead forward only, and within what is moved as one they stay as they are."""
    root = file.root()
    _check_no_content_behind(root)
    kept = [each.at for each in root.tables(MODEL_METADATA) if each.content(METADATA_NAME) != NAME]
    buffers = [each.at for each in root.tables(MODEL_BUFFERS)]
    front = _Front()
    table = front.add(4 + 4 * MODEL_FIELDS, 4)
    layout = front.add(4 + 2 * MODEL_FIELDS, 2)
    listed, told = front.add(4 + 4 * (len(buffers) + 1), 4), front.add(4 + 4 * (len(kept) + 1), 4)
    entry, entry_layout = front.add(12, 4), front.add(8, 2)
    name = front.add(4 + len(NAME) + 1, 4)
    buffer, buffer_layout = front.add(8, 4), front.add(6, 2)
    # The vector's numbers are aligned as their type asks, behind the length of four bytes.
    content = front.add(4 + len(plan), ARENA_ALIGNMENT, 4)
    moved = -(-front.end // BLOCK) * BLOCK
    out = bytearray(moved)

    def put(form: str, at: int, *values: int) -> None:
        struct.pack_into(f"<{form}", out, at, *values)

    def lead(at: int, to: int) -> None:
        put("I", at, to - at)

    lead(0, table)
    out[4:8] = IDENTIFIER
    put("i", table, table - layout)
    put("HH", layout, 4 + 2 * MODEL_FIELDS, 4 + 4 * MODEL_FIELDS)
    for field in range(MODEL_FIELDS):
        place, at = root.place(field), table + 4 + 4 * field
        if field == MODEL_BUFFERS:
            lead(at, listed)
        elif field == MODEL_METADATA:
            lead(at, told)
        elif not place:
            continue
        elif field == MODEL_VERSION:
            put("I", at, file.number("I", place))
        else:
            lead(at, file.target(place) + moved)
        put("H", layout + 4 + 2 * field, at - table)
    for start, tables, new in ((listed, buffers, buffer), (told, kept, entry)):
        put("I", start, len(tables) + 1)
        for number, at in enumerate([*(each + moved for each in tables), new]):
            lead(start + 4 + 4 * number, at)
    put("i", entry, entry - entry_layout)
    put("HHHH", entry_layout, 8, 12, 4, 8)
    lead(entry + 4, name)
    put("I", entry + 8, len(buffers))
    put("I", name, len(NAME))
    out[name + 4 : name + 4 + len(NAME)] = NAME
    put("i", buffer, buffer - buffer_layout)
    put("HHH", buffer_layout, 6, 8, 4)
    lead(buffer + 4, content)
    put("I", content, len(plan))
    out[content + 4 : content + 4 + len(plan)] = plan
    return bytes(out) + file.data


def _check_no_content_behind(root: Table) -> None:
    """Raise InputError where places are counted from the start of the file, which moves."""
    far = any(buffer.number(BUFFER_OFFSET, "Q") > 1 for buffer in root.tables(MODEL_BUFFERS))
    far |= any(
        operator.number(OPERATOR_LARGE, "Q") > 1
        for subgraph in root.tables(MODEL_SUBGRAPHS)
        for operator in subgraph.tables(GRAPH_OPERATORS)
    )
    if far:
        raise InputError(
            root.file.name, "", "content behind the tables", "a model below 2 GB, all in its tables"
        )


class _Front:
    """Places for what comes before a file, one behind the other."""

    def __init__(self) -> None:
        self.end = 8
        """Behind the first offset and the identifier."""

    def add(self, nbytes: int, alignment: int, behind: int = 0) -> int:
        """A place of `nbytes`, of which the byte `behind` is aligned."""
        at = -(-(self.end + behind) // alignment) * alignment - behind
        self.end = at + nbytes
        return at
