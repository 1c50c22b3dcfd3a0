"""A whole training step (forward, gradients, optimizer) as one flat Graph, by `make_fx` on fake tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError
from memplan_engine.graph import Graph, Phase
from memplan_engine.importers.torch_fake import FakeTwins, fake_mode, quiet
from memplan_engine.importers.torch_graph import assemble
from memplan_engine.importers.torch_loss import Loss
from memplan_engine.importers.torch_optimizers import Optimizer, find_optimizer
from memplan_engine.importers.torch_run import Run, Slot, labels
from memplan_engine.importers.torch_symbols import Sizes
from memplan_engine.importers.torch_trainee import Trainee, make_trainee, tell_apart, tracing

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule, Node

TAG = "memplan_phase"
TRACEABLE = "a training step that make_fx can trace"


class Gradients(StrEnum):
    """How long the gradients of a step live.

    HELD: each becomes the parameter's `.grad` and lives to the end of the step, as in an eager loop that
    calls `zero_grad` between steps. FREED: each dies when the optimizer has read it, as a planned runtime can
    do.
    """

    HELD = "held"
    FREED = "freed"


@dataclass(frozen=True, slots=True)
class StepModule:
    """A traced step: for each placeholder of `module` the name of its tensor in graphs, the fake tensor to
    run it with, whether it is kept between steps, and under which paths it is an attribute of the model."""

    source: str
    module: GraphModule
    names: tuple[str, ...]
    values: tuple[torch.Tensor, ...]
    kept: tuple[bool, ...]
    paths: tuple[tuple[str, ...], ...]


def capture_step(
    model: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    optimizer: str | Optimizer = "sgd",
    gradients: str = Gradients.HELD,
    loss: Loss | None = None,
    functional: bool = False,
    name: str | None = None,
) -> Graph:
    """One whole training step of `model` as a flat Graph, in which each op has its phase.

    `optimizer` is "sgd", "adam", "adamw", or an `Sgd` or `Adam` with settings of its own; it updates one
    parameter after the other. Parameters, buffers and the optimizer's state are CONSTANT and written in
    place; with `functional` nothing is written until the new values are copied back at the end. The outputs
    are the loss and, with `gradients` "held", the gradients (in the order of the parameters that have one),
    which then live to the end of the step as `.grad` does; with "freed" they live until their last use, as
    other outputs of the model do. The model is taken as `capture_training` takes it, and `loss` means the
    same.

    Raises
    ------
    InputError: no parameter requires a gradient, the output has no loss, an unknown optimizer or kind of
        gradients, a model that torch cannot trace.
    MissingDependencyError: torch is not installed.
    """
    trainee = make_trainee(model, args, kwargs, loss, name)
    found = find_optimizer(optimizer, trainee.source)
    return step_graph(trace_step(trainee, found, gradients=gradients, functional=functional))


def trace_step(
    trainee: Trainee, optimizer: Optimizer, *, gradients: str = Gradients.HELD, functional: bool = False
) -> StepModule:
    """The step as an fx graph; each call node's `meta["custom"]` says its phase. Raises as `capture_step`."""
    if gradients not in list(Gradients):
        raise InputError(trainee.source, "gradients", repr(gradients), f"one of {', '.join(Gradients)}")
    given = _arguments(trainee, optimizer)
    with tracing(trainee.source, "make_fx", TRACEABLE):
        from torch.fx.experimental.proxy_tensor import make_fx

        step = _Step(trainee, optimizer, given, Gradients(gradients))
        module = make_fx(step, tracing_mode="fake", _allow_non_fake_inputs=True)(*given.values)
        _name_gradients(module, step.held)
        if functional:
            module = _functional(module, given)
    tell_apart(module, set(given.names))
    return StepModule(trainee.source, module, given.names, given.values, given.kept, given.paths)


