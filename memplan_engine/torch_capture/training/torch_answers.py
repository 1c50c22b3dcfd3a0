"""Operators that ask for values are answered in the midst of a run on fake tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from memplan_engine.errors import InputError
from memplan_engine.torch_capture.torch_exporting import is_tracing, replaced
from memplan_engine.torch_capture.torch_fake import STEP_RECORDED, tensors_of
from memplan_engine.torch_capture.training.torch_origins import who_makes
from memplan_engine.torch_capture.training.torch_values import KnownValues, unknown

NESTED = ("aten::_nested", "aten::nested")


class Assuming(Protocol):
    """Says what is taken for values that nobody knows."""

    def answer(self, operator: Any, args: Any) -> Any:
        """What `operator` says of values of `args`; None for what shall be refused."""

    def result(self, operator: Any, args: Any, result: Any, known: KnownValues) -> bool | None:
        """What all elements of `result` are taken as, which `operator` has given; None where nothing is."""


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
    from torch._subclasses import fake_tensor as fakes
    from torch.utils._python_dispatch import TorchDispatchMode

    from memplan_engine.torch_capture.torch_storages import DEVICE_OF, device_of, has_parts

    place = "training step" if assumed is None else "fake run"
    strided = torch.strided
    # By its id an operator, which is kept, whether it asks for a value, and whether it makes nested tensors.
    seen: dict[int, tuple[Any, bool, bool]] = {}

    class Answers(TorchDispatchMode):  # type: ignore[no-untyped-call]
        supports_higher_order_operators = True

        @classmethod
        def ignore_compile_internals(cls) -> bool:
            return True

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            # In a fake run nothing is compiled, and to say so to the compiler takes longer than to look.
            return assumed is None

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is DEVICE_OF and type(args[0]) is fakes.FakeTensor:
                return device_of(args[0])
            if has_parts(types):
                return NotImplemented
            kwargs = kwargs or {}
            if isinstance(func, torch._ops.HigherOrderOperator):
                return func(*args, **kwargs)
            known = seen.get(id(func))
            if known is None:
                known = seen[id(func)] = func, _asks(func), func._schema.name.startswith(NESTED)
            _, asks, is_nested = known
            if asks and (answer := _answer(values, assumed, func, args, kwargs)) is not None:
                return answer
            if is_nested:
                raise _unplain(source, place, "a nested tensor", "plain ones")
            try:
                result = func(*args, **kwargs)
            except (fakes.DataDependentOutputException, fakes.DynamicOutputShapeException) as error:
                of_size = isinstance(error, fakes.DynamicOutputShapeException)
                sized = values.sized(func, args, kwargs) if of_size and assumed is not None else None
                if sized is not None:
                    return sized
                raise unknown(source, place, _asked_for(func, args, of_size)) from None
            results = tensors_of(result)
            if any(leaf.layout is not strided for leaf in results):
                raise _unplain(source, place, "a sparse tensor", "dense ones (sparse=False)")
            values.follow(func, args, kwargs, results)
            if assumed is not None:
                taken = assumed.result(func, args, result, values)
                if taken is not None:
                    values.assume(result, taken)
            return result

    return Answers()  # type: ignore[no-untyped-call]


def _asks(operator: Any) -> bool:
    """Whether `operator` gives the value of a tensor."""
    import torch

    return torch.Tag.data_dependent_output in operator.tags


def _answer(values: KnownValues, assumed: Assuming | None, operator: Any, args: Any, kwargs: Any) -> Any:
    """The value that `operator` asks for, as it is known or assumed; None where it is neither."""
    answer = values.answer(operator, args, kwargs)
    return assumed.answer(operator, args) if answer is None and assumed is not None else answer


def _asked_for(operator: Any, args: Any, of_size: bool) -> str:
    """What `operator` would need that nobody knows, in words."""
    if of_size:
        return f"a size that depends on values ({operator._schema.name})"
    return f"the value of a tensor of shape {tuple(args[0].shape)} (`.item()` or a branch on it)"


def _unplain(source: str, place: str, found: str, expected: str) -> InputError:
    return InputError(source, place, f"{found} {who_makes()}", f"{expected}, {STEP_RECORDED}")
