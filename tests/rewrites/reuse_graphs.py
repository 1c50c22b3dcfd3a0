"""Graphs for the tests of reuse: a short way to write them, random ones, and an interpreter in numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from random import Random
from typing import Any

import numpy as np

from memplan_engine.graph import Graph, Op, Role, Storage, Tensor, check_graph
from memplan_engine.plan import Plan
from memplan_engine.rewrites.reuse import Rule, check_reuse
from memplan_engine.schedule import Schedule

ITEM = 4


@dataclass
class Builder:
    """A graph in the making; every tensor is float32, and named by the caller."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.sizes: dict[str, int] = {}
        self.ops: list[Op] = []
        self.inputs: list[str] = []
        self.constants: list[str] = []
        self.storage_options: dict[str, dict[str, Any]] = {}

    def tensor(self, name: str, *shape: int, **options: Any) -> str:
        """Declare a tensor with a storage of its own; `options` may set any field, also `storage_nbytes`."""
        nbytes = prod(shape) * ITEM
        storage = options.pop("storage", name)
        size = options.pop("storage_nbytes", nbytes)
        alignment = options.pop("alignment", 0)
        if storage == name:
            self.sizes[name] = size
            self.storage_options[name] = {"alignment": alignment, "formula": options.pop("formula", "")}
        self.tensors[name] = replace(Tensor(name, shape, "float32", nbytes, storage), **options)
        return name

    def input(self, name: str, *shape: int) -> str:
        self.inputs.append(self.tensor(name, *shape))
        return name

    def constant(self, name: str, *shape: int) -> str:
        self.constants.append(self.tensor(name, *shape))
        return name

    def op(self, kind: str, inputs: str, output: str, *shape: int, **options: Any) -> str:
        """An op named after its output, of a new tensor; `inputs` are names with spaces between them."""
        extra = {key: options.pop(key) for key in ("mutates", "out_variant") if key in options}
        self.tensor(output, *shape, **options)
        self.ops.append(Op(f"{output}!", kind, tuple(inputs.split()), (output,), **extra))
        return output

    def view(self, base: str, output: str, *shape: int, at: int = 0, **options: Any) -> str:
        """A view that begins `at` elements into its base."""
        of = self.tensors[base]
        kind = options.pop("kind", "aten.view")
        return self.op(
            kind, base, output, *shape, storage=of.storage, offset=of.offset + at * ITEM, **options
        )

    def graph(self, *outputs: str) -> Graph:
        lists = [{self.tensors[n].storage for n in names} for names in (self.inputs, self.constants, outputs)]
        roles = dict.fromkeys(self.sizes, Role.ACTIVATION)
        for members, role in zip(lists[::-1], (Role.OUTPUT, Role.CONSTANT, Role.INPUT), strict=True):
            roles.update(dict.fromkeys(members, role))
        storages = tuple(
            Storage(name, size, roles[name], **self.storage_options[name])
            for name, size in self.sizes.items()
        )
        return check_graph(
            Graph(
                "net", storages, tuple(self.tensors.values()), tuple(self.ops),
                tuple(self.inputs), tuple(dict.fromkeys(outputs)), tuple(self.constants),
            )
        )  # fmt: skip


UNARY = {"aten.relu": lambda a: max(a, np.float32(0)), "aten.neg": lambda a: -a}
BINARY = {"aten.add": lambda a, b: a + b, "aten.mul": lambda a, b: a * b}


def random_graph(seed: int, ops: int = 14) -> Graph:
    """Elementwise ops, views, concatenations, in-place writes and others; sound by construction."""
    rng = Random(seed)
    net = Builder()
    shapes = [(4,), (1, 6), (2, 3), (8,)]
    for place in range(2):
        net.input(f"x{place}", *rng.choice(shapes))
    net.constant("w", *rng.choice(shapes))
    for place in range(ops):
        _random_op(net, rng, f"t{place}", shapes)
    made = [name for op in net.ops for name in op.outputs]
    return net.graph(*rng.sample(made, rng.randint(1, 2)), made[-1])


