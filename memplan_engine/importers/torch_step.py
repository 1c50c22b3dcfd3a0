"""A whole training step (forward, backward, optimizer) as one flat Graph: the user's own module, autograd and
`torch.optim` run on fake tensors, and `make_fx` notes every operator below autograd.

Custom autograd Functions, hooks, checkpoints and inner gradients are therefore in the graph as eager mode
runs them; no export stands in between.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError
from memplan_engine.graph import Graph
from memplan_engine.importers.torch_capture import fake_inputs, fake_model
from memplan_engine.importers.torch_eager_ops import as_eager, with_workspaces
from memplan_engine.importers.torch_fake import RECORDED, FakeTwins, fake_mode, quiet, require_torch
from memplan_engine.importers.torch_graph import assemble
from memplan_engine.importers.torch_loss import Loss
from memplan_engine.importers.torch_origins import Origins
from memplan_engine.importers.torch_recipe import (
    Recipe,
    carry_hooks,
    check_recipe,
    drop_gradients,
    make_optimizer,
    named_outputs,
    random_state,
    refuse_what_is_rebound,
    storage_of,
    take_step,
)
from memplan_engine.importers.torch_run import Held, Run, Slot, labels
from memplan_engine.importers.torch_step_nodes import (
    drop_profiling,
    end_with_optimizer,
    give_modules,
    input_names,
    phase_of,
    refuse_what_is_kept_elsewhere,
    tell_apart,
    tensor_of,
    unlike,
    without_writes,
)
from memplan_engine.importers.torch_symbols import Sizes
from memplan_engine.importers.torch_trainee import check_trainable, tracing
from memplan_engine.importers.torch_values import KnownValues, answering

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule, Node

    from memplan_engine.importers.torch_recipe import MakeOptimizer, Step

TRACEABLE = f"a step that runs on tensors without values (no .item(), no branch on them), {RECORDED}"
SEED = 0
"""Where random generators begin before each step; Python's and NumPy's make plain numbers of the graph."""


class Gradients(StrEnum):
    """How long the gradients of a step live.

    HELD: each becomes the parameter's `.grad` and lives to the end of the step, as in an eager loop that
    calls `zero_grad` between steps. FREED: each dies when the optimizer has read it, as a planned runtime can
    do.
    """

    HELD = "held"
    FREED = "freed"


@dataclass(frozen=True, slots=True, eq=False)
class Argument:
    """A tensor that a step takes. `name` is what graphs call it; `paths` are those under which it is an
    attribute of the model (tied weights have several). `state` is, of an optimizer's state, the first path of
    the parameter and the key. `kept` says that it lives on between steps; `value` is a fake tensor, and
    `constant` its content where that is known (the number of a step)."""

    name: str
    value: torch.Tensor
    kept: bool = True
    paths: tuple[str, ...] = ()
    state: tuple[str, str] | None = None
    constant: torch.Tensor | None = None

    @property
    def module(self) -> str:
        """The path of the module that it belongs to, "" for inputs."""
        path = self.state[0] if self.state else self.paths[0] if self.paths else ""
        return path.rpartition(".")[0]


@dataclass(frozen=True, slots=True, eq=False)
class StepModule:
    """A traced step: an argument for each placeholder of `module`. `module` returns the loss and, where
    gradients are held, those of the parameters `held`, by their paths; `outputs` gives the path and the
    name in graphs of each tensor that the model returned."""

    source: str
    module: GraphModule
    arguments: tuple[Argument, ...]
    held: tuple[str, ...] = ()
    outputs: tuple[tuple[str, str], ...] = ()

    @property
    def values(self) -> tuple[torch.Tensor, ...]:
        """A fake tensor for each placeholder."""
        return tuple(each.value for each in self.arguments)


def capture_step(
    model: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    optimizer: str | MakeOptimizer | torch.optim.Optimizer = "sgd",
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
        with random_state(SEED):
            trainer = _after_first_step(model, list(args), dict(kwargs or {}), recipe, source)
        found = trainer.arguments()
        with random_state(SEED):
            module = trainer.trace(found, Gradients(gradients))
        refuse_what_is_kept_elsewhere(module, source)
        owners = [each.module if each.kept else None for each in found]
        drop_profiling(module)
        with_workspaces(module)
        end_with_optimizer(module)
        give_modules(module, owners)
        if functional:
            module = without_writes(module, [each.value for each in found], owners)
    tell_apart(module, {each.name for each in found})
    return StepModule(source, module, found, trainer.held, () if functional else trainer.outputs())


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
    import torch

    run = _StepRun(step.source, fake_mode())
    twins = FakeTwins(run.mode)
    inputs: list[str] = []
    slots: list[Slot] = []
    for each in step.arguments:
        slots.append(run.keep(each.name, twins.twin(each.value)))
        (run.constants if each.kept else inputs).append(each.name)
    with torch.no_grad(), quiet():
        outputs = labels(run.graph(step.module, slots).names)
    phases = {node.name: phase_of(node) for node in step.module.graph.nodes}
    run.ops = [replace(op, phase=phases.get(op.name)) for op in run.ops]
    return assemble(run, Sizes(run.source, {}), inputs, list(dict.fromkeys(outputs)))


def _after_first_step(
    model: torch.nn.Module, args: list[Any], kwargs: dict[str, Any], recipe: Recipe, source: str
) -> _Trainer:
    """A trainer that has taken the step that makes the optimizer's state. One that asks for values is traced
    to learn them, and that trace is thrown away."""
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

    def anew() -> _Trainer:
        twins = FakeTwins(fake_mode(unknown_sizes=False), meta_device="cpu")
        return _Trainer(model, args, kwargs, recipe, source, twins)

    trainer = anew()
    try:
        with trainer.twins.mode:
            trainer.take()
    except (DataDependentOutputException, DynamicOutputShapeException):
        trainer = anew()
        trainer.trace(trainer.arguments(), Gradients.FREED)
        trainer.returned, trainer.passes = [], 0
    return trainer


@dataclass(slots=True)
class _Trainer:
    """A copy of the user's model on fake tensors, with its optimizer, and steps of both."""

    original: torch.nn.Module
    args: list[Any]
    kwargs: dict[str, Any]
    recipe: Recipe
    source: str
    twins: FakeTwins
    held: tuple[str, ...] = ()
    returned: list[tuple[str, Node]] = field(default_factory=list)
    passes: int = 0
    given: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    """Inputs with the real tensors that they stand for, where there are any."""
    model: torch.nn.Module = field(init=False)
    optimizer: torch.optim.Optimizer = field(init=False)

    def __post_init__(self) -> None:
        import torch
        from torch.utils import _pytree as pytree

        self.model = fake_model(self.original, self.twins)
        for parameter in self.original.parameters():
            carry_hooks(parameter, self.twins.twin(parameter))
        real = pytree.tree_leaves((self.args, self.kwargs))
        self.args, self.kwargs = fake_inputs((self.args, self.kwargs), self.twins)
        fake = pytree.tree_leaves((self.args, self.kwargs))
        for twin, leaf in zip(fake, real, strict=True):
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                # A re-entrant checkpoint has gradients only where an input of it wants one.
                twin.requires_grad_()
        self.given = [
            (twin, leaf)
            for twin, leaf in zip(fake, real, strict=True)
            if isinstance(leaf, torch.Tensor) and type(leaf) is torch.Tensor and not leaf.is_meta
        ]
        memo = self._twins_of_optimizer()
        with self.twins.mode:
            self.optimizer = make_optimizer(self.recipe, self.model, self.source, memo)

    def _twins_of_optimizer(self) -> dict[int, Any]:
        """By id, what stands for the tensors of an optimizer that is made already: its model's parameters,
        and what it has kept of earlier steps. The number of a step keeps its value."""
        import torch
        from torch.utils import _pytree as pytree

        memo: dict[int, Any] = {id(tensor): self.twins.twin(tensor) for tensor in self.original.parameters()}
        made = self.recipe.optimizer
        if isinstance(made, torch.optim.Optimizer):
            convert = self.twins.mode.fake_tensor_converter.from_real_tensor
            for leaf in pytree.tree_leaves((list(made.state.values()), made.param_groups)):
                if not isinstance(leaf, torch.Tensor) or id(leaf) in memo:
                    continue
                lone = leaf.numel() == 1 and not leaf.is_meta
                memo[id(leaf)] = (
                    convert(self.twins.mode, leaf.clone(), make_constant=True)
                    if lone
                    else self.twins.twin(leaf)
                )
        return memo

    def take(self, listen: Any = lambda output: None) -> torch.Tensor:
        """One step, with gradients that are not there before."""
        drop_gradients(self.model)
        for leaf, _ in self.given:
            leaf.grad = None
        return take_step(self.recipe, self.model, self.optimizer, self.args, self.kwargs, self.source, listen)

    def arguments(self) -> tuple[Argument, ...]:
        """Everything that a step takes: parameters and buffers, the state that the first one made, inputs."""
        import torch

        found: dict[int, tuple[torch.Tensor, str, list[str]]] = {}
        parameters = (("p", *each) for each in self.model.named_parameters(remove_duplicate=False))
        buffers = (("b", *each) for each in self.model.named_buffers(remove_duplicate=False))
        for kind, path, tensor in chain(parameters, buffers):
            label = f"{kind}_{path.replace('.', '_')}"
            found.setdefault(id(tensor), (tensor, label, []))[2].append(path)
        kept = [Argument(label, tensor, paths=tuple(paths)) for tensor, label, paths in found.values()]
        state = [each for parameter in kept for each in self._state(parameter)]
        leaves = input_names(self.model, self.args, self.kwargs)
        given = [Argument(name, leaf, kept=False) for name, leaf in leaves if isinstance(leaf, torch.Tensor)]
        return tuple(unlike((*kept, *state, *given)))

    def _state(self, parameter: Argument) -> Iterator[Argument]:
        import torch

        for key, value in self.optimizer.state.get(parameter.value, {}).items():
            if not isinstance(value, torch.Tensor):
                continue
            known = getattr(value, "constant", None)
            # A copy: the tracing of the next step counts on.
            constant = None if known is None else known.clone()
            yield Argument(
                f"{parameter.name}.{key}", value, state=(parameter.paths[0], key), constant=constant
            )

    def trace(self, found: Sequence[Argument], gradients: Gradients) -> GraphModule:
        """The second step as a graph that takes `found`."""
        import torch
        from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot, make_fx, track_tensor

        owners = {id(each.value): each.module for each in found}
        # The trace counts on in these.
        counts = [None if each.constant is None else each.constant.clone() for each in found]

        def step(*placeholders: torch.Tensor) -> list[torch.Tensor]:
            tracer = get_proxy_mode().tracer  # type: ignore[union-attr]
            for each, placeholder, constant in zip(found, placeholders, counts, strict=True):
                proxy = get_proxy_slot(placeholder, tracer).proxy
                track_tensor(each.value, proxy, constant=constant, tracer=tracer)

            def listen(output: Any) -> None:
                self._note_outputs(output, lambda leaf: get_proxy_slot(leaf, tracer).proxy.node)

            known = {get_proxy_slot(leaf, tracer).proxy.node: real for leaf, real in self.given}
            with ExitStack() as stack:
                stack.enter_context(answering(KnownValues(tracer, known), self.source))
                stack.enter_context(Origins(tracer.graph, self.model, self.optimizer, owners))
                stack.enter_context(torch.autograd.detect_anomaly(check_nan=False))
                before = [storage_of(each.value) for each in found]
                loss = self.take(listen)
                refuse_what_is_rebound(self.model, found, before, self.source)
                return self._outcome(loss, found, gradients)

        values = [each.value for each in found]
        return make_fx(step, tracing_mode="fake", _allow_non_fake_inputs=True)(*values)

    def _note_outputs(self, output: Any, node_of: Any) -> None:
        self.passes += 1
        for name, tensor in named_outputs(output, self.passes).items():
            self.returned.append((name, node_of(tensor)))

    def _outcome(
        self, loss: torch.Tensor, found: Sequence[Argument], gradients: Gradients
    ) -> list[torch.Tensor]:
        if gradients is Gradients.FREED:
            return [loss]
        held = [(each.paths[0], each.value.grad) for each in found if each.paths]
        self.held = tuple(path for path, gradient in held if gradient is not None)
        return [loss, *(gradient for _, gradient in held if gradient is not None)]

    def outputs(self) -> tuple[tuple[str, str], ...]:
        """The path and the name in graphs of each tensor that the model returned."""
        return tuple((path, tensor_of(node)) for path, node in self.returned if node.op == "call_function")
