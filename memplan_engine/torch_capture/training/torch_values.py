"""Values that a model or its optimizer asks for while a step runs on fake tensors: worked out where they
follow from what is known.

Eager code branches on values (`mask.all()`), optimizers count their steps in tensors, and libraries take
another way where they see fake tensors. A value that rests on nothing but numbers, ranges, given inputs and
buffers is as known on fake tensors as in an eager run.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from memplan_engine.torch_capture.torch_fake import on_host, storage_of, tensors_of
from memplan_engine.torch_capture.torch_operators import arguments_of, gives_views, written_values
from memplan_engine.torch_capture.training.torch_contents import (
    EMPTY,
    MOST_PIECEMEAL,
    MOVES,
    PACKED,
    SIZED_BY,
    Reasons,
    bytes_of,
    different,
    follows,
    is_large,
    is_mask,
    listed,
    overwrites,
    shown,
)
from memplan_engine.torch_capture.training.torch_generators import DrawnFrom, on_real_tensors

if TYPE_CHECKING:
    import torch

MOST_ASSUMED = 2**26
"""Of a tensor of truths of which all are the same: those of large activations, and gone with the next op."""
log = logging.getLogger(__name__)


class KnownValues:
    """The values of fake tensors, as far as they are known.

    A known storage has a real one beside it, and every operator whose tensors are all known runs there, too.
    So views of what is known are known, and what is written in place is written in both; what is written
    with something else is not known any more.

    A storage of `torch.empty` that is written has two real ones, which begin with different content: what
    both agree on was written. So has one of unknown content of which a part is overwritten.
    """

    def __init__(self) -> None:
        self.second: dict[int, torch.UntypedStorage] = {}
        """By the identity of a fake storage that is known in part, its second real one."""
        self.empty: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        """Fake storages not written yet."""
        self.generators = DrawnFrom()
        self.real: dict[int, tuple[weakref.ref[torch.UntypedStorage], torch.UntypedStorage]] = {}
        """By the identity of a fake storage, a reference to it, which does not hold it, and the real one."""
        self.has_guessed = False
        """True if the plain tensor that comes next, which C++ has made of a list, has unknown elements."""
        self.warned = False
        self.guessed: Any = None
        """Views that stand for others: of a place that is not known."""
        self.takes_a_part = False
        """True if the view that comes next is one of them."""
        self.reasons = Reasons()

    def know(self, fake: torch.Tensor, value: torch.Tensor) -> None:
        """Have `fake`, with all that shares its storage, begin with the content of `value`, a real tensor of
        the same form."""
        with on_real_tensors():
            real = value.untyped_storage().clone()  # type: ignore[no-untyped-call]
        self._pair(fake.untyped_storage(), real)

    def _pair(
        self,
        fake: torch.UntypedStorage,
        real: torch.UntypedStorage,
        second: torch.UntypedStorage | None = None,
    ) -> None:
        key = fake._cdata

        def gone(ref: Any) -> None:
            if key in self.real and self.real[key][0] is ref:
                self._forget(key)

        self._forget(key)
        self.real[key] = (weakref.ref(fake, gone), real)
        if second is not None:
            self.second[key] = second

    def _forget(self, key: int) -> None:
        for kept in (self.real, self.second, self.empty, self.reasons.of):
            kept.pop(key, None)

    def _note_empty(self, fake: torch.UntypedStorage) -> None:
        key = fake._cdata

        def gone(ref: Any) -> None:
            if self.empty.get(key) is ref:
                del self.empty[key]

        self.empty[key] = weakref.ref(fake, gone)

    def _begin_to_write(self, tensor: torch.Tensor, overwritten: bool) -> None:
        """Have the storage of `tensor` hold two contents that agree nowhere, where it is empty, or small and
        not known, and a part of it is `overwritten`."""
        import torch

        storage = tensor.untyped_storage()
        count, rest = divmod(storage.nbytes(), tensor.element_size())
        begins = overwritten and count <= MOST_PIECEMEAL and storage._cdata not in self.real
        if rest or not (begins or storage._cdata in self.empty):
            return
        with on_real_tensors():
            contents = [torch.full((count,), value, dtype=tensor.dtype) for value in different(tensor.dtype)]
        self._pair(storage, *(content.untyped_storage() for content in contents))

    def of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """A view of the value of `tensor`, None where it is not known."""
        import torch
        from torch._subclasses.fake_tensor import FakeTensor

        if type(tensor) is torch.Tensor and not tensor.is_meta:
            return tensor
        if not isinstance(tensor, FakeTensor) or self._is_guessed(tensor):
            return None
        key = storage_of(tensor)
        _, real = self.real.get(key, (None, None))
        if real is None or tensor.untyped_storage().nbytes() != real.nbytes():
            return None
        value = shown(tensor, real)
        if key in self.second:
            with on_real_tensors():
                return value if torch.equal(value, shown(tensor, self.second[key])) else None
        return value

    def _second_of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return what `of` does, from the second content of what is known in part."""
        second = self.second.get(storage_of(tensor)) if hasattr(tensor, "fake_mode") else None
        return self.of(tensor) if second is None or self._is_guessed(tensor) else shown(tensor, second)

    def _first_of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return what `of` does, from the first content of what is known in part."""
        key = storage_of(tensor) if hasattr(tensor, "fake_mode") else None
        if key not in self.second or self._is_guessed(tensor):
            return self.of(tensor)
        return shown(tensor, self.real[key][1])

    def _guess(self, operator: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Note views that stand for others, and views of these: no value of them is known."""
        begins = self.takes_a_part and gives_views(operator)
        given = tensors_of((args, kwargs)) if begins or self.guessed else []
        if begins or any(map(self._is_guessed, given)):
            from torch.utils.weak import WeakIdKeyDictionary

            self.takes_a_part = False
            self.guessed = self.guessed or WeakIdKeyDictionary()
            own = {storage_of(leaf) for leaf in given}
            for leaf in tensors_of(result):
                if storage_of(leaf) in own:
                    self.guessed[leaf] = None

    def _is_guessed(self, tensor: torch.Tensor) -> bool:
        return self.guessed is not None and tensor in self.guessed

    def listed(self, tensor: torch.Tensor) -> Any:
        """Return the value of `tensor` as numbers in nested lists, None where it is not known."""
        value = self.of(tensor)
        if value is None:
            return None
        self.reasons.use([tensor])
        with on_real_tensors():
            return listed(value)

    def follow(self, operator: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Know what `operator` has made of these arguments, and written, where it follows from them."""
        import torch

        if torch.Tag.inplace_view in operator.tags:
            return
        if operator.namespace == "memplan":
            state = self.generators.set_by(operator._schema.name, args, self.of)
            if state is not None:
                self.know(result, state)
        guesses, results = self._guesses(args, kwargs), tensors_of(result)
        self._guess(operator, args, kwargs, result)
        written = tensors_of(list(written_values(operator, args, kwargs)))
        fresh = [leaf for leaf in results if storage_of(leaf) not in self.real]
        if not (written or fresh):
            return
        generator = self.generators.of(operator, kwargs, results)
        known = not guesses and follows(operator, generator, self.generators.is_known(generator, results))
        for leaf in results if guesses else ():
            leaf.constant = None  # type: ignore[attr-defined]
        self.generators.begin(generator)
        real = self._contents(operator, args, kwargs, written, results, generator) if known else None
        if real is None:
            self.generators.repeat(generator)
            self.generators.lose(generator, operator, args, kwargs, results)
            for leaf in written:
                self._blur(leaf)
            if operator._schema.name in EMPTY:
                for leaf in fresh:
                    if not is_large(leaf):
                        self._note_empty(leaf.untyped_storage())
            return
        for leaf, value, second in zip(results, *real, strict=True):
            # Some results have another shape on fake tensors (the bags of `embedding_bag`).
            if any(leaf is tensor for tensor in fresh) and leaf.shape == value.shape:
                self._keep(leaf, value, second)
        for leaf in written:
            self._settle(storage_of(leaf))
        self.reasons.pass_on((args, kwargs), [*fresh, *written])

    def _blur(self, tensor: torch.Tensor) -> None:
        """Know no longer what `tensor` is, and of a small storage still what the rest of it is."""
        key, nbytes = storage_of(tensor), tensor.untyped_storage().nbytes()
        _, real = self.real.get(key, (None, None))
        in_part = tensor.numel() * tensor.element_size() < nbytes <= MOST_PIECEMEAL * tensor.element_size()
        if real is None or not in_part or real.nbytes() != nbytes or self._is_guessed(tensor):
            self._forget(key)
            return
        with on_real_tensors():
            second = self.second.setdefault(key, real.clone())  # type: ignore[no-untyped-call]
            for content, value in zip((real, second), different(tensor.dtype), strict=True):
                shown(tensor, content).fill_(value)

    def _settle(self, key: int) -> None:
        """Know all of a storage whose two contents agree."""
        if key in self.second:
            with on_real_tensors():
                if bytes_of(self.real[key][1]).equal(bytes_of(self.second[key])):
                    del self.second[key]

    def _contents(
        self,
        operator: Any,
        args: Any,
        kwargs: Any,
        written: list[Any],
        results: list[Any],
        generator: Any,
    ) -> tuple[list[torch.Tensor], list[Any]] | None:
        """Return what `operator` gives for the values of its arguments, and for the second ones of those that
        are known in part, None where there are none or one of them is not known."""
        written_ids = {id(leaf) for leaf in written}
        moves, overwritten = operator._schema.name in MOVES, overwrites(operator, args, kwargs)

        def first_of(leaf: torch.Tensor) -> torch.Tensor | None:
            # What is calculated of content that is not known may agree by chance.
            return self._first_of(leaf) if moves or id(leaf) in written_ids else self.of(leaf)

        def second_of(leaf: torch.Tensor) -> torch.Tensor | None:
            return self._second_of(leaf) if moves or id(leaf) in written_ids else self.of(leaf)

        others = [leaf for leaf in tensors_of((args, kwargs)) if id(leaf) not in written_ids]
        if (self.empty or overwritten) and all(first_of(leaf) is not None for leaf in others):
            for leaf in written:
                self._begin_to_write(leaf, overwritten)
        in_part = bool(self.second) and any(storage_of(leaf) in self.second for leaf in (*others, *written))
        first = self._run(operator, args, kwargs, written, results, first_of)
        if first is None or not in_part:
            return None if first is None else (first, [None] * len(first))
        self.generators.repeat(generator)
        second = self._run(operator, args, kwargs, written, results, second_of)
        return None if second is None else (first, second)

    def _guesses(self, args: Any, kwargs: Any) -> bool:
        """Return whether a tensor among these arguments was made of elements that are not known."""
        import torch

        if not self.has_guessed or all(type(leaf) is not torch.Tensor for leaf in tensors_of((args, kwargs))):
            return False
        self.has_guessed = False
        return True

    def _run(
        self,
        operator: Any,
        args: Any,
        kwargs: Any,
        written: list[Any],
        results: list[Any],
        known: Callable[[torch.Tensor], torch.Tensor | None],
    ) -> list[torch.Tensor] | None:
        """Return what `operator` gives for the values of its arguments, which are `known`, None where they do
        not say it."""
        import torch
        from torch.utils import _pytree as pytree

        if any(type(leaf) is torch.Tensor for leaf in written) or any(map(is_large, results)):
            # What is not ours must not be written.
            return None
        leaves, form = pytree.tree_flatten((args, kwargs))
        of = self._of_or_zeros if is_mask(operator, results) else known
        values = [of(leaf) if isinstance(leaf, torch.Tensor) else on_host(leaf) for leaf in leaves]
        if any(value is None and leaf is not None for value, leaf in zip(values, leaves, strict=True)):
            return None
        real_args, real_kwargs = pytree.tree_unflatten(values, form)
        try:
            with on_real_tensors():
                result = operator(*real_args, **real_kwargs)
        except Exception as error:
            log.debug("%s of known values fails: %s", operator, error)
            return None
        real = tensors_of(result)
        # Tangents that are 0 throughout have no bytes.
        alike = len(real) == len(results) and not any(leaf.is_meta or leaf._is_zerotensor() for leaf in real)
        return real if alike else None

    def _keep(self, fake: torch.Tensor, value: torch.Tensor, second: torch.Tensor | None = None) -> None:
        """Know `fake`, which an operator has just made, to have the content of `value`; of what is known in
        part `second` is the other one."""
        contents = [self._content(fake, each) for each in (value, second) if each is not None]
        self._pair(fake.untyped_storage(), *contents)
        self._settle(storage_of(fake))

    def _content(self, fake: torch.Tensor, value: torch.Tensor) -> torch.UntypedStorage:
        """A storage as that of `fake`, with the content of `value`."""
        import torch

        storage, whole = fake.untyped_storage(), value.untyped_storage()
        layout = (fake.storage_offset(), fake.shape, fake.stride())
        with on_real_tensors():
            if whole.nbytes() == storage.nbytes() and layout[2] == value.stride():
                # Others may show more of it.
                real = whole.clone()  # type: ignore[no-untyped-call]
            else:
                real = torch.UntypedStorage(storage.nbytes())  # type: ignore[no-untyped-call]
                torch.empty(0, dtype=fake.dtype).set_(real, *layout).copy_(value)
        return real  # type: ignore[no-any-return]

    def sized(self, operator: Any, args: Any, kwargs: Any) -> Any:
        """Return what `operator` gives, whose size depends on values (`nonzero`), fake, and known where all
        of its arguments are; None where those are not on which the size depends."""
        import torch
        from torch.utils import _pytree as pytree

        arguments = arguments_of(operator, args, kwargs)
        deciding = SIZED_BY.get(operator._schema.name, arguments)
        whole = tensors_of(arguments)
        unknown = [tensor for tensor in whole if self.of(tensor) is None]
        if any(self.of(tensor) is None for name in deciding for tensor in tensors_of(arguments.get(name))):
            return None
        self.reasons.use(whole)
        args, kwargs = pytree.tree_map_only(torch.Tensor, self._of_or_zeros, (args, kwargs))
        with on_real_tensors():
            result = operator(*args, **kwargs)

        def fake_of(real: torch.Tensor) -> torch.Tensor:
            if operator._schema.name == PACKED and real.dim() == 1:
                # The numbers of rows of each moment, which recurrent layers read in C++.
                return real
            layout = (real.shape, real.stride())
            fake = torch.empty_strided(*layout, dtype=real.dtype, device=whole[0].device)
            if not unknown:
                self._keep(fake, real)
                self.reasons.pass_on(whole, [fake])
            return fake

        return pytree.tree_map_only(torch.Tensor, fake_of, result)

    def _of_or_zeros(self, tensor: torch.Tensor) -> torch.Tensor:
        """The value of `tensor`; zeros that take no memory where it is not known."""
        import torch

        value = self.of(tensor)
        if value is not None:
            return value
        with on_real_tensors():
            return torch.zeros((), dtype=tensor.dtype).expand(tensor.shape)

    def assume(self, fake: torch.Tensor, value: Any, reason: str = "") -> None:
        """Have the elements of `fake` be those of `value`, or each be this number, from here on, where they
        are not too many; with a `reason` for whatever is asked for that follows from them."""
        import torch

        if fake.numel() <= MOST_ASSUMED and storage_of(fake) not in self.real:
            with on_real_tensors():
                real = torch.empty(fake.shape, dtype=fake.dtype).copy_(torch.as_tensor(value))
            self._keep(fake, real)
            if reason:
                self.reasons.of[storage_of(fake)] = reason

    def answer(self, operator: Any, args: Any, kwargs: Any) -> Any:
        """Return what `operator` says of values of its arguments (`.item()`, `torch.equal`), None where they
        are not known."""
        import torch
        from torch.utils import _pytree as pytree

        if any(self.of(tensor) is None for tensor in tensors_of((args, kwargs))):
            return None
        self.reasons.use(tensors_of((args, kwargs)))
        args, kwargs = pytree.tree_map_only(torch.Tensor, self.of, (args, kwargs))
        with on_real_tensors():
            return operator(*args, **kwargs)
