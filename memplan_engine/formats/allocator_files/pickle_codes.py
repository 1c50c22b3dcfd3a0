"""The instructions of a pickle that plain data needs; the most frequent ones are in `plain_pickle`."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Protocol

from memplan_engine.formats.allocator_files.pickle_refusals import (
    CALLS,
    MAX_TUPLE_DEPTH,
    TEXT_CODES,
    WHOLE,
    Refusals,
    as_key,
    brief,
)

MAX_NUMBER_BYTES = 4096
MAX_STRING_BYTES = 64 << 20
SET_BYTES, DEPTH_BYTES, FAR_BYTES = 216, 600, 140
"""Of an empty set, of a tuple whose depth is noted, of a memo entry that is not the next one: sys.getsizeof,
and what a dict has for it while it grows."""
UNKNOWN = -2
BATCH = 1000
"""Picklers fill containers by as many items at a time: one of fewer is whole when it closes."""
WIDTHS = {width: struct.Struct(code) for width, code in ((1, "<B"), (2, "<H"), (4, "<I"), (8, "<Q"))}
FLOAT = struct.Struct(">d")
MOST_BYTES = {0x68: 2, 0x6A: 5, 0x8A: 2 + 255, 0x4B: 2, 0x4A: 5}
"""Of the instructions in the machine's own loop: how long they can be."""


class Reducer(Protocol):
    """Is shown each list and each dict when it closes, and may give something small to keep in its place."""

    def close_dict(self, items: list[Any]) -> Any | None:
        """`items` are keys and values in turns. None keeps the dict as it is."""

    def close_list(self, items: list[Any]) -> Any | None:
        """None keeps the list as it is."""


