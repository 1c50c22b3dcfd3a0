"""A method of an ExecuTorch program: tensors with their places, and what its instructions read and write.

Fields are numbered as in ExecuTorch's schema/program.fbs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from memplan_engine.errors import InputError
from memplan_engine.formats.flat_tables import FlatFile, Table
from memplan_engine.formats.read_limits import read_bytes
from memplan_engine.graph import MAX_BYTES

IDENTIFIER = b"ET12"
MOST_BYTES = 2**31
MOST_TABLES = 150_000
"""Methods, values, operators and instructions each: vectors may name one table many times."""
MOST_USES = 2_000_000
"""Of values by instructions: lists of values may stand for many, as often as they are named."""
MOST_DIMENSIONS, MOST_NAME = 64, 1000
PROGRAM_PLANS = 1
PLAN_NAME, PLAN_VALUES, PLAN_INPUTS, PLAN_OUTPUTS, PLAN_CHAINS, PLAN_OPERATORS = 0, 2, 3, 4, 5, 6
UNION_KIND, UNION_VALUE = 0, 1
TENSOR, TENSOR_LIST, OPTIONAL_TENSOR_LIST = 5, 10, 11
TENSOR_TYPE, TENSOR_SIZES, TENSOR_DATA, TENSOR_PLACE = 0, 2, 5, 6
PLACE_MEMORY, PLACE_LOW, PLACE_HIGH = 0, 1, 2
CHAIN_INSTRUCTIONS = 2
KERNEL_CALL, DELEGATE_CALL, MOVE_CALL, JUMP_FALSE_CALL, FREE_CALL = 1, 2, 3, 4, 5
FIRST, SECOND = 0, 1
"""The fields of an instruction: operator or delegate, arguments; from and to; condition and destination."""
COPIES = "executorch_prim::et_copy_index"
"""Writes a row of its first argument. All other operators write what their last argument names."""
ITEM_BYTES = {
    0: 1, 1: 1, 2: 2, 3: 4, 4: 8, 5: 2, 6: 4, 7: 8, 8: 4, 9: 8, 10: 16, 11: 1, 12: 1, 13: 1, 14: 4, 15: 2,
    16: 1, 17: 1, 22: 2, 23: 1, 24: 1, 25: 1, 26: 1, 27: 2, 28: 4, 29: 8,
}  # fmt: skip
"""Bytes of an element, by the number of its type."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor in a memory; `has_content` says whether the program brings what is in it at first."""

    memory: int
    offset: int
    nbytes: int
    has_content: bool


@dataclass(frozen=True, slots=True)
class Step:
    """An instruction: its operator, and the values that it reads and writes. A move has `source` and
    `target`, a jump the step that it may go to."""

    name: str
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    source: int = -1
    target: int = -1
    jumps_to: int = -1


@dataclass(frozen=True, slots=True)
class Method:
    """The tensors by the numbers of their values; inputs and outputs are such numbers; `source` is a file."""

    source: str
    name: str
    placed: dict[int, Placed]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    steps: tuple[Step, ...]


def read_method(path: Path) -> Method:
    """The method `forward` of the program in a file, or the first one.

    Raises
    ------
    InputError: what is no program, or is damaged; one without methods.
    """
    data = read_bytes(path, MOST_BYTES)
    if data[4:8] != IDENTIFIER:
        raise InputError(path.name, "", "bytes that are no ExecuTorch program", "a .pte file")
    file = FlatFile(data, path.name)
    plans = _tables(file.root(), PROGRAM_PLANS)
    if not plans:
        raise InputError(path.name, "execution plans", "none", "a program with a method")
    plan = next((each for each in plans if _name(each, PLAN_NAME) == "forward"), plans[0])
    return _MethodReader(file, plan).method()


def _tables(table: Table, field: int) -> list[Table]:
    count = table.vector(field, 4)[1]
    if count > MOST_TABLES:
        raise InputError(table.file.name, "", f"a list of {count:,} tables", f"at most {MOST_TABLES:,}")
    return table.tables(field)


def _name(table: Table, field: int) -> str:
    count = table.vector(field, 1)[1]
    if count > MOST_NAME:
        raise InputError(table.file.name, "", f"a name of {count:,} bytes", f"at most {MOST_NAME:,}")
    return table.text(field)


