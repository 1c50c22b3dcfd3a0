"""A model to train: exported with gradients on, and then run node by node inside a traced step, so that every
op made, the gradients' too, knows the module and the line it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError, MemplanError
from memplan_engine.torch_capture.capture_module import fake_inputs, fake_model
from memplan_engine.torch_capture.torch_fake import EXPORTABLE, FakeTwins, fake_mode, quiet
from memplan_engine.torch_capture.torch_run import brief
from memplan_engine.torch_capture.torch_source import located
from memplan_engine.torch_capture.torch_version import require_torch
from memplan_engine.torch_capture.training.torch_loss import Loss, find_loss
from memplan_engine.torch_capture.training.torch_lost import refusing_what_export_loses

if TYPE_CHECKING:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.export import ExportedProgram
    from torch.fx import GraphModule


@dataclass(frozen=True, slots=True)
class Trainee:
    """A model in the form in which training steps are traced.

    `module` is the exported model with its parameters, fake ones of `mode`, as attributes; `leaves` are its
    flat example inputs and `leaf_names` their names in graphs; `state_names` gives the names of parameters,
    buffers and constants by attribute path.
    """

    source: str
    module: GraphModule
    mode: FakeTensorMode
    leaves: tuple[Any, ...]
    leaf_names: tuple[str, ...]
    state_names: Mapping[str, str]
    loss: Loss | None

    def run(
        self, leaves: Sequence[Any], state: Mapping[str, torch.Tensor] | None = None
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """The loss of a forward pass on `leaves`, and the model's other output tensors. Attributes named in
        `state` are taken from there.

        Raises
        ------
        InputError: an output without a loss, or a loss that is no scalar or depends on no parameter.
        """
        import torch
        from torch.fx import traceback
        from torch.utils import _pytree as pytree

        with torch.enable_grad(), traceback.preserve_node_meta():
            output = _run_nodes(self.module, leaves, state or {})
            loss = find_loss(output, self.loss, self.source)
        others = [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]
        return loss, [leaf for leaf in others if leaf is not loss]


def make_trainee(
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    loss: Loss | None,
    name: str | None,
) -> Trainee:
    """Export `model` with gradients on, in the mode (train or eval) it is in, without allocating a weight.

    Raises
    ------
    InputError: something that is no model, no parameter that requires a gradient, a model that torch.export
        cannot trace.
    MissingDependencyError: torch is not installed.
    """
    require_torch("capturing a training step")
    import torch

    source = name or type(model).__name__
    check_trainable(model, source)
    twins = FakeTwins(fake_mode(), meta_device="cpu")
    with refusing_what_export_loses(model, source), tracing(source, "torch.export", EXPORTABLE):
        exported = torch.export.export(
            fake_model(model, twins),
            tuple(fake_inputs(list(args), twins)),
            fake_inputs(dict(kwargs or {}), twins),
            strict=False,
        )
        return _trainee(exported, source, twins.mode, loss)


def check_trainable(model: Any, source: str) -> None:
    """Raise InputError for what is no module, or has no parameter that requires a gradient."""
    import torch

    if not isinstance(model, torch.nn.Module):
        raise InputError(source, "model", f"a {type(model).__name__}", "a torch.nn.Module")
    lazy = [path for path, parameter in model.named_parameters() if torch.nn.parameter.is_lazy(parameter)]
    if lazy:
        expected = "weights that are made: call the model once where it is built"
        raise InputError(source, f"parameter {lazy[0]!r}", "one without a size (a lazy module)", expected)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        found = f"{sum(1 for _ in model.parameters())}, none of which requires a gradient"
        raise InputError(source, "parameters", found, "at least one that does")


@contextmanager
def tracing(source: str, place: str, expected: str) -> Iterator[None]:
    """With gradients on and torch's warnings off; errors of torch become an InputError at `place`."""
    import torch

    try:
        with torch.enable_grad(), quiet():
            yield
    except InputError as error:
        raise InputError(source, error.place, error.found, error.expected) from error
    except MemplanError:
        raise
    except Exception as error:
        raise InputError(source, place, located(brief(error), error), expected) from error


def _trainee(exported: ExportedProgram, source: str, mode: FakeTensorMode, loss: Loss | None) -> Trainee:
    from torch.utils import _pytree as pytree

    specs = exported.graph_signature.input_specs
    return Trainee(
        source,
        exported.module(check_guards=False),
        mode,
        tuple(pytree.tree_leaves(exported.example_inputs)),
        tuple(spec.arg.name for spec in specs if spec.kind.name == "USER_INPUT"),
        {str(spec.target): spec.arg.name for spec in specs if spec.kind.name != "USER_INPUT"},
        loss,
    )


def _run_nodes(module: GraphModule, leaves: Sequence[Any], state: Mapping[str, torch.Tensor]) -> Any:
    from torch.fx import Interpreter

    class Nodes(Interpreter):
        """Sets each node's module and line on whatever is traced while it runs."""

        def fetch_attr(self, target: str) -> Any:
            return state[target] if target in state else super().fetch_attr(target)

    return Nodes(module).run(*leaves)