def _random_op(net: Builder, rng: Random, name: str, shapes: Sequence[tuple[int, ...]]) -> None:
    # The most recent ones are asked for most: values die, as in networks.
    known = list(net.tensors)
    one = known[-1 - min(int(rng.expovariate(0.5)), len(known) - 1)]
    shape = net.tensors[one].shape
    same = [other for other in known if net.tensors[other].shape == shape]
    strides = net.tensors[one].strides
    way = rng.choice(
        ("unary", "unary", "binary", "binary", "scan", "view", "slice", "turn", "cat", "cat", "write")
    )
    if way == "unary":
        net.op(rng.choice(list(UNARY)), one, name, *shape, strides=strides)
    elif way == "binary":
        net.op(rng.choice(list(BINARY)), f"{one} {rng.choice(same)}", name, *shape, strides=strides)
    elif way == "scan":
        net.op("aten.cumsum", one, name, *rng.choice(shapes))
    elif way == "view" and strides is None:
        net.view(one, name, prod(shape))
    elif way == "slice" and strides is None and len(shape) == 1 and shape[0] > 2:
        net.view(one, name, shape[0] // 2, at=rng.randint(0, shape[0] // 2))
    elif way == "turn" and len(shape) == 2 and shape[0] > 1 and strides is None:
        net.view(one, name, *shape[::-1], strides=(1, shape[1]), kind="aten.transpose")
    elif way == "cat":
        _random_concat(net, rng, name, one)
    elif way == "write" and one not in net.inputs and net.tensors[one].storage not in ("x0", "x1", "w"):
        target = net.tensors[one]
        net.op(
            "aten.add_", f"{one} {rng.choice(same)}", name, *shape,
            mutates=(one,), storage=target.storage, offset=target.offset, strides=target.strides,
        )  # fmt: skip
    else:
        net.op("aten.neg", one, name, *shape, strides=strides)


def _random_concat(net: Builder, rng: Random, name: str, one: str) -> None:
    shape = net.tensors[one].shape
    axis = rng.randrange(len(shape))
    fits = [
        other
        for other, tensor in net.tensors.items()
        if len(tensor.shape) == len(shape)
        and all(a == b for d, (a, b) in enumerate(zip(tensor.shape, shape, strict=True)) if d != axis)
    ]
    parts = [one, *rng.choices(fits[-6:], k=rng.randint(1, 2))]
    rng.shuffle(parts)
    whole = list(shape)
    whole[axis] = sum(net.tensors[part].shape[axis] for part in parts)
    net.op("aten.cat", " ".join(parts), name, *whole)


def execute(
    graph: Graph,
    schedule: Schedule,
    place_of: Mapping[str, tuple[str, int]],
    sizes: Mapping[str, int],
    shuffle: Random | None = None,
) -> list[bytes]:
    """Run `graph` in memories of `sizes` bytes, full of rubbish at first; the bytes of its outputs.

    `place_of` gives each storage a memory and a byte in it. Ops of one step run in any order. Every op
    writes while it reads, as kernels do, so that an unsound plan gives other numbers.
    """
    memories = {name: np.full(size, 0xA5, dtype=np.uint8) for name, size in sizes.items()}
    views = {tensor.name: _view(tensor, memories, place_of) for tensor in graph.tensors}
    for place, name in enumerate((*graph.inputs, *graph.constants)):
        values = np.random.default_rng(place).integers(-4, 5, views[name].shape)
        views[name][...] = values.astype(np.float32) / 2
    order = list(range(len(graph.ops)))
    if shuffle is not None:
        shuffle.shuffle(order)
    order.sort(key=lambda index: schedule.step_of_op[index])
    for index in order:
        _run(graph.ops[index], views)
    return [np.ascontiguousarray(views[name]).tobytes() for name in graph.outputs]


def execute_as_it_is(graph: Graph, schedule: Schedule) -> list[bytes]:
    """The outputs where every storage is a memory of its own."""
    homes = {storage.name: (storage.name, 0) for storage in graph.storages}
    return execute(graph, schedule, homes, {storage.name: storage.nbytes for storage in graph.storages})


def execute_plan(plan: Plan, shuffle: Random | None = None) -> list[bytes]:
    """The outputs where all buffers of `plan` lie in one arena."""
    assert plan.problem.origin is not None
    graph = plan.problem.origin.graph
    homes = {storage.name: (storage.name, 0) for storage in graph.storages}
    homes |= {n: ("arena", o) for n, o in zip(plan.problem.names, plan.offsets.tolist(), strict=True)}
    sizes = {storage.name: storage.nbytes for storage in graph.storages} | {"arena": plan.arena_bytes}
    return execute(graph, plan.problem.origin.schedule, homes, sizes, shuffle)


def _view(
    tensor: Tensor, memories: Mapping[str, np.ndarray], place_of: Mapping[str, tuple[str, int]]
) -> np.ndarray:
    memory, base = place_of[tensor.storage]
    strides = tensor.strides
    if strides is not None:
        strides = tuple(stride * ITEM for stride in strides)
    return np.ndarray(tensor.shape, np.float32, memories[memory], base + tensor.offset, strides)


def _run(op: Op, views: Mapping[str, np.ndarray]) -> None:
    inputs, out = [views[name] for name in op.inputs], views[op.outputs[0]]
    kind = op.kind.removesuffix("_")
    if kind in UNARY | BINARY:
        work = (UNARY | BINARY)[kind]
        for index in product(*map(range, out.shape)):
            out[index] = work(*(view[index] for view in inputs))
    elif kind == "aten.cat":
        _join(inputs, out)
    elif kind == "aten.cumsum":
        values = [float(value) for value in inputs[0].flat]
        out.fill(7)
        total = 0.0
        for place, (index, _) in enumerate(np.ndenumerate(out)):
            total = total / 2 + float(inputs[0].flat[place % len(values)])
            out[index] = total


def _join(inputs: list[np.ndarray], out: np.ndarray) -> None:
    axis = next(
        dim
        for dim in range(out.ndim)
        if sum(part.shape[dim] for part in inputs) == out.shape[dim]
        and all(
            part.shape[:dim] + part.shape[dim + 1 :] == out.shape[:dim] + out.shape[dim + 1 :]
            for part in inputs
        )
    )
    low = 0
    for part in inputs:
        block = out[
            tuple(slice(low, low + part.shape[axis]) if d == axis else slice(None) for d in range(out.ndim))
        ]
        low += part.shape[axis]
        if (
            block.__array_interface__["data"] != part.__array_interface__["data"]
            or block.strides != part.strides
        ):
            for index in product(*map(range, part.shape)):
                block[index] = part[index]


def net_of_four() -> Builder:
    net = Builder()
    net.input("x", 4)
    net.op("aten.conv2d", "x", "a", 4)
    net.op("aten.relu", "a", "b", 4)
    return net


def moved(graph: Graph, **homes: tuple[str, int]) -> Graph:
    """`graph` with some tensors at another storage and byte, and `mutates` to suit."""
    tensors = tuple(
        replace(t, storage=homes[t.name][0], offset=homes[t.name][1]) if t.name in homes else t
        for t in graph.tensors
    )
    place = {t.name: (t.storage, t.offset) for t in tensors}

    def said(op: Op) -> tuple[str, ...]:
        return tuple(n for n in op.inputs if any(o in homes and place[n] == place[o] for o in op.outputs))

    ops = tuple(replace(op, mutates=tuple(dict.fromkeys((*op.mutates, *said(op))))) for op in graph.ops)
    return replace(graph, tensors=tensors, ops=ops)


def found(
    original: Graph, reused: Graph, schedule: Schedule | None = None
) -> list[tuple[Rule, str, str, str]]:
    return [(b.rule, b.op, b.tensor, b.overwritten_by) for b in check_reuse(original, reused, schedule)]
