"""Fake twins of tensors: the same shapes and the same sharing of storages, and no bytes; and which PyTorch
makes them, and whether it is the one that memplan was measured on."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from memplan_engine.errors import InputError, MissingDependencyError

if TYPE_CHECKING:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

Result = TypeVar("Result")
RECORDED = "or, if it runs eagerly, a plan of a recorded run (memplan observe FACTORY; observe_model)"
"""The way out for whatever cannot be captured: it runs as it is, and what it allocated is planned."""
STEP_RECORDED = (
    "or, if it runs eagerly, a recorded run of it as a factory "
    "(memplan observe FACTORY --training step; observe_model)"
)
MEASURED = "2.13"
"""What kernels allocate was measured on this release, and its private interfaces are the ones in use."""
MOST_ELEMENTS = 2**20
"""Of a tensor that is worked out: masks and positions are far below, activations are seldom."""
PLAIN = (type(None), bool, int, float, str)
"""What is no tensor, and holds none."""
EXPORTABLE = f"a model that torch.export can trace with these inputs, {RECORDED}"


@contextmanager
def quiet() -> Iterator[None]:
    """Without torch's warnings and dumps of graphs: what matters is in the error, if there is one."""
    names = ("torch.fx.experimental.symbolic_shapes", "torch._subclasses.fake_tensor")
    levels = {logger: logger.level for logger in map(logging.getLogger, names)}
    for logger in levels:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


def as_exported(call: Callable[[], Result]) -> Result:
    """What `call` gives on fake tensors. Where the C++ code of an operator asks for a value or a size that
    depends on the data, it is called again with torch's decompositions in Python (`aten.pad` of such a size,
    `istft`), as torch.export does it from the start."""
    from torch._dispatch.python import enable_python_dispatcher
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    asks = (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode)
    try:
        return call()
    except Exception as error:
        if not isinstance(error.__cause__ or error, asks):
            raise
    with enable_python_dispatcher():
        return call()


def fake_mode(unknown_sizes: bool = True) -> FakeTensorMode:
    """A mode in which every size is a plain number, but for those that depend on the data; without
    `unknown_sizes` these are an error where they are asked for."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    shapes = ShapeEnv() if unknown_sizes else None
    mode = FakeTensorMode(shape_env=shapes, static_shapes=True, allow_non_fake_inputs=True)
    # What it gives the second time may lie in a smaller storage than the first (a copy of a slice).
    mode.cache_enabled = False
    return mode


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors among the leaves of `value`, in order."""
    import torch
    from torch.utils import _pytree as pytree

    # What operators take is looked at often, and goes by itself.
    kind = type(value)
    if kind in (tuple, list):
        return [tensor for part in value for tensor in tensors_of(part)]
    if kind in PLAIN or isinstance(value, torch.Tensor):
        return [] if kind in PLAIN else [value]
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def part_of_path(part: Any) -> str:
    """A part of a path of torch's to a leaf as people write it: the key, the place, or the attribute."""
    return str(next(getattr(part, kind) for kind in ("key", "idx", "name") if hasattr(part, kind)))


def on_host(leaf: Any) -> Any:
    """`leaf`; where it is an accelerator, the CPU: values are worked out there."""
    import torch

    return torch.device("cpu") if isinstance(leaf, torch.device) and leaf.type == "cuda" else leaf


def storage_of(tensor: torch.Tensor) -> int:
    """What tells the storage of `tensor` from others, as long as it is there."""
    return int(tensor.untyped_storage()._cdata)


@contextmanager
def patched(*patches: tuple[Any, str, Any]) -> Iterator[None]:
    """With other attributes: the module or class, the name, and what stands there meanwhile."""
    # As they are kept, not as `getattr` gives them: a class method is no bound one.
    before = [(owner, name, vars(owner)[name]) for owner, name, _ in patches]
    try:
        for owner, name, value in patches:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def fake_storage(nbytes: int) -> torch.UntypedStorage:
    """A storage of `nbytes` bytes that takes no memory."""
    import torch

    return torch.UntypedStorage(nbytes, device="meta")  # type: ignore[no-untyped-call]


