"""Values that a model or its optimizer asks for while a step runs on fake tensors: worked out where they
follow from what is known.

Eager code branches on values (`mask.all()`), optimizers count their steps in tensors, and libraries take
another way where they see fake tensors. A value that rests on nothing but numbers, ranges, given inputs and
buffers is as known on fake tensors as in an eager run.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from memplan_engine.errors import InputError
from memplan_engine.torch_capture.torch_exporting import is_tracing, replaced
from memplan_engine.torch_capture.torch_fake import (
    MOST_ELEMENTS,
    STEP_RECORDED,
    on_host,
    storage_of,
    tensors_of,
)
from memplan_engine.torch_capture.torch_operators import arguments_of, is_repeatable, written_values
from memplan_engine.torch_capture.training.torch_origins import who_asks, who_makes

if TYPE_CHECKING:
    import torch

PACKED = "aten::_pack_padded_sequence"
SIZED_BY = {
    PACKED: ("lengths",),
    "aten::_ctc_loss": ("input_lengths", "target_lengths", "targets"),
    "aten::masked_select": ("mask",),
    "aten::index": ("indices",),
    "aten::repeat_interleave": ("repeats",),
}
"""Operators whose results have sizes that depend on the values of some arguments only."""
OF_ITS_FORM = {
    f"aten::{name}" for name in ("ones_like", "zeros_like", "full_like", "new_ones", "new_zeros", "new_full")
}
"""Operators that take of a tensor its form, and not its values."""
NESTED = ("aten::_nested", "aten::nested")
MOST_ASSUMED = 2**26
"""Of a tensor of truths of which all are the same: those of large activations, and gone with the next op."""
log = logging.getLogger(__name__)


@contextmanager
def _real() -> Iterator[None]:
    """Outside of whatever is traced: on real tensors."""
    import torch
    from torch._subclasses.fake_tensor import unset_fake_temporarily
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes(), unset_fake_temporarily(), torch.no_grad():
        yield


class KnownValues:
    """The values of fake tensors, as far as they are known.

    A known storage has a real one beside it, and every operator whose tensors are all known runs there, too.
    So views of what is known are known, and what is written in place is written in both; what is written
    with something else is not known any more.
    """

    def __init__(self) -> None:
        self.real: dict[int, tuple[weakref.ref[torch.UntypedStorage], torch.UntypedStorage]] = {}
        """By the identity of a fake storage, a reference to it, which does not hold it, and the real one."""
        self.warned = False

    def know(self, fake: torch.Tensor, value: torch.Tensor) -> None:
        """Have `fake`, with all that shares its storage, begin with the content of `value`, a real tensor of
        the same form."""
        with _real():
            real = value.untyped_storage().clone()  # type: ignore[no-untyped-call]
        self._pair(fake.untyped_storage(), real)

    def _pair(self, fake: torch.UntypedStorage, real: torch.UntypedStorage) -> None:
        key = fake._cdata

        def gone(ref: Any) -> None:
            if key in self.real and self.real[key][0] is ref:
                del self.real[key]

        self.real[key] = (weakref.ref(fake, gone), real)

    def of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """A view of the value of `tensor`, None where it is not known."""
        import torch
        from torch._subclasses.fake_tensor import FakeTensor

        if type(tensor) is torch.Tensor and not tensor.is_meta:
            return tensor
        if not isinstance(tensor, FakeTensor):
            return None
        _, real = self.real.get(storage_of(tensor), (None, None))
        if real is None or tensor.untyped_storage().nbytes() != real.nbytes():
            return None
        with _real():
            layout = (tensor.storage_offset(), tensor.shape, tensor.stride())
            return torch.empty(0, dtype=tensor.dtype).set_(real, *layout)

    def listed(self, tensor: torch.Tensor) -> Any:
        """The value of `tensor` as numbers in nested lists, None where it is not known."""
        value = self.of(tensor)
        if value is None:
            return None
        with _real():
            return _listed(value)

    def follow(self, operator: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Know what `operator` has made of these arguments, and written, where it follows from them."""
        import torch

        if torch.Tag.inplace_view in operator.tags:
            return
        written = tensors_of(list(written_values(operator, args, kwargs)))
        results = tensors_of(result)
        fresh = [leaf for leaf in results if storage_of(leaf) not in self.real]
        if not (written or fresh):
            return
        real = self._run(operator, args, kwargs, written, results) if _follows(operator) else None
        if real is None:
            for leaf in written:
                self.real.pop(storage_of(leaf), None)
            return
        for leaf, value in zip(results, real, strict=True):
            if any(leaf is tensor for tensor in fresh):
                self._keep(leaf, value)

    def _run(
        self, operator: Any, args: Any, kwargs: Any, written: list[Any], results: list[Any]
    ) -> list[torch.Tensor] | None:
        """What `operator` gives for the values of its arguments, None where they do not say it."""
        import torch
        from torch.utils import _pytree as pytree

        # What is not ours must not be written.
        if any(type(leaf) is torch.Tensor for leaf in written) or any(map(_is_large, results)):
            return None
        leaves, form = pytree.tree_flatten((args, kwargs))
        of = self._of_or_zeros if _is_mask(operator, results) else self.of
        values = [of(leaf) if isinstance(leaf, torch.Tensor) else on_host(leaf) for leaf in leaves]
        if any(value is None and leaf is not None for value, leaf in zip(values, leaves, strict=True)):
            return None
        real_args, real_kwargs = pytree.tree_unflatten(values, form)
        try:
            with _real():
                result = operator(*real_args, **real_kwargs)
        except Exception as error:
            log.debug("%s of known values fails: %s", operator, error)
            return None
        real = tensors_of(result)
        # Tangents that are 0 throughout have no bytes.
        alike = len(real) == len(results) and not any(leaf.is_meta or leaf._is_zerotensor() for leaf in real)
        return real if alike else None

    def _keep(self, fake: torch.Tensor, value: torch.Tensor) -> None:
        """Know `fake`, which an operator has just made, to have the content of `value`."""
        import torch

        storage, whole = fake.untyped_storage(), value.untyped_storage()
        layout = (fake.storage_offset(), fake.shape, fake.stride())
        with _real():
            if whole.nbytes() == storage.nbytes() and layout[2] == value.stride():
                # Others may show more of it.
                real = whole.clone()  # type: ignore[no-untyped-call]
            else:
                real = torch.UntypedStorage(storage.nbytes())  # type: ignore[no-untyped-call]
                torch.empty(0, dtype=fake.dtype).set_(real, *layout).copy_(value)
        self._pair(storage, real)

    def sized(self, operator: Any, args: Any, kwargs: Any) -> Any:
        """What `operator` gives, whose size depends on values (`nonzero`), fake, and known where all of its
        arguments are; None where those are not on which the size depends."""
        import torch
        from torch.utils import _pytree as pytree

        arguments = arguments_of(operator, args, kwargs)
        deciding = SIZED_BY.get(operator._schema.name, arguments)
        whole = tensors_of(arguments)
        unknown = [tensor for tensor in whole if self.of(tensor) is None]
        if any(self.of(tensor) is None for name in deciding for tensor in tensors_of(arguments.get(name))):
            return None
        args, kwargs = pytree.tree_map_only(torch.Tensor, self._of_or_zeros, (args, kwargs))
        with _real():
            result = operator(*args, **kwargs)

        def fake_of(real: torch.Tensor) -> torch.Tensor:
            if operator._schema.name == PACKED and real.dim() == 1:
                # The numbers of rows of each moment, which recurrent layers read in C++.
                return real
            layout = (real.shape, real.stride())
            fake = torch.empty_strided(*layout, dtype=real.dtype, device=whole[0].device)
            if not unknown:
                self.know(fake, real)
            return fake

        return pytree.tree_map_only(torch.Tensor, fake_of, result)

    def _of_or_zeros(self, tensor: torch.Tensor) -> torch.Tensor:
        """The value of `tensor`; zeros that take no memory where it is not known."""
        import torch

        value = self.of(tensor)
        if value is not None:
            return value
        with _real():
            return torch.zeros((), dtype=tensor.dtype).expand(tensor.shape)

    def assume(self, fake: torch.Tensor, value: bool) -> None:
        """Have every element of `fake` be `value` from here on, where they are not too many."""
        import torch

        if fake.numel() <= MOST_ASSUMED and storage_of(fake) not in self.real:
            with _real():
                real = torch.full(fake.shape, value, dtype=fake.dtype)
            self._keep(fake, real)

    def answer(self, operator: Any, args: Any, kwargs: Any) -> Any:
        """What `operator` says of values of its arguments (`.item()`, `torch.equal`), None where they are not
        known."""
        import torch
        from torch.utils import _pytree as pytree

        if any(self.of(tensor) is None for tensor in tensors_of((args, kwargs))):
            return None
        args, kwargs = pytree.tree_map_only(torch.Tensor, self.of, (args, kwargs))
        with _real():
            return operator(*args, **kwargs)


