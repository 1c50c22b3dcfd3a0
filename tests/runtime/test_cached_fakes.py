"""What is worked out once for like calls is what would be worked out each time, storages included."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from memplan_engine import observe_fake
from memplan_engine.runtime.cached_fakes import cached_fakes
from memplan_engine.torch_capture.torch_fake import fake_mode

CALLS: dict[str, Callable[..., torch.Tensor]] = {
    "a sum": lambda x: x + x,
    "in place": lambda x: x.mul_(2),
    "a view": lambda x: x[1:, ::2],
    "a copy of a slice": lambda x: x[:, :3].clone(),
    "a copy of a transposed slice": lambda x: x.t()[1:3].clone(memory_format=torch.preserve_format),
    "like a slice with gaps": lambda x: torch.empty_like(x[:, ::2]),
    "padded": lambda x: functional.pad(x[:, :4], (1, 2)),
    "joined": lambda x: torch.cat([x, x[1:]]),
    "a matrix product": lambda x: x @ x.t(),
    "norms": lambda x: functional.layer_norm(x, (x.shape[1],)),
    "images": lambda x: functional.conv2d(x[None, None].expand(2, 3, -1, -1), torch.ones(4, 3, 3, 3)),
    "nothing": lambda x: x[:0].clone(),
    "two of them": lambda x: x.max(1).values,
}


def form(tensor: torch.Tensor) -> tuple[object, ...]:
    layout = (tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.device)
    told = {name: value for name, value in vars(tensor).items() if name != "fake_mode"}
    flags = (tensor.requires_grad, tensor.is_inference(), tensor.is_conj(), tensor.is_neg())
    return (
        *layout,
        tensor.untyped_storage().nbytes(),
        tensor.data_ptr(),
        told,
        *flags,
        str(torch._C._dispatch_keys(tensor)),
    )


@pytest.mark.parametrize("name", CALLS)
def test_the_second_time_is_as_the_first(name: str) -> None:
    call, plain = CALLS[name], fake_mode(unknown_sizes=False)
    with plain:
        expected = form(call(torch.empty(6, 8)))
    with cached_fakes() as mode, mode:
        given = [torch.empty(6, 8) for _ in range(3)]
        found = [call(each) for each in given]
        assert [form(each) for each in found] == [expected] * 3
        # Each has a storage of its own, or that of what it was given.
        storages = {each.untyped_storage()._cdata for each in found}
        assert len(storages) == 3
    assert FakeTensorMode.cache_hits == 0


def test_what_differs_in_type_flags_or_layout_is_not_taken_for_the_same() -> None:
    with cached_fakes() as mode, mode:
        x = torch.empty(4, 4, dtype=torch.int64)
        assert [(x * by).dtype for by in (2, 2.0, True, 2)] == [
            torch.int64, torch.float32, torch.int64, torch.int64
        ]  # fmt: skip
        y = torch.empty(4, 4)
        views = [y, y.t(), y[:, :2], y[1:]]
        assert [torch.empty_like(each).stride() for each in views] == [(4, 1), (1, 4), (2, 1), (4, 1)]
        with torch.inference_mode():
            assert (y + y).is_inference()
        assert not (y + y).is_inference()
        split = [torch.cat([y, y], dim).shape for dim in (0, 1, 0)]
        assert [tuple(shape) for shape in split] == [(8, 4), (4, 8), (8, 4)]


def test_like_calls_are_looked_up() -> None:
    with cached_fakes() as mode, mode:
        x = torch.empty(6, 8)
        for _ in range(5):
            x = torch.relu(x)
        assert FakeTensorMode.cache_hits >= 4


def test_nothing_of_other_modes_is_used_or_kept() -> None:
    with FakeTensorMode() as other:
        torch.relu(torch.empty(3))
        assert other.cache
        with cached_fakes() as mode:
            assert not mode.cache
            with mode:
                torch.relu(torch.empty(4))
    assert not FakeTensorMode.cache


def test_which_attention_runs_is_asked_each_time() -> None:
    def run() -> None:
        query = torch.randn(1, 2, 16, 8)
        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH, SDPBackend.FLASH_ATTENTION):
            with sdpa_kernel(backend):
                functional.scaled_dot_product_attention(query, query, query)

    kinds = [kind for kind in observe_fake(run).ops.kinds if "attention" in kind or "softmax" in kind]
    assert [("softmax" in kind) for kind in kinds] == [False, True, False]
