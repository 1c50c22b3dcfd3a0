"""Files that take the most memory or time for their length, of every kind that is read, at any length."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable

import numpy as np

from memplan_engine.formats.flat_tables import FlatFile
from tests.support.flat_builder import FlatTable
from tests.support.pte_programs import program, tensor, tensors

Make = Callable[[int], bytes]


def repeated(head: bytes, unit: bytes, tail: bytes) -> Make:
    """`unit` between `head` and `tail` as often as there is room for it."""
    return lambda n: head + unit * max(1, (n - len(head) - len(tail)) // len(unit)) + tail


def numbered(head: bytes, row: bytes, tail: bytes = b"") -> Make:
    """As `repeated`, with the number of each in it."""

    def make(n: int) -> bytes:
        parts, length = [head], len(head)
        while length < n:
            parts.append(row % len(parts))
            length += len(parts[-1])
        return b"".join(parts).removesuffix(b",") + tail

    return make


_LIST = b"id,lower,upper,size\n"
_WIDE = b"id,lower,upper,size,alignment,offset,gaps,name,hint\n"
_PROBLEM = b'{"format":"memplan/problem","version":1,'
_GRAPH = b'{"format":"memplan/graph","version":1,"name":"g",'
_OBSERVATION = b'{"format":"memplan/observation","version":2,"name":"o","nanoseconds":1,"ops":{'
_NO_FRAMES = b'"frames":[],"stacks":[],'
_TRACE = b'{"traceEvents":['
_MEMORY = b'{"name":"[memory]","ph":"","ts":2,"args":{"Addr":%d,"Bytes":1}},'


def _most_of_each(n: int) -> bytes:
    """As many rows as a list may have, with something in every cell."""
    return numbered(_WIDE, b'"%x",10,999,100,64,,,"name",\n')(min(n, 1_400_000 * 33))


CSV: dict[str, Make] = {
    "rows": numbered(_LIST, b"%x,0,1,1\n"),
    "cells": _most_of_each,
    "empty cells": repeated(_WIDE, b",,,,,,,,\n", b""),
    "blank lines": repeated(_LIST, b"\n", b"a,0,1,1\n"),
    "columns": numbered(_LIST[:-1], b",%x", b"\n"),
    "gaps": repeated(b"id,lower,upper,size,gaps\na,0,9999999,1,", b"1-2 ", b"\n"),
    "commas": repeated(_LIST, b",", b"\n"),
    "quotes": repeated(_LIST + b'"', b'""', b'",0,1,1\n'),
    "digits": repeated(_LIST + b"a,0,1,", b"0", b"9\n"),
    "emoji": numbered(_LIST + "\U0001f600".encode(), b"%x,0,1,1\n"),
}
JSON: dict[str, Make] = {
    "lists": repeated(_PROBLEM + b'"start":[', b"[],", b"[]]}"),
    "objects": repeated(_PROBLEM + b'"x":[', b"{},", b"{}]}"),
    "numbers": repeated(_PROBLEM + b'"start":[', b"0,", b"0]}"),
    "texts": repeated(_PROBLEM + b'"names":[', b'"",', b'""]}'),
    "fields": numbered(_PROBLEM, b'"%x":0,', b"}"),
    "depth": lambda n: _PROBLEM + b'"start":' + b"[" * (n // 2) + b"]" * (n // 2) + b"}",
    "digits": repeated(_PROBLEM + b'"start":[', b"9", b"]}"),
    "one text": repeated(_PROBLEM + b'"name":"', b"a", b'"}'),
    "emoji": repeated(_PROBLEM + '"name":"\U0001f600'.encode(), b"a", b'"}'),
    "tensors": numbered(_GRAPH + b'"ops":[],"tensors":[', b'{"name":"%x","nbytes":1},', b"]}"),
    "no format": repeated(b'{"x":[', b"{},", b"{}]}"),
    "dimensions": repeated(
        _GRAPH + b'"ops":[],"tensors":[{"name":"a","nbytes":1,"shape":[', b"9223372036854775807,", b"1]}]}"
    ),
    "strides": repeated(_GRAPH + b'"ops":[],"tensors":[{"name":"a","nbytes":1,"strides":[', b"-1,", b"1]}]}"),
    "inputs of an op": repeated(
        _GRAPH
        + b'"inputs":["a"],"tensors":[{"name":"a","nbytes":1}],"ops":[{"name":"o","kind":"k","inputs":[',
        b'"a",',
        b'"a"]}]}',
    ),
    "views of views": lambda n: (
        _GRAPH
        + b'"inputs":["0"],"tensors":[{"name":"0","nbytes":1}'
        + b"".join(b',{"name":"%d","nbytes":1,"view_of":"%d"}' % (i + 1, i) for i in range(n // 115))
        + b'],"ops":['
        + b",".join(
            b'{"name":"%x","kind":"k","inputs":["%d"],"outputs":["%d"]}' % (i, i, i + 1)
            for i in range(n // 115)
        )
        + b"]}"
    ),
}


def observed(storages: Callable[[int], dict[str, bytes]], ops: int = 1) -> Make:
    """An observation of `ops` ops, with these columns of its storages for a number of them."""

    def column(value: bytes, count: int) -> bytes:
        return b"[" + b",".join([value] * count) + b"]"

    def make(n: int) -> bytes:
        columns = storages(n)
        names = b",".join(b'"%x"' % op for op in range(ops))
        head = _OBSERVATION + b'"names":[%s],"kinds":%s,"begin":%s,"end":%s,"stack":%s},' % (
            names, column(b'"k"', ops), column(b"0", ops), column(b"1", ops), column(b"-1", ops)
        )  # fmt: skip
        flow = b'"reads":%s,"writes":%s,"stages":%s,"modules":%s,"source":%s,"sources":[],' % tuple(
            column(value, ops) for value in (b"[]", b"[]", b'"forward"', b'""', b"-1")
        )
        rows = b",".join(b'"%s":[%s]' % (name.encode(), data) for name, data in columns.items())
        return (
            head
            + _NO_FRAMES
            + b'"flow":{'
            + flow
            + b'"storages":{'
            + rows
            + b'},"steps":1,"step_peaks":[0]}}'
        )

    return make


def _equal(n: int) -> dict[str, bytes]:
    """As many storages as there is room for, all of one name."""
    rows = max(1, n // 60)
    each = {
        "names": b'"a"', "nbytes": b"1", "categories": b'"weight"', "maker": b"-1", "released": b"-1",
        "shapes": b"[]", "dtypes": b'"float32"',
    }  # fmt: skip
    return {name: b",".join([value] * rows) for name, value in each.items()}


def _one(**changed: Callable[[int], bytes]) -> Callable[[int], dict[str, bytes]]:
    """One storage, with these columns changed."""
    return lambda n: _equal(1) | {name: make(n) for name, make in changed.items()}


OBSERVATION: dict[str, Make] = {
    "equal names": observed(_equal),
    "dimensions": observed(_one(shapes=lambda n: b"[" + b"9223372036854775807," * (n // 20) + b"1]")),
    "dtype": observed(_one(dtypes=lambda n: b'"float' + b"9" * n + b'"')),
    "ops": lambda n: observed(_equal, max(1, n // 50))(1),
}
TRACE: dict[str, Make] = {
    "commas": repeated(_TRACE, b",", b"]}"),
    "blanks": repeated(_TRACE, b" ", b"]}"),
    "objects": repeated(_TRACE, b"{},", b"{}]}"),
    "memory": numbered(_TRACE, _MEMORY, b"]}"),
    "threads": numbered(
        _TRACE, b'{"name":"[memory]","ph":"","ts":2,"tid":%d,"args":{"Addr":1,"Bytes":1}},', b"]}"
    ),
    "devices": numbered(
        _TRACE, b'{"name":"[memory]","args":{"Device Id":%d,"Bytes":1,"Device Type":1}},', b"]}"
    ),
    "running": numbered(
        _TRACE, b'{"cat":"cpu_op","ph":"X","name":"%x"},', b',{"name":"[memory]","args":{"Bytes":1}}]}'
    ),
    "stacks": lambda n: (
        numbered(_TRACE, b'{"cat":"cpu_op","ph":"X","name":"%x","ts":1,"dur":999},', b",")(n // 2)
        + numbered(b"", _MEMORY, b"]}")(n // 2)
    ),
}
TIMELINE: dict[str, Make] = {
    "events": repeated(b"[", b"[0,2,1,0],", b"[0,2,1,0]]"),
    "frees": lambda n: (
        b"["
        + b"[0,2,1,0]," * (n // 40)
        + b"[0,2,2,0]," * (n // 40)
        + b"[0,4,-1,0]," * (n // 44)
        + b"[0,2,3,0]]"
    ),
    "lists": repeated(b"[[", b"[],", b"[]],[]]"),
}


def _pickle(body: bytes) -> bytes:
    return b"\x80\x04" + body + b"."


def _text(text: bytes) -> bytes:
    return b"\x8c" + bytes([len(text)]) + text + b"\x94"


def _items(unit: bytes) -> Make:
    return lambda n: _pickle(b"](" + unit * (n // len(unit)) + b"e")


_SNAPSHOT = b"}" + b"\x94" + _text(b"segments") + b"](es" + _text(b"device_traces") + b"](](%ses" + b"es"

PICKLE: dict[str, Make] = {
    "sets": _items(b"\x8f"),
    "lists": _items(b"]"),
    "dicts": _items(b"}K\0K\0s"),
    "sets of one": _items(b"\x8f(K\0\x90"),
    "tuples in tuples": _items(b")" + b"\x85" * 98),
    "references": lambda n: _pickle(b"N\x94](" + b"](h\0e" * (n // 5) + b"e"),
    "far": lambda n: b"\x80\2N" + b"".join(b"r" + struct.pack("<I", 2**31 + i) for i in range(n // 5)) + b".",
    "marks": lambda n: _pickle(b"(" * n),
    "events": lambda n: _pickle(
        _SNAPSHOT % (_text(b"action") + b"0" + _text(b"alloc") + b"0" + b"}(h\3h\4u" * (n // 7))
    ),
    "long keys": lambda n: _pickle(
        b"](X" + struct.pack("<I", n // 2) + b"a" * (n // 2) + b"\x94X" + struct.pack("<I", 1) + b"b\x94"
        + b"}(h\0Nh\1Nu" * (n // 20) + b"e"
    ),
    "shared action": lambda n: _pickle(b"}(" + _text(b"action") + b")" + b"2\x86" * 60 + b"u"),
}  # fmt: skip


def varint(value: int) -> bytes:
    """A number as protobuf writes it."""
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number: int, data: bytes) -> bytes:
    """A field of bytes as protobuf writes it."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def model(graph: bytes, opset: int = 17, more: bytes = b"") -> bytes:
    """A ModelProto around a GraphProto."""
    return b"\x08\x08" + field(8, b"\x0a\x00\x10" + varint(opset)) + more + field(7, graph)


