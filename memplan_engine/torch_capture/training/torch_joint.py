"""A forward and a backward graph of AOTAutograd → Graphs: each alone, and both as one training step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from memplan_engine.analysis.training_phases import RECOMPUTED
from memplan_engine.errors import InputError
from memplan_engine.graph import Graph, Op, Phase
from memplan_engine.torch_capture.torch_graph import assemble
from memplan_engine.torch_capture.torch_run import Run, Slot

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node


@dataclass(frozen=True, slots=True)
class Placeholder:
    """What a placeholder of the forward graph stands for: the tensor's name in graphs, a tensor (fake or meta
    will do), and whether it is kept between steps (a parameter, buffer or constant)."""

    name: str
    value: Any
    constant: bool


@dataclass(frozen=True, slots=True)
class Halves:
    """A forward graph and the backward graph that goes with it, as torch partitions them.

    The first `outputs` outputs of `forward` are the model's own (and the new values of buffers that it
    writes); the rest are saved for `backward`, whose placeholders bear the names of the nodes they come from.
    Output `loss` is a scalar that alone is differentiated; without it the tangents are inputs. `placeholders`
    has those of `forward` by name; one that is missing there is an input of its own name.
    """

    source: str
    forward: GraphModule
    backward: GraphModule
    outputs: int
    loss: int | None = None
    placeholders: Mapping[str, Placeholder] = field(default_factory=dict)


@dataclass(slots=True)
class HalvesRun(Run):
    """A re-run of both halves. Nodes of the backward graph that repeat one of the forward graph are called
    `recompute.<name>`."""

    repeated: frozenset[str] = frozenset()

    def name_of(self, node: Node, prefix: str) -> str:
        """As `Run.name_of`."""
        name = prefix + node.name
        return RECOMPUTED + name if name in self.repeated else name


def match_forward_backward(forward: GraphModule, backward: GraphModule, source: str) -> dict[str, int]:
    """For each placeholder of `backward` that is no tangent, by name, which output of `forward` it takes.

    Raises
    ------
    InputError: a placeholder without an output of that name, or of another shape or dtype.
    """
    returned = {
        node.name: (index, node)
        for index, node in reversed(list(enumerate(outputs_of(forward))))
        if hasattr(node, "name")
    }
    matched: dict[str, int] = {}
    for node in backward.graph.find_nodes(op="placeholder"):
        if is_tangent(node):
            continue
        place = f"backward placeholder {node.name!r}"
        if node.name not in returned:
            raise InputError(
                source, place, "no forward output of that name", "one that the forward graph saves"
            )
        index, output = returned[node.name]
        found, expected = _kind(node), _kind(output)
        if found and expected and found != expected:
            raise InputError(source, place, found, f"{expected}, as the forward graph saves it")
        matched[node.name] = index
    return matched


def is_tangent(node: Node) -> bool:
    """Whether a placeholder of a backward graph is the gradient of one of the model's outputs."""
    return type(node.meta.get("desc")).__name__ == "TangentAOTInput" or node.name.startswith("tangents")


def outputs_of(module: GraphModule) -> Sequence[Any]:
    """What `module` returns, one node or None each."""
    (node,) = module.graph.find_nodes(op="output")
    return node.args[0] if isinstance(node.args[0], (list, tuple)) else (node.args[0],)


def _kind(node: Node) -> str:
    """`node`'s recorded dtype and shape as text, "" where it has none."""
    value: Any = node.meta.get("val")
    if not hasattr(value, "dtype"):
        return ""
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"


def forward_graph(halves: Halves) -> Graph:
    """The forward graph alone: what it saves are outputs, too."""
    run = HalvesRun(halves.source)
    return assemble(run, _run_forward(run, halves))


def backward_graph(halves: Halves) -> Graph:
    """The backward graph alone: saved tensors and tangents are inputs, but for parameters and views of them,
    which are constants; the gradients are outputs."""
    before = HalvesRun(halves.source)
    saved = _run_forward(before, halves)
    kept = {before.storages[name] for name in before.constants}
    matched = match_forward_backward(halves.forward, halves.backward, halves.source)
    run = HalvesRun(halves.source, repeated=_repeated(halves))
    slots: list[Slot] = []
    for node in halves.backward.graph.find_nodes(op="placeholder"):
        index = matched.get(node.name)
        if index is None:
            slots.append(run.take(node.name, node.meta.get("val")))
            continue
        name = saved.names[index] or node.name
        slots.append(run.take(name, saved.value[index], before.storages.get(name) in kept))
    gradients = run.run(halves.backward, slots)
    run.ops = [replace(op, phase=Phase.BACKWARD) for op in run.ops]
    return assemble(run, gradients)


def joint_graph(halves: Halves) -> Graph:
    """Both as one Graph: the forward's ops, the op that makes the tangent of the loss, the backward's.

    What the forward hands to the backward is one tensor. Outputs are the forward's own and the gradients.
    """
    run = HalvesRun(halves.source)
    result = _run_forward(run, halves)
    matched = match_forward_backward(halves.forward, halves.backward, halves.source)
    run.repeated = _repeated(halves)
    first = len(run.ops)
    slots: list[Slot] = []
    for node in halves.backward.graph.find_nodes(op="placeholder"):
        if node.name in matched:
            index = matched[node.name]
            slots.append(Slot(result.value[index], result.names[index]))
        else:
            slots.append(_tangent(run, node, halves, result))
    gradients = run.run(halves.backward, slots)
    run.ops[first:] = [replace(op, phase=Phase.BACKWARD) for op in run.ops[first:]]
    names = (result.names[: halves.outputs], gradients.names)
    return assemble(run, Slot(None, names))


def _run_forward(run: HalvesRun, halves: Halves) -> Slot:
    """Run the forward graph; everything that it returns."""
    slots: list[Slot] = []
    for node in halves.forward.graph.find_nodes(op="placeholder"):
        placeholder = halves.placeholders.get(node.name) or Placeholder(
            node.name, node.meta.get("val"), constant=False
        )
        slots.append(run.take(placeholder.name, placeholder.value, placeholder.constant))
    result = run.run(halves.forward, slots)
    run.ops = [replace(op, phase=Phase.FORWARD) for op in run.ops]
    return result


def _tangent(run: Run, node: Node, halves: Halves, result: Slot) -> Slot:
    """The gradient of an output: of the loss it is ones, made by an op as `loss.backward()` makes them; else
    an input."""
    import torch

    if halves.loss is None:
        return run.take(node.name, node.meta.get("val"))
    with run.mode:
        slot = run.keep(node.name, torch.ones_like(result.value[halves.loss]))
    run.ops.append(Op(node.name, "aten.ones_like", (result.names[halves.loss],), (node.name,)))
    return slot


def _repeated(halves: Halves) -> frozenset[str]:
    """Nodes of the backward graph that are copies of nodes of the forward graph."""
    forward = {node.name for node in halves.forward.graph.nodes if node.op not in ("placeholder", "output")}
    backward = (node.name for node in halves.backward.graph.nodes if node.op not in ("placeholder", "output"))
    return frozenset(forward.intersection(backward))
