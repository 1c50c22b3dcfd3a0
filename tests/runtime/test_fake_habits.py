"""What people do in training scripts beside a plain step: predicted on fake tensors, against real runs under
a recorder that knows nothing of memplan. Each case makes its own models and optimizers and gives back what
it keeps between steps, which counts nowhere."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import Any

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from memplan_engine import observe_fake
from memplan_engine.recordings.observed_flow import flow_peak, state_bytes
from tests.support.measured import storages_in

STEPS = 2
Kept = list[Any]
"""Modules and optimizers."""


def layers(width: int = 32, count: int = 3) -> nn.Module:
    parts = [part for _ in range(count) for part in (nn.Linear(width, width), nn.GELU())]
    return nn.Sequential(*parts, nn.Linear(width, 8))


def x() -> torch.Tensor:
    return torch.rand(16, 32)


def steps(model: nn.Module, optimizer: Any, backward: Callable[[nn.Module], None]) -> Kept:
    for _ in range(STEPS):
        backward(model)
        optimizer.step()
        optimizer.zero_grad()
    return [model, optimizer]


def optimizer_in_hooks() -> Kept:
    model = layers(count=1)
    optimizers: dict[Any, Any] = {each: torch.optim.SGD([each], 0.1) for each in model.parameters()}

    def update(parameter: torch.Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for each in model.parameters():
        each.register_post_accumulate_grad_hook(update)
    for _ in range(STEPS):
        model(x()).sum().backward()
    return [model, *optimizers.values()]


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(value)
        return value * value

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        (value,) = ctx.saved_tensors
        return 2 * value * gradients[0]


def custom_function() -> Kept:
    model = layers()
    return steps(
        model, torch.optim.Adam(model.parameters()), lambda net: Square.apply(net(x())).sum().backward()
    )


def two_optimizers() -> Kept:
    loss = functional.binary_cross_entropy_with_logits
    makes, judges = layers(), layers(8)
    of_makes, of_judges = (torch.optim.Adam(each.parameters()) for each in (makes, judges))
    for _ in range(STEPS):
        fake = makes(x())
        judged = loss(judges(fake.detach()), torch.zeros(16, 8)) + loss(
            judges(torch.rand(16, 8)), torch.ones(16, 8)
        )
        of_judges.zero_grad()
        judged.backward()
        of_judges.step()
        of_makes.zero_grad()
        loss(judges(fake), torch.ones(16, 8)).backward()
        of_makes.step()
    return [makes, judges, of_makes, of_judges]


def accumulation_and_clipping() -> Kept:
    def backward(model: nn.Module) -> None:
        for _ in range(3):
            (model(x()).pow(2).mean() / 3).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    model = layers()
    return steps(model, torch.optim.AdamW(model.parameters(), foreach=False), backward)


def reentrant_checkpoints() -> Kept:
    blocks, back = nn.ModuleList(layers() for _ in range(2)), nn.Linear(8, 32)
    optimizer = torch.optim.SGD([*blocks.parameters(), *back.parameters()], 0.1)
    for _ in range(STEPS):
        value = x().requires_grad_()
        for block in blocks:
            value = back(checkpoint(block, value, use_reentrant=True))
        value.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [blocks, back, optimizer]


def policy(_: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    saved = operator is torch.ops.aten.addmm.default
    return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE


def selective_checkpoints() -> Kept:
    contexts = partial(create_selective_checkpoint_contexts, policy)

    def backward(model: nn.Module) -> None:
        checkpoint(model, x(), use_reentrant=False, context_fn=contexts).sum().backward()

    model = layers()
    return steps(model, torch.optim.Adam(model.parameters()), backward)


def autocast_and_fused() -> Kept:
    def backward(model: nn.Module) -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result = model(x())
        result.float().sum().backward()

    model = layers()
    return steps(model, torch.optim.AdamW(model.parameters(), fused=True), backward)


def gradient_of_a_gradient() -> Kept:
    def backward(model: nn.Module) -> None:
        value = x().requires_grad_()
        result = model(value).sum()
        (slope,) = torch.autograd.grad(result, value, create_graph=True)
        (result + slope.pow(2).sum()).backward()

    model = layers()
    return steps(model, torch.optim.SGD(model.parameters(), 0.1), backward)


def losses_in_a_list() -> Kept:
    model, log = layers(), []

    def backward(model: nn.Module) -> None:
        loss = model(x()).sum()
        loss.backward()
        log.append(loss.detach())

    return steps(model, torch.optim.SGD(model.parameters(), 0.1), backward)


def statistics_and_schedule() -> Kept:
    parts = [
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    ]
    model = nn.Sequential(*parts)
    optimizer = torch.optim.RMSprop(model.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    for _ in range(STEPS):
        functional.cross_entropy(model(torch.rand(4, 3, 16, 16)), torch.tensor([0, 1, 2, 3])).backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return [model, optimizer]


def factored_states() -> Kept:
    model = layers()
    return steps(model, torch.optim.Adafactor(model.parameters()), lambda net: net(x()).sum().backward())


def chosen_and_scattered() -> Kept:
    def backward(model: nn.Module) -> None:
        result = model(x())
        values, places = result.topk(2, -1)
        routed = torch.zeros_like(result).scatter(-1, places, values.softmax(-1))
        (routed * result).sum().backward()

    model = layers()
    return steps(model, torch.optim.SGD(model.parameters(), 0.1), backward)


def recurrent_layers() -> Kept:
    words, cells, head = nn.Embedding(50, 16), nn.GRU(16, 32, 2, batch_first=True), nn.Linear(32, 50)

    def backward(_: nn.Module) -> None:
        ids = torch.randint(50, (4, 5))
        functional.cross_entropy(head(cells(words(ids))[0]).flatten(0, 1), ids.flatten()).backward()

    model = nn.ModuleList([words, cells, head])
    return steps(model, torch.optim.Adam(model.parameters()), backward)


class Cached(nn.Module):
    """Attention that keeps the keys and values of what it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, value: torch.Tensor, cache: Any) -> Any:
        q, k, v = self.mix(value).chunk(3, -1)
        if cache is not None:
            k, v = torch.cat([cache[0], k], 1), torch.cat([cache[1], v], 1)
        attended = functional.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])
        return self.out(attended[:, 0]), (k, v)


