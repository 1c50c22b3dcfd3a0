"""Small dumps of XLA, written by hand in its form: text, and the same as protocol buffers."""

from __future__ import annotations

from memplan_engine.formats.xla_dump.assignment_text import read_assignment
from memplan_engine.formats.xla_dump.hlo_module import Allocation, Dump, Instruction
from memplan_engine.formats.xla_dump.hlo_text import read_hlo
from tests.support.bombs import field, varint

TABLES = """
FileNames
1 "net.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=4 end_column=9}
2 {file_name_id=1 function_name_id=1 line=7 end_line=7 column=4 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}

"""
CHAIN = (
    """HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[4]{0})->f32[4]{0}}
"""
    + TABLES
    + """
%fused (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %e = f32[8]{0} exponential(%p)
}

ENTRY %main.1 (x.1: f32[4]) -> f32[4] {
  %x.1 = f32[4]{0} parameter(0), metadata={op_name="x"}
  %wide = f32[8]{0} concatenate(%x.1, %x.1), metadata={op_name="jit(f)/mlp/concatenate" stack_frame_id=2}
  %exp = f32[8]{0} fusion(%wide), kind=kLoop, calls=%fused, metadata={op_name="jit(f)/mlp/e" stack_frame_id=1}
  %view = f32[2,4]{1,0} bitcast(%exp)
  %other = f32[2]{0} custom-call(%view), custom_call_target="rows"
  ROOT %sum = f32[4]{0} custom-call(%view, /*operand=1*/%other), custom_call_target="sum"
}
"""
)
CHAIN_ASSIGNMENT = """BufferAssignment:
allocation 0: size 16, parameter 0, shape |f32[4]| at ShapeIndex {}:
 value: <0 x.1 @0> (size=16,offset=0): f32[4]{0}
allocation 1: size 16, output shape is |f32[4]|, maybe-live-out:
 value: <5 sum @0> (size=16,offset=0): f32[4]{0}
allocation 2: size 72, preallocated-temp:
 value: <1 wide @0> (size=32,offset=0): f32[8]{0}
 value: <2 exp @0> (size=32,offset=0): f32[8]{0}
 value: <4 other @0> (size=8,offset=64): f32[2]{0}
allocation 3: size 32, thread-local:
 value: <7 e @0> (size=32,offset=0): f32[8]{0}

Total bytes used: 136 (136B)
"""
"""`exp` is written over `wide`; `view` is the same value."""
LOOP = """HloModule jit_g, is_scheduled=true

%body (b: (f32[16], f32[16])) -> (f32[16], f32[16]) {
  %b = (f32[16]{0}, f32[16]{0}) parameter(0)
  %b0 = f32[16]{0} get-tuple-element(%b), index=0
  %b1 = f32[16]{0} get-tuple-element(%b), index=1
  %u = f32[16]{0} custom-call(%b0, %b1), custom_call_target="u"
  %v = f32[16]{0} custom-call(%u, %b1), custom_call_target="v"
  %w = f32[16]{0} custom-call(%v, %b1), custom_call_target="w"
  %n = f32[16]{0} custom-call(%w, %b1), custom_call_target="n"
  ROOT %pair = (f32[16]{0}, f32[16]{0}) tuple(%n, %b1)
}

%condition (c: (f32[16], f32[16])) -> pred[] {
  %c = (f32[16]{0}, f32[16]{0}) parameter(0)
  %c0 = f32[16]{0} get-tuple-element(%c), index=0
  ROOT %more = pred[] custom-call(%c0), custom_call_target="more"
}

ENTRY %main.2 (x.1: f32[16]) -> f32[16] {
  %x.1 = f32[16]{0} parameter(0)
  %init = f32[16]{0} copy(%x.1)
  %start = (f32[16]{0}, f32[16]{0}) tuple(%init, %x.1)
  %loop = (f32[16]{0}, f32[16]{0}) while(%start), condition=%condition, body=%body
  %last = f32[16]{0} get-tuple-element(%loop), index=0
  ROOT %r = f32[16]{0} negate(%last)
}
"""
LOOP_ASSIGNMENT = """BufferAssignment:
allocation 0: size 64, parameter 0, shape |f32[16]| at ShapeIndex {}:
 value: <0 x.1 @0> (size=64,offset=0): f32[16]{0}
allocation 1: size 64, output shape is |f32[16]|, maybe-live-out:
 value: <1 r @0> (size=64,offset=0): f32[16]{0}
allocation 2: size 144, preallocated-temp:
 value: <2 init @0> (size=64,offset=0): f32[16]{0}
 value: <3 c{0} (phi) @0> (size=64,offset=0): f32[16]{0}
 value: <4 b{0} (phi) @0> (size=64,offset=0): f32[16]{0}
 value: <5 n @0> (size=64,offset=0): f32[16]{0}
 value: <6 loop{0} (phi) @0> (size=64,offset=0): f32[16]{0}
 value: <7 u @0> (size=64,offset=64): f32[16]{0}
 value: <8 v @0> (size=64,offset=0): f32[16]{0}
 value: <9 w @0> (size=64,offset=64): f32[16]{0}
 value: <10 more @0> (size=1,offset=64): pred[]
 value: <11 start{} @0> (size=16,offset=128): (f32[16]{0}, f32[16]{0})
 value: <12 c{} (phi) @0> (size=16,offset=128): (f32[16]{0}, f32[16]{0})
 value: <13 b{} (phi) @0> (size=16,offset=128): (f32[16]{0}, f32[16]{0})
 value: <14 pair{} @0> (size=16,offset=128): (f32[16]{0}, f32[16]{0})
 value: <15 loop{} (phi) @0> (size=16,offset=128): (f32[16]{0}, f32[16]{0})
"""
"""`v` lives in the bytes of what the loop carries, after `u` has read it and before `n` is written."""
BRANCHES = """HloModule jit_h, is_scheduled=true

%yes (y: f32[16]) -> f32[16] {
  %y = f32[16]{0} parameter(0)
  %y1 = f32[32]{0} custom-call(%y), custom_call_target="y1"
  ROOT %y2 = f32[16]{0} custom-call(%y1), custom_call_target="y2"
}

%no (z: f32[16]) -> f32[16] {
  %z = f32[16]{0} parameter(0)
  ROOT %z1 = f32[16]{0} custom-call(%z), custom_call_target="z1"
}

ENTRY %main.3 (x.1: f32[16], p.1: pred[]) -> (f32[16], f32[16]) {
  %x.1 = f32[16]{0} parameter(0)
  %p.1 = pred[] parameter(1)
  %half = f32[16]{0} custom-call(%x.1), custom_call_target="half"
  %either = f32[16]{0} conditional(%p.1, %half, %half), true_computation=%yes, false_computation=%no
  %new = f32[16]{0} add(%x.1, %either)
  ROOT %both = (f32[16]{0}, f32[16]{0}) tuple(%new, %half)
}
"""
BRANCHES_ASSIGNMENT = """BufferAssignment:
allocation 0: size 64, parameter 0, shape |f32[16]| at ShapeIndex {}, maybe-live-out:
 value: <0 x.1 @0> (size=64,offset=0): f32[16]{0}
 value: <1 new @0> (size=64,offset=0): f32[16]{0}
allocation 1: size 1, parameter 1, shape |pred[]| at ShapeIndex {}:
 value: <2 p.1 @0> (size=1,offset=0): pred[]
allocation 2: size 64, maybe-live-out:
 value: <3 half @0> (size=64,offset=0): f32[16]{0}
allocation 3: size 16, output shape is |(f32[16], f32[16])|, maybe-live-out:
 value: <4 both{} @0> (size=16,offset=0): (f32[16]{0}, f32[16]{0})
allocation 4: size 192, preallocated-temp:
 value: <5 y1 @0> (size=128,offset=64): f32[32]{0}
 value: <6 y2 @0> (size=64,offset=0): f32[16]{0}
 value: <7 z1 @0> (size=64,offset=0): f32[16]{0}
 value: <8 either (phi) @0> (size=64,offset=0): f32[16]{0}
"""
"""`x.1` is donated: `new` is written over it."""
DUMPS = {
    "chain": (CHAIN, CHAIN_ASSIGNMENT),
    "loop": (LOOP, LOOP_ASSIGNMENT),
    "branches": (BRANCHES, BRANCHES_ASSIGNMENT),
}


