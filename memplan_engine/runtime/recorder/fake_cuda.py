"""A device "cuda" for fake tensors in this process, on a machine that has none.

`cuda_guard.cpp` answers what torch's C++ asks, `cuda_stubs` what its Python does. Here stand the operators
that a build without CUDA would take apart, or that fake tensors know nothing of.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses import fake_impls, fake_tensor
from torch._subclasses.fake_impls import op_implementations_dict
from torch.autograd.function import BackwardCFunction
from torch.utils import _pytree as pytree

from memplan_engine.runtime.recorder.cuda_stubs import python_stubs
from memplan_engine.runtime.recorder.eager_kernels import SHAPES
from memplan_engine.torch_capture.torch_fake import on_host, patched

CUDNN = 92000
"""cuDNN 9.20, which torch's wheels for CUDA 13.0 require (nvidia-cudnn-cu13==9.20.0.48 in the metadata of
torch 2.13.0; https://github.com/NVIDIA/cosmos-framework/pull/153). It takes attention on sm90 and sm100."""
ONE_ON_CUDA = ("_fused_rms_norm", "mish_backward", "silu_backward")
"""Operators of `aten` that have a kernel for CUDA beside one made of others, by torchgen's
`native_functions.yaml`: a dispatch for CUDA (their own, or that of the structured one that they delegate to)
and one for CompositeImplicitAutograd. A build without CUDA takes them apart. tests/runtime/test_fake_cuda.py
reads the file again."""


_APPLY: Any = BackwardCFunction.apply
ROOM = 64
"""Rows that are asked for at once."""


class FakeCuda:
    """The `cards` that `library` has made this process believe in. Once made they stay until the process
    ends."""

    def __init__(self, library: ctypes.PyDLL, arch: int, cards: int) -> None:
        self.library, self.arch, self.cards = library, arch, cards
        # Autograd starts its threads with its first pass; those of the device come after that.
        torch.autograd.backward(torch.ones((), requires_grad=True))
        if library.memplan_install(arch, CUDNN, cards) != 1:
            raise RuntimeError("torch does not take the device cuda")
        self._kernels = _one_on_cuda()

    def current_stream(self, card: int) -> int:
        """The number of this thread's stream of a card; 0 is the default one."""
        return int(self.library.memplan_stream(card))

    def news(self) -> list[tuple[int, int, int, int]]:
        """What events and streams were asked for since it was last asked, as `StreamClock` hears it."""
        found: list[tuple[int, int, int, int]] = []
        rows = (ctypes.c_int64 * (4 * ROOM))()
        while count := self.library.memplan_heard(rows, ROOM):
            found += [tuple(rows[4 * row : 4 * row + 4]) for row in range(count)]  # type: ignore[misc]
        return found

    @contextmanager
    def believed(self) -> Iterator[None]:
        """With `torch.cuda` as on a machine with these cards."""
        pin = torch.ops.aten._pin_memory.default
        unpinned = op_implementations_dict[pin]
        op_implementations_dict[pin] = _pinned
        try:
            with patched(
                *python_stubs(self.library, self.arch, self.cards),
                (fake_tensor, "init_gpu_context", lambda *args, **kwargs: None),
                (fake_tensor, "run_fallback_kernel", _on_the_cpu),
                (fake_impls, "run_fallback_kernel", _on_the_cpu),
                (fake_tensor.FakeTensorMode, "avoid_device_init", property(lambda mode: True)),
                (BackwardCFunction, "apply", _backward),
            ):
                yield
        finally:
            op_implementations_dict[pin] = unpinned


def _backward(node: Any, *gradients: Any) -> Any:
    """Run the backward pass of a Function, in autograd's thread of the device. What a fake mode sets for its
    own thread holds there too: `torch.tensor(…, device="cuda")` makes no real tensor."""
    torch._C._set_only_lift_cpu_tensors(True)
    return _APPLY(node, *gradients)


def _pinned(mode: Any, operator: Any, tensor: torch.Tensor, device: Any = None) -> torch.Tensor:
    """A copy in memory of the host, as on any other; fake tensors have none that is pinned."""
    with mode:
        return torch.empty_like(tensor)


def _on_the_cpu(mode: Any, operator: Any, leaves: Any, form: Any, error: RuntimeError) -> Any:
    """What `operator`, whose results fake tensors do not know, gives on the CPU for zeros in place of its
    arguments, as if it lay where these do. What writes into an argument is refused with `error`."""
    fakes = [leaf for leaf in leaves if isinstance(leaf, fake_tensor.FakeTensor)]
    if operator._schema.is_mutable or torch.Tag.inplace_view in operator.tags or not fakes:
        raise error
    with fake_tensor.no_dispatch():
        real = [_zeros(leaf) if isinstance(leaf, torch.Tensor) else on_host(leaf) for leaf in leaves]
        args, kwargs = pytree.tree_unflatten(real, form)
        try:
            result = operator(*args, **kwargs)
        except NotImplementedError:
            raise error from None
    with mode:
        return pytree.tree_map_only(torch.Tensor, lambda tensor: _like(tensor, fakes[0].device), result)


def _zeros(tensor: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(tensor, device="cpu")


def _like(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)


def _one_on_cuda() -> list[torch.library.Library]:
    """Kernels for ONE_ON_CUDA, which are there to be found and never called: fake tensors run none. And the
    shapes of what else only CUDA runs, which fake tensors do not know."""

    def never(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("a kernel for CUDA, on a machine without it")

    make: Any = torch.library.Library
    kernels, shapes = (make("aten", "IMPL", key) for key in ("CUDA", "Meta"))
    for name in ONE_ON_CUDA:
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "CUDA"):
            kernels.impl(name, never)
    for name, shape in SHAPES.items():
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "Meta"):
            shapes.impl(name, shape)
    return [kernels, shapes]