def a_growing_cache() -> Kept:
    model, cache, value = Cached(), None, torch.rand(2, 8, 32)
    with torch.no_grad():
        for _ in range(6):
            result, cache = model(value, cache)
            value = result[:, -1:]
    return [model]


def compiled() -> Kept:
    model = layers()
    # Its Python is what is counted, here and there.
    with torch.compiler.set_stance("force_eager"):
        quick = torch.compile(model)
        return steps(model, torch.optim.SGD(model.parameters(), 0.1), lambda _: quick(x()).sum().backward())


CASES = (
    optimizer_in_hooks, custom_function, two_optimizers, accumulation_and_clipping, reentrant_checkpoints,
    selective_checkpoints, autocast_and_fused, gradient_of_a_gradient, losses_in_a_list,
    statistics_and_schedule, factored_states, chosen_and_scattered, recurrent_layers, a_growing_cache,
    compiled,
)  # fmt: skip


class Lives(TorchDispatchMode):
    """Of every storage that an operator has returned after which operators it was there."""

    def __init__(self) -> None:
        super().__init__()
        self.operators = 0
        self.rows: list[list[Any]] = []
        self.there: list[list[Any]] = []
        self.known: dict[int, list[Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.operators += 1
        for storage in storages_in(result):
            row = self.known.get(storage._cdata)
            if row is None or row[0].expired():
                row = [StorageWeakRef(storage), storage.nbytes(), self.operators, None]
                self.known[storage._cdata] = row
                self.rows.append(row)
                self.there.append(row)
        for row in self.there:
            if row[0].expired():
                row[3] = self.operators
        self.there = [row for row in self.there if row[3] is None]
        return result


def kept_storages(kept: Kept) -> set[int]:
    tensors: list[Any] = []
    for each in kept:
        if isinstance(each, nn.Module):
            tensors += [*each.parameters(), *each.buffers()]
        else:
            tensors += each.state.values()
    return {storage._cdata for storage in storages_in(tensors)}


def measured(case: Callable[[], Kept]) -> int:
    """The most bytes after an operator of a real run, without those of what the case keeps."""
    gc.collect()
    gc.disable()
    try:
        with Lives() as lives:
            kept = case()
    finally:
        gc.enable()
    state = kept_storages(kept)
    change = [0] * (lives.operators + 2)
    for ref, nbytes, born, gone in lives.rows:
        if gone is not None or ref.cdata not in state:
            change[born] += nbytes
            change[lives.operators + 1 if gone is None else gone] -= nbytes
    live = most = 0
    for nbytes in change:
        live += nbytes
        most = max(most, live)
    return most


def measured_whole(case: Callable[[], Kept]) -> int:
    """Return the most bytes after an operator of a real run, with those of what the case keeps."""
    with Lives() as lives:
        kept = case()
    change = [0] * (lives.operators + 2)
    for _, nbytes, born, gone in lives.rows:
        change[born] += nbytes
        change[lives.operators + 1 if gone is None else gone] -= nbytes
    del kept
    return max(accumulate(change))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_habits_hold_what_real_runs_do(case: Callable[[], Kept]) -> None:
    seen = observe_fake(case)
    assert seen.flow is not None
    assert flow_peak(seen.flow)[0] == measured(case) > 0


def rolling_history() -> Kept:
    """LBFGS lets go of the oldest steps of its history, and keeps others."""
    torch.manual_seed(0)
    model, x, y = nn.Linear(32, 16), torch.randn(64, 32), torch.randn(64, 16)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4, history_size=3)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = (model(x) - y).pow(2).mean()
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    return [model, optimizer]


def test_a_history_that_rolls_is_counted_once() -> None:
    """With weights and all that is kept: what takes the place of older state was not there before it."""
    flow = observe_fake(rolling_history).flow
    assert flow is not None
    assert flow_peak(flow)[0] + state_bytes(flow) == measured_whole(rolling_history)
