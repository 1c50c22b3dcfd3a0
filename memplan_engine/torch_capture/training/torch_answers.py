"""Answers to code that asks for values while a step runs on fake tensors, and errors where there are none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from memplan_engine.errors import InputError
from memplan_engine.torch_capture.torch_exporting import is_tracing, replaced
from memplan_engine.torch_capture.torch_fake import STEP_RECORDED, tensors_of
from memplan_engine.torch_capture.training.torch_origins import who_asks, who_makes
from memplan_engine.torch_capture.training.torch_values import KnownValues

NESTED = ("aten::_nested", "aten::nested")
QUANTIZED = (
    "aten::quantize_per",
    "aten::_empty_affine_q",
    "aten::_empty_per_channel_affine_q",
    "quantized::",
)
OBSERVES = "aten::_fused_moving_avg_obs_fq_helper"
"""Gives buffers of channels their size in its kernel."""
OF_CHANNELS = 11
"""The place of that argument of it."""


class Assuming(Protocol):
    """Notes of what is assumed for unknown values."""

    def answer(self, operator: Any, args: Any, known: KnownValues) -> Any:
        """Return what `operator` says of the values of `args`, or None to refuse it."""

    def sizes(self, operator: Any, args: Any, kwargs: Any, known: KnownValues) -> None:
        """Assume values of arguments on which the size of what `operator` gives depends."""

    def result(self, operator: Any, args: Any, kwargs: Any, result: Any, known: KnownValues) -> bool | None:
        """Return the value assumed for all elements of `result`, which `operator` gave; None without one."""


def unknown(source: str, place: str, value: str) -> InputError:
    """Return the error for a line of the user that asks for an unknown `value`."""
    kind = place.rpartition(" ")[2]
    found = f"a {kind} that asks for {value} {who_asks()}, which is not known before the run"
    return InputError(source, place, found, f"a {kind} that does not ask for it, {STEP_RECORDED}")


@contextmanager
def answering(values: KnownValues, source: str, assumed: Assuming | None = None) -> Iterator[None]:
    """Answers `.item()` and branches on tensors from `values`, and has transformers take the way of eager
    mode for tensors whose values are known. Of others one warning says that it takes a tracer's way. What is
    not known may be `assumed`; then also results whose size depends on values that are known have it.

    Raises
    ------
    InputError, in the midst: a value, or a size that depends on values, which is not known, with the line
        that asks; a tensor that is sparse or nested.
    """
    with replaced("is_tracing", is_tracing(values, source)), _answers(values, source, assumed):
        yield


def _answers(values: KnownValues, source: str, assumed: Assuming | None) -> Any:
    """The mode of `answering`."""
    import torch
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

    from memplan_engine.torch_capture.torch_storages import OperatorMode

    place = "training step" if assumed is None else "fake run"

    class Answers(OperatorMode):  # type: ignore[no-untyped-call]
        def operate(self, operator: Any, args: Any, kwargs: Any) -> Any:
            if isinstance(operator, torch._ops.HigherOrderOperator):
                return operator(*args, **kwargs)
            if torch.Tag.data_dependent_output in operator.tags:
                answer = values.answer(operator, args, kwargs)
                if answer is None and assumed is not None:
                    answer = assumed.answer(operator, args, values)
                if answer is not None:
                    return answer
            if operator._schema.name.startswith(NESTED):
                raise _unplain(source, place, "a nested tensor", "plain ones")
            if operator._schema.name.startswith(QUANTIZED):
                raise _unplain(source, place, "a quantized tensor", "plain ones")
            if operator._schema.name == OBSERVES and args[OF_CHANNELS]:
                found = "a fused observer of channels, which sizes its buffers by itself,"
                raise _unplain(source, place, found, "an observer of whole tensors")
            try:
                result = operator(*args, **kwargs)
            except DataDependentOutputException:
                shape = tuple(args[0].shape)
                value = f"the value of a tensor of shape {shape} (`.item()` or a branch on it)"
                raise unknown(source, place, value) from None
            except DynamicOutputShapeException:
                if assumed is not None:
                    assumed.sizes(operator, args, kwargs, values)
                sized = None if assumed is None else values.sized(operator, args, kwargs)
                if sized is not None:
                    return sized
                value = f"a size that depends on values ({operator._schema.name})"
                raise unknown(source, place, value) from None
            if any(leaf.layout is not torch.strided for leaf in tensors_of(result)):
                raise _unplain(source, place, "a sparse tensor", "dense ones (sparse=False)")
            values.follow(operator, args, kwargs, result)
            if assumed is not None:
                taken = assumed.result(operator, args, kwargs, result, values)
                if taken is not None:
                    values.assume(result, taken)
            return result

    return Answers()


def _unplain(source: str, place: str, found: str, expected: str) -> InputError:
    return InputError(source, place, f"{found} {who_makes()}", f"{expected}, {STEP_RECORDED}")
