"""The formats as trees that can be changed: what a mutated file is made from, so that half of them pass the
first parse and meet the checks behind it.

Each grammar takes the bytes of a sound file apart and puts a tree together again. A tree is made of lists,
`Pairs` (the members of a mapping, of which two may have one key) and values.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

HUGE = (
    0, 1, 2, -1, 127, 128, 255, 256, 65535, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**62, 2**63 - 1, 2**63,
    2**64 - 1, 2**64, -(2**63), 10**30, 10**400, 0.5, -0.0, 1e308, math.inf, -math.inf, math.nan,
)  # fmt: skip
"""Numbers at which something ends."""
TEXTS = (
    "", " ", "0", "-1", "NaN", "inf", "1e5", "0x10", "٣", "None", "true", "..", "../../x", "/etc/passwd",
    "a\0b", "\ud800", "\u202e", "\ufeff", "😀", "<script>", "=1+1", "%s%n", "{}", "[[[[", "a" * 300, "s0",
    "s0*s1", "1/0", "9**9**9", "__import__('os')", "Mod(s0, 0)", "\n", "\r", ",", ";", '"', "'", "\\",
    "(?R)", "#",
)  # fmt: skip
"""Strings that are something else somewhere."""
DEEPEST = 3000
"""Levels of nesting, beyond Python's limit of recursion."""
RUNS = (b"\0", b"\xff" * 8, b"9" * 30, b"[" * DEEPEST, b"\xef\xbb\xbf", b"-")
"""Bytes that are put in between."""


class Pairs(list[tuple[Any, Any]]):
    """The members of a mapping, in order; a key may stand twice."""


def grow(tree: Any, random: Random) -> Any:
    """`tree` with some random changes, one to four."""
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        tree = _change(tree, random)
    return tree


def _change(tree: Any, random: Random) -> Any:
    """`tree` with one node changed: another value, another node's value, left out, or twice."""
    nodes = list(_nodes(tree))
    if not nodes:
        return _value(tree, random)
    holder, place = random.choice(nodes)
    what = random.random()
    if what < 0.55:
        put(holder, place, _value(value_at(holder, place), random))
    elif what < 0.7:
        put(holder, place, _copy(value_at(*random.choice(nodes))))
    elif what < 0.82:
        del holder[place]
    elif what < 0.92:
        holder[place:place] = [holder[place]] * random.choice((1, 1, 2, 50))
    elif what < 0.97 and isinstance(holder, Pairs):
        holder[place] = (random.choice(TEXTS), holder[place][1])
    else:
        random.shuffle(holder)
    return tree


def _value(old: Any, random: Random) -> Any:
    """Another value in the place of `old`: mostly of its kind."""
    kind = random.random()
    number = isinstance(old, int | float)
    if number and kind < 0.2:
        return old + random.choice((-1, 1, 7, 4096))
    if kind < (0.75 if number else 0.3):
        return random.choice(HUGE)
    if kind < (0.8 if number else 0.7):
        return random.choice(TEXTS)
    if kind < 0.72:
        return _deep(random.choice((10, 200, DEEPEST)))
    return random.choice((None, True, False, [], Pairs(), [old], Pairs([("", old)]), old))


def _copy(tree: Any, levels: int = 30) -> Any:
    """`tree` anew, as a list that came to lie in itself would have no end; only so many levels of it."""
    if not isinstance(tree, list):
        return tree
    if not levels:
        return None
    if isinstance(tree, Pairs):
        return Pairs((key, _copy(value, levels - 1)) for key, value in tree)
    return [_copy(value, levels - 1) for value in tree]


def _deep(levels: int) -> Any:
    tree: Any = 0
    for _ in range(levels):
        tree = [tree]
    return tree


def _nodes(tree: Any) -> Any:
    """Every place in the lists of `tree`, as (list, index)."""
    waiting = [tree]
    while waiting:
        holder = waiting.pop()
        if isinstance(holder, list):
            for place in range(len(holder)):
                yield holder, place
                waiting.append(value_at(holder, place))


def value_at(holder: list[Any], place: int) -> Any:
    return holder[place][1] if isinstance(holder, Pairs) else holder[place]


