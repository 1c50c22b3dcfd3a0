"""A copy of a model on fake tensors that takes training steps with its optimizers: the first to make what
these keep, the second to be traced."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError
from memplan_engine.torch_capture.capture_module import fake_inputs, fake_model
from memplan_engine.torch_capture.torch_fake import FakeTwins, part_of_path, storage_of
from memplan_engine.torch_capture.torch_operators import written_nodes
from memplan_engine.torch_capture.torch_run import tensor_of
from memplan_engine.torch_capture.training.torch_answers import answering
from memplan_engine.torch_capture.training.torch_origins import Origins
from memplan_engine.torch_capture.training.torch_recipe import (
    Recipe,
    carry_hooks,
    drop_gradients,
    kept_by_optimizers,
    make_optimizer,
    named_outputs,
    optimizers_in,
    take_step,
)
from memplan_engine.torch_capture.training.torch_values import KnownValues

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule, Node


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
    attribute of the model (tied weights have several). `state` is, of what an optimizer keeps, the first path
    of the parameter, "" for what it keeps for many, and the key. `kept` says that it lives on between steps;
    `value` is a fake tensor, and `constant` its content where that is known (the number of a step)."""

    name: str
    value: torch.Tensor
    kept: bool = True
    paths: tuple[str, ...] = ()
    state: tuple[str, str] | None = None
    constant: torch.Tensor | None = None

    @property
    def path(self) -> str:
        """What it is called in the model: `layer.weight`, `layer.weight.exp_avg`; "" for inputs."""
        return self.paths[0] if self.paths else ".".join(part for part in self.state or () if part)

    @property
    def module(self) -> str | None:
        """The path of the module that it belongs to, None where it belongs to none."""
        owner = self.state[0] if self.state else self.path
        return owner.rpartition(".")[0] if owner else None


@dataclass(frozen=True, slots=True)
class Returned:
    """A tensor that the model returns inside a step: its `path` there, its name in the graph, and the op
    after which it has the content that was returned, "" for what is there before the step."""

    path: str
    tensor: str
    moment: str


@dataclass(slots=True)
class FakeCall:
    """A copy of the user's model on fake tensors with the inputs of a call, and what is known of values."""

    original: torch.nn.Module
    args: list[Any]
    kwargs: dict[str, Any]
    source: str
    twins: FakeTwins
    real_inputs: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    """Inputs with the real tensors that they stand for, where there are any."""
    values: KnownValues = field(default_factory=KnownValues)
    model: torch.nn.Module = field(init=False)

    def __post_init__(self) -> None:
        import torch
        from torch.utils import _pytree as pytree

        self.model = fake_model(self.original, self.twins)
        for parameter in self.original.parameters():
            carry_hooks(parameter, self.twins.twin(parameter))
        for buffer in self.original.buffers():
            self._twin(buffer)
        real = pytree.tree_leaves((self.args, self.kwargs))
        self.args, self.kwargs = fake_inputs((self.args, self.kwargs), self.twins)
        fake = pytree.tree_leaves((self.args, self.kwargs))
        for twin, leaf in zip(fake, real, strict=True):
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                # A re-entrant checkpoint has gradients only where an input of it wants one.
                twin.requires_grad_()
        self.real_inputs = [(twin, leaf) for twin, leaf in zip(fake, real, strict=True) if _has_values(leaf)]
        self.know_inputs()

    def know_inputs(self) -> None:
        """Have the inputs begin with the values of the real ones, without gradients."""
        for leaf, real in self.real_inputs:
            leaf.grad = None
            self.values.know(leaf, real)

    def _twin(self, tensor: torch.Tensor) -> torch.Tensor:
        """What stands for `tensor`, which lives on between steps; its value is known if it has one."""
        if not _has_values(tensor):
            return tensor if hasattr(tensor, "fake_mode") else self.twins.twin(tensor)
        twin: torch.Tensor = self.twins.twin(tensor)
        self.values.know(twin, tensor)
        return twin


