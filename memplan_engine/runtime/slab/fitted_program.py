"""A program rewritten as a plan's graph says: its order, the gradients that it no longer returns, and its
writes in place, by torch's own allocator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Graph as FxGraph
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from memplan_engine.graph import Graph
from memplan_engine.op_kinds.copies import is_copy
from memplan_engine.op_kinds.generators import is_of_generator
from memplan_engine.rewrites.chunk.piece_names import runs_in_pieces, whole_tensor
from memplan_engine.rewrites.offload.offloaded_graph import without_copies
from memplan_engine.rewrites.recompute.recomputed_graph import first_run
from memplan_engine.rewrites.reuse.writes_over import writes_over
from memplan_engine.runtime.chunked_program import chunked_program
from memplan_engine.runtime.loading import RunTarget
from memplan_engine.runtime.offloaded_program import offloaded_program
from memplan_engine.runtime.program import Program, graph_of_module
from memplan_engine.runtime.recomputed_program import recomputed_program
from memplan_engine.runtime.reordered_program import reordered_program
from memplan_engine.runtime.slab.insert_slab import KEPT_META
from memplan_engine.runtime.slab.out_calls import OpCall, Site, out_arguments
from memplan_engine.runtime.slab.out_equivalents import Equivalent
from memplan_engine.runtime.slab.slab_choice import STEPWISE, in_place_write
from memplan_engine.torch_capture.torch_graph import same_strides
from memplan_engine.torch_capture.torch_run import kind_of, tensor_of

aten = torch.ops.aten


def ordered_program(program: Program, graph: Graph) -> Program:
    """`program` in the order of `graph`, a rewrite of its own graph, without the outputs that `graph` does
    not return: gradients that a step would only hold. `insert_slab` takes it with a plan of `graph`.

    Raises
    ------
    InputError: as `reordered_program` does.
    """
    if any(is_copy(op.kind) for op in graph.ops):
        return offloaded_program(ordered_program(program, without_copies(graph)), graph)
    own = program.graph
    in_pieces = runs_in_pieces(graph, {op.name for op in own.ops})
    returned = {_own_output(name, own) for name in graph.outputs}
    kept = [name for name in own.outputs if name in returned]
    if len(kept) < len(own.outputs):
        program = _returning(program, set(kept), graph)
    if in_pieces:
        return chunked_program(program, graph)
    if [op.name for op in program.graph.ops] == [op.name for op in graph.ops]:
        return program
    if _runs_again(own, graph):
        return recomputed_program(program, graph)
    place = {op.name: index for index, op in enumerate(graph.ops)}
    # Another graph has other ops: the check names them.
    same = place.keys() == {op.name for op in own.ops}
    ops = tuple(sorted(program.graph.ops, key=lambda op: place[op.name])) if same else graph.ops
    return reordered_program(program, replace(program.graph, ops=ops))


def _own_output(name: str, own: Graph) -> str:
    """What is returned in the graph `own` where a rewrite of it returns `name`."""
    first = first_run(name, own.outputs)
    return first if first in own.outputs else whole_tensor(name, own.outputs)


def _runs_again(own: Graph, graph: Graph) -> bool:
    """Whether `graph` is `own` in which ops run again."""
    return len(graph.ops) > len(own.ops)


def _returning(program: Program, names: set[str], graph: Graph) -> Program:
    """`program` that returns only the tensors called `names`."""
    copy = FxGraph()
    moved: dict[Node, Node] = {}
    kept: list[Node] = []
    for node in program.module.graph.nodes:
        if node.op != "output":
            moved[node] = copy.node_copy(node, moved.__getitem__)
            continue
        returned: Any = node.args[0]
        kept = [each for each in returned if not isinstance(each, Node) or tensor_of(each) in names]
        copy.output([moved[each] for each in kept]).meta.update(node.meta)
    roles = {storage.name: storage.role for storage in graph.storages}
    storages = tuple(replace(each, role=roles.get(each.name, each.role)) for each in program.graph.storages)
    outputs = tuple(name for name in program.graph.outputs if name in names)
    return replace(
        program,
        module=GraphModule(program.module, copy),
        graph=replace(program.graph, outputs=outputs, storages=storages),
        written=(None,) * len(kept),
        out_spec=pytree.tree_flatten([0] * len(kept))[1],
    )


def fitted_program(program: Program, graph: Graph) -> Program:
    """`program` as `ordered_program` makes it, whose ops write over inputs where `graph` says so, for as far
    as torch has a kernel that does; it allocates as it always did. Its graph is taken anew from what runs.

    Concatenations without copies are left to the slab: a tensor of torch's is there whole, or not at all.

    Raises
    ------
    InputError: as `reordered_program` does.
    """
    program = ordered_program(program, graph)
    return _written(program, graph)


def _written(program: Program, graph: Graph) -> Program:
    """`program`, which runs in the order of `graph`, with its writes in place."""
    over = writes_over(program.graph, graph)
    module = _Writer(program.module, over).run() if over else None
    if module is None:
        return program
    if any(is_copy(op.kind) for op in graph.ops):
        # What waits on the host cannot be run on fake tensors: the graph stays as it was planned.
        return replace(program, module=module, graph=graph)
    values = [node.meta["val"] for node in module.graph.find_nodes(op="placeholder")]
    derived = graph_of_module(module, values, len(program.state), program.name)
    known = {op.name: op for op in program.graph.ops}
    ops = tuple(
        replace(op, phase=known[op.name].phase, module=known[op.name].module) if op.name in known else op
        for op in derived.ops
    )
    return replace(program, module=module, graph=replace(derived, ops=ops))


class _Writer:
    """`module` in which the ops of `over` write over their inputs."""

    def __init__(self, module: GraphModule, over: Mapping[str, str]) -> None:
        self.module, self.over = module, over
        self.graph = FxGraph()
        self.env: dict[Node, Node] = {}
        self.shared: dict[object, Node] = {}

    def run(self) -> GraphModule | None:
        """The new module; None where nothing can write over what it reads."""
        written = 0
        for node in self.module.graph.nodes:
            target = self._over(node)
            if target is None:
                self.env[node] = self.graph.node_copy(node, self.env.__getitem__)
                continue
            written += 1
            self.env[node] = self._write(node, target)
        self.graph.set_codegen(self.module.graph._codegen)
        self.graph.lint()
        return GraphModule(self.module, self.graph) if written else None

    def _over(self, node: Node) -> Node | None:
        """The input that `node` writes over; None where it does not, or cannot in one go."""
        if node.op != "call_function" or node.name not in self.over:
            return None
        target = next(each for each in node.all_input_nodes if tensor_of(each) == self.over[node.name])
        write = in_place_write(node)[0]
        stepwise = isinstance(write, Equivalent) and kind_of(node) in STEPWISE
        later = stepwise and target in node.all_input_nodes[1:]
        return None if write is None or later else target

    def _write(self, node: Node, target: Node) -> Node:
        last = self.graph._root.prev

        def allocate(
            result: int, size: Sequence[int] | None, strides: Sequence[int] | None, after: Sequence[Node]
        ) -> Node:
            return self._memory(node, target, size, strides)

        site = Site(OpCall(node), self.graph, self.env, allocate, self.shared)
        write = in_place_write(node)[0]
        if isinstance(write, Equivalent):
            output = write.write(site)
        else:
            assert write is not None
            args, kwargs = map_arg((node.args, node.kwargs), self.env.__getitem__)
            (name,) = out_arguments(write)
            output = site.call(write, *args, **kwargs, **{name: site.memory()})
        source = {key: node.meta[key] for key in KEPT_META if key in node.meta}
        while last.next.op != "root":
            last = last.next
            last.meta.update(source)
        output.meta = {**node.meta}
        output._rename(node.name)
        return output

    def _memory(
        self, node: Node, target: Node, size: Sequence[int] | None, strides: Sequence[int] | None
    ) -> Node:
        """What `node` writes over, as a tensor of this size and these strides; else those of its result."""
        value, result = target.meta["val"], node.meta["val"]
        shape = list(result.shape if size is None else size)
        steps = list(result.stride() if strides is None else strides)
        memory = self.env[target]
        if value.dtype != result.dtype:
            memory = self.graph.call_function(aten.view.dtype, (memory, result.dtype))
        if shape == list(value.shape) and same_strides(shape, steps, value.stride()):
            return memory
        return self.graph.call_function(aten.as_strided.default, (memory, shape, steps))


def fitted_target(target: RunTarget, graph: Graph) -> RunTarget:
    """`target` rewritten as `graph` says, where `graph` is a rewrite of its own: the program is that of
    `ordered_program`, which a slab takes, and `written` that of `fitted_program`. As it is for any other
    graph.

    Raises
    ------
    InputError: as `reordered_program` does.
    """
    own = target.program.graph
    kinds = {op.name: op.kind for op in own.ops}
    in_pieces = runs_in_pieces(graph, kinds)
    added = {op.name for op in graph.ops if is_copy(op.kind) or is_of_generator(op.kind)}
    theirs = {first_run(op.name, kinds): op.kind for op in graph.ops if op.name not in added}
    returned = {_own_output(name, own) for name in graph.outputs}
    if (kinds != theirs and not in_pieces) or not returned <= set(own.outputs):
        return target
    program = ordered_program(target.program, graph)
    written = _written(program, graph)
    step = target.step
    if step is not None:
        nodes: Any = target.program.module.graph.output_node().args[0]
        names = [tensor_of(node) for node in nodes]
        held = zip(step.held, names[len(step.results) :], strict=True)
        there = {op.name: op.kind for op in graph.ops}
        step = replace(
            step,
            held=tuple(path for path, name in held if name in returned),
            # What there are only pieces of, such as the logits of a model, is no output any more.
            outputs=tuple(
                each
                for each in step.outputs
                if all(there.get(op) == kinds.get(op) for op in (each.moment, each.tensor.partition(".")[0]))
            ),
        )
    changed = written if written is not program else None
    return replace(target, program=program, written=changed, step=step, in_pieces=in_pieces)