def dump(name: str) -> Dump:
    """One of DUMPS, as it is read from text."""
    hlo, assignment = DUMPS[name]
    return Dump(read_hlo(hlo, "hlo"), read_assignment(assignment, "assignment"))


def _number(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def proto(given: Dump) -> bytes:
    """`given` as an HloProto."""
    module, assignment = protos(given)
    return field(1, module) + field(3, assignment)


def protos(given: Dump) -> tuple[bytes, bytes]:
    """`given` as an HloModuleProto and a BufferAssignmentProto."""
    module = given.module
    numbers = {name: 5 + number for number, name in enumerate(module.computations)}
    every = [each for one in module.computations.values() for each in one.instructions]
    ids = {each.name: 1000 + number for number, each in enumerate(every)}
    shapes = {value.name: (value.dtype, value.shape) for each in given.allocations for value in each.values}

    def shape(name: str, depth: int = 0) -> bytes:
        inner = [shape(f"{name}{{{part}}}") for part in range(2) if f"{name}{{{part}}}" in shapes]
        if inner and not depth:
            return _number(2, 13) + b"".join(field(4, each) for each in inner)
        dtype, sizes = shapes.get(name, ("uint8", ()))
        kinds = {"float32": 11, "bool": 1, "uint8": 13}
        return _number(2, kinds[dtype]) + field(3, b"".join(map(varint, sizes)))

    def metadata(each: Instruction) -> bytes:
        frame = {3: 1, 7: 2}[each.source.line] if each.source else 0
        return field(2, each.scope.encode()) + _number(15, frame) * bool(frame)

    def instruction(each: Instruction) -> bytes:
        number = 13 if each.opcode == "get-tuple-element" else 9
        return (
            field(1, each.name.encode())
            + field(2, each.opcode.encode())
            + field(3, shape(each.name))
            + field(7, metadata(each))
            + _number(number, each.number)
            + _number(35, ids[each.name])
            + field(36, b"".join(varint(ids[name]) for name in each.operands))
            + field(38, b"".join(varint(numbers[name]) for name in each.called))
        )

    body = (
        field(1, module.name.encode()) + field(2, module.entry.encode()) + _number(6, numbers[module.entry])
    )
    orders = b""
    for name, one in module.computations.items():
        # Not in the order of the schedule, which has a list of its own.
        inside = b"".join(field(2, instruction(each)) for each in reversed(one.instructions))
        body += field(
            3, field(1, name.encode()) + inside + _number(5, numbers[name]) + _number(6, ids[one.root])
        )
        sequence = field(1, b"".join(varint(ids[each.name]) for each in one.instructions))
        orders += field(1, _number(1, numbers[name]) + field(2, sequence))
    lines = b"".join(field(3, _number(1, 1) + _number(2, 1) + _number(3, line)) for line in (3, 7))
    frames = b"".join(field(4, _number(1, number) + _number(2, number)) for number in (1, 2))
    body += field(7, orders) + field(17, field(1, b"net.py") + lines + frames)
    return body, _assignment(given.allocations, ids)


def _assignment(allocations: tuple[Allocation, ...], ids: dict[str, int]) -> bytes:
    buffers, listed, number = b"", b"", 0
    for each in allocations:
        flags = {3: each.is_thread_local, 5: each.is_parameter, 7: each.is_live_out, 12: each.is_constant}
        made = _number(1, each.number) + _number(2, each.size) + _number(8, each.color)
        made += b"".join(_number(place, 1) for place, flag in flags.items() if flag)
        for value in each.values:
            place = field(3, b"".join(map(varint, value.index))) + _number(4, ids[value.maker])
            buffers += field(1, _number(1, number) + _number(2, value.size) + field(3, place))
            made += field(9, _number(1, number) + _number(2, value.offset) + _number(3, value.size))
            number += 1
        listed += field(3, made)
    return buffers + listed
