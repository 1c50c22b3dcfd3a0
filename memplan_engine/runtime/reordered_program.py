"""A program with its ops in another order, which runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from torch.fx import Graph as FxGraph
from torch.fx import GraphModule, Node

from memplan_engine.errors import InputError
from memplan_engine.graph import Graph
from memplan_engine.rewrites.order.checked import check_order
from memplan_engine.runtime.program import Program


def reordered_program(program: Program, graph: Graph) -> Program:
    """`program` with a module, a copy, whose nodes run in the order of the ops of `graph`: the program's own
    graph in another order, as `reorder` gives it. It takes and returns what `program` does, and shares its
    weights.

    Nodes that are no ops (a `getitem`, arithmetic on sizes) follow what they read at once. The order is
    checked before anything is built, whoever made it.

    Raises
    ------
    InputError: another graph; an order in which an op would read or write something else than before, or draw
        other random numbers; one that takes the ops of a block that only sets a mode apart.
    """
    check_order(program.graph, graph, program.name)
    copy = FxGraph()
    moved: dict[Node, Node] = {}
    for node in _in_order(program, graph):
        moved[node] = copy.node_copy(node, moved.__getitem__)
    copy.lint()
    return replace(program, module=GraphModule(program.module, copy), graph=graph)


def _in_order(program: Program, graph: Graph) -> Iterable[Node]:
    """The nodes of the module as they run in the order of `graph`."""
    nodes = list(program.module.graph.nodes)
    of_op = _nodes_of(program, graph)
    is_op = set(of_op)
    done: dict[Node, None] = {}

    def run(node: Node) -> None:
        if late := next((each for each in node.all_input_nodes if each not in done), None):
            found = f"{node.name} before {late.name}, which it reads"
            raise InputError(program.name, "the order", found, "an op after what it reads")
        done[node] = None
        for reader in node.users:
            ready = reader.op != "output" and reader not in is_op and reader not in done
            if ready and all(each in done for each in reader.all_input_nodes):
                run(reader)

    for node in nodes:
        if node.op in ("placeholder", "get_attr"):
            done[node] = None
    for node in nodes:
        # What reads nothing that an op makes is there from the first, such as the sizes of inputs.
        ready = node.op == "call_function" and node not in is_op and node not in done
        if ready and all(each in done for each in node.all_input_nodes):
            run(node)
    for node in of_op:
        run(node)
    done[program.module.graph.output_node()] = None
    return done


def _nodes_of(program: Program, graph: Graph) -> dict[Node, None]:
    """The node of each op, in order; several ops of a block that only sets a mode are one node."""
    named = {node.name: node for node in program.module.graph.nodes}
    order: dict[Node, None] = {}
    last: Node | None = None
    for op in graph.ops:
        node = named.get(op.name) or named[op.name.partition(".")[0]]
        if node is not last and node in order:
            expected = "the ops of one block one behind the other"
            raise InputError(program.name, "the order", f"{op.name} apart from the others of it", expected)
        order[node] = None
        last = node
    return order
