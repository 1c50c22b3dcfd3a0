"""What operators run and which storages come and go, seen from below autograd.

The one part of this room that needs torch when it is imported: it is imported in functions only, and by the
runtime."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch._C import DispatchKey
from torch._higher_order_ops import BaseHOP
from torch.utils._python_dispatch import TorchDispatchMode

from memplan_engine.torch_capture.torch_autocast import may_be_cached
from memplan_engine.torch_capture.torch_fake import patched, storage_of
from memplan_engine.torch_capture.torch_operators import as_allocated, gives_views

GIVES_BACK_NEW = {"aten::lift_fresh", "aten::lift"}
"""Operators that give back their argument, which nobody else has seen before: `torch.tensor(…)`."""
STRIDED = torch.strided
BELOW_AUTOGRAD = torch._C.DispatchKey.AutogradFunctionality
"""The dispatch key that is excluded where no kernel of autograd runs."""
FOLDING = ("aten::linear", "aten::matmul")
"""Composite operators that choose by whether weights want gradients."""
TAKE_FUNCTIONS = {
    *("associative_scan", "cond", "flex_attention", "flex_attention_backward", "foreach_map"),
    *("hints_wrapper", "invoke_subgraph", "map_impl", "out_dtype", "scan", "strict_mode", "while_loop"),
    "while_loop_stack_output",
}
"""Higher-order operators whose eager implementations are Python that calls the functions they are given."""
CALL_ONCE = {"foreach_map", "hints_wrapper", "out_dtype", "strict_mode"}
"""Those of them that call one function, once, whatever values there are."""
MODE = "_get_current_dispatch_mode"
"""By it some of these implementations refuse to run under a mode."""
OTHERWISE_FAKE = ("aten.one_hot",)
"""Ops made of others on fake tensors than on real ones, where they hold nothing beside their result."""


class _Ref(weakref.ref):  # type: ignore[type-arg]
    """A weak reference that knows which storage it was of."""

    __slots__ = ("key",)
    key: int


def _ref(storage: torch.UntypedStorage, callback: Callable[[Any], None]) -> _Ref:
    ref: Any = _Ref(storage, callback)
    ref.key = storage._cdata
    return ref  # type: ignore[no-any-return]


class StorageWatch:
    """Knows of every storage that comes and goes by torch's own weak references: nothing is polled, and
    nothing is kept alive.

    A storage that an operator gives back and that nobody knew counts as made by it, unless it is that of one
    of its arguments: then it was there before (a parameter, an input). Subclasses hear of what is
    `allocated` and `freed`.
    """

    def __init__(self) -> None:
        self._refs: dict[int, _Ref] = {}
        self._entries: dict[int, tuple[int, Any]] = {}

    def allocated(self, storage: torch.UntypedStorage, shown: torch.Tensor) -> Any:
        """What to be told of when `storage` is gone; None for one that does not count. `shown` is the tensor
        in which it came: storages of fake tensors do not know their device."""
        raise NotImplementedError

    def freed(self, entry: Any) -> None:
        """The storage of which `allocated` gave `entry` is no more."""
        raise NotImplementedError

    def gave_back(self, operator: Any, tensor: torch.Tensor, args: Any, kwargs: Any) -> bool:
        """Whether `tensor`, which `operator` has given, shows the storage of one of these arguments."""
        key = storage_of(tensor)
        return any(storage_of(each) == key for each in tensors_in((args, kwargs)))

    def exclude(self, value: Any) -> None:
        """Leave out the storages of the tensors in `value`: they are there before the run."""
        for tensor in tensors_in(value):
            self._keep(tensor.untyped_storage())

    def returned(self, value: Any, args: Any, kwargs: Any, operator: Any) -> None:
        """Take note of what `operator` gave back for these arguments."""
        for tensor in (value,) if type(value) is torch.Tensor else tensors_in(value):
            if tensor.layout is not STRIDED:
                continue
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key in self._refs:
                if key in self._entries and storage.nbytes() != self._entries[key][0]:
                    # Resized: the old bytes went when the new ones came.
                    self._freed(self._refs[key])
                    self._allocated(key, storage, tensor)
            elif _may_give_back(operator) and self.gave_back(operator, tensor, args, kwargs):
                self._keep(storage)
            else:
                self._allocated(key, storage, tensor)

    def close(self) -> None:
        """Look no further: what is still there is there after the run."""
        self._refs.clear()
        self._entries.clear()

    def _keep(self, storage: torch.UntypedStorage) -> None:
        """Know `storage` until it is gone."""
        self._refs[storage._cdata] = _ref(storage, self._freed)

    def _allocated(self, key: int, storage: torch.UntypedStorage, shown: torch.Tensor) -> None:
        self._keep(storage)
        entry = self.allocated(storage, shown)
        if entry is not None:
            self._entries[key] = (storage.nbytes(), entry)

    def _freed(self, ref: Any) -> None:
        key: int = ref.key
        if self._refs.get(key) is not ref:
            return
        del self._refs[key]
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.freed(entry[1])


class StorageSizes(StorageWatch):
    """Only how many bytes there are; storages may be fake, and of symbolic sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.nbytes: int | torch.SymInt = 0

    def allocated(self, storage: torch.UntypedStorage, shown: torch.Tensor) -> int | torch.SymInt:
        """Its bytes."""
        nbytes: int | torch.SymInt = storage.nbytes()
        self.nbytes += nbytes
        return nbytes

    def freed(self, entry: int | torch.SymInt) -> None:
        """They are no more."""
        self.nbytes -= entry


