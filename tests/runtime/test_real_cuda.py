"""Predicted runs against real ones, op by op: what each op makes, in bytes. On a card where there is one; the
same comparison on the CPU says that it can fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from memplan_engine import observe_fake

Made = list[tuple[str, list[int]]]
"""Of each op its name, and the bytes of the storages on the device that it made, those of none left out."""
FACTORIES = ("aten.empty", "aten.zeros", "aten.zeros_like")
"""What makes weights and the state of optimizers, which count as there before a predicted run."""
CARD = pytest.param(
    "cuda",
    marks=[
        pytest.mark.cuda,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no card for torch"),
    ],
)


class Makes(TorchDispatchMode):
    """What operators give back that none of their arguments is, with a storage that nobody has seen."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device, self.made, self.kept = device, [], []  # type: ignore[var-annotated]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func._schema.name.startswith(("prim::", "profiler::")):
            return result
        seen = {self._key(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}
        fresh: dict[int, int] = {}
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.device.type == self.device:
                fresh[self._key(leaf)] = leaf.untyped_storage().nbytes()
                # So that no other comes to lie at its place; the tensor itself autograd may want alone.
                self.kept.append(leaf.untyped_storage())
        made = sorted(nbytes for key, nbytes in fresh.items() if key not in seen and nbytes)
        self.made.append((func._schema.name.replace("::", "."), made))
        return result

    @staticmethod
    def _key(tensor: torch.Tensor) -> int:
        return tensor.untyped_storage()._cdata


def compared(rows: Made) -> Made:
    return [row for row in rows if row[1] and row[0] not in FACTORIES]


def real(run: Callable[[], Any], device: str) -> Made:
    mode = Makes(device)
    with mode:
        run()
    return compared(mode.made)


def predicted(run: Callable[[], Any], device: str) -> Made:
    seen = observe_fake(run, device=device)
    flow = seen.flow
    assert flow is not None
    wanted = flow.storages.device >= 0 if device == "cuda" else flow.storages.device < 0
    rows = []
    for op, kind in enumerate(seen.ops.kinds):
        numbers = [n for n in flow.makes[op] if wanted[n] and flow.storages.nbytes[n]]
        rows.append((kind, sorted(int(flow.storages.nbytes[n]) for n in numbers)))
    return compared(rows)


@contextmanager
def only(backend: SDPBackend | None) -> Iterator[None]:
    if backend is None:
        yield
        return
    with sdpa_kernel(backend):
        yield


def attends(device: str, backend: SDPBackend | None = None, **options: Any) -> Callable[[], Any]:
    dtype = options.pop("dtype", torch.bfloat16)
    head, mask = options.pop("head", 64), options.pop("mask", None)

    def run() -> None:
        q, k, v = (
            torch.empty(2, 4, 40, head, device=device, dtype=dtype, requires_grad=True) for _ in range(3)
        )
        given = None if mask is None else torch.ones(mask, device=device, dtype=torch.bool)
        with only(backend):
            functional.scaled_dot_product_attention(q, k, v, given, **options).sum().backward()

    return run


def layers(device: str) -> Callable[[], Any]:
    """Norms, activations, convolutions and a loss, forward and backward."""

    def run() -> None:
        x = torch.empty(4, 32, device=device, requires_grad=True)
        weight = torch.empty(32, 32, device=device, requires_grad=True)
        rows = functional.rms_norm(functional.linear(x, weight), (32,))
        rows = functional.layer_norm(functional.gelu(functional.mish(functional.silu(rows))), (32,))
        functional.cross_entropy(rows, torch.zeros(4, dtype=torch.long, device=device)).backward()

    return run


def image(device: str) -> Callable[[], Any]:
    def run() -> None:
        x = torch.empty(2, 3, 16, 16, device=device).contiguous(memory_format=torch.channels_last)
        weight = torch.empty(8, 3, 3, 3, device=device, requires_grad=True)
        y = functional.conv2d(x, weight).relu()
        functional.max_pool2d(y, 2).sum().backward()

    return run


REDUCED_IN_PLACE = (
    functional.mse_loss,
    functional.smooth_l1_loss,
    functional.soft_margin_loss,
    functional.binary_cross_entropy,
)


def losses(device: str) -> Callable[[], Any]:
    """Means of losses whose kernels keep the storage of every element's, and of others."""

    def run() -> None:
        x = torch.full((8, 16), 0.5, device=device, requires_grad=True)
        y = torch.ones(8, 16, device=device)
        for loss in (*REDUCED_IN_PLACE, functional.huber_loss, functional.l1_loss):
            loss(x, y).backward()

    return run


def step(device: str, **options: Any) -> Callable[[], Any]:
    """Two steps of AdamW."""

    def run() -> None:
        weights = [torch.zeros(16, 16, device=device, requires_grad=True) for _ in range(2)]
        optimizer = torch.optim.AdamW(weights, **options)
        x = torch.zeros(4, 16, device=device)
        for _ in range(2):
            (x @ weights[0] @ weights[1]).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    return run


RUNS: dict[str, Callable[[str], Callable[[], Any]]] = {
    "layers": layers,
    "losses": losses,
    "image": image,
    "adamw": step,
    "adamw, one by one": lambda device: step(device, foreach=False),
    "attention": attends,
    "attention, causal": lambda device: attends(device, is_causal=True),
    "attention, masked": lambda device: attends(device, mask=(40, 40)),
    "attention, float32": lambda device: attends(device, dtype=torch.float32),
    "attention, dropped": lambda device: attends(device, dropout_p=0.1),
    "attention, dropped by sixteenths": lambda device: attends(device, dropout_p=0.125),
    "attention, wide": lambda device: attends(device, head=256),
    "attention, odd": lambda device: attends(device, head=20),
    "attention, flash": lambda device: attends(device, SDPBackend.FLASH_ATTENTION),
    "attention, efficient": lambda device: attends(device, SDPBackend.EFFICIENT_ATTENTION),
    "attention, math": lambda device: attends(device, SDPBackend.MATH),
}
ON_THE_CPU = ("layers", "losses", "image", "adamw, one by one", "attention, flash")
"""Those that the CPU runs by itself as it is asked to."""


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("device", [CARD])
def test_each_op_makes_what_it_makes_on_the_card(name: str, device: str) -> None:
    run = RUNS[name](device)
    assert predicted(run, device) == real(run, device)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no card for torch")
def test_a_model_has_the_ops_of_a_real_run() -> None:
    model, x = nn.TransformerEncoderLayer(64, 4, batch_first=True), torch.rand(2, 8, 64)
    placed = model.cuda().bfloat16()
    seen = observe_fake(placed, (x.cuda().bfloat16(),), device="cuda")
    with torch.no_grad():
        ran = real(lambda: placed(x.cuda().bfloat16()), "cuda")
    assert [kind for kind in seen.ops.kinds if "attention" in kind] == [
        kind for kind, _ in ran if "attention" in kind
    ]


@pytest.mark.parametrize("name", ON_THE_CPU)
def test_the_comparison_itself_on_the_cpu(name: str) -> None:
    run = RUNS[name]("cpu")
    rows = predicted(run, "cpu")
    assert rows == real(run, "cpu")
    assert sum(sum(made) for _, made in rows) > 0
