"""HLO as text, as `--xla_dump_hlo_as_text` and `compiled.as_text()` write it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from memplan_engine.errors import InputError
from memplan_engine.formats.xla_dump.hlo_module import (
    MOST_INSTRUCTIONS,
    Computation,
    Instruction,
    Module,
)
from memplan_engine.graph import Source

MOST_BYTES = 128 * 2**20
"""Of a text: an instruction takes some 200 bytes."""
MOST_MARKS = {"(": 4_000_000, "%": 4_000_000, "\n": 4_000_000, ",": 8_000_000}
"""How often a text may have what is looked at one by one: 10 CPU seconds each, 1 GB when all are operands."""
_HEAD = re.compile(r"\s*(ROOT )?%?([^\s=()]+) = ")
_OPCODE = re.compile(r" ([\w-]+)\(")
_BRACKET = re.compile(r"[()]")
_NAME = re.compile(r"%([^\s,()]+)")
_NOT_A_NAME = re.compile(r"/\*[^*]*\*/|\{[^}]*\}|\[[^\]]*\]")
_CALLED = re.compile(r"\b(body|condition|true_computation|false_computation|calls|to_apply)=%?([^\s,(){}]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_INDEX = re.compile(r"\bindex=(\d{1,9})\b")
_SCOPE = re.compile(r'op_name="([^"]*)"')
_FILE = re.compile(r'source_file="([^"]*)"')
_LINE = re.compile(r"source_line=(\d{1,9})\b")
_FRAME = re.compile(r"stack_frame_id=(\d{1,9})\b")
_ENTRY_OF_TABLE = re.compile(r"(\d{1,9}) (?:\"([^\"]*)\"|\{([^}]*)\})$")
_FIELD = re.compile(r"(\w+)=(\d{1,9})\b")
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
CALLING = frozenset({"while", "conditional", "call", "async-start"})
"""Opcodes whose computations are part of the schedule; those that others name run inside one kernel."""


def lines_of(text: str) -> Iterator[str]:
    """Its lines, one at a time, without what ends them."""
    return (found.group().rstrip("\r") for found in re.finditer(r"[^\n]+", text))


def read_hlo(text: str, source: str) -> Module:
    """The module that `text` describes.

    Raises
    ------
    InputError: a module without a schedule, an instruction that cannot be read, or more than MOST_BYTES,
        MOST_MARKS or MOST_INSTRUCTIONS.
    """
    _check_size(text, source)
    header = next(lines_of(text), "")
    name = re.match(r"HloModule ([^\s,]{1,1000})", header)
    if name is None:
        raise InputError(source, "line 1", repr(header[:60]), "HloModule and its name")
    if "is_scheduled=true" not in header:
        expected = "is_scheduled=true: the dump after optimizations, *_after_optimizations.txt"
        raise InputError(source, "line 1", "a module without a schedule", expected)
    reader = _Reader(source)
    for line in islice(lines_of(text), 1, None):
        reader.take(line)
    return Module(name[1], reader.computations, reader.entry)


def _check_size(text: str, source: str) -> None:
    if len(text) > MOST_BYTES:
        raise InputError(source, "", f"{len(text):,} characters of HLO", f"at most {MOST_BYTES:,}")
    for mark, most in MOST_MARKS.items():
        if (count := text.count(mark)) > most:
            raise InputError(source, "", f"{count:,} times {mark!r}", f"at most {most:,}: a smaller module")


class _Reader:
    """Line by line: the tables of source lines first, then the computations."""

    def __init__(self, source: str) -> None:
        self.computations: dict[str, Computation] = {}
        self.entry = ""
        self._source = source
        self._table: dict[int, str] = {}
        self._tables: dict[str, dict[int, str]] = {name: {} for name in _TABLES}
        self._name = ""
        self._root = ""
        self._instructions: list[Instruction] = []
        self._left = MOST_INSTRUCTIONS

    def take(self, line: str) -> None:
        """Read one line more."""
        if line.startswith("}"):
            last = self._instructions[-1].name if self._instructions else ""
            self.computations[self._name] = Computation(tuple(self._instructions), self._root or last)
            self._instructions, self._root = [], ""
        elif head := _HEAD.match(line):
            self._left -= 1
            if self._left < 0:
                expected = f"at most {MOST_INSTRUCTIONS:,}"
                raise InputError(self._source, "", f"more than {MOST_INSTRUCTIONS:,} instructions", expected)
            self._instructions.append(self._instruction(line, head))
            if head[1]:
                self._root = head[2]
        elif line.endswith("{"):
            words = line.replace("(", " ", 1).split(None, 2)
            self._name = words[words[0] == "ENTRY"].lstrip("%") if len(words) > 1 else ""
            if words[0] == "ENTRY":
                self.entry = self._name
        elif line in self._tables:
            self._table = self._tables[line]
        elif entry := _ENTRY_OF_TABLE.match(line):
            self._table[int(entry[1])] = entry[2] or entry[3] or ""

    def _instruction(self, line: str, head: re.Match[str]) -> Instruction:
        at = head.end()
        end = _closing(line, at) if line.startswith("(", at) else line.find(" ", at)
        opcode = _OPCODE.match(line, end) if end > 0 else None
        close = _closing(line, opcode.end() - 1) if opcode else -1
        if opcode is None or close < 0:
            place = f"instruction {head[2][:60]!r}"
            raise InputError(self._source, place, repr(line[at : at + 60]), "shape opcode(operands)")
        kind, inside, rest = opcode[1], line[opcode.end() : close - 1], line[close:]
        number = 0
        operands: tuple[str, ...] = ()
        if kind == "parameter":
            number = int(inside) if inside.isdecimal() and len(inside) < 9 else 0
        elif kind != "constant":
            operands = _operands(inside)
        if kind == "get-tuple-element" and (index := _INDEX.search(rest)):
            number = int(index[1])
        called = _called(rest) if kind in CALLING else ()
        scope = _SCOPE.search(rest)
        return Instruction(
            head[2], kind, operands, called, number, scope[1] if scope else "", self._place(rest)
        )

    def _place(self, rest: str) -> Source | None:
        """The line of the user's code: beside the instruction, or by way of the tables."""
        if file := _FILE.search(rest):
            line = _LINE.search(rest)
            return Source(file[1], int(line[1]) if line else 0)
        frame = _FRAME.search(rest)
        if frame is None:
            return None
        frames, places, files = (self._tables[name] for name in ("StackFrames", "FileLocations", "FileNames"))
        at = dict(_FIELD.findall(frames.get(int(frame[1]), ""))).get("file_location_id", "0")
        place = dict(_FIELD.findall(places.get(int(at), "")))
        name = files.get(int(place.get("file_name_id", 0)))
        return Source(name, int(place.get("line", 0))) if name else None


def _operands(inside: str) -> tuple[str, ...]:
    """The names among operands, each behind its shape or without; newer dumps leave out the percent sign."""
    if "%" in inside or not inside:
        return tuple(_NAME.findall(inside))
    names = (part.split() for part in _NOT_A_NAME.sub("", inside).split(","))
    return tuple(words[-1] for words in names if words)


def _called(rest: str) -> tuple[str, ...]:
    if branches := _BRANCHES.search(rest):
        return tuple(name.strip().lstrip("%") for name in branches[1].split(","))
    found = dict(_CALLED.findall(rest))
    order = ("body", "condition", "true_computation", "false_computation", "calls", "to_apply")
    return tuple(found[key] for key in order if key in found)


def _closing(line: str, at: int) -> int:
    """Where the bracket that opens at `at` has closed; -1 where it does not."""
    depth = 0
    for found in _BRACKET.finditer(line, at):
        depth += 1 if found.group() == "(" else -1
        if depth == 0:
            return found.end()
    return -1