@cache
def _may_give_back(operator: Any) -> bool:
    """Whether what `operator` returns may be an argument that was there before, by its schema; operators made
    of others, and what has no schema, may return anything."""
    schema = getattr(operator, "_schema", None)
    if schema is None:
        return True
    if schema.name in GIVES_BACK_NEW:
        return False
    return gives_views(operator) or is_composite(operator)


class OperatorMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operator that reaches the dispatcher below autograd, through `operate`. Of `cond` and other
    operators that call graphs only what they give back is seen, unless it runs them by `run_functions`."""

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Whether functions that the model itself compiles (`flex_attention` does) stay compiled: torch would
        refuse them under this mode, and, remembering that, everywhere else from then on."""
        return True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def operate(self, operator: Any, args: Any, kwargs: Any) -> Any:
        """Call `operator(*args, **kwargs)`; what it gives."""
        return operator(*args, **kwargs)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if has_parts(types):
            return NotImplemented
        if comes_whole(func, args, kwargs):
            with self:
                return taken_apart(func, args, kwargs)
        return self.operate(func, args, kwargs or {})


class Inside(OperatorMode):  # type: ignore[no-untyped-call]
    """Watches every operator below one call on fake tensors, and sums up the storages that they give back:
    what an operator made of others holds meanwhile and does not return. `layer_norm` calls
    `native_layer_norm`, whose mean and deviation it drops; `gru` makes every gate of every step."""

    def __init__(self) -> None:
        super().__init__()
        self._sizes = StorageSizes()
        self._moments: list[int | torch.SymInt] = []
        self._casts: list[weakref.ref[torch.Tensor]] = []

    def watch(
        self, kind: str, call: Callable[[], Any], arguments: Any
    ) -> tuple[Any, tuple[int | torch.SymInt, ...]]:
        """What `call`, the op of this kind on `arguments`, gives, and the bytes that it holds
        beside its arguments and results at each moment that may be its fullest: one number, then formulas."""
        self._sizes, self._moments, self._casts = StorageSizes(), [], []
        self._sizes.exclude(arguments)
        with self:
            value = call()
        end = self._sizes.nbytes
        self._sizes.close()
        held = [moment - end for moment in self._moments] if kind not in OTHERWISE_FAKE else []
        most = max((nbytes for nbytes in held if isinstance(nbytes, int)), default=0)
        return value, (most, *(nbytes for nbytes in held if not isinstance(nbytes, int)))

    def cached_casts(self, value: Any) -> list[torch.Tensor]:
        """Return what the watched call, which gave `value`, has put into autocast's cache."""
        given = {storage_of(tensor) for tensor in tensors_in(value)}
        casts = [tensor for cast in self._casts if (tensor := cast()) is not None]
        return [tensor for tensor in casts if storage_of(tensor) not in given]

    def operate(self, operator: Any, args: Any, kwargs: Any) -> Any:
        """Call it, in storages as CPU kernels make them."""
        if takes_functions(operator) and operator_name(operator) in CALL_ONCE:
            return run_functions(operator, args, kwargs, self)
        value = as_allocated(operator, operator(*args, **kwargs), args, kwargs)
        if operator is torch.ops.aten._to_copy.default and may_be_cached(args[0]):
            self._casts.append(weakref.ref(value))
        self._sizes.returned(value, args, kwargs, operator)
        self._moments.append(self._sizes.nbytes)
        return value


