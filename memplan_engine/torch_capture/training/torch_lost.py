"""What torch.export drops of a model that is to be trained: what only autograd hears of."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError
from memplan_engine.torch_capture.torch_source import is_users, portable_path

if TYPE_CHECKING:
    import torch

STEP = "a whole step (capture_step, --training step), which has it as eager mode runs it"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lost:
    """Something that an export does not have: what it is, and where the model calls it."""

    what: str
    where: str

    def __str__(self) -> str:
        return f"{self.what} at {self.where}" if self.where else self.what


@contextmanager
def refusing_what_export_loses(model: torch.nn.Module, source: str) -> Iterator[None]:
    """To be around the export of `model`, which runs it once.

    Gradients that go through a custom autograd Function, a hook or an inner `autograd.grad` would be others
    than eager mode's: InputError names the first one. A checkpoint only changes what is saved: it is logged
    as a warning that figures leave it out.
    """
    wrong = [*_hooks(model)]
    left_out: list[Lost] = []
    with _listening(wrong, left_out):
        yield
    if wrong:
        raise InputError(source, "gradients", f"{wrong[0]}, which torch.export leaves out", STEP)
    if left_out:
        log.warning("%s: these figures leave out %s; %s", source, left_out[0], "--training step has it")


def _hooks(model: torch.nn.Module) -> Iterator[Lost]:
    for path, parameter in model.named_parameters():
        if getattr(parameter, "_backward_hooks", None):
            yield Lost(f"a hook of the parameter {path}", "")
        if getattr(parameter, "_post_accumulate_grad_hooks", None):
            yield Lost(f"a hook of the gradient of {path}", "")
    for path, module in model.named_modules():
        if module._backward_hooks or module._backward_pre_hooks:
            yield Lost(f"a backward hook of the module {path or type(module).__name__}", "")


@contextmanager
def _listening(wrong: list[Lost], left_out: list[Lost]) -> Iterator[None]:
    """Notes calls of what autograd alone hears of."""
    import torch
    from torch.utils import checkpoint

    def noting(
        function: Callable[..., Any], into: list[Lost], name: Callable[..., str]
    ) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            line = _users_line(sys._getframe(1))
            if line is not None:
                into.append(Lost(name(*args), line))
            return function(*args, **kwargs)

        return called

    def function_name(kind: type, *given: Any) -> str:
        reentrant = issubclass(kind, checkpoint.CheckpointFunction)
        return "a re-entrant checkpoint" if reentrant else f"the custom autograd.Function {kind.__name__}"

    generator = "_checkpoint_without_reentrant_generator"
    apply = vars(torch.autograd.Function)["apply"]
    hook, grad, checkpointed = torch.Tensor.register_hook, torch.autograd.grad, getattr(checkpoint, generator)
    before: list[tuple[Any, str, Any]] = [
        (torch.autograd.Function, "apply", apply),
        (torch.Tensor, "register_hook", hook),
        (torch.autograd, "grad", grad),
        (checkpoint, generator, checkpointed),
    ]
    instead = (
        classmethod(noting(apply.__func__, wrong, function_name)),
        noting(hook, wrong, lambda *given: "a hook of a tensor"),
        noting(grad, wrong, lambda *given: "an inner autograd.grad"),
        noting(checkpointed, left_out, lambda *given: "a checkpoint"),
    )
    for (owner, name, _), function in zip(before, instead, strict=True):
        setattr(owner, name, function)
    try:
        yield
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


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
