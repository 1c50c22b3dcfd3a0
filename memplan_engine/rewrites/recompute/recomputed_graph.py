"""The graph of a schedule in which ops run again: their second runs are ops with tensors of their own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import replace

from memplan_engine.graph import NO_WORKSPACE, PRODUCED, Graph, Op, Phase, Role, Storage, Tensor
from memplan_engine.op_kinds.generators import (
    GENERATOR_BYTES,
    KEEP_GENERATOR,
    PUT_GENERATOR_BACK,
    SET_GENERATOR,
)
from memplan_engine.op_kinds.ordered import draws

AGAIN = "_again"
"""Behind the name of what is made anew, with a number where that is taken."""
_NUMBERED = re.compile(rf"{AGAIN}\d*(?=$|\.\d+$)")


def first_run(name: str, names: Container[str]) -> str:
    """The op that the op `name` is a run of, or the tensor that `name` is made anew, of those called
    `names`."""
    return name if name in names else _NUMBERED.sub("", name)


def recomputed_graph(graph: Graph, sequence: Iterable[int]) -> Graph:
    """`graph` with its ops, by index, as `sequence` has them. An op that runs again makes new storages, and
    what runs behind it reads those; views of them are made anew for whoever reads these. A second run has the
    phase of what it runs for. One that draws random numbers again finds the generator as it was the first
    time, and leaves it as it is."""
    return _Writer(graph).write(sequence)


class _Writer:
    """`current` has, of what was made anew, the tensor that stands for one of the graph now."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tensors = {tensor.name: tensor for tensor in graph.tensors}
        self.storages = {storage.name: storage for storage in graph.storages}
        self.maker = {name: op for op in graph.ops for name in op.outputs}
        self.op_names = {op.name for op in graph.ops}
        self.tensor_names, self.storage_names = set(self.tensors), set(self.storages)
        self.latest: dict[str, str] = {}
        """By storage of the graph the one that stands for it now, where that is another."""
        self.current: dict[str, str] = {}
        self.moved: dict[str, str] = {}
        """Tensors of the graph that lie in another storage now."""
        self.ops: list[Op] = []
        self.new_tensors: list[Tensor] = []
        self.new_storages: list[Storage] = []
        self.kept: dict[str, str] = {}
        """By op that draws and runs again the state of the generator before its first run."""

    def write(self, sequence: Iterable[int]) -> Graph:
        order = list(sequence)
        first = {index: place for place, index in reversed(list(enumerate(order)))}
        # What a second run is for: the next that runs for the first time.
        purpose: list[Phase | None] = []
        phase = None
        for place in range(len(order) - 1, -1, -1):
            if first[order[place]] == place:
                phase = self.graph.ops[order[place]].phase
            purpose.append(phase)
        runs = Counter(order)
        for place, index in enumerate(order):
            op = self.graph.ops[index]
            if first[index] == place:
                if runs[index] > 1 and self.draws(op):
                    self.kept[op.name] = self.on_generator(op, "generator", KEEP_GENERATOR, ())
                self.run(op)
                continue
            op = replace(op, phase=purpose[-1 - place] or op.phase)
            if op.name in self.kept:
                before = self.on_generator(op, "again_set", SET_GENERATOR, (self.kept[op.name],))
                self.run_again(op)
                self.on_generator(op, "again_put", PUT_GENERATOR_BACK, (before,))
            else:
                self.run_again(op)
        outputs = self.read(self.graph.outputs)
        tensors = [
            *(replace(each, storage=self.moved.get(each.name, each.storage)) for each in self.graph.tensors),
            *self.new_tensors,
        ]
        returned = {tensor.storage for tensor in tensors if tensor.name in outputs}
        return replace(
            self.graph,
            storages=tuple(
                self.as_returned(each, each.name in returned)
                for each in (*self.graph.storages, *self.new_storages)
            ),
            tensors=tuple(tensors),
            ops=tuple(self.ops),
            outputs=outputs,
        )

    @staticmethod
    def as_returned(storage: Storage, returned: bool) -> Storage:
        """With the role of one that is returned, or is not."""
        if storage.role not in PRODUCED:
            return storage
        return replace(storage, role=Role.OUTPUT if returned else Role.ACTIVATION)

    def read(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(self.now(name) for name in names)

    def now(self, name: str) -> str:
        """The tensor that stands for `name`; a view of a storage that was made anew is made here."""
        if self.tensors[name].storage not in self.latest:
            return name
        if name not in self.current:
            view = self.maker[name]
            self.append(view, self.read(view.inputs))
        return self.current[name]

    def run(self, op: Op) -> None:
        """For the first time; views of what was made anew before are views of that."""
        self.ops.append(replace(op, inputs=self.read(op.inputs), mutates=self.read(op.mutates)))
        for name in op.outputs:
            storage = self.tensors[name].storage
            if storage in self.latest:
                self.moved[name] = self.latest[storage]
                self.current[name] = name

    def run_again(self, op: Op) -> None:
        read = {self.tensors[name].storage for name in op.inputs}
        inputs = self.read(op.inputs)
        for storage in {self.tensors[name].storage: None for name in op.outputs}:
            if storage not in read:
                self.latest[storage] = _new(storage, self.storage_names)
                own = self.storages[storage]
                self.new_storages.append(replace(own, name=self.latest[storage], role=Role.ACTIVATION))
                # Views of what was there before are no views of this.
                for tensor in self.graph.tensors:
                    if tensor.storage == storage:
                        self.current.pop(tensor.name, None)
        self.append(op, inputs)

    def draws(self, op: Op) -> bool:
        read = {self.tensors[name].storage for name in (*op.inputs, *op.mutates)}
        return draws(op, {self.tensors[name].storage for name in op.outputs} <= read)

    def on_generator(self, drawing: Op, what: str, kind: str, inputs: tuple[str, ...]) -> str:
        """An op on the state of the generator for the op `drawing`; the name of what it makes."""
        number, name = 1, f"{drawing.name}_{what}"
        while name in self.op_names | self.tensor_names | self.storage_names:
            number += 1
            name = f"{drawing.name}_{what}{number}"
        self.op_names.add(name)
        made = () if kind == PUT_GENERATOR_BACK else (name,)
        if made:
            self.tensor_names.add(name)
            self.storage_names.add(name)
            self.new_storages.append(Storage(name, GENERATOR_BYTES, Role.ACTIVATION))
            self.new_tensors.append(Tensor(name, (GENERATOR_BYTES,), "uint8", GENERATOR_BYTES, name))
        origin = replace(drawing, workspace=NO_WORKSPACE, out_variant=None, arguments=(), mutates=())
        self.ops.append(replace(origin, name=name, kind=kind, inputs=inputs, outputs=made))
        return name

    def append(self, op: Op, inputs: tuple[str, ...]) -> None:
        own_name, outputs, mutates = _new(op.name, self.op_names), [], self.read(op.mutates)
        for name in op.outputs:
            tensor = self.tensors[name]
            # As a capture names them: after the op, and where there are several with their place behind.
            place = name.removeprefix(f"{op.name}.")
            asked = own_name if name == op.name else f"{own_name}.{place}" if place != name else name + AGAIN
            own = replace(
                tensor,
                name=_free(asked, self.tensor_names),
                storage=self.latest.get(tensor.storage, tensor.storage),
            )
            self.new_tensors.append(own)
            self.current[name] = own.name
            outputs.append(own.name)
        self.ops.append(replace(op, name=own_name, inputs=inputs, outputs=tuple(outputs), mutates=mutates))


def _new(name: str, names: set[str]) -> str:
    """One with AGAIN behind `name` that is none of `names` yet, and is then."""
    return _free(name + AGAIN, names)


def _free(name: str, names: set[str]) -> str:
    """`name`, with a number behind it where it is one of `names`; it is one then."""
    number, found = 1, name
    while found in names:
        number += 1
        found = f"{name}{number}"
    names.add(found)
    return found