@dataclass(slots=True)
class Trainer(FakeCall):
    """As `FakeCall`, with the model's optimizer, and steps of both."""

    recipe: Recipe = field(kw_only=True)
    named: tuple[str, ...] = ()
    """What a step returns, by names for people."""
    held: tuple[str, ...] = ()
    returned: list[tuple[str, Node, Node | None]] = field(default_factory=list)
    passes: int = 0
    optimizer: Any = field(init=False)
    """One, or several in whatever form."""

    def __post_init__(self) -> None:
        import torch
        from torch.utils import _pytree as pytree

        FakeCall.__post_init__(self)
        memo = self._twins_of_optimizers()
        with self.twins.mode, answering(self.values, self.source):
            self.optimizer = make_optimizer(self.recipe, self.model, self.source, memo)
        for optimizer in optimizers_in(self.optimizer):
            for group in optimizer.param_groups:
                options = {key: value for key, value in group.items() if key != "params"}
                group.update(pytree.tree_map_only(torch.Tensor, self._twin, options))

    def _twins_of_optimizers(self) -> dict[int, Any]:
        """By id, what stands for the tensors of optimizers that are made already: their model's parameters,
        and what they have kept of earlier steps."""
        optimizer = self.recipe.optimizer
        memo: dict[int, Any] = {id(tensor): self.twins.twin(tensor) for tensor in self.original.parameters()}
        if not isinstance(optimizer, str) and not callable(optimizer):
            kept = kept_by_optimizers(optimizer)
            memo |= {id(tensor): self._twin(tensor) for _, _, tensor in kept if id(tensor) not in memo}
        return memo

    def take_first(self) -> None:
        """The step that makes what the optimizers keep."""
        import torch

        # Gradients that are refused then know their line.
        lines = torch.autograd.detect_anomaly(check_nan=False)
        with self.twins.mode, answering(self.values, self.source), lines:
            self.take()

    def take(self, listen: Any = lambda output: None) -> dict[str, torch.Tensor]:
        """One step, with gradients that are not there before."""
        drop_gradients(self.model)
        self.know_inputs()
        return take_step(self.recipe, self.model, self.optimizer, self.args, self.kwargs, self.source, listen)

    def arguments(self) -> tuple[Argument, ...]:
        """Everything that a step takes: parameters and buffers, what the first one left the optimizers,
        inputs."""
        import torch

        by_id: dict[int, tuple[torch.Tensor, str, list[str]]] = {}
        parameters = (("p", *item) for item in self.model.named_parameters(remove_duplicate=False))
        buffers = (("b", *item) for item in self.model.named_buffers(remove_duplicate=False))
        for kind, path, tensor in chain(parameters, buffers):
            label = f"{kind}_{path.replace('.', '_')}"
            by_id.setdefault(id(tensor), (tensor, label, []))[2].append(path)
        kept = [Argument(label, tensor, paths=tuple(paths)) for tensor, label, paths in by_id.values()]
        leaves = input_names(self.model, self.args, self.kwargs)
        inputs = [Argument(name, leaf, kept=False) for name, leaf in leaves if isinstance(leaf, torch.Tensor)]
        return tuple(unlike((*kept, *self._state(kept), *inputs)))

    def _state(self, kept: Sequence[Argument]) -> Iterator[Argument]:
        """What the optimizers keep, in the order of the parameters that it is kept for."""
        owners = {id(argument.value): (index, argument) for index, argument in enumerate(kept)}
        rows = [
            (*owners.get(id(owner), (len(kept), None)), key, value)
            for owner, key, value in kept_by_optimizers(self.optimizer)
            if id(value) not in owners
        ]
        for _, owner, key, value in sorted(rows, key=lambda row: row[0]):
            real = self.values.of(value)
            # A copy: the tracing of the next step counts on.
            constant = None if real is None else real.clone()
            state = (owner.path if owner else "", key)
            label = f"{owner.name if owner else 'optimizer'}.{key}"
            yield Argument(label, value, state=state, constant=constant)

    def trace(self, arguments: Sequence[Argument], gradients: Gradients) -> GraphModule:
        """The second step as a graph that takes `arguments`."""
        import torch
        from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot, make_fx, track_tensor

        owners = {id(argument.value): argument.module for argument in arguments}

        def step(*placeholders: torch.Tensor) -> list[torch.Tensor]:
            tracer = get_proxy_mode().tracer  # type: ignore[union-attr]
            for argument, placeholder in zip(arguments, placeholders, strict=True):
                proxy = get_proxy_slot(placeholder, tracer).proxy
                track_tensor(argument.value, proxy, constant=None, tracer=tracer)

            def listen(output: Any) -> None:
                self._note_outputs(output, lambda leaf: get_proxy_slot(leaf, tracer).proxy.node)

            with ExitStack() as stack:
                stack.enter_context(answering(self.values, self.source))
                stack.enter_context(Origins(tracer.graph, self.model, optimizers_in(self.optimizer), owners))
                stack.enter_context(torch.autograd.detect_anomaly(check_nan=False))
                before = [storage_of(argument.value) for argument in arguments]
                results = self.take(listen)
                self._refuse_what_is_rebound(arguments, before)
                return self._outcome(results, arguments, gradients)

        values = [argument.value for argument in arguments]
        return make_fx(step, tracing_mode="fake", _allow_non_fake_inputs=True)(*values)

    def _refuse_what_is_rebound(self, arguments: Sequence[Argument], before: Sequence[int]) -> None:
        """Raise InputError for what lives on and is replaced by another tensor instead of written: `before`
        are the storages that `arguments` had."""
        expected = "one that is written in place (copy_), so that it lives on between steps"
        state = {(id(owner), key): tensor for owner, key, tensor in kept_by_optimizers(self.optimizer)}
        owners = {argument.path: id(argument.value) for argument in arguments if argument.paths} | {
            "": id(None)
        }
        for argument, storage in zip(arguments, before, strict=True):
            named = [(path, attribute_at(self.model, path)) for path in argument.paths]
            if argument.state:
                named.append((argument.path, state.pop((owners[argument.state[0]], argument.state[1]), None)))
            for path, now in named:
                if now is not argument.value or storage_of(now) != storage:
                    found = "one that a step replaces by another"
                    raise InputError(self.source, f"tensor {path!r}", found, expected)
        ids = {id(argument.value) for argument in arguments}
        for (_, key), tensor in state.items():
            if id(tensor) not in ids:
                found = "one that the optimizer makes in the second step"
                raise InputError(self.source, f"tensor {key!r}", found, expected)

    def _note_outputs(self, output: Any, node_of: Any) -> None:
        self.passes += 1
        for name, tensor in named_outputs(output, self.passes).items():
            node = node_of(tensor)
            self.returned.append((name, node, _last_write(node, storage_of(tensor))))

    def _outcome(
        self, results: Mapping[str, torch.Tensor], arguments: Sequence[Argument], gradients: Gradients
    ) -> list[torch.Tensor]:
        self.named = tuple(results)
        if gradients is Gradients.FREED:
            return list(results.values())
        held = [(argument.paths[0], argument.value.grad) for argument in arguments if argument.paths]
        self.held = tuple(path for path, gradient in held if gradient is not None)
        return [*results.values(), *(gradient for _, gradient in held if gradient is not None)]

    def outputs(self) -> tuple[Returned, ...]:
        """Where the graph has each tensor that the model returned."""
        return tuple(
            Returned(path, tensor_of(node), moment.name if moment else "")
            for path, node, moment in self.returned
        )


