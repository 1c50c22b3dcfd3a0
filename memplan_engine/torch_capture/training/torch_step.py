"""A whole training step (forward, backward, optimizer) as one flat Graph: the user's own module, autograd and
`torch.optim` run on fake tensors, and `make_fx` notes every operator below autograd.

Custom autograd Functions, hooks, checkpoints and inner gradients are therefore in the graph as eager mode
runs them; no export stands in between.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError
from memplan_engine.graph import Graph, Phase
from memplan_engine.torch_capture.capture_module import tracing
from memplan_engine.torch_capture.higher_order import INSIDES
from memplan_engine.torch_capture.torch_exporting import hearing_of_compiled
from memplan_engine.torch_capture.torch_fake import STEP_RECORDED, FakeTwins, fake_mode, require_torch
from memplan_engine.torch_capture.torch_graph import assemble
from memplan_engine.torch_capture.torch_operators import written_nodes
from memplan_engine.torch_capture.torch_run import Held, Run, kind_of, labels
from memplan_engine.torch_capture.torch_source import source_of
from memplan_engine.torch_capture.training.torch_eager_ops import as_eager, with_own_ops
from memplan_engine.torch_capture.training.torch_origins import TAG
from memplan_engine.torch_capture.training.torch_recipe import (
    Loss,
    Recipe,
    Step,
    check_recipe,
    check_trainable,
    random_state,
)
from memplan_engine.torch_capture.training.torch_trainer import Argument, Gradients, Returned, Trainer

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule, Node

__all__ = ["SEED", "Argument", "Gradients", "StepModule", "capture_step", "step_graph", "trace_step"]

TRACEABLE = f"a step that runs on fake tensors as on real ones, {STEP_RECORDED}"
SEED = 0
"""Where random generators begin before each step; Python's and NumPy's make plain numbers of the graph."""


@dataclass(frozen=True, slots=True, eq=False)
class StepModule:
    """A traced step: an argument for each placeholder of `module`. `module` returns what the step does, by
    the names `results`, and, where gradients are held, those of the parameters `held`, by their paths;
    `outputs` are the tensors that the model returned. `compiled`: `torch.compile` compiles some of it."""

    source: str
    module: GraphModule
    arguments: tuple[Argument, ...]
    results: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    outputs: tuple[Returned, ...] = ()
    compiled: bool = False


def capture_step(
    model: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    optimizer: Any = "sgd",
    gradients: str = Gradients.HELD,
    loss: Loss | None = None,
    accumulate: int = 1,
    clip_grad_norm: float | None = None,
    foreach: bool | None = None,
    step: Step | None = None,
    functional: bool = False,
    name: str | None = None,
) -> Graph:
    """One whole training step of `model` as a flat Graph, in which each op has its phase.

    The step is that of `Recipe`, which tells of `optimizer`, `loss`, `accumulate`, `clip_grad_norm`,
    `foreach` and `step`. It is the second one: the first, which is run but not captured, makes the
    optimizer's state. The model is taken in the mode (train or eval) it is in and is not changed; it and its
    inputs may be real, meta or fake, and no weight is allocated. Parameters, buffers and the optimizer's
    state are CONSTANT and written in place; with `functional` nothing is written until the new values are
    copied back at the end. The outputs are the loss and, with `gradients` "held", the gradients (in the order
    of the parameters that have one), which then live to the end of the step as `.grad` does; with "freed"
    they live until their last use, as other outputs of the model do.

    Raises
    ------
    InputError: no parameter requires a gradient, the output has no loss, an unknown optimizer or kind of
        gradients, a step that cannot run without values, with the line that stands in the way.
    MissingDependencyError: torch is not installed.
    """
    recipe = Recipe(optimizer, loss, accumulate, clip_grad_norm, foreach, step)
    return step_graph(
        trace_step(model, args, kwargs, recipe, gradients=gradients, functional=functional, name=name)
    )


def trace_step(
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    recipe: Recipe,
    *,
    gradients: str = Gradients.HELD,
    functional: bool = False,
    name: str | None = None,
) -> StepModule:
    """The step as an fx graph; each call node's `meta["custom"]` says its phase. Raises as `capture_step`."""
    require_torch("capturing a training step")
    import torch

    source = name or type(model).__name__
    check_trainable(model, source)
    check_recipe(recipe, source)
    if gradients not in list(Gradients):
        raise InputError(source, "gradients", repr(gradients), f"one of {', '.join(Gradients)}")
    # What the model compiles itself must not run on fake tensors, which have no bytes.
    alone = torch.compiler.set_stance("force_eager")
    inlined = torch._dynamo.config.patch(error_on_nested_fx_trace=False)
    with (
        hearing_of_compiled(model) as heard,
        tracing(source, "training step", TRACEABLE),
        as_eager(),
        alone,
        inlined,
    ):
        twins = FakeTwins(fake_mode(unknown_sizes=False), meta_device="cpu")
        with random_state(SEED):
            trainer = Trainer(model, list(args), dict(kwargs or {}), source, twins, recipe=recipe)
            trainer.take_first()
        arguments = trainer.arguments()
        with random_state(SEED):
            module = trainer.trace(arguments, Gradients(gradients))
        refuse_what_is_not_traced(module, source)
        owners = [argument.module for argument in arguments]
        drop_profiling(module)
        with_own_ops(module)
        end_with_optimizer(module)
        give_modules(module, owners)
        if functional:
            module = without_writes(module, [argument.value for argument in arguments], owners)
    tell_apart(module, {argument.name for argument in arguments})
    outputs = () if functional else trainer.outputs()
    return StepModule(source, module, arguments, trainer.named, trainer.held, outputs, bool(heard))


