"""The graph in which a region runs in pieces, one behind the other."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from memplan_engine.graph import (
    NO_WORKSPACE,
    PRODUCED,
    Arguments,
    Graph,
    Op,
    Role,
    Storage,
    Tensor,
    Workspace,
)
from memplan_engine.op_kinds.ordered import plain_kind
from memplan_engine.rewrites.chunk.form_arguments import number
from memplan_engine.rewrites.chunk.layer_forms import MEAN, SUM
from memplan_engine.rewrites.chunk.piece_forms import cut, made_as, pieces_of, rows_in
from memplan_engine.rewrites.chunk.region import Region
from memplan_engine.rewrites.chunk.row_reads import FILLS, Rows, is_mean_loss, weight_of

ADDING = {"mm": "aten.addmm_", "bmm": "aten.baddbmm_"}
"""Products that a kernel adds to what is there, without a result of their own."""


def chunked_graph(rows: Rows, region: Region, count: int) -> Graph:
    """The graph of `rows` whose `region` runs in `count` pieces, or fewer where its units do not go further.

    Ops that the region needs run before, all others behind it. Of what pieces read from outside each reads a
    slice, a view. What others read of the results lies in a tensor that is there before the first piece, into
    a slice of which each piece is copied; sums begin at zero, and each piece is added. Views that nobody
    reads any more are gone.
    """
    return _Writer(rows, region).write(count)


class _Writer:
    """`renamed` has the tensors that stand for those of the graph behind the region."""

    def __init__(self, rows: Rows, region: Region) -> None:
        self.rows, self.region, self.graph = rows, region, rows.graph
        self.inside = set(region.ops)
        self.needed: set[str] = set()
        self.ops: list[Op] = []
        self.storages: list[Storage] = []
        self.names = {op.name for op in self.graph.ops} | set(rows.tensors)
        self.known = dict(rows.tensors)
        self.renamed: dict[str, str] = {}
        self.held: dict[str, str] = {}
        """Of each tensor that pieces fill, or add to, the whole one."""
        self.fillers: dict[int, list[str]] = {}
        """Tensors that are copied into the whole one once this op has run."""
        self.now: dict[str, str] = {}
        """In a piece, what it has for each tensor."""

    def write(self, count: int) -> Graph:
        before, after = self._outside()
        made = {name for index in (*self.inside, *after) for name in self.graph.ops[index].outputs}
        for index in before:
            self.ops.append(self._filled(self.graph.ops[index], made))
        self._begin()
        for place, piece in enumerate(pieces_of(self.region, count)):
            self._piece(place, piece)
        self._end()
        for index in after:
            op = self.graph.ops[index]
            self.ops.append(replace(op, inputs=self._read(op.inputs), mutates=self._read(op.mutates)))
        return self._whole()

    def _outside(self) -> tuple[list[int], list[int]]:
        """The ops before the region and behind it, views that nobody reads left out, and views of it that
        others read behind it."""
        first, last = self.region.ops[0], self.region.ops[-1]
        wanted: set[int] = set()
        for index in range(last, first - 1, -1):
            if index in self.inside or index in wanted:
                wanted.update(self.rows.before[index])
            if index in wanted and index not in self.inside:
                wanted.update(self._makers(self.graph.ops[index]))
        self.needed = set(self.graph.outputs)
        kept: set[int] = set()
        for index in range(len(self.graph.ops) - 1, -1, -1):
            op, is_view = self.graph.ops[index], self.rows.is_view(index)
            asked = not self.needed.isdisjoint(op.outputs)
            if asked if is_view else index not in self.inside:
                kept.add(index)
                self.needed.update((*op.inputs, *op.mutates))
            if index in self.inside:
                self.needed.update(
                    each for each in self.rows.reads[index] if self.rows.maker.get(each) not in self.inside
                )
        everywhere = sorted(kept)
        before = [i for i in everywhere if i not in self.inside and (i < first or i in wanted)]
        return before, [i for i in everywhere if i in self.inside or not (i < first or i in wanted)]

    def _makers(self, op: Op) -> list[int]:
        """The ops that make what `op` reads by the names that it has for it."""
        read = () if plain_kind(op.kind) in FILLS else (*op.inputs, *op.mutates)
        return [self.rows.maker[name] for name in read if name in self.rows.maker]

    def _filled(self, op: Op, made: set[str]) -> Op:
        """`op`, without the tensor whose form it takes, where that is made later."""
        if plain_kind(op.kind) not in FILLS or made.isdisjoint(op.inputs):
            return op
        value = FILLS[plain_kind(op.kind)]
        return replace(
            op, kind="aten.full", inputs=(), arguments=(("fill", (value,)),), workspace=NO_WORKSPACE
        )

    def _begin(self) -> None:
        """What is there before the first piece: zeros that are added to, memory that is filled, and the
        weights of all rows."""
        asked = self.needed
        for index in self.region.ops:
            op = self.graph.ops[index]
            if is_mean_loss(op):
                self._weight(op, self.rows.reads[index][1])
            for name in op.outputs:
                tensor = self.rows.tensors[name]
                if name in self.region.sums:
                    if name in asked or plain_kind(op.kind) in ADDING:
                        self._hold(op, name, "aten.zeros")
                elif self.region.bases.get(tensor.storage) == name and self._is_asked_for(tensor.storage):
                    self._hold(op, name, "aten.empty" if tensor.strides is None else "aten.empty_strided")
        for index in self.region.ops:
            for name in self.graph.ops[index].outputs:
                base = self.region.bases.get(self.rows.tensors[name].storage)
                if base in self.held and name != base:
                    self._follow(index, name, base)
        for base in self.held:
            storage = self.rows.tensors[base].storage
            if base not in self.region.sums:
                writers = [i for i in self.region.ops if self._begins_or_writes(i, storage)]
                self.fillers.setdefault(writers[-1], []).append(base)

    def _begins_or_writes(self, index: int, storage: str) -> bool:
        op = self.graph.ops[index]
        written = (*op.mutates, *(() if self.rows.is_view(index) else op.outputs))
        return any(self.rows.tensors[name].storage == storage for name in written)

    def _is_asked_for(self, storage: str) -> bool:
        """Whether others read what ops of the region make in `storage`."""
        return any(
            name in self.needed and self.rows.tensors[name].storage == storage
            for index in self.region.ops
            for name in self.graph.ops[index].outputs
        )

    def _follow(self, index: int, name: str, base: str) -> None:
        """What is written over `base` in place is the whole tensor, too."""
        if not self.rows.is_view(index):
            self.renamed[name] = self.held[base]

    def _hold(self, op: Op, name: str, kind: str) -> None:
        """A whole tensor for `name`, with its name where that is the op's."""
        own = self.rows.tensors[name]
        called = name if name == op.name and not is_mean_loss(op) else self._new(f"{_flat(name)}_whole")
        self.held[name] = called
        self.renamed[name] = called
        self._make(called, kind, (), own, op)

    def _weight(self, op: Op, targets: str) -> None:
        """The weight of all rows of a loss: how many have a target that is not left out."""
        target = self.rows.tensors[targets]
        counted = replace(target, dtype="bool", nbytes=prod(target.shape), strides=None, offset=0)
        ignored = number(op, "ignore_index") or 0
        kept = self._new(f"{op.name}_kept")
        self._make(kept, "aten.ne", (target.name,), counted, op, (("other", (ignored,)),))
        total = self._new(f"{op.name}_weight")
        self._make(total, "aten.sum", (kept,), self.rows.tensors[op.outputs[1]], op)
        self.renamed[op.outputs[1]] = total

    def _make(
        self, name: str, kind: str, inputs: tuple[str, ...], form: Tensor, op: Op, arguments: Arguments = ()
    ) -> None:
        """An op that makes the tensor `name`, of the form of `form`, in a storage of its own."""
        storage = name if name not in self.known else self.known[name].storage
        self._add_tensor(replace(form, name=name, storage=storage))
        self._add_storage(storage, form.nbytes)
        self.ops.append(_helper(op, name, kind, inputs, (name,), arguments))

    def _piece(self, place: int, piece: tuple[int, int]) -> None:
        self.now = {}
        for index in self.region.ops:
            self._run(index, place, piece)
            for name in self.fillers.get(index, ()):
                self._copy(name, place, piece, self.graph.ops[index])

    def _run(self, index: int, place: int, piece: tuple[int, int]) -> None:
        op = self.graph.ops[index]
        inputs = tuple(
            name if (index, name) in self.region.whole else self._in_piece(name, place, piece, op)
            for name in self.rows.reads[index]
        )
        called = self._new(f"{op.name}_chunk{place}")
        summed = [name for name in op.outputs if name in self.region.sums]
        if plain_kind(op.kind) in ADDING and summed:
            self._write(called, ADDING[plain_kind(op.kind)], self.held[summed[0]], inputs, op)
            return
        outputs = []
        for name in op.outputs:
            outputs.append(name.replace(op.name, called, 1))
            self._place(name, outputs[-1], piece)
        arguments = op.arguments
        if is_mean_loss(op):
            arguments = tuple((key, (SUM,) if key == "reduction" else value) for key, value in arguments)
        written = tuple(self.now[name] for name in op.mutates)
        share = (piece[1] - piece[0]) / self.region.units
        scratch = replace(op.workspace, shared=_part(op.workspace, share), formula="")
        self.ops.append(
            replace(
                op,
                name=called,
                inputs=inputs,
                outputs=tuple(outputs),
                mutates=written,
                arguments=arguments,
                workspace=scratch,
            )
        )
        weight = weight_of(op)
        self.now |= {name: made for name, made in zip(op.outputs, outputs, strict=True) if name != weight}
        for name in summed:
            if name in self.held:
                added = self._new(f"{_flat(name)}_add{place}")
                self._write(added, "aten.add_", self.held[name], (self.now[name],), op)

    def _place(self, name: str, called: str, piece: tuple[int, int]) -> None:
        """The tensor `name` of a piece, in a storage as its own, or its base, is."""
        own = self.rows.tensors[name]
        base = self.region.bases.get(own.storage)
        if name not in self.region.split:
            form, storage = replace(own, strides=None, offset=0), called
        elif base is None:
            form, storage = cut(self.region, own, piece), own.storage
        else:
            form = made_as(self.region, own, self.rows.tensors[base], piece)
            storage = called if base == name else self.known[self.now[base]].storage
        self._add_tensor(replace(form, name=called, storage=storage))
        if storage == called:
            self._add_storage(storage, form.nbytes)

    def _in_piece(self, name: str, place: int, piece: tuple[int, int], op: Op) -> str:
        """What a piece reads for `name`: what it has made, a slice, or the whole."""
        if name in self.now:
            return self.now[name]
        if name not in self.region.split:
            return self.renamed.get(name, name)
        self.now[name] = self._slice(name, name, f"{_flat(name)}_rows{place}", piece, op)
        return self.now[name]

    def _slice(self, name: str, whole: str, called: str, piece: tuple[int, int], op: Op) -> str:
        """A view of the rows of `whole`, which has the form of `name`, that the piece has."""
        called, own = self._new(called), self.rows.tensors[name]
        low, high = rows_in(self.region, own, piece)
        home = self.known[whole]
        self._add_tensor(replace(cut(self.region, own, piece), name=called, storage=home.storage))
        places = (("dim", (self.region.split[name],)), ("start", (low,)), ("end", (high,)), ("step", (1,)))
        self.ops.append(_helper(op, called, "aten.slice", (whole,), (called,), places))
        return called

    def _copy(self, name: str, place: int, piece: tuple[int, int], op: Op) -> None:
        """Copy the piece of `name` into the whole tensor."""
        whole = self.held[name]
        into = self._slice(name, whole, f"{_flat(name)}_into{place}", piece, op)
        self._write(self._new(f"{_flat(name)}_copy{place}"), "aten.copy_", into, (self.now[name],), op)

    def _write(self, called: str, kind: str, whole: str, inputs: tuple[str, ...], op: Op) -> None:
        """An op that writes over `whole`."""
        self._add_tensor(replace(self.known[whole], name=called))
        helper = _helper(op, called, kind, (whole, *inputs), (called,), ())
        self.ops.append(replace(helper, mutates=(whole,)))

    def _end(self) -> None:
        """The means of losses."""
        for index in self.region.ops:
            op = self.graph.ops[index]
            if is_mean_loss(op) and number(op, "reduction") == MEAN and op.outputs[0] in self.held:
                loss, weight = self.held[op.outputs[0]], self.renamed[op.outputs[1]]
                called = self._new(f"{op.name}_mean")
                self._make(called, "aten.div", (loss, weight), self.rows.tensors[op.outputs[0]], op)
                self.renamed[op.outputs[0]] = called

    def _whole(self) -> Graph:
        outputs = self._read(self.graph.outputs)
        used = dict.fromkeys((*self.graph.inputs, *self.graph.constants))
        for op in self.ops:
            used |= dict.fromkeys((*op.inputs, *op.mutates, *op.outputs))
        tensors = tuple(self.known[name] for name in used)
        sizes = {each.name: each for each in (*self.graph.storages, *self.storages)}
        returned = {self.known[name].storage for name in outputs}
        storages = tuple(
            _as_returned(sizes[name], name in returned)
            for name in dict.fromkeys(each.storage for each in tensors)
        )
        return replace(self.graph, ops=tuple(self.ops), tensors=tensors, storages=storages, outputs=outputs)

    def _read(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(self.renamed.get(name, name) for name in names)

    def _new(self, name: str) -> str:
        """`name`, with a number behind it where it is taken; it is taken then."""
        found, number_ = name, 1
        while found in self.names:
            number_ += 1
            found = f"{name}_{number_}"
        self.names.add(found)
        return found

    def _add_tensor(self, tensor: Tensor) -> None:
        self.known[tensor.name] = tensor

    def _add_storage(self, name: str, nbytes: int) -> None:
        self.storages.append(Storage(name, nbytes, Role.ACTIVATION))


def _helper(
    op: Op, name: str, kind: str, inputs: tuple[str, ...], outputs: tuple[str, ...], arguments: Arguments
) -> Op:
    """An op that does something for the pieces of `op`."""
    read = tuple(dict.fromkeys(inputs))
    return Op(
        name, kind, read, outputs, module=op.module, source=op.source, phase=op.phase, arguments=arguments
    )


def _flat(name: str) -> str:
    """As the name of a node: that of one of several results has a dot in it."""
    return name.replace(".", "_")


def _part(workspace: Workspace, share: float) -> int:
    return -int(-workspace.shared * share // 1)


def _as_returned(storage: Storage, returned: bool) -> Storage:
    if storage.role not in PRODUCED:
        return storage
    return replace(storage, role=Role.OUTPUT if returned else Role.ACTIVATION)
