"""The slab pass: a graph that allocates one slab, writes its tensors into it as planned, and releases it.

After the JIT memory planner of PyTorch, which inserts the same three operators into TorchScript graphs; what
its graphs get from Static Runtime (which ops have `out` variants) is found from the operators' schemas here.
"""

from __future__ import annotations

import operator
from collections import ChainMap
from collections.abc import Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node
from torch.fx.graph_module import _forward_from_src
from torch.utils import _pytree as pytree

from memplan_engine.errors import InputError, MemplanError
from memplan_engine.graph import Role
from memplan_engine.plan import Plan
from memplan_engine.runtime.program import Program, graph_of_module
from memplan_engine.runtime.slab.binding import Binding, bind
from memplan_engine.runtime.slab.operators import allocate_tensor, done
from memplan_engine.runtime.slab.out_calls import OpCall, Site, out_arguments
from memplan_engine.runtime.slab.out_equivalents import Equivalent
from memplan_engine.runtime.slab.slab_choice import (
    Choice,
    Choices,
    check_values,
    choose,
    copies_storage,
    results_of,
    value_of,
)
from memplan_engine.runtime.slab.slab_order import Order, find_order, freeze
from memplan_engine.runtime.slab.slab_report import SlabReport, Way
from memplan_engine.system import memory_bytes
from memplan_engine.torch_capture.torch_run import is_item, tensor_of
from memplan_engine.units import format_bytes

REPORT = "memplan_slab"
"""Key in a graph module's `meta`: its SlabReport."""
WRITES = "memplan_writes"
"""Key in the `meta` of nodes that make a view of the slab: the storage that they make room for."""
OP = "memplan_op"
"""Key in the `meta` of nodes: the name of the node that they stand for."""
KEPT_META = ("stack_trace", "nn_module_stack", "source_fn_stack", "custom")
"""What of a node's `meta` says where it comes from."""

aten, memplan = torch.ops.aten, torch.ops.memplan


class SlabModule(GraphModule):
    """A GraphModule that runs without gradients: what is written through `out` has none. Its compiled code
    calls the kernel of `allocate_tensor` past torch's dispatcher, which takes twice as long as the kernel."""

    def recompile(self) -> Any:
        """Compile the graph."""
        code = super().recompile()
        source = code.src.replace("torch.ops.memplan.allocate_tensor.default(", "_allocate_tensor(")
        namespace = {**code.globals, "_allocate_tensor": allocate_tensor}
        type(self).forward = torch.no_grad()(_forward_from_src(source, namespace))
        return code

    def __reduce__(self) -> Any:
        """Refuse: torch would trace the graph anew from its code, and lose the order."""
        raise MemplanError("a graph in a slab cannot be pickled: save the plan, and insert the slab again")


def insert_slab(
    module: GraphModule | Program, plan: Plan, *, policy: str = "native", force: bool = False
) -> GraphModule:
    """`module` (a flat graph of operators, or a Program's) with its tensors at their planned bytes of a slab.

    `native`: what an `out` overload can write, its own or that of another operator that gives the same bits,
    lies in the slab; the rest, and what the graph returns, stays with the allocator (`slab_report` lists it
    with the reasons). `all`: every planned storage lies in the slab, through overloads that compute and then
    copy where there is nothing better; what the graph returns is copied out at the end.

    The result takes the same inputs, gives the same bits, mutates what `module` mutates, and runs without
    gradients. Views are made anew by the ops that make them. The operators are `memplan::allocate_slab`,
    `memplan::allocate_tensor` and `memplan::release_slab`; before bytes are used again, the ops that must be
    done with them are given to `allocate_tensor` as tokens, so the order holds; `check_order` proves it.

    Raises
    ------
    InputError: an unknown policy, a graph that is not flat or has sizes that depend on the data, and all that
        `bind` refuses: a plan for another graph, one with live buffers that overlap (unless `force`), an
        arena that is larger than the machine's memory.
    """
    name = plan.problem.name
    if isinstance(module, Program):
        if module.laid_out is not None and plan.problem.origin is None:
            expected = "a plan saved as .json, which has its graph: here ops run inside others"
            raise InputError(name, "plan", "a list of buffers", expected)
        check_values(module.module, name)
        return build(module.module, bind(module.graph, plan, force=force), policy)
    check_values(module, name)
    # The fake values that it was captured with.
    values = [node.meta["val"] for node in module.graph.find_nodes(op="placeholder")]
    graph = graph_of_module(module, values, 0, name)
    return build(module, bind(graph, plan, force=force), policy)