class _MethodReader:
    def __init__(self, file: FlatFile, plan: Table) -> None:
        self.file, self.plan = file, plan
        self.values = _tables(plan, PLAN_VALUES)
        self.operators = [_name(each, 0) for each in _tables(plan, PLAN_OPERATORS)]
        self.lists: dict[int, tuple[int, ...]] = {}
        self.uses = 0

    def method(self) -> Method:
        placed = {}
        for number, value in enumerate(self.values):
            kind = value.number(UNION_KIND, "B")
            if (
                kind == TENSOR
                and (table := value.table(UNION_VALUE))
                and (found := self._placed(number, table))
            ):
                placed[number] = found
            elif kind in (TENSOR_LIST, OPTIONAL_TENSOR_LIST) and (table := value.table(UNION_VALUE)):
                self.lists[number] = tuple(self._known(self._integers(table, 0), optional=True))
        inputs, outputs = (
            self._tensors(self._integers(self.plan, each)) for each in (PLAN_INPUTS, PLAN_OUTPUTS)
        )
        chains = self.plan.tables(PLAN_CHAINS) if self.plan.vector(PLAN_CHAINS, 4)[1] == 1 else []
        if not chains:
            raise self._error("chains", str(self.plan.vector(PLAN_CHAINS, 4)[1]), "one, as ExecuTorch writes")
        steps = tuple(self._step(each) for each in _tables(chains[0], CHAIN_INSTRUCTIONS))
        for at, step in enumerate(steps):
            if step.jumps_to > len(steps):
                raise self._error(f"step {at}", f"a jump to {step.jumps_to}", f"0 to {len(steps)}")
        return Method(self.file.name, _name(self.plan, PLAN_NAME), placed, inputs, outputs, steps)

    def _placed(self, number: int, table: Table) -> Placed | None:
        place, kind = table.table(TENSOR_PLACE), table.number(TENSOR_TYPE, "b")
        if place is None:
            return None
        if table.vector(TENSOR_SIZES, 4)[1] > MOST_DIMENSIONS:
            raise self._error(f"value {number}", "too many sizes", f"at most {MOST_DIMENSIONS}")
        sizes = table.integers(TENSOR_SIZES).tolist()
        nbytes = prod(sizes) * ITEM_BYTES.get(kind, 0)
        offset = place.number(PLACE_LOW, "I") + (place.number(PLACE_HIGH, "I") << 32)
        if kind not in ITEM_BYTES:
            raise self._error(f"value {number}", f"the type {kind}", "a type of fixed size")
        if min(sizes, default=0) < 0 or offset + nbytes > MAX_BYTES:
            found = f"sizes {sizes[:8]} at byte {offset}"
            raise self._error(f"value {number}", found, "sizes of 0 or more, all below 2^63 bytes")
        has_content = table.number(TENSOR_DATA, "I") > 0
        return Placed(place.number(PLACE_MEMORY, "I"), offset, nbytes, has_content)

    def _step(self, instruction: Table) -> Step:
        kind, call = instruction.number(UNION_KIND, "B"), instruction.table(UNION_VALUE)
        if call is None or kind not in range(KERNEL_CALL, FREE_CALL + 1):
            raise self._error("instructions", f"the kind {kind}", "one that ExecuTorch 1.5 knows")
        first, second = call.number(FIRST, "i"), call.number(SECOND, "i")
        # Of operators and delegates, whose second field is a list, `second` means nothing.
        if kind == MOVE_CALL:
            source, target = self._known([first, second])
            return Step("move", source=source, target=target)
        if kind == JUMP_FALSE_CALL:
            return Step("jump", self._tensors([first]), jumps_to=self._within(second, 2**31, "instructions"))
        if kind == FREE_CALL:
            return Step("free", self._tensors([first]))
        arguments = self._integers(call, SECOND)
        if kind == DELEGATE_CALL:
            # Which are written is not said: from here on all are there.
            return Step("delegate", writes=self._tensors(arguments))
        name = self.operators[self._within(first, len(self.operators), "operators")]
        written = arguments[:1] if name == COPIES else arguments[-1:]
        writes = dict.fromkeys(self._tensors(written))
        return Step(name, tuple(x for x in self._tensors(arguments) if x not in writes), tuple(writes))

    def _integers(self, table: Table, field: int) -> list[int]:
        self._count(table.vector(field, 4)[1])
        return [int(each) for each in table.integers(field)]

    def _count(self, uses: int) -> None:
        self.uses += uses
        if self.uses > MOST_USES:
            raise self._error("instructions", f"more than {MOST_USES:,} uses of values", "fewer")

    def _tensors(self, numbers: list[int]) -> tuple[int, ...]:
        """The values of `numbers`, in place of a list those in it, each once."""
        self._count(sum(len(self.lists.get(number, ())) for number in numbers))
        found = [each for number in self._known(numbers) for each in self.lists.get(number, (number,))]
        return tuple(dict.fromkeys(found))

    def _known(self, numbers: list[int], optional: bool = False) -> Iterator[int]:
        """Each of `numbers` that is a value; -1 is one that is left out, where it may be."""
        return (
            self._within(each, len(self.values), "values")
            for each in numbers
            if not (optional and each == -1)
        )

    def _within(self, number: int, count: int, what: str) -> int:
        if not 0 <= number < count:
            raise self._error(what, f"the number {number}", f"one of {count}")
        return number

    def _error(self, place: str, found: str, expected: str) -> InputError:
        return InputError(self.file.name, place, found, expected)


def aligned(placed: list[Placed], alignment: int) -> bool:
    """Whether all lie at multiples of `alignment`."""
    return not np.any(np.array([each.offset for each in placed], np.int64) % alignment)
