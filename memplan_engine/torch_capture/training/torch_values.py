"""Values that a model or its optimizer asks for while a step runs on fake tensors: worked out where they
follow from what is known.

Eager code branches on values (`mask.all()`), optimizers count their steps in tensors, and libraries take
another way where they see fake tensors. A value that rests on nothing but numbers, ranges, given inputs and
buffers is as known on fake tensors as in an eager run.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError
from memplan_engine.torch_capture.torch_fake import (
    MOST_ELEMENTS,
    STEP_RECORDED,
    on_host,
    storage_of,
    tensors_of,
)
from memplan_engine.torch_capture.torch_operators import arguments_of, is_repeatable, written_values
from memplan_engine.torch_capture.training.torch_origins import who_asks

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
COPIES = ("aten::clone", "aten::_to_copy")
"""Operators whose results lie in storages of their own."""
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

    def follow(self, operator: Any, args: Any, kwargs: Any, results: Sequence[torch.Tensor]) -> None:
        """Know `results`, which `operator` has made of these arguments, and what it has written, where both
        follow from them."""
        turns, follows, of_form = _nature(operator)
        if turns:
            return
        written = tensors_of(list(written_values(operator, args, kwargs)))
        fresh = [leaf for leaf in results if storage_of(leaf) not in self.real]
        if not (written or fresh):
            return
        follows = follows and (of_form or not self._rests_on_unknown(args))
        real = self._run(operator, args, kwargs, written, results) if follows else None
        if real is None:
            for leaf in written:
                self.real.pop(storage_of(leaf), None)
            return
        for leaf, value in zip(results, real, strict=True):
            if any(leaf is tensor for tensor in fresh):
                self._keep(leaf, value, is_new=operator._schema.name in COPIES)

    def _rests_on_unknown(self, args: Sequence[Any]) -> bool:
        """Whether one of `args` is a fake tensor of which nothing is known: most are."""
        fake: Any = _fake_tensor()
        return any(isinstance(each, fake) and storage_of(each) not in self.real for each in args)

    def _run(
        self, operator: Any, args: Any, kwargs: Any, written: list[Any], results: Sequence[Any]
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

    def _keep(self, fake: torch.Tensor, value: torch.Tensor, is_new: bool = False) -> None:
        """Know `fake`, which an operator has just made, to have the content of `value`, whose storage nobody
        else has where it `is_new`."""
        import torch

        storage, whole = fake.untyped_storage(), value.untyped_storage()
        layout = (fake.storage_offset(), fake.shape, fake.stride())
        with _real():
            if whole.nbytes() == storage.nbytes() and layout[2] == value.stride():
                # Others may show more of it.
                real = whole if is_new else whole.clone()  # type: ignore[no-untyped-call]
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


@lru_cache(maxsize=4096)
def _nature(operator: Any) -> tuple[bool, bool, bool]:
    """Whether `operator` turns a tensor in place, whether what it gives follows from its arguments, and
    whether it takes of them nothing but the form."""
    import torch

    name = operator._schema.name
    # Whichever order is drawn, one of them is: samples are chosen by it.
    follows = operator.namespace == "aten" and (name == "aten::randperm" or is_repeatable(operator))
    return torch.Tag.inplace_view in operator.tags, follows, name in OF_ITS_FORM


@cache
def _fake_tensor() -> type:
    from torch._subclasses.fake_tensor import FakeTensor

    return FakeTensor


def _is_large(tensor: torch.Tensor) -> bool:
    # A result may be a small view of a large storage.
    return tensor.untyped_storage().nbytes() > MOST_ELEMENTS * tensor.element_size()


def unknown(source: str, place: str, value: str) -> InputError:
    """That the user's line asks for `value`, which nobody knows."""
    kind = place.rpartition(" ")[2]
    found = f"a {kind} that asks for {value} {who_asks()}, which is not known before the run"
    return InputError(source, place, found, f"a {kind} that does not ask for it, {STEP_RECORDED}")


def _is_mask(operator: Any, results: Sequence[Any]) -> bool:
    """Whether `operator` makes whole numbers or truths of the form of a tensor: a mask that models look at.
    Moments of optimizers are made so, too, and nobody looks at them."""
    named = operator._schema.name in OF_ITS_FORM
    return named and not any(leaf.is_floating_point() or leaf.is_complex() for leaf in results)