@dataclass(slots=True)
class _StepRun(Run):
    """A re-run that leaves with each node what CPU kernels give, where the trace knew what fakes give."""

    def execute(self, node: Node, args: Any, kwargs: Any) -> tuple[Any, Held]:
        """As `Run.execute`."""
        import torch
        from torch.utils import _pytree as pytree

        value, held = Run.execute(self, node, args, kwargs)
        # As it is made: an op may change its shape in place.
        detached = pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, value)
        node.meta["val"] = detached
        for user in node.users:
            if user.target is operator.getitem:
                user.meta["val"] = detached[user.args[1]]
        return value, held


def step_graph(step: StepModule) -> Graph:
    """The Graph of a traced step."""
    run = _StepRun(step.source)
    slots = [run.take(argument.name, argument.value, argument.kept) for argument in step.arguments]
    returned = run.run(step.module, slots)
    phases = {node.name: phase_of(node) for node in step.module.graph.nodes}
    run.ops = [replace(op, phase=phases.get(op.name)) for op in run.ops]
    graph = assemble(run, returned)
    names, own = labels(returned.names), len(step.results)
    # A gradient that the step returns besides holding it stands there twice.
    outputs = (*dict.fromkeys(names[:own]), *dict.fromkeys(names[own:]))
    return replace(graph, outputs=outputs, compiled=step.compiled)


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


def refuse_what_is_not_traced(module: GraphModule, source: str) -> None:
    """Raise InputError with the line for a step that reads or writes what neither the model nor the optimizer
    knows of, since the next step would begin with something else than the graph; and for operators that take
    functions, of whose gradients a tracer sees nothing."""
    from torch._subclasses.fake_tensor import FakeTensor

    for node in module.graph.nodes:
        if node.op == "call_function" and (kind := kind_of(node)) in INSIDES:
            expected = (
                "operators whose gradients a traced step takes: a predicted run takes those of this one, too "
                "(memplan observe --fake SCRIPT)"
            )
            raise InputError(source, "training step", f"{kind}{_at(node)}", expected)
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
    owner_of: dict[Node, str | None] = dict(
        zip(module.graph.find_nodes(op="placeholder"), owners, strict=True)
    )
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        stack = node.meta.get("nn_module_stack")
        if phase_of(node) is not Phase.OPTIMIZER:
            owner_of[node] = next(iter(stack)) if stack else None
            continue
        modules = {owner_of[source] for source in node.all_input_nodes if owner_of.get(source) is not None}
        if len(modules) == 1:
            (owner,) = modules
            owner_of[node] = owner
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
    functional = make_fx(functionalize(run), tracing_mode="fake", _allow_non_fake_inputs=True)(*plain)
    functional.graph.eliminate_dead_code()
    functional.recompile()
    owner_of = dict(zip(functional.graph.find_nodes(op="placeholder"), owners, strict=True))
    for node in functional.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default):
        owner = owner_of.get(node.args[0]) or ""
        node.meta.setdefault("nn_module_stack", {owner: (owner, "")})
    return functional


def tell_apart(module: GraphModule, names: set[str]) -> None:
    """Give the nodes other names that have those of parameters or inputs: an input `t`, and aten.t."""
    for node in module.graph.nodes:
        while node.op != "placeholder" and node.name in names:
            node._rename(f"{node.name}_op")
    module.recompile()
