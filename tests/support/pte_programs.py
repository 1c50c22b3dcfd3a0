"""ExecuTorch programs for tests."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.flat_builder import FlatTable, flat_file

FLOAT = 6


def tensor(
    count: int, offset: int | None, memory: int = 1, kind: int = FLOAT, data: int = 0, high: int = 0
) -> FlatTable:
    """A value: a tensor of `count` elements; without an offset it is not planned."""
    fields: dict[int, object] = {0: ("b", kind), 2: [count], 5: ("I", data)}
    if offset is not None:
        fields[6] = FlatTable({0: ("I", memory), 1: ("I", offset), 2: ("I", high)})
    return _union(5, FlatTable(fields))


def tensors(numbers: Sequence[int]) -> FlatTable:
    """A value: a list of tensors."""
    return _union(10, FlatTable({0: list(numbers)}))


def number() -> FlatTable:
    """A value that is none."""
    return _union(2, FlatTable({0: ("q", 7)}))


def call(operator: int, *arguments: int) -> FlatTable:
    return _union(1, FlatTable({0: ("i", operator), 1: list(arguments)}))


def delegate(*arguments: int) -> FlatTable:
    return _union(2, FlatTable({0: ("i", 0), 1: list(arguments)}))


def move(source: int, target: int) -> FlatTable:
    return _union(3, FlatTable({0: ("i", source), 1: ("i", target)}))


def jump(condition: int, to: int) -> FlatTable:
    return _union(4, FlatTable({0: ("i", condition), 1: ("i", to)}))


def _union(kind: int, table: FlatTable) -> FlatTable:
    return FlatTable({0: ("B", kind), 1: table})


def method(
    values: list[FlatTable],
    steps: list[FlatTable],
    inputs: Sequence[int] = (),
    outputs: Sequence[int] = (),
    operators: Sequence[str] = ("aten::add", "executorch_prim::et_copy_index"),
    name: str = "forward",
) -> FlatTable:
    named = [FlatTable({0: each, 1: "out"}) for each in operators]
    chain = FlatTable({2: steps})
    return FlatTable({0: name, 2: values, 3: list(inputs), 4: list(outputs), 5: [chain], 6: named})


def program(*methods: FlatTable) -> bytes:
    return flat_file(FlatTable({0: ("I", 0), 1: list(methods)}), b"ET12")
