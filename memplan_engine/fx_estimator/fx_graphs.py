"""What is asked of fx graphs and their nodes: sizes, what may be released, and which backward graph
belongs to a forward graph, by the names of nodes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from memplan_engine.errors import InputError
from memplan_engine.fx_estimator.aliasing import SizeOf
from memplan_engine.torch_capture.torch_run import brief

if TYPE_CHECKING:
    from torch.fx import Graph, Node

log = logging.getLogger(__name__)

PRIMALS = "primals"
"""How AOTAutograd's names of the forward's inputs (parameters, buffers and arguments) begin."""
FORWARD, BACKWARD = "forward graph", "backward graph"


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
    taken = {node.name: node for node in backward.nodes if node.op == "placeholder"}
    if taken and all(name.startswith(PRIMALS) for name in taken):
        expected = "tangents, or what the forward graph saves: a backward graph"
        raise InputError(BACKWARD, "placeholders", "nothing but primals", expected)
    for name, node in taken.items():
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
    return returned, taken


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
