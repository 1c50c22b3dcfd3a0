"""What predicted runs leave behind of what they were given, and what they say of compiled models."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from memplan_engine import InputError, Scope, observe_fake, observed_peak


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_function_finds_is_left_as_it_was(fails: bool) -> None:
    """Gradients, buffers, modes, what an optimizer keeps and how far its schedule is; also when it raises."""
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
    weight = next(model.parameters())
    weight.grad = before = torch.ones(4, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)

    def train() -> None:
        model.train()
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.rand(3, 4)).sum().backward()
            optimizer.step()
            schedule.step()
        model.extra = nn.Linear(2, 2)
        if fails:
            raise ValueError("enough")

    if fails:
        with pytest.raises(InputError, match="enough"):
            observe_fake(train)
    else:
        assert observed_peak(observe_fake(train))[0] > 0
    assert weight.grad is before
    assert bool((before == 1).all())
    assert all(each.grad is None for each in model.parameters() if each is not weight)
    assert not model.training
    assert not model[1].training
    assert len(model) == 2
    assert not optimizer.state
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert schedule.last_epoch == 0
    assert int(model[1].num_batches_tracked) == 0


def compiled() -> list[Any]:
    inner: Any = torch.compile(nn.Linear(4, 4))
    itself = nn.Linear(4, 4)
    itself.compile()
    return [torch.compile(nn.Linear(4, 4)), itself, nn.Sequential(inner)]


@pytest.mark.parametrize("place", range(3))
def test_a_compiled_model_is_said_to_be_taken_as_its_python(place: int) -> None:
    x = (torch.rand(2, 4),)
    seen, plain = observe_fake(compiled()[place], x), observe_fake(nn.Linear(4, 4), x)
    assert seen.flow is not None
    assert plain.flow is not None
    assert (seen.flow.compiled, plain.flow.compiled) == (True, False)
    assert seen.flow.scope is Scope.UNCOMPILED
    assert observed_peak(seen)[0] == observed_peak(plain)[0]
