"""A live `nn.Module` with example inputs → its forward and backward graphs, by AOTAutograd on fakes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from operator import attrgetter
from types import FrameType
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError
from memplan_engine.graph import Graph
from memplan_engine.torch_capture.capture_module import exporting, fake_inputs, fake_model, tracing
from memplan_engine.torch_capture.torch_exporting import hearing_of_compiled
from memplan_engine.torch_capture.torch_fake import FakeTwins, fake_mode, patched, require_torch, tensors_of
from memplan_engine.torch_capture.torch_source import is_users, portable_path
from memplan_engine.torch_capture.training.torch_joint import (
    Halves,
    Placeholder,
    backward_graph,
    forward_graph,
    joint_graph,
    outputs_of,
)
from memplan_engine.torch_capture.training.torch_recipe import Loss, check_trainable, find_loss
from memplan_engine.torch_capture.training.torch_step import tell_apart

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule

PARTITIONS = {"default": "default_partition", "min_cut": "min_cut_rematerialization_partition"}
"""How the joint graph is cut in two: at the end of the forward pass as written, or so that little is saved
and cheap ops run again (`torch.compile`'s choice)."""
TRACEABLE = "a model whose gradients AOTAutograd can trace"
STEP = "a whole step (capture_step, --training step), which has it as eager mode runs it"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Trainee:
    """A model that was exported with gradients on.

    `module` is the exported model with its parameters, fake ones, as attributes; `leaves` are its flat
    example inputs and `leaf_names` their names in graphs; `state_names` gives the names of parameters,
    buffers and constants by attribute path. `compiled`: `torch.compile` compiles some of it.
    """

    source: str
    module: GraphModule
    leaves: tuple[Any, ...]
    leaf_names: tuple[str, ...]
    state_names: Mapping[str, str]
    loss: Loss | None
    compiled: bool = False


@dataclass(frozen=True, slots=True)
class TrainingCapture:
    """The graphs of one forward and backward pass.

    `forward` and `backward` stand alone; `joint` is both as one graph. The torch graphs that they come from
    are `forward_module` and `backward_module`; the first `outputs` outputs of the former are the model's own,
    the rest are saved for the latter. Output `loss` is the loss.
    """

    name: str
    partition: str
    forward: Graph
    backward: Graph
    joint: Graph
    forward_module: GraphModule
    backward_module: GraphModule
    outputs: int
    loss: int


def capture_training(
    model: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    partition: str = "default",
    loss: Loss | None = None,
    name: str | None = None,
) -> TrainingCapture:
    """The graphs of `model(*args, **kwargs)` and of its gradients, by `torch.export` and AOTAutograd.

    The model is taken in the mode (train or eval) it is in and is not changed; it and its inputs may be real,
    meta or fake, and no weight is allocated. Nothing is decomposed. `loss` makes a scalar of the output;
    without it that is `output.loss`, or the sum of a lone tensor. Parameters and buffers are CONSTANT;
    gradients, the loss, the model's other outputs (detached) and the new values of buffers are outputs.
    `partition` is "default" or "min_cut".

    Raises
    ------
    InputError: no parameter requires a gradient, the output has no loss, an unknown partition, a model that
        torch cannot trace.
    MissingDependencyError: torch is not installed.
    """
    require_torch("capturing a training step")
    trainee = _trainee(model, args, kwargs or {}, loss, name or type(model).__name__)
    if partition not in PARTITIONS:
        raise InputError(trainee.source, "partition", repr(partition), f"one of {', '.join(PARTITIONS)}")
    with tracing(trainee.source, "AOTAutograd", TRACEABLE):
        halves = _halves(trainee, partition)
    forward, backward, joint = (
        replace(graph(halves), compiled=trainee.compiled)
        for graph in (forward_graph, backward_graph, joint_graph)
    )
    return TrainingCapture(
        trainee.source,
        partition,
        forward,
        backward,
        joint,
        halves.forward,
        halves.backward,
        halves.outputs,
        halves.loss or 0,
    )


def _trainee(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], loss: Loss | None, source: str
) -> Trainee:
    """Export `model` with gradients on, in the mode (train or eval) it is in, without allocating a weight."""
    import torch
    from torch.utils import _pytree as pytree

    check_trainable(model, source)
    twins = FakeTwins(fake_mode(), meta_device="cpu")
    heard = hearing_of_compiled(model)
    with heard as calls, refusing_what_export_loses(model, source), exporting(source):
        exported = torch.export.export(
            fake_model(model, twins),
            tuple(fake_inputs(list(args), twins)),
            fake_inputs(dict(kwargs), twins),
            strict=False,
        )
        specs = exported.graph_signature.input_specs
        return Trainee(
            source,
            exported.module(check_guards=False),
            tuple(pytree.tree_leaves(exported.example_inputs)),
            tuple(spec.arg.name for spec in specs if spec.kind.name == "USER_INPUT"),
            {str(spec.target): spec.arg.name for spec in specs if spec.kind.name != "USER_INPUT"},
            loss,
            bool(calls),
        )


def _halves(trainee: Trainee, partition: str) -> Halves:
    from torch._functorch import partitioners
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors

    tensors = tuple(tensors_of(trainee.leaves))
    with ExitStack() as stack:
        joint = aot_export_joint_with_descriptors(stack, _step_module(trainee), tensors).graph_module
    placeholders = {
        node.name: _placeholder(node, trainee, tensors) for node in joint.graph.find_nodes(op="placeholder")
    }
    primals = sum(1 for node in placeholders if not node.startswith("tangents"))
    outputs = len(outputs_of(joint)) - primals
    described = joint.graph.output_node().meta["desc"]
    loss = next(index for index, desc in enumerate(described) if _is_loss(desc))
    tell_apart(joint, {placeholder.name for placeholder in placeholders.values()})
    _name_modules(joint)
    cut = getattr(partitioners, PARTITIONS[partition])
    forward, backward = cut(joint, [], num_fwd_outputs=outputs)
    return Halves(trainee.source, forward, backward, outputs, loss, placeholders)