def fake_view(
    mode: FakeTensorMode,
    storage: torch.UntypedStorage,
    dtype: torch.dtype,
    shape: Sequence[int],
    stride: Sequence[int],
    offset: int,
    device: torch.device,
) -> torch.Tensor:
    """A fake tensor that shows `storage` (one of `fake_storage`); stride and offset in elements."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    shell: torch.Tensor = torch.empty(0, dtype=dtype, device="meta")
    with torch.no_grad():
        shell.set_(storage, offset, tuple(shape), tuple(stride))
    return FakeTensor(mode, shell, device)


class FakeTwins:
    """Makes fake tensors of `mode` after real, meta or fake ones. The twins of tensors that share a
    storage share one too: tied weights stay tied. Those of meta tensors claim to lie on `meta_device`, or all
    of them on `device`."""

    def __init__(self, mode: FakeTensorMode, meta_device: str = "meta", device: str = "") -> None:
        self.mode, self.meta_device, self.device = mode, meta_device, device
        self._twins: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._storages: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}

    def twin(self, value: Any) -> Any:
        """The fake twin of a tensor, the same object each time; of a symbolic size of another mode the number
        that it is for the example inputs; anything else as it is, and so what is fake in this very mode.

        Raises
        ------
        InputError: a tensor without a storage of its own (sparse, MKL-DNN, a wrapper subclass); a size that
            depends on the data.
        """
        import torch

        if isinstance(value, torch.SymInt) and value.node.shape_env is not self.mode.shape_env:
            return concrete(value)
        if not isinstance(value, torch.Tensor):
            return value
        if getattr(value, "fake_mode", None) is self.mode:
            with self.mode:
                return value.detach()
        if id(value) not in self._twins:
            # Both are kept: an id means nothing once its object is gone.
            self._twins[id(value)] = (value, self._make(value))
        return self._twins[id(value)][1]

    def _make(self, tensor: torch.Tensor) -> torch.Tensor:
        import torch

        if tensor.layout is not torch.strided:
            raise InputError("torch", "tensor", f"layout {tensor.layout}", "a strided tensor")
        fake = fake_view(
            self.mode,
            self._storage(tensor),
            tensor.dtype,
            [concrete(size) for size in tensor.shape],
            [concrete(stride) for stride in tensor.stride()],
            concrete(tensor.storage_offset()),
            self._device_of(tensor),
        )
        if isinstance(tensor, torch.nn.Parameter):
            with self.mode:
                return torch.nn.Parameter(fake, requires_grad=tensor.requires_grad)
        return fake.requires_grad_(tensor.requires_grad and tensor.is_leaf)

    def _device_of(self, tensor: torch.Tensor) -> torch.device:
        import torch

        claimed = self.device or (self.meta_device if tensor.device.type == "meta" else "")
        return torch.device(claimed) if claimed else tensor.device

    def _storage(self, tensor: torch.Tensor) -> torch.UntypedStorage:
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            raise InputError(
                "torch", "tensor", f"a {type(tensor).__name__} without storage", "a plain strided tensor"
            ) from None
        if storage._cdata not in self._storages:
            self._storages[storage._cdata] = (storage, fake_storage(concrete(storage.nbytes())))
        return self._storages[storage._cdata][1]


def concrete(value: Any) -> int:
    """`value` as a number; of a symbolic one its hint, which is its value for the example inputs.

    Raises
    ------
    InputError: a symbol without a hint: a size that depends on the data.
    """
    if isinstance(value, int):
        return value
    hint = value.node.hint if value.node.has_hint() else None
    if hint is None:
        raise InputError("torch", "shape", f"symbol {value} without a value", "sizes known before the run")
    return int(hint)


def require_torch(purpose: str) -> None:
    """Raise MissingDependencyError where torch is not installed; warn once of releases but MEASURED."""
    try:
        import torch
    except ImportError:
        raise MissingDependencyError("torch", "torch", purpose) from None
    _warn_unless_measured(str(torch.__version__))


@cache
def _warn_unless_measured(version: str) -> None:
    if version.split(".")[:2] != MEASURED.split("."):
        warnings.warn(
            f"memplan was measured on torch {MEASURED}, and this is torch {version}: the bytes that kernels "
            "allocate may be others, and what rests on torch's private interfaces may fail; "
            "`memplan run --check` compares a plan with a real run",
            stacklevel=3,
        )
