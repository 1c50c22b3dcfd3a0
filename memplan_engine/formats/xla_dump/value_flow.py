"""Which values each instruction of the schedule reads and makes: tuples and loops put apart."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from memplan_engine.errors import InputError
from memplan_engine.formats.xla_dump.hlo_module import MOST_DEEP, Dump, Index, Instruction, Value

MOST_PLACES = 2_000_000
"""Parts of tuples that are looked at, all together: 2 CPU seconds. A loop that carries 1,000 arrays looks
at some 10,000."""
FORWARDS = frozenset({
    "bitcast", "optimization-barrier", "add-dependency", "domain", "get-tuple-element", "async-update",
    "all-reduce-done", "copy-done", "recv-done",
})  # fmt: skip
"""Opcodes that make no value of their own; the first operand's is theirs, or a part of it."""
WITHOUT_BYTES = frozenset({"tuple", "after-all", "create-token", "send", "recv", "infeed", "outfeed"})
"""Opcodes whose result may have no bytes of its own: tokens, and tuples of what has."""


class Parts(NamedTuple):
    """What a result consists of: the value of itself, and its parts by place. Shared, and never changed."""

    value: Value | None
    inner: dict[int, Parts]


NOTHING = Parts(None, {})


@dataclass(frozen=True, slots=True)
class Step:
    """An instruction as the schedule runs it. `joins` says that what it makes is not computed: it stands for
    values made elsewhere, as the parameter of a loop's body does."""

    instruction: Instruction
    reads: tuple[Value, ...]
    makes: tuple[Value, ...]
    joins: bool