def build(module: GraphModule, binding: Binding, policy: str) -> GraphModule:
    """The module with the slab, of a plan that was bound. Raises as `insert_slab` does."""
    choices = choose(module, binding, policy)
    _check_memory(binding, choices.device)
    placed = [entry.storage for entry in choices.storages if entry.way is not Way.LEFT]
    pass_ = _Pass(module, binding, choices, find_order(module, binding, placed))
    slab_module = SlabModule(module, pass_.run())
    slab_module.meta.update(module.meta)
    slab_module.meta[REPORT] = _report(module, binding, choices, policy)
    freeze(slab_module)
    return slab_module


def slab_report(module: GraphModule) -> SlabReport:
    """What of `module`, made by `insert_slab`, lies in its slab.

    Raises
    ------
    InputError: a module that `insert_slab` did not make.
    """
    report = module.meta.get(REPORT)
    if not isinstance(report, SlabReport):
        raise InputError("slab report", "graph", "no slab", "a graph that insert_slab made")
    return report


def slab_device_of(module: GraphModule) -> Any:
    """Where a graph of `insert_slab` allocates its slab."""
    target = memplan.allocate_slab.default
    return module.graph.find_nodes(op="call_function", target=target)[0].args[2]


def _check_memory(binding: Binding, device: torch.device) -> None:
    """Raise InputError for an arena that the machine cannot hold."""
    nbytes = binding.arena_bytes
    memory: int | None
    if device.type == "cuda":
        memory = int(torch.cuda.get_device_properties(device).total_memory)
    else:
        memory = memory_bytes()
    if memory is not None and nbytes > memory:
        found = f"an arena of {format_bytes(nbytes)}"
        expected = f"at most {format_bytes(memory)}, as {device} has"
        raise InputError(binding.graph.name, "plan", found, expected)


def _report(module: GraphModule, binding: Binding, choices: Choices, policy: str) -> SlabReport:
    graph = binding.graph
    returned = frozenset(s.name for s in graph.storages if s.role is Role.OUTPUT)
    ops = {entry.op for entry in choices.storages}
    return SlabReport(
        graph.name,
        policy,
        binding.arena_bytes,
        choices.storages,
        returned,
        views=sum(1 for op in graph.ops if op.name not in ops and not op.mutates and op.outputs),
        in_place=sum(1 for op in graph.ops if op.mutates),
    )


