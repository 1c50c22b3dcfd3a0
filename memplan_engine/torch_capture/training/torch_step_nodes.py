"""What is done to the nodes of a traced training step before it becomes a graph."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError
from memplan_engine.graph import Phase
from memplan_engine.torch_capture.torch_fake import part_of_path
from memplan_engine.torch_capture.torch_source import source_of
from memplan_engine.torch_capture.torch_writes import written_nodes
from memplan_engine.torch_capture.training.torch_origins import TAG

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule, Node


def phase_of(node: Node) -> Phase:
    """The phase in which `node` was traced; the copies that end a functional step belong to the optimizer."""
    return Phase((node.meta.get("custom") or {}).get(TAG, Phase.OPTIMIZER))


def drop_profiling(module: GraphModule) -> None:
    """Take out the marks for profilers that optimizers set; nothing reads them."""
    for node in reversed(module.graph.nodes):
        if str(node.target).startswith("profiler.") and not node.users:
            module.graph.erase_node(node)
    module.recompile()


def end_with_optimizer(module: GraphModule) -> None:
    """What comes after the last backward pass (clipping) belongs to the optimizer."""
    for node in reversed(module.graph.nodes):
        if node.op != "call_function":
            continue
        if phase_of(node) is Phase.BACKWARD:
            return
        node.meta["custom"] = {TAG: Phase.OPTIMIZER.value}


def refuse_what_is_kept_elsewhere(module: GraphModule, source: str) -> None:
    """Raise InputError for a step that reads or writes what neither the model nor the optimizer knows of,
    with the line: the next step would begin with something else than the graph."""
    from torch._subclasses.fake_tensor import FakeTensor

    for node in module.graph.nodes:
        generator = node.op == "call_function" and node.kwargs.get("generator") is not None
        if generator:
            expected = "torch's default generator, whose state is known before a step"
            raise InputError(source, "training step", f"a torch.Generator{_at(node)}", expected)
        if node.op != "get_attr":
            continue
        value = getattr(module, str(node.target), None)
        written = [user for user in node.users if node in written_nodes(user)]
        if isinstance(value, FakeTensor) or written:
            line = _at(next(iter(written or node.users), node))
            expected = (
                "a buffer, a submodule of the model (an average of weights: docs/training.md), or state "
                "of the optimizer for a parameter"
            )
            raise InputError(source, "training step", f"a tensor kept outside of the model{line}", expected)


def _at(node: Node) -> str:
    """Where the user's code makes `node`, as the end of a sentence."""
    line = source_of(node.meta.get("stack_trace"))
    return f" at {line.file}:{line.line}" if line else ""


def give_modules(module: GraphModule, owners: Sequence[str | None]) -> None:
    """Give each op of the optimizer the module whose parameter it works on, where it is one: `owners` has it
    for each placeholder, None for inputs. What the loss hands back for a parameter has it already."""
    known: dict[Node, str | None] = dict(zip(module.graph.find_nodes(op="placeholder"), owners, strict=True))
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        stack = node.meta.get("nn_module_stack")
        if phase_of(node) is not Phase.OPTIMIZER:
            known[node] = next(iter(stack)) if stack else None
            continue
        found = {known[source] for source in node.all_input_nodes if known.get(source) is not None}
        if len(found) == 1:
            (owner,) = found
            known[node] = owner
            node.meta["nn_module_stack"] = {owner: (owner, "")}


def without_writes(
    module: GraphModule, values: Sequence[torch.Tensor], owners: Sequence[str | None]
) -> GraphModule:
    """`module` without in-place ops, but for the copies at the end, which belong to what they write."""
    import torch
    from torch.func import functionalize
    from torch.fx import Interpreter, traceback
    from torch.fx.experimental.proxy_tensor import make_fx

    def run(*tensors: torch.Tensor) -> Any:
        with traceback.preserve_node_meta(), torch.no_grad():
            return Interpreter(module).run(*tensors)

    plain = [value.detach() for value in values]
    made = make_fx(functionalize(run), tracing_mode="fake", _allow_non_fake_inputs=True)(*plain)
    made.graph.eliminate_dead_code()
    made.recompile()
    known = dict(zip(made.graph.find_nodes(op="placeholder"), owners, strict=True))
    for node in made.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default):
        owner = known.get(node.args[0]) or ""
        node.meta.setdefault("nn_module_stack", {owner: (owner, "")})
    return made


def tell_apart(module: GraphModule, given: set[str]) -> None:
    """Give the nodes other names that have those of parameters or inputs: an input `t`, and aten.t."""
    for node in module.graph.nodes:
        while node.op != "placeholder" and node.name in given:
            node._rename(f"{node.name}_op")
    module.recompile()


def input_names(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """A name for each leaf of a call, from the signature of `forward`: `x`, or `batch_ids` for the part `ids`
    of `batch`."""
    from torch.utils import _pytree as pytree

    try:
        named = list(inspect.signature(model.forward).parameters)
    except (TypeError, ValueError):
        named = []
    named += [f"arg_{place}" for place in range(len(named), len(args))]
    # In the order of the call, as its leaves are, not in that of the signature.
    for name, value in (*zip(named, args, strict=False), *kwargs.items()):
        for path, leaf in pytree.tree_flatten_with_path(value)[0]:
            yield "_".join([name, *map(part_of_path, path)]).replace(".", "_"), leaf


def unlike(found: Sequence[Any]) -> Iterator[Any]:
    """`found`, dataclasses with a name each, with names that are all different."""
    taken: set[str] = set()
    for each in found:
        name = each.name
        while name in taken:
            name += "_"
        taken.add(name)
        yield replace(each, name=name)