def _has_values(leaf: Any) -> bool:
    import torch

    return isinstance(leaf, torch.Tensor) and type(leaf) is torch.Tensor and not leaf.is_meta


def attribute_at(model: torch.nn.Module, path: str) -> Any:
    """The attribute of `model` under a path such as "layer.weight", None where there is none."""
    attribute: Any = model
    for part in path.split("."):
        attribute = getattr(attribute, part, None)
    return attribute


def _last_write(node: Node, storage: int) -> Node | None:
    """The last node so far that made `storage`, which `node` shows, or wrote it; None where it was there
    before."""
    for writer in reversed(node.graph.nodes):
        if writer is node or any(
            storage_of(written.meta["val"]) == storage for written in written_nodes(writer)
        ):
            while writer.target is operator.getitem:
                writer = writer.args[0]
            return None if writer.op == "placeholder" else writer
    return None


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
    named += [f"arg_{index}" for index in range(len(named), len(args))]
    # In the order of the call, as its leaves are, not in that of the signature.
    for name, value in (*zip(named, args, strict=False), *kwargs.items()):
        for path, leaf in pytree.tree_flatten_with_path(value)[0]:
            yield "_".join([name, *map(part_of_path, path)]).replace(".", "_"), leaf


def unlike(entries: Sequence[Any]) -> Iterator[Any]:
    """`entries`, dataclasses with a name each, with names that are all different."""
    names: set[str] = set()
    for entry in entries:
        name = entry.name
        while name in names:
            name += "_"
        names.add(name)
        yield replace(entry, name=name)
