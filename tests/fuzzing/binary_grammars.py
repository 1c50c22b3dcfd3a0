"""The formats that are no text: pickles, protocol buffers, and zips with JSON in them. See `grammars`."""

from __future__ import annotations

import io
import json
import pickle
import pickletools
import warnings
import zipfile
from itertools import pairwise
from random import Random
from typing import Any

from tests.fuzzing.grammars import Grammar, Pairs, json_bytes, json_tree

GLOBALS = (b"cos\nsystem\n", b"\x8c\x02os\x8c\x06system\x93", b"ccollections\nOrderedDict\n", b"Pid\n")
"""Opcodes that name something to be imported."""
MEMO = (b"\x94", b"h\x00", b"h\xff", b"r\xff\xff\xff\x7f", b"j\x00\x00\x00\x00")
"""Opcodes that put and get what is to be shared."""


def _pickle_tree(data: bytes) -> Any:
    return _as_pairs(pickle.loads(data))


def _as_pairs(value: Any) -> Any:
    if isinstance(value, dict):
        return Pairs((key, _as_pairs(entry)) for key, entry in value.items())
    return [_as_pairs(entry) for entry in value] if isinstance(value, list | tuple) else value


def _pickle_bytes(tree: Any, random: Random) -> bytes:
    """Pickled opcode by opcode, as `pickle` cannot write two members of one key."""
    data = _pickled(tree, random)
    if random.random() < 0.3:
        data = _changed_opcodes(data, random)
    return data


def _pickled(tree: Any, random: Random) -> bytes:
    out = bytearray(b"\x80" + bytes([random.choice((2, 3, 4, 4, 4, 5))]))
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, bytes):
            out += node
        elif isinstance(node, Pairs):
            out += b"}("
            waiting.append(b"u")
            for key, value in reversed(node):
                waiting += [value, key]
        elif isinstance(node, list):
            out += b"]("
            waiting += [b"e", *reversed(node)]
        elif isinstance(node, str):
            text = node.encode("utf-8", "surrogatepass")
            out += b"X" + len(text).to_bytes(4, "little") + text
        elif isinstance(node, int | float | bool) or node is None:
            out += pickle.dumps(node, 2)[2:-1]
        else:
            out += b"N"
    return bytes(out + b".")


def _changed_opcodes(data: bytes, random: Random) -> bytes:
    try:
        starts = [place for _, _, place in pickletools.genops(data)] + [len(data)]
    except Exception:
        return data
    codes = [data[low:high] for low, high in pairwise(starts)]
    place = random.randrange(len(codes))
    alone = [code.code.encode("latin-1") for code in pickletools.opcodes if code.arg is None]
    change = random.choice(("drop", "twice", "swap", "new", "global", "memo"))
    other = random.randrange(len(codes))
    if change == "drop":
        del codes[place]
    elif change == "twice":
        codes.insert(other, codes[place])
    elif change == "swap":
        codes[place], codes[other] = codes[other], codes[place]
    elif change == "new":
        codes.insert(place, random.choice(alone))
    elif change == "global":
        codes.insert(place, random.choice(GLOBALS))
    else:
        codes.insert(place, random.choice(MEMO))
    return b"".join(codes)


PICKLE = Grammar(_pickle_tree, _pickle_bytes, lambda data: list(pickletools.genops(data)))


def _protobuf_tree(data: bytes) -> list[Any]:
    """Fields as [number, wire type, value]; bytes that are a message themselves are one."""
    fields: list[Any] = []
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, place = _varint(data, place)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            value, place = int.from_bytes(data[place : place + size], "little"), place + size
        elif wire == 2:
            size, place = _varint(data, place)
            if place + size > len(data):
                raise ValueError("cut short")
            raw, place = data[place : place + size], place + size
            value = _message_or_text(raw)
        else:
            raise ValueError("no wire type of today")
        if number == 0:
            raise ValueError("no field")
        fields.append([number, wire, value])
    return fields


def _message_or_text(raw: bytes) -> Any:
    if (raw and not raw.isascii()) or (len(raw) > 3 and raw[0] < 32):
        try:
            return _protobuf_tree(raw)
        except ValueError:
            pass
    return raw.decode("latin-1")


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(data):
            raise ValueError("cut short")
        value |= (data[place] & 127) << shift
        place += 1
        if data[place - 1] < 128:
            return value, place
    raise ValueError("a number without an end")


def _protobuf_bytes(tree: Any, random: Random) -> bytes:
    out = bytearray()
    for field in tree if isinstance(tree, list) else []:
        if not isinstance(field, list) or len(field) != 3 or not isinstance(field[0], int):
            continue
        number, wire, value = field
        wire = wire if isinstance(wire, int) and 0 <= wire < 6 else 2
        out += _to_varint(abs(number) % 2**29 << 3 | wire)
        if wire in (0, 3, 4):
            out += _to_varint(value if isinstance(value, int) else 0)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            out += (value if isinstance(value, int) else 0).__mod__(1 << 8 * size).to_bytes(size, "little")
        else:
            raw = _protobuf_bytes(value, random) if isinstance(value, list) else _plain(value)
            out += _to_varint(len(raw)) + raw
    return bytes(out)


def _to_varint(value: int) -> bytes:
    value %= 2**64
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


PROTOBUF = Grammar(_protobuf_tree, _protobuf_bytes, _protobuf_tree)


def _zip_tree(data: bytes) -> Pairs:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    return Pairs(
        (name, json_tree(raw) if name.endswith(".json") else raw.decode("latin-1"))
        for name, raw in members.items()
    )


def _zip_bytes(tree: Any, random: Random) -> bytes:
    file = io.BytesIO()
    packing = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(file, "w", packing) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # A name may stand twice.
        for name, value in tree if isinstance(tree, Pairs) else []:
            raw = json_bytes(value, random) if str(name).endswith(".json") else _plain(value)
            # The time of day is no part of a case.
            member = zipfile.ZipInfo(str(name).replace("\ud800", "?") or "none")
            member.compress_type = packing
            archive.writestr(member, raw)
    return file.getvalue()


def _opened(data: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in archive.namelist():
            if name.endswith(".json"):
                json.loads(archive.read(name))


def _plain(value: Any) -> bytes:
    try:
        return str(value).encode("latin-1")
    except UnicodeEncodeError:
        return str(value).encode("utf-8", "replace")


ZIP = Grammar(_zip_tree, _zip_bytes, _opened)