def step_graph(step: StepModule) -> Graph:
    """The Graph of a traced step."""
    import torch

    run = Run(step.source, fake_mode())
    twins = FakeTwins(run.mode)
    inputs: list[str] = []
    slots: list[Slot] = []
    for name, value, kept in zip(step.names, step.values, step.kept, strict=True):
        slots.append(run.keep(name, twins.twin(value)))
        (run.constants if kept else inputs).append(name)
    with torch.no_grad(), quiet():
        outputs = labels(run.graph(step.module, slots).names)
    phases = {node.name: phase_of(node) for node in step.module.graph.nodes}
    run.ops = [replace(op, phase=phases.get(op.name)) for op in run.ops]
    return assemble(run, Sizes(run.source, {}), inputs, list(dict.fromkeys(outputs)))


def phase_of(node: Node) -> Phase:
    """The phase in which `node` was traced; the copies that end a functional step belong to the optimizer."""
    return Phase((node.meta.get("custom") or {}).get(TAG, Phase.OPTIMIZER))


@dataclass(frozen=True, slots=True)
class _Arguments:
    """The flat tensors that a step takes: parameters, their optimizer state, buffers, inputs."""

    names: tuple[str, ...]
    values: tuple[torch.Tensor, ...]
    kept: tuple[bool, ...]
    paths: tuple[tuple[str, ...], ...]
    """Under which paths each is an attribute of the model (tied weights have several)."""
    owners: tuple[str, ...]
    """The path of the module that each belongs to, "" for inputs; state belongs where its parameter does."""
    states: Mapping[int, range]
    """Where the state of a parameter that is trained stands, by the parameter's place."""


def _arguments(trainee: Trainee, optimizer: Optimizer) -> _Arguments:
    import torch

    twins = FakeTwins(trainee.mode)
    found: dict[int, tuple[torch.Tensor, list[str]]] = {}
    module = trainee.module
    listed = (module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False))
    for path, tensor in chain.from_iterable(listed):
        found.setdefault(id(tensor), (tensor, []))[1].append(path)
    names, values, paths = [], [], []
    for tensor, aliases in found.values():
        names.append(trainee.state_names.get(aliases[0], aliases[0]))
        values.append(twins.twin(tensor))
        paths.append(tuple(aliases))
    states: dict[int, range] = {}
    for place in [place for place, value in enumerate(values) if value.requires_grad]:
        states[place] = range(len(values), len(values) + len(optimizer.state))
        for kind in optimizer.state:
            names.append(f"{names[place]}.{kind}")
            with trainee.mode, torch.no_grad():
                values.append(torch.zeros_like(values[place]).detach())
            paths.append(())
    kept = [True] * len(values)
    for name, leaf in zip(trainee.leaf_names, trainee.leaves, strict=True):
        if isinstance(leaf, torch.Tensor):
            names.append(name)
            values.append(leaf)
            paths.append(())
            kept.append(False)
    owners = [aliases[0].rpartition(".")[0] if aliases else "" for aliases in paths]
    for place, at in states.items():
        owners[at.start : at.stop] = [owners[place]] * len(at)
    return _Arguments(tuple(names), tuple(values), tuple(kept), tuple(paths), tuple(owners), states)