@dataclass(slots=True)
class Flow:
    """`steps` in the order in which they run, the bodies of loops in front of their loop, as XLA counts time.
    `given` are the values of parameters and constants, `returned` those of the result, `same` pairs of
    values that have to have one place."""

    dump: Dump
    source: str
    steps: list[Step] = field(default_factory=list)
    given: list[Value] = field(default_factory=list)
    returned: tuple[Value, ...] = ()
    same: list[tuple[Value, Value]] = field(default_factory=list)
    _made: dict[str, list[tuple[Index, Value]]] = field(default_factory=lambda: defaultdict(list))
    _results: dict[str, Parts] = field(default_factory=dict)
    _entered: set[str] = field(default_factory=set)
    _placeless: set[str] = field(default_factory=set)
    _condition: list[Parts] = field(default_factory=list)
    _left: int = MOST_PLACES

    def __post_init__(self) -> None:
        for _, value in self.dump.values():
            self._made[value.maker].append((value.index, value))
        self.returned = self._deep([self._enter(self.dump.module.entry, None, 0)])

    def _enter(self, name: str, arguments: list[Parts] | None, depth: int) -> Parts:
        """Run a computation, the entry without `arguments`; what it returns."""
        computation = self.dump.module.computations.get(name)
        if computation is None or name in self._entered or depth > MOST_DEEP:
            found = "none of that name" if computation is None else "called twice, or too deep"
            expected = f"a computation of its own for each call, at most {MOST_DEEP} deep"
            raise InputError(self.source, f"computation {name!r}", found, expected)
        self._entered.add(name)
        for instruction in computation.instructions:
            self._results[instruction.name] = self._run(instruction, arguments, depth)
        return self._results.get(computation.root, NOTHING)

    def _run(self, instruction: Instruction, arguments: list[Parts] | None, depth: int) -> Parts:
        operands = [self._results.get(name, NOTHING) for name in instruction.operands]
        opcode, made = instruction.opcode, self._made.get(instruction.name, [])
        is_given = opcode == "constant" or (opcode == "parameter" and arguments is None)
        roots: list[Parts] = []
        if is_given:
            base, reads = NOTHING, []
        elif opcode == "parameter":
            assert arguments is not None
            base = arguments[instruction.number] if instruction.number < len(arguments) else NOTHING
            reads, roots = [base], [base]
        elif instruction.called:
            roots = self._call(instruction, operands, depth)
            base = _result_of_call(opcode, operands, roots)
            # What a loop starts from is its body's: it reads what the body has left.
            reads = roots if opcode == "while" else [*operands, *roots]
        else:
            self._check_places(instruction)
            base, reads = _forwarded(instruction, operands), operands
            if not made and _has_bytes(opcode):
                self._placeless.add(instruction.name)
        result = self._with(base, made) if made else base
        values = tuple(value for _, value in made)
        # What a loop begins with, carries on and ends with has one place.
        for root in [*roots, *operands] if opcode == "while" else roots:
            self._join(values, root)
        if is_given:
            self.given += values
        elif values or opcode not in FORWARDS | {"call", "parameter"}:
            if opcode == "parameter":
                # A condition is read before the body begins.
                reads = [*reads, *self._condition]
                self._condition.clear()
            self.steps.append(Step(instruction, self._deep(reads), values, bool(roots)))
        return result

    def _check_places(self, reader: Instruction) -> None:
        """A dump that was cut short has no place for some values: what is left of it proves nothing."""
        for name in reader.operands:
            if name in self._placeless:
                found = f"no place in the buffer assignment, and {reader.name!r} reads it"
                expected = "one for each value: the whole dump of one compilation"
                raise InputError(self.source, f"instruction {name!r}", found, expected)

    def _call(self, instruction: Instruction, operands: list[Parts], depth: int) -> list[Parts]:
        """What the computations return that are called; of a loop what its body does."""
        if instruction.opcode == "while":
            body, condition = (*instruction.called, "", "")[:2]
            self._condition.append(self._enter(condition, operands, depth + 1))
            return [self._enter(body, operands, depth + 1)]
        if instruction.opcode == "conditional":
            inputs = [[operand] for operand in operands[1:]]
            inputs += [[]] * (len(instruction.called) - len(inputs))
            return [
                self._enter(name, given, depth + 1)
                for name, given in zip(instruction.called, inputs, strict=False)
            ]
        return [self._enter(instruction.called[0], operands, depth + 1)]

    def _join(self, values: tuple[Value, ...], parts: Parts) -> None:
        for value in values:
            found = parts
            for part in value.index:
                found = found.inner.get(part, NOTHING)
            if found.value is not None:
                self.same.append((value, found.value))

    def _with(self, parts: Parts, made: list[tuple[Index, Value]]) -> Parts:
        """`parts` with the values that are `made` in their places."""
        own, deeper = parts.value, defaultdict(list)
        for index, value in made:
            if index:
                deeper[index[0]].append((index[1:], value))
            else:
                own = value
        if not deeper:
            return Parts(own, parts.inner)
        self._count(len(parts.inner) + len(made))
        inner = dict(parts.inner)
        for place, rest in deeper.items():
            inner[place] = self._with(inner.get(place, NOTHING), rest)
        return Parts(own, inner)

    def _deep(self, parts: list[Parts]) -> tuple[Value, ...]:
        """All values within `parts`, each once."""
        found: dict[Value, None] = {}
        waiting = parts[::-1]
        while waiting:
            value, inner = waiting.pop()
            self._count(1 + len(inner))
            if value is not None:
                found[value] = None
            waiting += reversed(inner.values())
        return tuple(found)

    def _count(self, places: int) -> None:
        self._left -= places
        if self._left < 0:
            found = f"more than {MOST_PLACES:,} parts of tuples"
            raise InputError(self.source, "", found, "a module with fewer, or smaller, tuples")


def _has_bytes(opcode: str) -> bool:
    return opcode not in FORWARDS | WITHOUT_BYTES and not opcode.endswith(("-start", "-done"))


def _result_of_call(opcode: str, operands: list[Parts], roots: list[Parts]) -> Parts:
    if opcode == "while":
        # What a loop carries unchanged has no value of its own.
        return operands[0] if operands else NOTHING
    if opcode == "async-start":
        return Parts(None, {0: Parts(None, dict(enumerate(operands))), 1: roots[0]})
    return roots[0] if roots else NOTHING


def _forwarded(instruction: Instruction, operands: list[Parts]) -> Parts:
    """What of its operands an instruction hands on."""
    opcode = instruction.opcode
    first = operands[0] if operands else NOTHING
    if opcode == "tuple":
        return Parts(None, dict(enumerate(operands)))
    if opcode == "get-tuple-element":
        return first.inner.get(instruction.number, NOTHING)
    if opcode in ("copy-done", "recv-done"):
        return first.inner.get(0, NOTHING)
    if opcode == "copy-start":
        return Parts(None, {1: first})
    if opcode in FORWARDS:
        return first
    if opcode.endswith("-start"):
        return Parts(None, {0: first})
    if opcode.endswith("-done"):
        return first.inner.get(1, NOTHING)
    return NOTHING
