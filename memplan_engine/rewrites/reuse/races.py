"""For the checker: ops that write over what they read, or what another op of their step touches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations

from memplan_engine.graph import Op, Tensor
from memplan_engine.rewrites.reuse.breaches import Breach, Rule
from memplan_engine.rewrites.reuse.kinds import is_elementwise
from memplan_engine.rewrites.reuse.places import Place, block_offsets, layout, row_by_row, writes

Places = Mapping[str, Place]


def overwrites(
    op: Op, now: Op, step: int, tensors: Mapping[str, Tensor], places: tuple[Places, Places]
) -> list[Breach]:
    """What `op` writes over that it reads, or writes twice, where the original graph does not.

    `now` is the op as the reused graph has it; `places` are those that are meant and those of now.
    """
    meant, real = places
    found: list[Breach] = []
    written = writes(op, meant)
    offsets = block_offsets(op, tensors)
    for name in dict.fromkeys((*op.inputs, *op.mutates)):
        for target in written:
            if name == target or not _new(name, target, places):
                continue
            if offsets is not None and target == op.outputs[0]:
                if not (row_by_row(tensors[name]) and _in_its_block(op, name, target, offsets, real)):
                    found.append(Breach(Rule.OVERWRITES, step, op.name, name, op.name))
            elif not (is_elementwise(op.kind) and _element_by_element(name, target, tensors, real)):
                found.append(Breach(Rule.OVERWRITES, step, op.name, name, op.name))
            elif not any(real[said] == real[name] for said in now.mutates):
                found.append(Breach(Rule.UNSAID, step, op.name, name))
    for one, other in permutations(written, 2):
        if one < other and _new(one, other, places):
            found.append(Breach(Rule.OVERWRITES, step, op.name, one, other))
    return found


def races(
    ops: Sequence[Op], step: int, tensors: Mapping[str, Tensor], places: tuple[Places, Places]
) -> list[Breach]:
    """The tensors that one of `ops`, which run at once, writes where another one reads or writes, and where
    in the original graph the two have nothing to do with each other."""
    meant, real = places
    written = [_written(op, tensors, places) for op in ops] if len(ops) > 1 else []
    found = []
    for one, other in permutations(range(len(written)), 2):
        reads = [(name, real[name]) for name in dict.fromkeys((*ops[other].inputs, *ops[other].mutates))]
        for target, place in written[one]:
            for name, touched in (*reads, *written[other]):
                if place.meets(touched) and not meant[target].meets(meant[name]):
                    found.append(Breach(Rule.RACE, step, ops[other].name, name, ops[one].name))
    return found


def _written(op: Op, tensors: Mapping[str, Tensor], places: tuple[Places, Places]) -> list[tuple[str, Place]]:
    """What `op` really writes: a concatenation leaves alone the blocks that lie in its output already."""
    meant, real = places
    offsets = block_offsets(op, tensors)
    found = []
    for target in writes(op, meant):
        if offsets is None or target in op.mutates:
            found.append((target, real[target]))
            continue
        for name, low in zip(op.inputs, offsets, strict=True):
            begin = real[target].low + low
            block = Place(real[target].memory, begin, begin + tensors[name].nbytes)
            if block != real[name] or not row_by_row(tensors[name]):
                found.append((target, block))
    return found


def _new(name: str, target: str, places: tuple[Places, Places]) -> bool:
    """Whether the two tensors now share bytes in a way in which they do not in the original graph."""
    meant, real = places
    before = meant[name].as_seen_from(meant[target])
    return real[name].meets(real[target]) and real[name].as_seen_from(real[target]) != before


def _element_by_element(name: str, target: str, tensors: Mapping[str, Tensor], real: Places) -> bool:
    one, other = tensors[name], tensors[target]
    same = (one.shape, one.nbytes, layout(one)) == (other.shape, other.nbytes, layout(other))
    return same and real[name] == real[target]


def _in_its_block(op: Op, name: str, target: str, offsets: Sequence[int], real: Places) -> bool:
    """Whether the input `name` of a concatenation lies in all its blocks, and in no other's."""
    low = {real[target].low + at for other, at in zip(op.inputs, offsets, strict=True) if other == name}
    return low == {real[name].low}