@dataclass(slots=True)
class _Step:
    """The function that is traced: flat tensors in, the loss and the gradients that are held out. Each node
    is tagged with its phase as soon as the phase that made it is over."""

    trainee: Trainee
    optimizer: Optimizer
    arguments: _Arguments
    gradients: Gradients
    tagged: Node | None = None
    held: tuple[str, ...] = ()
    """The module that owns each gradient that is returned."""

    def __call__(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        import torch
        from torch.fx import traceback

        given = self.arguments
        state = {path: tensor for tensor, paths in zip(tensors, given.paths, strict=True) for path in paths}
        inputs = iter(tensor for tensor, kept in zip(tensors, given.kept, strict=True) if not kept)
        leaves = [next(inputs) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.trainee.leaves]
        trained = [tensors[place] for place in given.states]
        with traceback.preserve_node_meta(), torch.autograd.detect_anomaly(check_nan=False):
            loss, _ = self.trainee.run(leaves, state)
            self.tag(Phase.FORWARD)
            gradients = _gradients(loss, trained, self.gradients)
            self.tag(Phase.BACKWARD)
        with torch.no_grad():
            for (place, at), gradient in zip(given.states.items(), gradients, strict=True):
                if gradient is not None:
                    self.optimizer.update(tensors[place], gradient, [tensors[index] for index in at])
                    self.tag(Phase.OPTIMIZER, given.owners[place])
        if self.gradients is Gradients.FREED:
            return [loss]
        known = [
            (place, made) for place, made in zip(given.states, gradients, strict=True) if made is not None
        ]
        self.held = tuple(given.owners[place] for place, _ in known)
        return [loss, *(made for _, made in known)]

    def tag(self, phase: Phase, module: str | None = None) -> None:
        """Note `phase`, and the path `module` where there is one, on the nodes made since the last time."""
        from torch.fx.experimental.proxy_tensor import get_proxy_mode

        mode = get_proxy_mode()
        assert mode is not None
        last = node = next(reversed(mode.tracer.graph.nodes))
        while node is not self.tagged and node.op != "root":
            node.meta["custom"] = {**(node.meta.get("custom") or {}), TAG: phase.value}
            if module is not None:
                node.meta["nn_module_stack"] = {module: (module, "")}
                node.meta.pop("stack_trace", None)
            node = node.prev
        self.tagged = last


def _gradients(
    loss: torch.Tensor, trained: Sequence[torch.Tensor], kind: Gradients
) -> Sequence[torch.Tensor | None]:
    """Of `loss` for each parameter; the nodes traced meanwhile know which node they are a gradient of. Those
    held are what autograd makes `.grad` of: a detached view, or a copy where it cannot take the gradient as
    it is (shared with another value, or laid out in another way than the parameter)."""
    import torch
    from torch._functorch._aot_autograd.logging_utils import setup_stacktrace_preservation_hooks

    if loss.grad_fn is not None:
        setup_stacktrace_preservation_hooks([loss.grad_fn])
    if kind is Gradients.FREED:
        return torch.autograd.grad(loss, trained, allow_unused=True)
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = [parameter.grad for parameter in trained]
    for parameter in trained:
        parameter.grad = None
    return gradients


def _name_gradients(module: GraphModule, held: Sequence[str]) -> None:
    """Give each op of a gradient the module of the op that it is the gradient of: autograd numbers both
    alike. What makes `.grad` belongs where the parameter does: `held`, for each output after the loss."""
    outputs: Any = module.graph.output_node().args[0]
    for node, owner in zip(outputs[1:], held, strict=True):
        node.meta["nn_module_stack"] = {owner: (owner, "")}
        node.meta.pop("stack_trace", None)
    stacks: dict[int, Any] = {}
    for node in module.graph.nodes:
        number, phase = node.meta.get("seq_nr"), phase_of(node)
        if number is None or phase is Phase.OPTIMIZER:
            continue
        if phase is Phase.FORWARD:
            stacks.setdefault(number, node.meta.get("nn_module_stack"))
        elif stacks.get(number) and "nn_module_stack" not in node.meta:
            node.meta["nn_module_stack"] = stacks[number]


def _functional(module: GraphModule, given: _Arguments) -> GraphModule:
    """`module` without in-place ops, but for the copies at the end, which belong to what they write."""
    import torch
    from torch.func import functionalize
    from torch.fx import Interpreter, traceback
    from torch.fx.experimental.proxy_tensor import make_fx

    def run(*tensors: torch.Tensor) -> Any:
        with traceback.preserve_node_meta(), torch.no_grad():
            return Interpreter(module).run(*tensors)

    plain = [value.detach() for value in given.values]
    made = make_fx(functionalize(run), tracing_mode="fake", _allow_non_fake_inputs=True)(*plain)
    made.graph.eliminate_dead_code()
    made.recompile()
    owners = dict(zip(made.graph.find_nodes(op="placeholder"), given.owners, strict=True))
    for node in made.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default):
        owner = owners.get(node.args[0], "")
        node.meta.setdefault("nn_module_stack", {owner: (owner, "")})
    return made