def functions(depth: int, innermost: bytes = b"Relu") -> bytes:
    """Functions each of which calls the one before it twice."""
    made = []
    for level in range(depth):
        call = field(3, b"") + field(4, b"f%d" % (level - 1) if level else innermost)
        made.append(field(25, field(1, b"f%d" % level) + 2 * field(7, call)))
    return b"".join(made)


ONNX: dict[str, Make] = {
    "nodes": lambda n: model(b"\x0a\x00" * (n // 2)),
    "weights": lambda n: model(b"\x2a\x00" * (n // 2)),
    "values": lambda n: model(b"\x6a\x00" * (n // 2)),
    "inputs of a node": lambda n: model(field(1, b"\x0a\x00" * (n // 2))),
    "attributes": lambda n: model(field(1, b"\x2a\x00" * (n // 2))),
    "numbers": lambda n: model(field(1, b"\x22\x01a" + field(5, field(8, bytes(n))))),
    "dimensions": lambda n: model(field(5, b"\x42\x01a" + field(1, b"\1" * n))),
    "raw weights": lambda n: model(field(5, b"\x42\x01a\x10\x01" + field(9, bytes(n)))),
    "functions": lambda n: model(field(1, field(4, b"f40")), more=functions(41)),
}


def _zip(text: bytes, packed: bool = False, members: int = 0) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as archive:
        archive.writestr("m/models/model.json", text)
        for number in range(members):
            archive.writestr(f"m/{number}", b"")
    return made.getvalue()


PT2: dict[str, Make] = {
    "objects": lambda n: _zip(b"[" + b"{}," * (n // 3) + b"{}]"),
    "numbers": lambda n: _zip(b"[" + b"0," * (n // 2) + b"0]"),
    "packed": lambda n: _zip(b"[" + b"{}," * min(n, 30_000_000) + b"{}]", packed=True),
    "members": lambda n: _zip(b"{}", members=n // 110),
}


def _shared(count: int, one: FlatTable, field: int) -> bytes:
    """A program whose method has, in `field`, a list of `count` places of one and the same table."""
    data = bytearray(program(FlatTable({0: "forward", 5: [FlatTable()], field: [one]})))
    file = FlatFile(bytes(data), "bomb.pte")
    method = file.root().tables(1)[0]
    start, _ = method.vector(field, 4)
    table = file.target(start)
    place = method.place(field)
    behind = len(data)
    data[place : place + 4] = (behind - place).to_bytes(4, "little")
    data += count.to_bytes(4, "little")
    # An offset leads forward from where it stands: the table stands once more, behind.
    places = np.arange(len(data), len(data) + 4 * count, 4, dtype=np.int64)
    moved = len(data) + 4 * count
    moved += (table - moved) % 16
    data += (moved + table - places).astype("<u4").tobytes()
    return bytes(data) + bytes(moved - len(data)) + bytes(data[:behind])


PTE: dict[str, Make] = {
    "values": lambda n: _shared(n // 4, tensor(4, 0), 2),
    "fewer values": lambda n: _shared(min(n // 4, 150_000), tensor(4, 0), 2),
    "lists": lambda n: _shared(min(n // 8, 150_000), tensors([0] * (n // 8)), 2),
    "names": lambda n: _shared(min(n // 4, 150_000), FlatTable({0: "n" * 999}), 6),
    "long names": lambda n: _shared(min(n // 8, 150_000), FlatTable({0: "n" * (n // 2)}), 6),
}
_HLO = b"HloModule m, is_scheduled=true\nENTRY e {\na = f32[] iota()\n"
_PLACED = b"}\nBufferAssignment:\nallocation 0: size 64, preallocated-temp:\n"
_VALUE = b" value: <0 a{%d} @0> (size=1,offset=0): f32[]\n"


def _doubled(n: int) -> bytes:
    """Tuples of the one before twice, and as many readers of the last as there is room for."""
    tuples = b"".join(b"t%d = () tuple(t%d, t%d)\n" % (i + 1, i, i) for i in range(40))
    value = _PLACED + b" value: <0 a @0> (size=1,offset=0): f32[]\n"
    return repeated(_HLO + b"t0 = () tuple(a)\n" + tuples, b"r = f32[] negate(t40)\n", value)(n)


XLA: dict[str, Make] = {
    "instructions": numbered(_HLO, b"i%d = f32[] b()\n", _PLACED),
    "operands": repeated(_HLO + b"b = f32[] c(", b"%a,", b")\n" + _PLACED),
    "brackets": repeated(_HLO + b"b = ", b"(", b"\n" + _PLACED),
    "words": repeated(_HLO + b'b = f32[] c(a), metadata={op_name="', b"op_name=", b'"}\n' + _PLACED),
    "lines of tables": repeated(_HLO[:31] + b"StackFrames\n", b"1 {}\n", _HLO[31:] + _PLACED),
    "values": numbered(_HLO + _PLACED, _VALUE),
    "tuples": _doubled,
    "readers of tuples": lambda n: (
        numbered(_HLO, b"r%d = f32[] negate(a)\n")(n // 2) + numbered(_PLACED, _VALUE)(n // 2)
    ),
}
PROTO: dict[str, Make] = {
    "fields": lambda n: b"\n\x00" * (n // 2),
    "instructions": lambda n: (
        field(1, field(7, field(1, b"\x08\x01\x12\x00")) + field(3, b"\x12\x00" * (n // 2)))
        + field(3, b"\x1a\x00")
    ),
    "numbers": lambda n: (
        field(1, field(7, field(1, b"\x08\x01" + field(2, field(1, bytes(n)))))) + field(3, b"\x1a\x00")
    ),
}
BOMBS: dict[str, tuple[str, Make]] = {
    f"{kind}: {name}": (suffix, make)
    for kind, suffix, made in (
        ("csv", ".csv", CSV),
        ("json", ".json", JSON),
        ("observation", ".json", OBSERVATION),
        ("trace", ".json", TRACE),
        ("timeline", ".json", TIMELINE),
        ("pickle", ".pickle", PICKLE),
        ("onnx", ".onnx", ONNX),
        ("pt2", ".pt2", PT2),
        ("pte", ".pte", PTE),
        ("xla", ".txt", XLA),
        ("hlo", ".pb", PROTO),
    )
    for name, make in made.items()
}
"""Kind and name → the suffix of the file, and what makes it at a length in bytes."""