def _listed(value: torch.Tensor) -> Any:
    import torch

    # Not by the method, which may be answered from here.
    return torch._C.TensorBase.tolist(value)


def _follows(operator: Any) -> bool:
    """Whether what `operator` gives follows from its arguments."""
    # Whichever order is drawn, one of them is: samples are chosen by it.
    drawn = operator._schema.name == "aten::randperm"
    return operator.namespace == "aten" and (drawn or is_repeatable(operator))


def _is_large(tensor: torch.Tensor) -> bool:
    # A result may be a small view of a large storage.
    return tensor.untyped_storage().nbytes() > MOST_ELEMENTS * tensor.element_size()


class Assuming(Protocol):
    """Says what is taken for values that nobody knows."""

    def answer(self, operator: Any, args: Any) -> Any:
        """What `operator` says of values of `args`; None for what shall be refused."""

    def result(self, operator: Any, args: Any, result: Any, known: KnownValues) -> bool | None:
        """What all elements of `result` are taken as, which `operator` has given; None where nothing is."""


def unknown(source: str, place: str, value: str) -> InputError:
    """That the user's line asks for `value`, which nobody knows."""
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
    from torch.utils._python_dispatch import TorchDispatchMode

    from memplan_engine.torch_capture.torch_storages import has_parts

    place = "training step" if assumed is None else "fake run"

    class Answers(TorchDispatchMode):  # type: ignore[no-untyped-call]
        supports_higher_order_operators = True

        @classmethod
        def ignore_compile_internals(cls) -> bool:
            return True

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if has_parts(types):
                return NotImplemented
            kwargs = kwargs or {}
            if isinstance(func, torch._ops.HigherOrderOperator):
                return func(*args, **kwargs)
            if torch.Tag.data_dependent_output in func.tags:
                answer = values.answer(func, args, kwargs)
                if answer is None and assumed is not None:
                    answer = assumed.answer(func, args)
                if answer is not None:
                    return answer
            if func._schema.name.startswith(NESTED):
                raise _unplain(source, place, "a nested tensor", "plain ones")
            try:
                result = func(*args, **kwargs)
            except DataDependentOutputException:
                shape = tuple(args[0].shape)
                value = f"the value of a tensor of shape {shape} (`.item()` or a branch on it)"
                raise unknown(source, place, value) from None
            except DynamicOutputShapeException:
                sized = None if assumed is None else values.sized(func, args, kwargs)
                if sized is not None:
                    return sized
                value = f"a size that depends on values ({func._schema.name})"
                raise unknown(source, place, value) from None
            if any(leaf.layout is not torch.strided for leaf in tensors_of(result)):
                raise _unplain(source, place, "a sparse tensor", "dense ones (sparse=False)")
            values.follow(func, args, kwargs, result)
            if assumed is not None:
                taken = assumed.result(func, args, result, values)
                if taken is not None:
                    values.assume(result, taken)
            return result

    return Answers()  # type: ignore[no-untyped-call]


def _is_mask(operator: Any, results: list[Any]) -> bool:
    """Whether `operator` makes whole numbers or truths of the form of a tensor: a mask that models look at.
    Moments of optimizers are made so, too, and nobody looks at them."""
    named = operator._schema.name in OF_ITS_FORM
    return named and not any(leaf.is_floating_point() or leaf.is_complex() for leaf in results)


def _unplain(source: str, place: str, found: str, expected: str) -> InputError:
    return InputError(source, place, f"{found} {who_makes()}", f"{expected}, {STEP_RECORDED}")