class _Pass:
    """One run of the pass over `module`, from its placeholders to its output."""

    def __init__(self, module: GraphModule, binding: Binding, choices: Choices, order: Order) -> None:
        self.module, self.binding, self.choices, self.order = module, binding, choices, order
        self.graph = Graph()
        self.env: dict[Node, Node] = {}
        self.items: dict[tuple[Node, int], Node] = {}
        self.tokens: dict[str, Node] = {}
        returned = [s.name for s in binding.graph.storages if s.role is Role.OUTPUT]
        waited = (*order.before.values(), *(order.last.get(name, ()) for name in returned), order.end)
        self.waited_for = {name for names in waited for name in names}
        self.placed = {entry.storage for entry in choices.storages if entry.way is not Way.LEFT}
        self.slab: Node | None = None
        self.noted = self.graph._root
        self.shared: dict[Any, Node] = {}

    def run(self) -> Graph:
        """The new graph."""
        for node in self.module.graph.nodes:
            if node.op == "output":
                self._finish(node)
                continue
            choice = self.choices.by_node.get(node.name)
            if node.op == "call_function" and self.slab is None and self.choices.by_node:
                self._allocate_slab()
            if choice is not None:
                self.env[node] = self._write(node, choice)
            elif node.target is aten.detach_.default:
                # It changes no memory, and cannot be done to a view of the slab.
                self.env[node] = self.env[node.args[0]]
            elif is_item(node) and (node.args[0], node.args[1]) in self.items:
                self.env[node] = self.items[node.args[0], node.args[1]]
            else:
                self.env[node] = self._as_it_is(node)
            self._token(node)
            self._note(node)
        self.graph.set_codegen(self.module.graph._codegen)
        self.graph.lint()
        return self.graph

    def _note(self, node: Node) -> None:
        """Say of the nodes made since the last time that they stand for `node`, and where it comes from."""
        source = {key: node.meta[key] for key in KEPT_META if key in node.meta}
        while self.noted.next.op != "root":
            self.noted = self.noted.next
            self.noted.meta.setdefault(OP, node.name)
            self.noted.meta.update(source)

    def _allocate_slab(self) -> None:
        unit = int(self.binding.plan.problem.alignment.max(initial=1))
        arguments = (self.binding.arena_bytes, unit, self.choices.device)
        self.slab = self.graph.create_node(
            "call_function", memplan.allocate_slab.default, arguments, name="slab"
        )

    def _token(self, node: Node) -> None:
        """Say that `node` has run, where somebody waits for it."""
        if node.name in self.waited_for:
            self.tokens[node.name] = self.graph.create_node(
                "call_function", done, (self.env[node],), name=f"{node.name}_done"
            )

    def _write(self, node: Node, choice: Choice) -> Node:
        """The nodes that take the place of `node`; the one that holds its result."""
        if choice.way is Way.COPIED:
            return self._copied(node, choice)

        def allocate(
            result: int, size: Sequence[int] | None, strides: Sequence[int] | None, after: Sequence[Node]
        ) -> Node:
            return self._memory(node, choice.results[result], size, strides, after)

        env = (
            self.env
            if choice.over is None
            else ChainMap({choice.over: self._as(node, choice.over)}, self.env)
        )
        site = Site(OpCall(node), self.graph, env, allocate, self.shared)
        write = choice.write
        output = write.write(site) if isinstance(write, Equivalent) else self._out(site, choice)
        output.meta = {**node.meta}
        output._rename(node.name)
        return output

    def _as(self, node: Node, source: Node) -> Node:
        """What `source` gives, in the slab, with the strides of `node`."""
        value, like = source.meta["val"], node.meta["val"]
        offset, strides = self.binding.offset_of(tensor_of(source)), self._strides(node.name, like, None)
        token = self.graph.call_function(done, (self.env[source],))
        arguments = (self.slab, offset, list(like.shape), strides, value.dtype, [token])
        return self.graph.call_function(memplan.allocate_tensor.default, arguments)

    def _out(self, site: Site, choice: Choice) -> Node:
        """The call of the `out` overload; results that do not lie in the slab get memory of their own."""
        node, overload = site.op_call.node, choice.write
        assert isinstance(overload, OpOverload)
        memory: dict[str, Node] = {}
        for (index, tensor), name in zip(results_of(node), out_arguments(overload), strict=True):
            if index in choice.results:
                memory[name] = site.memory(result=index)
                continue
            value = value_of(node, tensor)
            memory[name] = site.call(
                aten.empty_strided.default,
                list(value.shape),
                list(value.stride()),
                dtype=value.dtype,
                device=value.device,
            )
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), site.env.__getitem__)
        return site.call(overload, *args, **kwargs, **memory)

    def _as_it_is(self, node: Node) -> Node:
        """`node`, which makes its results itself; one that would copy the storage that it is given, and with
        that the whole slab, gets a copy of its argument instead."""
        source = node.args[0] if copies_storage(node) else None
        if not isinstance(source, Node) or not self._in_slab(source):
            return self.graph.node_copy(node, self.env.__getitem__)
        # It is laid out as its argument is, unless that one's elements share memory.
        value = value_of(node, node.name)
        layout = (list(value.shape), list(value.stride()))
        kind: dict[str, Any] = {"dtype": value.dtype, "device": value.device}
        memory = self.graph.call_function(aten.empty_strided.default, layout, kind)
        apart = self.graph.call_function(aten.copy_.default, (memory, self.env[source]))
        return self.graph.node_copy(node, lambda used: apart if used is source else self.env[used])

    def _in_slab(self, node: Node) -> bool:
        tensor = self.binding.tensors.get(tensor_of(node))
        return tensor is not None and tensor.storage in self.placed

    def _copied(self, node: Node, choice: Choice) -> Node:
        """`node` as it is, and a copy of each of its results into the slab."""
        original = self._as_it_is(node)
        lone = isinstance(node.meta["val"], torch.Tensor)
        last = original
        for index, tensor in choice.results.items():
            value = original if lone else self.graph.call_function(operator.getitem, (original, index))
            memory = self._memory(node, tensor, None, None, ())
            last = self.graph.call_function(aten.copy_.default, (memory, value))
            last.meta["val"] = value_of(node, tensor)
            self.items[node, index] = last
        return last if lone else original

    def _memory(
        self,
        node: Node,
        tensor: str,
        size: Sequence[int] | None,
        strides: Sequence[int] | None,
        after: Sequence[Node],
    ) -> Node:
        """A view of the slab where `tensor` lies, once everybody is done with these bytes."""
        offset, value = self.binding.offset_of(tensor), value_of(node, tensor)
        storage = self.binding.tensors[tensor].storage
        tokens = list(after) or [self.tokens[name] for name in self.order.before[storage]]
        layout = (list(value.shape) if size is None else list(size), self._strides(tensor, value, strides))
        arguments = (self.slab, offset, *layout, value.dtype, *([tokens] if tokens else []))
        view = self.graph.create_node(
            "call_function", memplan.allocate_tensor.default, arguments, name=f"{node.name}_memory"
        )
        view.meta[WRITES] = storage
        return view

    def _strides(self, tensor: str, value: torch.Tensor, strides: Sequence[int] | None) -> list[int]:
        """Those asked for, else those of the graph; of a contiguous tensor those recorded."""
        if strides is not None:
            return list(strides)
        recorded = self.binding.tensors[tensor].strides
        return list(value.stride() if recorded is None else recorded)

    def _finish(self, node: Node) -> None:
        """Copy out of the slab what the graph returns, release the slab, and return."""
        copies: dict[str, Node] = {}

        def out(value: Any) -> Any:
            if not isinstance(value, Node):
                return value
            if not self._in_slab(value):
                return self.env[value]
            tensor = self.binding.tensors[tensor_of(value)]
            if tensor.storage not in copies:
                copies[tensor.storage] = self._copy_out(tensor.storage)
            return self._show(copies[tensor.storage], value, tensor.offset)

        returned = pytree.tree_map(out, node.args[0], is_leaf=lambda leaf: isinstance(leaf, Node))
        if self.slab is not None:
            tokens = [self.tokens[name] for name in self.order.end]
            tokens += [self.graph.call_function(done, (copied,)) for copied in copies.values()]
            arguments = (self.slab, tokens)
            self.graph.create_node("call_function", memplan.release_slab.default, arguments, name="released")
        self.graph.output(returned).meta.update(node.meta)

    def _copy_out(self, storage: str) -> Node:
        """The bytes of a storage in memory of the allocator."""
        region = self.binding.regions[storage]
        nbytes = self.binding.storages[storage].nbytes
        tokens = [self.tokens[name] for name in self.order.last[storage]]
        arguments = (self.slab, region.low, [nbytes], [1], torch.uint8, tokens)
        whole = self.graph.call_function(memplan.allocate_tensor.default, arguments)
        return self.graph.call_function(aten.clone.default, (whole,))

    def _show(self, copied: Node, node: Node, offset: int) -> Node:
        """The tensor that `node` returns, in the copy of its storage."""
        value: torch.Tensor = node.meta["val"]
        typed = self.graph.call_function(aten.view.dtype, (copied, value.dtype))
        layout = (list(value.shape), list(value.stride()), offset // value.dtype.itemsize)
        view = self.graph.call_function(aten.as_strided.default, (typed, *layout))
        view.meta["val"] = value
        return view