def _step_module(trainee: Trainee) -> torch.nn.Module:
    """A module whose output is the loss, followed by the model's other outputs, detached."""
    import torch
    from torch.fx import Interpreter, traceback

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.program = trainee.module

        def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            remaining = iter(tensors)
            leaves = [next(remaining) if isinstance(leaf, torch.Tensor) else leaf for leaf in trainee.leaves]
            # So that the ops of gradients, too, know the module and the line that they come from.
            with torch.enable_grad(), traceback.preserve_node_meta():
                output = Interpreter(trainee.module).run(*leaves)
                loss = find_loss(output, trainee.loss, trainee.source)
            others = [leaf.detach() for leaf in tensors_of(output) if leaf is not loss]
            # AOTAutograd would return, and differentiate, what the loss is a view of.
            loss = loss.clone() if loss._is_view() else loss
            return (loss, *others)

    return Step()


def _placeholder(node: Any, trainee: Trainee, tensors: tuple[torch.Tensor, ...]) -> Placeholder:
    """What the placeholder `node` of the joint graph stands for, by AOTAutograd's descriptor of it."""
    import torch

    desc = node.meta.get("desc")
    target = getattr(desc, "target", None)
    if isinstance(target, str):
        path = target.removeprefix("program.")
        value = attrgetter(path)(trainee.module)
        return Placeholder(trainee.state_names.get(path, node.name), value, constant=True)
    index = getattr(desc, "idx", None)
    if isinstance(index, int) and index < len(tensors):
        names = [
            name
            for name, leaf in zip(trainee.leaf_names, trainee.leaves, strict=True)
            if isinstance(leaf, torch.Tensor)
        ]
        return Placeholder(names[index], tensors[index], constant=False)
    return Placeholder(node.name, node.meta.get("val"), constant=False)


def _is_loss(desc: Any) -> bool:
    """Whether AOTAutograd's descriptor `desc` is that of the step's first output."""
    return type(desc).__name__ == "PlainAOTOutput" and desc.idx == 0


def _name_modules(joint: GraphModule) -> None:
    """Give each op of a gradient the module of the op that it is the gradient of."""
    for node in joint.graph.nodes:
        if "nn_module_stack" not in node.meta and node.meta.get("fwd_nn_module_stack"):
            node.meta["nn_module_stack"] = node.meta["fwd_nn_module_stack"]


@contextmanager
def refusing_what_export_loses(model: torch.nn.Module, source: str) -> Iterator[None]:
    """To be around the export of `model`, which runs it once.

    Gradients that go through a custom autograd Function, a hook or an inner `autograd.grad` would be others
    than eager mode's: InputError names the first one. A checkpoint only changes what is saved: it is logged
    as a warning that figures leave it out.
    """
    wrong = [*_hooks(model)]
    left_out: list[str] = []
    with _listening(wrong, left_out):
        yield
    if wrong:
        raise InputError(source, "gradients", f"{wrong[0]}, which torch.export leaves out", STEP)
    if left_out:
        log.warning("%s: these figures leave out %s; %s", source, left_out[0], "--training step has it")


def _hooks(model: torch.nn.Module) -> Iterator[str]:
    for path, parameter in model.named_parameters():
        if getattr(parameter, "_backward_hooks", None):
            yield f"a hook of the parameter {path}"
        if getattr(parameter, "_post_accumulate_grad_hooks", None):
            yield f"a hook of the gradient of {path}"
    for path, module in model.named_modules():
        if module._backward_hooks or module._backward_pre_hooks:
            yield f"a backward hook of the module {path or type(module).__name__}"


def _listening(wrong: list[str], left_out: list[str]) -> AbstractContextManager[None]:
    """Notes calls of what autograd alone hears of, and where the model calls it."""
    import torch
    from torch.utils import checkpoint

    def noting(function: Callable[..., Any], into: list[str], name: Callable[..., str]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            line = _users_line(sys._getframe(1))
            if line is not None:
                into.append(f"{name(*args)} at {line}")
            return function(*args, **kwargs)

        return wrapper

    def function_name(kind: type, *args: Any) -> str:
        reentrant = issubclass(kind, checkpoint.CheckpointFunction)
        return "a re-entrant checkpoint" if reentrant else f"the custom autograd.Function {kind.__name__}"

    def patch_of(owner: Any, name: str, into: list[str], label: str) -> tuple[Any, str, Any]:
        return owner, name, noting(getattr(owner, name), into, lambda *args: label)

    apply = vars(torch.autograd.Function)["apply"].__func__
    return patched(
        (torch.autograd.Function, "apply", classmethod(noting(apply, wrong, function_name))),
        patch_of(torch.Tensor, "register_hook", wrong, "a hook of a tensor"),
        patch_of(torch.autograd, "grad", wrong, "an inner autograd.grad"),
        patch_of(checkpoint, "_checkpoint_without_reentrant_generator", left_out, "a checkpoint"),
    )


def _users_line(frame: FrameType | None) -> str | None:
    """The user's line that a call comes from; None where torch calls for itself."""
    while frame is not None:
        file = frame.f_code.co_filename
        if is_users(file):
            return f"{portable_path(file)}:{frame.f_lineno}"
        if portable_path(file).startswith(("torch/export/", "torch/_export/")):
            return None
        frame = frame.f_back
    return None