def put(holder: list[Any], place: int, value: Any) -> None:
    holder[place] = (holder[place][0], value) if isinstance(holder, Pairs) else value


@dataclass(frozen=True, slots=True)
class Grammar:
    """How a format is taken apart and put together. `parses` is somebody else's parser: what it takes is past
    the first parse."""

    take_apart: Callable[[bytes], Any]
    put_together: Callable[[Any, Random], bytes]
    parses: Callable[[bytes], object]


def _json_text(tree: Any) -> str:
    """Iteratively, as deep trees are asked for."""
    parts: list[str] = []
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, _Raw):
            parts.append(node)
        elif isinstance(node, Pairs):
            parts.append("{")
            inside: list[Any] = []
            for place, (key, value) in enumerate(node):
                inside += [_Raw((", " if place else "") + json.dumps(str(key)) + ": "), value]
            waiting += [_Raw("}"), *reversed(inside)]
        elif isinstance(node, list):
            parts.append("[")
            inside = []
            for place, value in enumerate(node):
                inside += [_Raw(", " if place else ""), value]
            waiting += [_Raw("]"), *reversed(inside)]
        else:
            parts.append(json.dumps(node))
    return "".join(parts)


class _Raw(str):
    """Text that is JSON already."""


def json_bytes(tree: Any, random: Random) -> bytes:
    text = _json_text(tree)
    encoding = random.choice(("utf-8",) * 20 + ("utf-16", "utf-32", "utf-8-sig", "latin-1"))
    return text.encode(encoding, "backslashreplace")


def json_tree(data: bytes) -> Any:
    return json.loads(data, object_pairs_hook=Pairs)


JSON = Grammar(json_tree, json_bytes, json.loads)
ZIPPED_JSON = Grammar(
    lambda data: json_tree(gzip.decompress(data)),
    lambda tree, random: gzip.compress(json_bytes(tree, random), mtime=0),
    lambda data: json.loads(gzip.decompress(data)),
)


def _csv_tree(data: bytes) -> list[list[Any]]:
    text = data.decode()
    delimiter = ";" if ";" in text else ","
    return [
        [int(cell) if cell.isdigit() else cell for cell in line.split(delimiter)]
        for line in text.splitlines()
    ]


def _csv_bytes(tree: Any, random: Random) -> bytes:
    rows = [row if isinstance(row, list) else [row] for row in tree] if isinstance(tree, list) else [[tree]]
    delimiter = random.choice(",,,,,,;\t|")
    end = random.choice(("\n", "\n", "\n", "\r\n", "\r", "\n\n"))
    quoted = random.random() < 0.1
    cells = [[_cell(value, quoted) for value in row] for row in rows]
    return end.join(delimiter.join(row) for row in cells).encode("utf-8", "surrogatepass")


def _cell(value: Any, quoted: bool) -> str:
    text = "" if value is None or isinstance(value, list) else str(value)
    return '"' + text.replace('"', '""') + '"' if quoted else text


CSV = Grammar(_csv_tree, _csv_bytes, lambda data: list(csv.reader(io.StringIO(data.decode()), strict=True)))


def scramble(data: bytes, other: bytes, random: Random) -> bytes:
    """`data` with its bytes changed, whatever they mean: bits, runs, cuts, a part of `other`."""
    raw = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8))):
        place = random.randrange(len(raw) + 1)
        what = random.randrange(6)
        if what == 0 and place < len(raw):
            raw[place] ^= 1 << random.randrange(8)
        elif what == 1:
            del raw[place:]
        elif what == 2:
            raw[place:place] = random.choice(
                (b"\0", b"\xff" * 8, b"9" * 30, b"[" * DEEPEST, b"\xef\xbb\xbf", b"-")
            )
        elif what == 3:
            del raw[place : place + random.randrange(1, 40)]
        elif what == 4:
            low = random.randrange(len(other))
            raw[place : place + random.randrange(40)] = other[low : low + random.randrange(1, 200)]
        else:
            raw[place:place] = raw[place : place + 60] * random.choice((1, 30))
    return bytes(raw)