class Lives(OperatorMode, StorageWatch):  # type: ignore[no-untyped-call]
    """Watches the operators below one call, and how long the storages that they make are there. `kinds` are
    the operators in order; `spans` has, of each storage that goes before the call ends, which operator made
    it, the number of the result, and which was the last operator before it went."""

    def __init__(self) -> None:
        OperatorMode.__init__(self)
        StorageWatch.__init__(self)
        self.kinds: list[str] = []
        self.spans: list[tuple[int, int, int]] = []
        self._results = 0

    def watch(self, call: Callable[[], Any], arguments: Any) -> None:
        """Run `call`, which takes `arguments`."""
        self.exclude(arguments)
        with self:
            result = call()
        self.close()
        del result

    def allocated(self, storage: torch.UntypedStorage, shown: torch.Tensor) -> tuple[int, int]:
        """The place of the operator that runs, and the number of the result."""
        self._results += 1
        return len(self.kinds) - 1, self._results - 1

    def freed(self, entry: tuple[int, int]) -> None:
        """It went after the operator that ran last."""
        self.spans.append((*entry, len(self.kinds) - 1))

    def operate(self, operator: Any, args: Any, kwargs: Any) -> Any:
        """Call it, in storages as CPU kernels make them."""
        value = as_allocated(operator, operator(*args, **kwargs), args, kwargs)
        if (name := operator_name(operator)).startswith("prim::"):
            return value
        self.kinds.append(name)
        self._results = 0
        self.returned(value, args, kwargs, operator)
        return value


def takes_functions(operator: Any) -> bool:
    """Return whether `operator` calls functions that it is given, in Python."""
    return isinstance(operator, torch._ops.HigherOrderOperator) and operator_name(operator) in TAKE_FUNCTIONS


def run_functions(operator: Any, args: Any, kwargs: Any, mode: OperatorMode) -> Any:
    """Run `operator`, which takes functions, as eager mode does; `mode` sees the operators that they call."""
    refusals = [(module, MODE, lambda: None) for module in modules_with(MODE)]
    with mode, patched(*refusals, (torch, "_safe_softmax", safe_softmax)):
        return _implementation(operator)(*args, **kwargs)


def modules_with(name: str) -> list[ModuleType]:
    """Return the modules of higher-order operators that have a function `name`."""
    modules = [each for path, each in sys.modules.items() if path.startswith("torch._higher_order_ops.")]
    return [each for each in modules if name in vars(each)]


def _implementation(operator: Any) -> Callable[..., Any]:
    """Return what eager mode runs for `operator`."""
    if operator.name() == "invoke_subgraph":
        return lambda graph, identifier, *given: _called(graph, given)
    if isinstance(operator, BaseHOP):
        return lambda graph, *given, **options: _called(graph, given)
    return operator.py_kernels[DispatchKey.CompositeExplicitAutograd]  # type: ignore[no-any-return]


