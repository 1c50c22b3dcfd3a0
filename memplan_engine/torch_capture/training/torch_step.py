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
from memplan_engine.graph import Graph
from memplan_engine.torch_capture.capture_module import tracing
from memplan_engine.torch_capture.torch_fake import STEP_RECORDED, FakeTwins, fake_mode
from memplan_engine.torch_capture.torch_graph import assemble
from memplan_engine.torch_capture.torch_run import Held, Run
from memplan_engine.torch_capture.torch_version import require_torch
from memplan_engine.torch_capture.training.torch_eager_ops import as_eager, with_own_ops
from memplan_engine.torch_capture.training.torch_recipe import (
    Loss,
    Recipe,
    check_recipe,
    check_trainable,
    random_state,
)
from memplan_engine.torch_capture.training.torch_step_nodes import (
    drop_profiling,
    end_with_optimizer,
    give_modules,
    phase_of,
    refuse_what_is_kept_elsewhere,
    tell_apart,
    without_writes,
)
from memplan_engine.torch_capture.training.torch_trainer import Argument, Gradients, Returned, Trainer

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule, Node

    from memplan_engine.torch_capture.training.torch_recipe import Step

__all__ = ["SEED", "Argument", "Gradients", "StepModule", "capture_step", "step_graph", "trace_step"]

TRACEABLE = f"a step that runs on fake tensors as on real ones, {STEP_RECORDED}"
SEED = 0
"""Where random generators begin before each step; Python's and NumPy's make plain numbers of the graph."""


@dataclass(frozen=True, slots=True, eq=False)
class StepModule:
    """A traced step: an argument for each placeholder of `module`. `module` returns what the step does, by
    the names `results`, and, where gradients are held, those of the parameters `held`, by their paths;
    `outputs` are the tensors that the model returned."""

    source: str
    module: GraphModule
    arguments: tuple[Argument, ...]
    results: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    outputs: tuple[Returned, ...] = ()


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
    with tracing(source, "training step", TRACEABLE), as_eager(), alone:
        twins = FakeTwins(fake_mode(unknown_sizes=False), meta_device="cpu")
        with random_state(SEED):
            trainer = Trainer(model, list(args), dict(kwargs or {}), recipe, source, twins)
            trainer.take_first()
        arguments = trainer.arguments()
        with random_state(SEED):
            module = trainer.trace(arguments, Gradients(gradients))
        refuse_what_is_kept_elsewhere(module, source)
        owners = [each.module for each in arguments]
        drop_profiling(module)
        with_own_ops(module)
        end_with_optimizer(module)
        give_modules(module, owners)
        if functional:
            module = without_writes(module, [each.value for each in arguments], owners)
    tell_apart(module, {each.name for each in arguments})
    outputs = () if functional else trainer.outputs()
    return StepModule(source, module, arguments, trainer.named, trainer.held, outputs)


@dataclass(slots=True)
class _StepRun(Run):
    """A re-run that leaves with each node what CPU kernels give, where the trace knew what fakes give."""

    def execute(self, node: Node, args: Any, kwargs: Any) -> tuple[Any, Held]:
        """As `Run.execute`."""
        import torch
        from torch.utils import _pytree as pytree

        value, held = Run.execute(self, node, args, kwargs)
        # As it is made: an op may change its shape in place.
        made = pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, value)
        node.meta["val"] = made
        for user in node.users:
            if user.target is operator.getitem:
                user.meta["val"] = made[user.args[1]]
        return value, held


def step_graph(step: StepModule) -> Graph:
    """The Graph of a traced step."""
    run = _StepRun(step.source)
    slots = [run.take(each.name, each.value, each.kept) for each in step.arguments]
    returned = run.run(step.module, slots)
    phases = {node.name: phase_of(node) for node in step.module.graph.nodes}
    run.ops = [replace(op, phase=phases.get(op.name)) for op in run.ops]
    return assemble(run, returned)
