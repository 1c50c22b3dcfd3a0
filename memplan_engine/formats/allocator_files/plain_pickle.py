"""Pickles of plain data, protocols 2 to 5, without pickle: nothing but values can come out of a file.

The stack machine that a pickle is a program for, without every instruction that names or calls anything. It
reads in pieces, and containers can be reduced the moment they close: a file of a gigabyte needs no more
memory than what is kept of it. The instructions themselves are in `pickle_codes`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from memplan_engine.errors import InputError
from memplan_engine.formats.allocator_files.pickle_codes import BATCH, Codes, Reducer
from memplan_engine.formats.allocator_files.pickle_refusals import check_tree
from memplan_engine.formats.read_limits import file_size, unreadable

CHUNK = 1 << 20
MARGIN = 260
"""No instruction of fixed size, and no LONG1, is longer: where this much is left none is cut in two."""
MAX_DEPTH = 1000
MAX_KEPT_BYTES = 5 << 28
"""What all that is kept may take, by the estimate below: what is read and Python itself come to it."""
SLOT_BYTES, VALUE_BYTES = 8, 64

Progress = Callable[[int, int], None]
"""Told how many bytes have been read, and of how many."""

MOST_RUNS, MOST_RUN_BYTES = 10_000, 4096
"""Runs of references that are remembered, and how long each may be."""

_GETS = re.compile(rb"(?:h.|j....)++e", re.DOTALL)
"""The items of a list that are all known already, and its end."""
_BININT = struct.Struct("<i").unpack_from
_LONG_GET = struct.Struct("<I").unpack_from


def load_plain(path: Path, *, most_values: int = 10_000_000) -> Any:
    """The value in the pickle at `path`: None, bool, int, float, str, bytes, list, tuple, dict, set.

    Raises
    ------
    InputError: a global, a call or anything else that is no plain data, named with its byte; a file that is
        cut short or damaged; a value that is inside itself, or of more than `most_values` values when what is
        shared is counted each time (a pickle of 200 bytes can stand for 2^100 of them).
    """
    value = read_pickle(path)
    check_tree(value, path.name, most_values)
    return value


def read_pickle(path: Path, reducer: Reducer | None = None, progress: Progress | None = None) -> Any:
    """As `load_plain`, but the value may share and contain itself: whoever walks it has to count.

    Lists and dicts go through `reducer` when they are filled in one go, as every pickler fills those of fewer
    than 1,000 items.
    """
    size = file_size(path)
    try:
        with path.open("rb") as file:
            return Machine(file, path.name, size, reducer, progress).run()
    except OSError as error:
        raise unreadable(path, error) from None


class Machine(Codes):
    """The loop over instructions: the frequent ones are here, all others in `Codes`."""

    def __init__(
        self,
        file: BinaryIO,
        source: str,
        size: int,
        reducer: Reducer | None = None,
        progress: Progress | None = None,
    ) -> None:
        super().__init__(source, size, reducer)
        self.file, self.progress = file, progress

    def run(self) -> Any:
        """Read to the end; raises InputError."""
        at = self._refill(0)
        if self.data[:1] != b"\x80":
            raise InputError(self.source, "byte 0", repr(self.data[:1])[1:], "a pickle of protocol 2 to 5")
        while not self.done:
            at = self._refill(self._steps(at))
        rest = self.size - (self.base + at)
        if rest > 0:
            raise self.error(at, f"{rest:,} bytes after the end of the pickle", "one pickle only")
        return self.value

    def _refill(self, at: int) -> int:
        """Drop what was read up to `at`, read on, and give the new `at`."""
        left = len(self.data) - at
        if left < 0:
            raise self.cut_short(len(self.data))
        if self.done:
            return at
        more = self.file.read(max(CHUNK, self.wanted - left))
        if not more and (left == 0 or left < self.wanted):
            raise self.cut_short(len(self.data))
        self.data, self.base = self.data[at:] + more, self.base + at
        is_last = not more or self.base + len(self.data) >= self.size
        self.limit = len(self.data) if is_last else len(self.data) - MARGIN
        self.wanted = 0
        self._weigh()
        if self.progress:
            self.progress(self.base + len(self.data), self.size)
        return 0

    def _weigh(self) -> None:
        if len(self.marks) > MAX_DEPTH:
            raise self.error(0, "values nested more than 1,000 deep", "plain data")
        values = len(self.stack) + self.kept
        nbytes = SLOT_BYTES * (len(self.memo) + len(self.far)) + VALUE_BYTES * values + self.charged
        if nbytes > MAX_KEPT_BYTES:
            raise self.error(
                0, f"{values:,} values to keep so far", f"at most {MAX_KEPT_BYTES >> 20:,} MiB of them"
            )

    def _steps(self, i: int) -> int:
        """Run the instructions from `i` on to the end of what was read; gives where it stopped."""
        data, limit, stack, memo = self.data, self.limit, self.stack, self.memo
        marks, holders, codes = self.marks, self.holders, self.codes
        push, number = stack.append, int.from_bytes
        try:
            while i < limit:
                op = data[i]
                if op == 0x68:  # BINGET
                    push(memo[data[i + 1]])
                    i += 2
                elif op == 0x94:  # MEMOIZE
                    memo.append(stack[-1])
                    i += 1
                elif op == 0x8A:  # LONG1
                    end = i + 2 + data[i + 1]
                    push(number(data[i + 2 : end], "little", signed=True))
                    i = end
                elif op == 0x28:  # MARK
                    known = _GETS.match(data, i + 1)
                    if known and self._fill(known[0]):
                        i = known.end()
                    else:
                        marks.append(len(stack))
                        holders.append(len(memo) - 1)
                        i += 1
                elif op == 0x4B:  # BININT1
                    push(data[i + 1])
                    i += 2
                elif op == 0x4A:  # BININT
                    push(_BININT(data, i + 1)[0])
                    i += 5
                elif op == 0x7D:  # EMPTY_DICT
                    push({})
                    i += 1
                elif op == 0x5D:  # EMPTY_LIST
                    push([])
                    i += 1
                elif op == 0x6A:  # LONG_BINGET
                    push(memo[_LONG_GET(data, i + 1)[0]])
                    i += 5
                else:
                    i = codes[op](i)
                    if self.done or self.wanted:
                        break
        except (IndexError, struct.error):
            return self.explain(i)
        return i

    def _fill(self, run: bytes) -> bool:
        """Fill the empty list on top of the stack with what `run` gets; False where there is no such list."""
        stack, memo = self.stack, self.memo
        target = stack[-1] if stack else None
        if type(target) is not list or target:
            return False
        known = self.runs.get(run)
        if known is None:
            known = self._known(run)
            if known is None:
                return False
        items, small = known
        if small is None:
            target += items
            self.kept += len(items)
            return True
        stack[-1] = small
        if memo and memo[-1] is target:
            memo[-1] = small
        elif self.far:
            target += items
        return True

    def _known(self, run: bytes) -> tuple[list[Any], Any] | None:
        """What `run` gets, and what the reducer makes of it; None where the memo itself does not have it."""
        items, i, end = [], 0, len(run) - 1
        while i < end:
            short = run[i] == 0x68
            place = run[i + 1] if short else _LONG_GET(run, i + 1)[0]
            if place >= len(self.memo):
                return None
            items.append(self.memo[place])
            i += 2 if short else 5
        small = self.reducer.close_list(items) if self.reducer and len(items) < BATCH else None
        if len(run) <= MOST_RUN_BYTES:
            if len(self.runs) >= MOST_RUNS:
                self.runs.clear()
            self.runs[run] = items, small
        return items, small