def _called(graph: Callable[..., Any], given: Any) -> Any:
    return graph(list(given)) if getattr(graph, "_boxed_call", False) else graph(*given)


def safe_softmax(*args: Any, **kwargs: Any) -> torch.Tensor:
    """Return `torch._safe_softmax(*args, **kwargs)`, by the operators that its kernel calls: one of them
    makes a mask of all scores."""
    with torch._C.DisableTorchFunction():
        softmaxed: torch.Tensor = by_parts(torch.ops.aten._safe_softmax.default, args, kwargs)
    return softmaxed


def has_parts(types: Iterable[type]) -> bool:
    """Whether some of these types of tensors are made of others (`DTensor`, of what a rank has of it), which
    they call an operator of in turn: they have no bytes, and a mode that gives way sees what is allocated."""
    return any(hasattr(kind, "__tensor_flatten__") for kind in types)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors that have a storage, in nested tuples, lists and dicts; of what is made of others its
    parts."""
    if isinstance(value, torch.Tensor):
        if hasattr(value, "__tensor_flatten__"):
            for name in value.__tensor_flatten__()[0]:
                yield from tensors_in(getattr(value, name))
        elif value.layout is torch.strided:
            yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from tensors_in(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from tensors_in(part)


def is_composite(operator: Any) -> bool:
    """Whether the operator (an overload) is made of others below autograd."""
    key = "CompositeImplicitAutograd"
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), key))


@cache
def _may_be_taken_apart(operator: Any) -> bool:
    """Return whether eager mode may run `operator` as others: it is torch's and composite."""
    if not isinstance(operator, torch._ops.OpOverload) or operator.namespace != "aten":
        return False
    return is_composite(operator)


def comes_whole(operator: Any, args: Any, kwargs: Any) -> bool:
    """Return whether a mode sees `operator` before it is taken apart into those that it is made of.

    Kernels of autograd take composite operators apart above all modes, where a device has no kernel of its
    own. They do not run in inference mode, for tensors that were made there, and in the functions that `cond`
    and its like call."""
    if not _may_be_taken_apart(operator):
        return False
    tensors = list(tensors_in((args, kwargs)))
    below_autograd = torch._C._dispatch_tls_is_dispatch_key_excluded(BELOW_AUTOGRAD)
    if not below_autograd and not any(each.is_inference() for each in tensors):
        return False
    key = "CUDA" if any(each.device.type == "cuda" for each in tensors) else "CPU"
    # Not remembered: a process that believes in a card has more kernels.
    return not torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), key)


def taken_apart(operator: Any, args: Any, kwargs: Any) -> Any:
    """Run a composite `operator` as the C++ code that calls its parts, which the current modes see."""
    folds = operator._schema.name in FOLDING and torch.is_inference_mode_enabled()
    with _WantedGradients() if folds else nullcontext():  # type: ignore[no-untyped-call]
        return operator._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **(kwargs or {}))


def by_parts(operator: Any, args: Any, kwargs: Any) -> Any:
    """Run `operator` as its C++ kernel does, by operators that the current modes see."""
    return operator._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs)


class _WantedGradients(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Has views of weights want gradients as the weights do. `matmul` chooses by it (`should_fold` in
    aten/src/ATen/native/LinearAlgebra.cpp), and below a mode views in inference mode do not."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        value = func(*args, **(kwargs or {}))
        if gives_views(func) and isinstance(value, torch.Tensor) and args[0].requires_grad:
            value.requires_grad_()
        return value


def operator_name(operator: Any) -> str:
    """ "aten::add" of an overload; the name of whatever else is called."""
    schema = getattr(operator, "_schema", None)
    return str(schema.name) if schema is not None else str(getattr(operator, "__name__", operator))