class Codes(Refusals):
    """The state of the machine, and one method for each instruction that the loop leaves to it.

    Every method is given the place of its instruction in `data` and gives that of the next one; where it
    needs more of the file it says how much in `wanted`, and is asked again.
    """

    def __init__(self, source: str, size: int, reducer: Reducer | None) -> None:
        self.source, self.size, self.reducer = source, size, reducer
        self.data, self.base, self.limit, self.wanted = b"", 0, 0, 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.holders: list[int] = []
        """Where the container that each mark belongs to is in the memo, if it is."""
        self.memo: list[Any] = []
        self.far: dict[int, Any] = {}
        """Memo entries with numbers that are not the next one."""
        self.tuple_depth: dict[int, tuple[Any, int]] = {}
        self.kept = self.charged = 0
        """Values in containers; bytes of texts, and of what is larger than a value is taken to be."""
        self.runs: dict[bytes, tuple[list[Any], Any]] = {}
        """What runs of references get, and what was made of it."""
        self.done, self.value = False, None
        self.codes = self._table()

    def _table(self) -> list[Callable[[int], int]]:
        table: list[Callable[[int], int]] = [self._unknown] * 256
        named: dict[int, Callable[[int], int]] = {
            0x80: self._proto, 0x95: self._frame, 0x2E: self._stop,
            0x4E: self._push(lambda: None), 0x88: self._push(lambda: True), 0x89: self._push(lambda: False),
            0x4D: self._binint2, 0x8B: self._long4, 0x47: self._binfloat,
            0x75: self._setitems, 0x65: self._appends, 0x73: self._setitem, 0x61: self._append,
            0x64: self._dict, 0x6C: self._list, 0x74: self._tuple, 0x29: self._push(tuple),
            0x8F: self._set, 0x90: self._additems,
            0x71: self._binput, 0x72: self._long_binput, 0x68: self._get_far, 0x6A: self._get_far,
            0x30: self._pop, 0x31: self._pop_mark, 0x32: self._dup,
            0x63: self._global, 0x69: self._global, 0x93: self._stack_global,
        }  # fmt: skip
        named |= {0x85 + n: self._tuple_of(n + 1) for n in range(3)}
        named |= {code: self._text(width, str) for code, width in ((0x58, 4), (0x8C, 1), (0x8D, 8))}
        named |= {code: self._text(width, bytes) for code, width in ((0x42, 4), (0x43, 1), (0x8E, 8))}
        named |= {code: self._text(width, ascii) for code, width in ((0x55, 1), (0x54, 4))}
        named |= dict.fromkeys(CALLS, self._call) | dict.fromkeys(TEXT_CODES, self._of_protocol_0)
        for code, method in named.items():
            table[code] = method
        return table

    def explain(self, at: int) -> int:
        """What to do about an instruction that found nothing: it may get what was put far off, the file may
        end in the middle of it, or there is nothing to take from the stack."""
        op = self.data[at] if at < len(self.data) else -1
        if op in (0x68, 0x6A):
            return self._get_far(at)
        if at + MOST_BYTES.get(op, 1) > len(self.data):
            raise self.cut_short(len(self.data))
        raise self.error(at, f"instruction 0x{op:02x} without what it works on", WHOLE)

    def _argument(self, at: int, layout: struct.Struct) -> Any:
        if at + 1 + layout.size > len(self.data):
            raise self.cut_short(len(self.data))
        return layout.unpack_from(self.data, at + 1)[0]

    def _proto(self, at: int) -> int:
        version = self._argument(at, WIDTHS[1])
        if not 2 <= version <= 5:
            raise self.error(at, f"protocol {version}", "2 to 5")
        return at + 2

    def _frame(self, at: int) -> int:
        length = self._argument(at, WIDTHS[8])
        if self.base + at + 9 + length > self.size:
            raise self.cut_short(at)
        return at + 9

    def _stop(self, at: int) -> int:
        self.value, self.done = self.stack.pop(), True
        if self.stack or self.marks:
            raise self.error(at, f"an end with {len(self.stack):,} values left over", "one value")
        return at + 1

    def _push(self, make: Callable[[], Any]) -> Callable[[int], int]:
        """What puts a value on the stack that no argument says more about."""

        def push(at: int) -> int:
            self.stack.append(make())
            return at + 1

        return push

    def _binint2(self, at: int) -> int:
        self.stack.append(self._argument(at, WIDTHS[2]))
        return at + 3

    def _binfloat(self, at: int) -> int:
        self.stack.append(self._argument(at, FLOAT))
        return at + 9

    def _long4(self, at: int) -> int:
        length: int = self._argument(at, WIDTHS[4])
        if length > MAX_NUMBER_BYTES:
            raise self.error(at, f"a number of {length:,} bytes", f"at most {MAX_NUMBER_BYTES:,}")
        end = at + 5 + length
        if end > len(self.data):
            return self._want(at, end)
        self.stack.append(int.from_bytes(self.data[at + 5 : end], "little", signed=True))
        return end

    def _want(self, at: int, end: int) -> int:
        if self.base + end > self.size:
            raise self.cut_short(at)
        self.wanted = end - at
        return at

    def _text(self, width: int, kind: Callable[..., Any]) -> Callable[[int], int]:
        """Read a length of `width` bytes and so much of text, bytes, or text in ASCII."""
        layout = WIDTHS[width]

        def read(at: int) -> int:
            length: int = self._argument(at, layout)
            begin = at + 1 + width
            end = begin + length
            if self.base + end > self.size:
                raise self.error(at, f"{length:,} bytes announced, more than the file has", "what is there")
            if length > MAX_STRING_BYTES:
                raise self.error(at, f"a text of {length:,} bytes", f"at most {MAX_STRING_BYTES:,}")
            if end > len(self.data):
                return self._want(at, end)
            self.charged += length + 64
            self.stack.append(self._decoded(at, self.data[begin:end], kind))
            return end

        return read

    def _decoded(self, at: int, content: bytes, kind: Callable[..., Any]) -> str | bytes:
        if kind is bytes:
            return content
        is_ascii = kind is ascii
        try:
            return str(content, "ascii" if is_ascii else "utf-8", "strict" if is_ascii else "surrogatepass")
        except UnicodeDecodeError as wrong:
            place = at + wrong.start
            raise self.error(place, f"0x{content[wrong.start]:02x} in a text", "text in UTF-8") from None

    def _from_mark(self) -> list[Any]:
        mark = self.marks.pop()
        self.holders.pop()
        items = self.stack[mark:]
        del self.stack[mark:]
        self.kept += len(items)
        return items

    def _filled(self, holder: int, target: Any, items: list[Any], close: Callable[[list[Any]], Any]) -> bool:
        """Whether the reducer took the container, and nobody can refer to it any more: what it gave stands
        in its place. False where it has to be filled, be it only for those that may still refer to it."""
        small = close(items)
        if small is None:
            return False
        self.stack[-1] = small
        self.kept -= len(items)
        if 0 <= holder < len(self.memo) and self.memo[holder] is target:
            self.memo[holder] = small
            return True
        return holder != UNKNOWN and not self.far

    def _setitems(self, at: int) -> int:
        holder = self.holders[-1]
        items = self._from_mark()
        target = self.stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise self.error(at, f"items for {brief(target)}", "keys and values for a dict")
        whole = self.reducer and not target and len(items) < 2 * BATCH
        if not (whole and self._filled(holder, target, items, self.reducer.close_dict)):  # type: ignore[union-attr]
            for key, value in zip(items[::2], items[1::2], strict=True):
                target[as_key(key, self, at)] = value
        return at + 1

    def _setitem(self, at: int) -> int:
        value, key = self.stack.pop(), self.stack.pop()
        self.kept += 2
        target = self.stack[-1]
        if type(target) is not dict:
            raise self.error(at, f"an item for {brief(target)}", "a dict")
        target[as_key(key, self, at)] = value
        return at + 1

    def _appends(self, at: int) -> int:
        holder = self.holders[-1]
        items = self._from_mark()
        return self._extend(at, holder, items)

    def _append(self, at: int) -> int:
        self.kept += 1
        return self._extend(at, UNKNOWN, [self.stack.pop()])

    def _extend(self, at: int, holder: int, items: list[Any]) -> int:
        target = self.stack[-1]
        if type(target) is not list:
            raise self.error(at, f"items for {brief(target)}", "a list")
        whole = self.reducer and not target and len(items) < BATCH
        if not (whole and self._filled(holder, target, items, self.reducer.close_list)):  # type: ignore[union-attr]
            target.extend(items)
        return at + 1

    def _dict(self, at: int) -> int:
        items = self._from_mark()
        if len(items) % 2:
            raise self.error(at, "a key without a value", "keys and values for a dict")
        pairs = zip(items[::2], items[1::2], strict=True)
        self.stack.append({as_key(key, self, at): value for key, value in pairs})
        return at + 1

    def _list(self, at: int) -> int:
        self.stack.append(self._from_mark())
        return at + 1

    def _tuple(self, at: int) -> int:
        self.stack.append(self._make_tuple(at, self._from_mark()))
        return at + 1

    def _tuple_of(self, count: int) -> Callable[[int], int]:
        def make(at: int) -> int:
            items = self.stack[-count:]
            if len(items) < count:
                raise IndexError
            del self.stack[-count:]
            self.kept += count
            self.stack.append(self._make_tuple(at, items))
            return at + 1

        return make

    def _make_tuple(self, at: int, items: list[Any]) -> tuple[Any, ...]:
        """Tuples are hashed, compared and freed by recursion: their depth is limited."""
        made = tuple(items)
        inner = [item for item in items if type(item) is tuple]
        if inner:
            known = (self.tuple_depth.get(id(item)) for item in inner)
            depth = 1 + max(each[1] if each else 1 for each in known)
            if depth > MAX_TUPLE_DEPTH:
                raise self.error(at, f"tuples nested more than {MAX_TUPLE_DEPTH} deep", "plain data")
            self.charged += DEPTH_BYTES
            self.tuple_depth[id(made)] = (made, depth)
        return made

    def _set(self, at: int) -> int:
        self.charged += SET_BYTES
        self.stack.append(set())
        return at + 1

    def _additems(self, at: int) -> int:
        items = self._from_mark()
        target = self.stack[-1]
        if type(target) is not set:
            raise self.error(at, f"members for {brief(target)}", "a set")
        target.update(as_key(item, self, at) for item in items)
        return at + 1

    def _binput(self, at: int) -> int:
        self._put(self._argument(at, WIDTHS[1]))
        return at + 2

    def _long_binput(self, at: int) -> int:
        self._put(self._argument(at, WIDTHS[4]))
        return at + 5

    def _put(self, place: int) -> None:
        if place == len(self.memo) and not self.far:
            self.memo.append(self.stack[-1])
        elif place < len(self.memo):
            self.memo[place] = self.stack[-1]
            self.runs.clear()
        else:
            self.charged += FAR_BYTES
            self.far[place] = self.stack[-1]

    def _get_far(self, at: int) -> int:
        width = 1 if self.data[at] == 0x68 else 4
        place = self._argument(at, WIDTHS[width])
        if place not in self.far:
            raise self.error(at, f"a reference to value {place:,}, which was not there yet", "one that was")
        self.stack.append(self.far[place])
        return at + 1 + width

    def _pop(self, at: int) -> int:
        self.stack.pop()
        return at + 1

    def _pop_mark(self, at: int) -> int:
        self._from_mark()
        return at + 1

    def _dup(self, at: int) -> int:
        self.stack.append(self.stack[-1])
        return at + 1
