"""What to keep of a forward pass, chosen by hand: a schedule for each choice, and what it takes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from memplan_dashboard.charts.keep_picture import LayerOp

from memplan_engine.accelerators.presets import USUAL, accelerator
from memplan_engine.analysis.op_costs import modelled_times
from memplan_engine.graph import Graph, Phase
from memplan_engine.lifetimes import to_problem
from memplan_engine.profile import load_of
from memplan_engine.rewrites.recompute.recompute_problem import recompute_problem
from memplan_engine.rewrites.recompute.recomputed_graph import recomputed_graph
from memplan_engine.units import format_bytes

MOST_OPS = 24
"""Of a step whose results a person may choose among, and of which there is a picture."""
LAYERS = {"f1": 6, "f2": 4, "f3": 2, "f4": 2, "f5": 5, "f6": 1}
MILLISECONDS = {
    "teaching_recompute": LAYERS | {f"b{name[1:]}": 2 * each for name, each in LAYERS.items()},
}
"""What the ops of a lesson take, by graph: no file says it. A layer takes twice as long back."""


@dataclass(frozen=True, slots=True, eq=False)
class KeptStep:
    """A step as it runs with a choice: `names` of the ops, those that run again with a prime behind, the live
    bytes while each runs, and the seconds that are run again."""

    names: tuple[str, ...]
    live: tuple[int, ...]
    extra: float

    @property
    def peak(self) -> int:
        """Live bytes at the worst step."""
        return max(self.live, default=0)


@dataclass(frozen=True, slots=True, eq=False)
class KeptLayers:
    """A training step `graph` whose ops take `seconds`, by name; its backward pass begins at the op `at`.
    `choices` are the ops before whose results are read behind it, and may be made again."""

    graph: Graph
    seconds: dict[str, float]
    at: int
    choices: tuple[str, ...]

    @property
    def total(self) -> float:
        """What all ops take once."""
        return sum(self.seconds.values())

    def times(self) -> list[float]:
        """Of each op, in their order."""
        return [self.seconds[op.name] for op in self.graph.ops]

    def made(self, name: str) -> int:
        """The bytes that the op makes."""
        nbytes = {tensor.name: tensor.nbytes for tensor in self.graph.tensors}
        return sum(nbytes[each] for op in self.graph.ops if op.name == name for each in op.outputs)

    def told(self, name: str) -> tuple[str, str]:
        """What the op makes and takes, in words."""
        return format_bytes(self.made(name)), milliseconds(self.seconds[name])

    def drawn(self) -> tuple[LayerOp, ...]:
        """Its ops as a picture has them."""
        maker = {tensor: op.name for op in self.graph.ops for tensor in op.outputs}
        return tuple(
            LayerOp(
                op.name,
                self.told(op.name),
                tuple(maker[name] for name in op.inputs if name in maker),
                op.phase is Phase.BACKWARD,
            )
            for op in self.graph.ops
        )

    def sequence(self, gone: Collection[str]) -> list[int]:
        """The ops by index as they run: what the ops `gone` made is let go of before the backward pass, and
        made again right before it is read."""
        place = {tensor: index for index, op in enumerate(self.graph.ops) for tensor in op.outputs}
        there: set[int] = set()
        order: list[int] = []

        def run(index: int) -> None:
            for name in self.graph.ops[index].inputs:
                if name in place and place[name] not in there:
                    run(place[name])
            order.append(index)
            there.add(index)

        for index in range(len(self.graph.ops)):
            if index == self.at:
                there -= {each for each in there if self.graph.ops[each].name in gone}
            run(index)
        return order

    def step(self, gone: Collection[str]) -> KeptStep:
        """What the choice comes to: live bytes by the engine's own lifetimes of the graph that runs so."""
        order = self.sequence(gone)
        load = load_of(to_problem(recomputed_graph(self.graph, order)))
        live = np.repeat(load.live, np.diff(load.sections.bounds)).tolist()
        names: list[str] = []
        extra = 0.0
        for index in order:
            name = self.graph.ops[index].name
            again = name in names
            extra += self.seconds[name] if again else 0.0
            names.append(f"{name}′" if again else name)
        return KeptStep(tuple(names), tuple(live), extra)


def kept_layers(graph: Graph) -> KeptLayers | None:
    """The choices that a training step of few ops leaves, without views and writes; None for anything else,
    and where there are none."""
    ops = graph.ops
    at = next((index for index, op in enumerate(ops) if op.phase is Phase.BACKWARD), 0)
    writes = any(op.mutates for op in ops) or any(storage.held_by for storage in graph.storages)
    if not at or len(ops) > MOST_OPS or writes or len(graph.storages) < len(graph.tensors):
        return None
    known = MILLISECONDS.get(graph.name, {})
    if known.keys() == {op.name for op in ops}:
        seconds = {name: each / 1000 for name, each in known.items()}
    else:
        seconds = dict(modelled_times(graph, accelerator(USUAL)).seconds)
    again = recompute_problem(graph, [seconds[op.name] for op in ops]).again.tolist()
    late = {name for op in ops[at + 1 :] for name in op.inputs} - set(ops[at].inputs) - set(graph.outputs)
    choices = tuple(
        op.name for op, may in zip(ops[:at], again, strict=False) if may and late & set(op.outputs)
    )
    return KeptLayers(graph, seconds, at, choices) if choices else None


def milliseconds(seconds: float) -> str:
    """ "6 ms", "0.0025 ms"."""
    return f"{1000 * seconds:.3g} ms"
