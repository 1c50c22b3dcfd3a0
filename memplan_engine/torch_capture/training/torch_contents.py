"""Contents of the real storages that stand for fake ones, what operators do to them, and reasons for contents
that are assumed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memplan_engine.torch_capture.torch_fake import MOST_ELEMENTS, storage_of, tensors_of
from memplan_engine.torch_capture.torch_operators import arguments_of, is_repeatable
from memplan_engine.torch_capture.training.torch_generators import on_real_tensors

if TYPE_CHECKING:
    import torch

PACKED = "aten::_pack_padded_sequence"
SIZED_BY = {
    PACKED: ("lengths",),
    "aten::_ctc_loss": ("target_lengths",),
    "aten::masked_select": ("mask",),
    "aten::index": ("indices",),
    "aten::repeat_interleave": ("repeats",),
}
"""Operators whose results have sizes that depend on the values of some arguments only."""
OF_ITS_FORM = {
    f"aten::{name}" for name in ("ones_like", "zeros_like", "full_like", "new_ones", "new_zeros", "new_full")
}
"""Operators that take of a tensor its form, and not its values."""
EMPTY = {
    f"aten::{name}" for name in ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
}
"""Operators that make tensors without values."""
OVERWRITES = {
    f"aten::{name}_" for name in ("copy", "fill", "zero", "index_fill", "masked_fill", "index_copy")
}
"""Operators after which each element that they write has no trace of what it was."""
UNLESS_REDUCED = {"aten::index_put_": "accumulate", "aten::scatter_": "reduce"}
"""The same of these, unless this argument is given."""
MOVES = {f"aten::{name}" for name in ("clone", "cat", "stack", "lift_fresh", "alias", "detach")}
"""Operators that give elements as they are, whatever these are."""
MOST_PIECEMEAL = 2**14
"""Elements of a storage of unknown content that is known in part once it is written."""


def overwrites(operator: Any, args: Any, kwargs: Any) -> bool:
    """Return whether what `operator` writes has no trace of what it was before."""
    name = operator._schema.name
    if name in UNLESS_REDUCED:
        return not arguments_of(operator, args, kwargs).get(UNLESS_REDUCED[name])
    return name in OVERWRITES


def listed(value: torch.Tensor) -> Any:
    """Return the elements of `value` in nested lists."""
    import torch

    # Not by the method, which may be answered from here.
    return torch._C.TensorBase.tolist(value)


def shown(tensor: torch.Tensor, storage: torch.UntypedStorage) -> torch.Tensor:
    """Return the real tensor that shows `storage` as `tensor` shows its own."""
    import torch

    with on_real_tensors():
        layout = (tensor.storage_offset(), tensor.shape, tensor.stride())
        return torch.empty(0, dtype=tensor.dtype).set_(storage, *layout)


def bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    """Return `storage` as a tensor of bytes."""
    import torch

    return torch.empty(0, dtype=torch.uint8).set_(storage)


def different(dtype: torch.dtype) -> tuple[Any, Any]:
    """Return two values of a type, as different as there are."""
    import torch

    if dtype is torch.bool:
        return False, True
    if dtype.is_floating_point or dtype.is_complex:
        return float("nan"), torch.finfo(dtype).max
    return torch.iinfo(dtype).min, torch.iinfo(dtype).max


class Reasons:
    """Assumptions about values of fake tensors, in words: `of` by the identity of a storage, and those `used`
    that something has asked for."""

    def __init__(self) -> None:
        self.of: dict[int, str] = {}
        self.used: dict[str, None] = {}

    def use(self, tensors: list[Any]) -> None:
        """Note that something asks for the values of `tensors`."""
        for leaf in tensors if self.of else ():
            reason = self.of.get(storage_of(leaf))
            if reason is not None:
                self.used[reason] = None

    def pass_on(self, args: Any, results: list[Any]) -> None:
        """Have `results` rest on what values of `args` are assumed to be."""
        keys = [storage_of(leaf) for leaf in tensors_of(args)] if self.of else []
        reasons = [self.of[key] for key in keys if key in self.of]
        for leaf in results if reasons else ():
            self.of.setdefault(storage_of(leaf), reasons[0])


def follows(operator: Any, generator: Any, is_known: bool) -> bool:
    """Return whether what `operator`, which draws from `generator`, gives follows from its arguments."""
    # Whichever order is drawn, one of them is: samples are chosen by it.
    drawn = operator._schema.name == "aten::randperm" or is_known
    return operator.namespace == "aten" and (drawn or (generator is None and is_repeatable(operator)))


def is_large(tensor: torch.Tensor) -> bool:
    """Return whether `tensor` lies in a storage that is too large to be worked out."""
    # A result may be a small view of a large storage.
    return tensor.untyped_storage().nbytes() > MOST_ELEMENTS * tensor.element_size()


def is_mask(operator: Any, results: list[Any]) -> bool:
    """Return whether `operator` makes, of the form of a tensor, whole numbers, truths or few numbers: a mask
    that models look at. Moments of optimizers are made so, too, and are not looked at."""
    named = operator._schema.name in OF_ITS_FORM
    return named and all(
        leaf.numel() <= MOST_PIECEMEAL or not (leaf.is_floating_point() or leaf.is_complex())
        for leaf in results
    )
