"""What torch.export drops of a model that is to be trained: what only autograd hears of."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError
from memplan_engine.torch_capture.torch_fake import patched
from memplan_engine.torch_capture.torch_source import is_users, portable_path

if TYPE_CHECKING:
    import torch

STEP = "a whole step (capture_step, --training step), which has it as eager mode runs it"
log = logging.getLogger(__name__)


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
        def called(*args: Any, **kwargs: Any) -> Any:
            line = _users_line(sys._getframe(1))
            if line is not None:
                into.append(f"{name(*args)} at {line}")
            return function(*args, **kwargs)

        return called

    def function_name(kind: type, *given: Any) -> str:
        reentrant = issubclass(kind, checkpoint.CheckpointFunction)
        return "a re-entrant checkpoint" if reentrant else f"the custom autograd.Function {kind.__name__}"

    def noted(owner: Any, name: str, into: list[str], what: str) -> tuple[Any, str, Any]:
        return owner, name, noting(getattr(owner, name), into, lambda *given: what)

    apply = vars(torch.autograd.Function)["apply"].__func__
    return patched(
        (torch.autograd.Function, "apply", classmethod(noting(apply, wrong, function_name))),
        noted(torch.Tensor, "register_hook", wrong, "a hook of a tensor"),
        noted(torch.autograd, "grad", wrong, "an inner autograd.grad"),
        noted(checkpoint, "_checkpoint_without_reentrant_generator", left_out, "a checkpoint"),
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
