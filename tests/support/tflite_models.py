"""TensorFlow Lite models for tests."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tests.support.flat_builder import FlatTable, flat_file

INT8, FLOAT32, STRING = 9, 0, 5
ADD, CONV, RELU, CUSTOM, IF, WHILE, CALL_ONCE = 0, 3, 19, 32, 118, 119, 129


def tensor(name: str, *shape: int, kind: int = INT8, buffer: int = 0, variable: bool = False) -> FlatTable:
    """Without content where `buffer` is 0."""
    fields = {0: list(shape), 1: ("b", kind), 2: ("I", buffer), 3: name}
    return FlatTable({**fields, **({5: ("B", 1)} if variable else {})})


def op(code: int, inputs: Sequence[int], outputs: Sequence[int], calls: Sequence[int] = ()) -> FlatTable:
    """`code` is its place in the list of codes."""
    fields: dict[int, object] = {0: ("I", code), 1: list(inputs), 2: list(outputs)}
    if calls:
        fields |= {3: ("B", 1), 4: FlatTable({number: ("i", each) for number, each in enumerate(calls)})}
    return FlatTable(fields)


def subgraph(
    tensors: list[FlatTable], inputs: list[int], outputs: list[int], ops: list[FlatTable]
) -> FlatTable:
    return FlatTable({0: tensors, 1: inputs, 2: outputs, 3: ops})


def code(builtin: int, custom: str = "") -> FlatTable:
    """As new writers have it: the old field says no more than 127."""
    fields: dict[int, object] = {0: ("b", min(builtin, 127)), 3: ("i", builtin)}
    return FlatTable({**fields, **({1: custom} if custom else {})})


def model(
    codes: list[FlatTable],
    subgraphs: list[FlatTable],
    weights: Sequence[bytes] = (),
    plan: Sequence[int] | None = None,
    more: Sequence[tuple[str, bytes]] = (),
) -> bytes:
    """Buffer 0 is empty, those of `weights` follow, then that of an offline `plan`, numbers as they stand
    there."""
    buffers = [FlatTable(), *(FlatTable({0: each}) for each in weights)]
    metadata = []
    entries = list(more)
    if plan is not None:
        entries.append(("OfflineMemoryAllocation", struct.pack(f"<{len(plan)}i", *plan)))
    for name, data in entries:
        metadata.append(FlatTable({0: name, 1: ("I", len(buffers))}))
        buffers.append(FlatTable({0: data}))
    fields: dict[int, object] = {0: ("I", 3), 1: codes, 2: subgraphs, 3: "for tests", 4: buffers}
    return flat_file(FlatTable({**fields, **({6: metadata} if metadata else {})}))


def small(plan: Sequence[int] | None = None, more: Sequence[tuple[str, bytes]] = ()) -> bytes:
    """x → conv with a weight → relu → y, and y + x: 16 and 32 bytes; tensor 5 keeps its content, -1 is left
    out."""
    tensors = [
        tensor("x", 1, 16), tensor("w", 2, 16, buffer=1), tensor("hidden", 1, 32), tensor("hidden", 1, 32),
        tensor("y", 1, 2, 2, kind=FLOAT32), tensor("state", 4, variable=True),
    ]  # fmt: skip
    ops = [op(0, [0, 1, -1], [2]), op(1, [2, 5], [3]), op(2, [3, 0], [4])]
    codes = [code(CONV), code(RELU), code(CUSTOM, "my_op")]
    return model(codes, [subgraph(tensors, [0], [4], ops)], [bytes(range(32))], plan, more)
