"""What an aliasing rule answers: which storages a node makes, and which ones its readers read; and what every
rule asks of fx graphs: sizes, what may be released, and which backward graph belongs to a forward graph.

A rule is the only thing in which estimates of one graph differ; `fx_estimates.py` knows no operator
and no tensor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from memplan_engine.errors import InputError
from memplan_engine.torch_capture.torch_run import brief

if TYPE_CHECKING:
    from torch.fx import Graph, Node

SizeOf = Callable[["Node"], int]
"""The bytes of a node's value."""

IsReleasable = Callable[["Node"], bool]
"""Whether the memory of a node's value may be given back during the graph."""
log = logging.getLogger(__name__)
PRIMALS = "primals"
"""How AOTAutograd's names of the forward's inputs (parameters, buffers and arguments) begin."""
FORWARD, BACKWARD = "forward graph", "backward graph"


@dataclass(frozen=True, eq=False, slots=True)
class FxStorage:
    """What is released at once: `nbytes` bytes, if every node of `owners` may be released."""

    nbytes: int
    owners: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Storages:
    """The storages of one graph.

    produced: node → the storages that are new with it.
    read: node → the storages that those read who read the node.
    unread: the storages that a value without readers holds, by the rule's own idea of holding.
    fixed: storages that belong to the module and are never released.
    """

    produced: Mapping[Node, tuple[FxStorage, ...]]
    read: Mapping[Node, tuple[FxStorage, ...]]
    unread: frozenset[FxStorage]
    fixed: frozenset[FxStorage] = field(default=frozenset())


class Interactions(NamedTuple):
    """What a forward graph means for its backward graph.

    baseline: bytes that the forward returns and that stay live beside the backward graph's own inputs.
    held: names of the backward graph's placeholders whose memory the backward pass may not release.
    """

    baseline: int
    held: set[str]


class Pair(NamedTuple):
    """Storages of a forward graph and of the backward graph that is given what it returns."""

    forward: Storages
    backward: Storages
    interactions: Interactions


class Aliasing(Protocol):
    """A rule for what shares memory."""

    name: ClassVar[str]

    def storages(self, graph: Graph, size_of: SizeOf, source: str) -> Storages:
        """The storages of `graph`; `source` names it in errors."""
        ...

    def interactions(self, forward: Graph, backward: Graph, size_of: SizeOf) -> Interactions:
        """What stays live, and what may not be released, while `backward` runs after `forward`."""
        ...

    def pair(self, forward: Graph, backward: Graph, size_of: SizeOf) -> Pair:
        """All that is to be known of both."""
        ...


def size_of_node(node: Node) -> int:
    """Bytes of the tensors in `node.meta["val"]`, each at its own shape, as torch's partitioner counts them.

    Symbolic sizes take their hints, and a symbolic number counts 1. A value without a known size counts 0,
    with a logged warning, as in the published estimator.
    """
    from torch._functorch.partitioners import _size_of

    try:
        return int(_size_of(node))
    except Exception as error:
        log.warning("node %s has no known size and counts 0 bytes (%s)", node.name, brief(error))
        return 0


def is_not_primal(node: Node) -> bool:
    """Whether `node` is none of the forward's inputs: those belong to the caller and are never released."""
    return not node.name.startswith(PRIMALS)


def matched(forward: Graph, backward: Graph, size_of: SizeOf) -> tuple[dict[str, Node], dict[str, Node]]:
    """The nodes that `forward` returns and the placeholders of `backward`, by name.

    Raises
    ------
    InputError: a graph that returns nothing; a placeholder called `view…` that the forward does not return
        (a saved view has to come from somewhere); nothing but primals; one of another size than the node
        that the forward returns under its name.
    """
    returned = {node.name: node for node in returned_nodes(forward, FORWARD)}
    returned_nodes(backward, BACKWARD)
    placeholders = {node.name: node for node in backward.nodes if node.op == "placeholder"}
    if placeholders and all(name.startswith(PRIMALS) for name in placeholders):
        expected = "tangents, or what the forward graph saves: a backward graph"
        raise InputError(BACKWARD, "placeholders", "nothing but primals", expected)
    for name, node in placeholders.items():
        place = f"placeholder {name}"
        if name in returned:
            here, there = size_of(node), size_of(returned[name])
            if here != there:
                expected = f"the {there} bytes that the forward graph returns under this name"
                raise InputError(BACKWARD, place, f"{here} bytes", expected)
        elif name.startswith("view"):
            raise InputError(
                BACKWARD, place, "a saved view that the forward graph does not return", "one of its outputs"
            )
    return returned, placeholders


def returned_nodes(graph: Graph, source: str) -> list[Node]:
    """The nodes that `graph` returns, each once, in order.

    Raises
    ------
    InputError: a graph whose last node is not its output.
    """
    nodes = list(graph.nodes)
    if not nodes or nodes[-1].op != "output":
        found = f"{nodes[-1].op} {nodes[-1].name} as the last node" if nodes else "no nodes"
        raise InputError(source, "", found, "an output node at the end")
    return list(nodes[-1].all_input_nodes)
