"""What tests of runs on cards that are not there have in common."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from memplan_engine import observe_fake
from memplan_engine.recordings.observation import Observation
from memplan_engine.recordings.observed_flow import Flow
from memplan_engine.runtime.recorder.cuda_library import NoGuardError, guard_content
from memplan_engine.torch_capture.training.torch_recipe import Recipe


def needs_guard() -> None:
    """Skip where the machine has a card of its own, or nothing that compiles a guard."""
    if torch.cuda.is_available():
        pytest.skip("this machine has a card of its own: test_real_cuda.py")
    try:
        guard_content()
    except NoGuardError as error:
        pytest.skip(str(error))
    # What a run imports is then there in each process that is forked.
    observe_fake(nn.Linear(2, 2), (torch.rand(1, 2),), recipe=Recipe("adam"))


def flow_of(observation: Observation) -> Flow:
    assert observation.flow is not None
    return observation.flow


def made(observation: Observation, kind: str) -> list[list[tuple[tuple[int, ...], str, int, int]]]:
    """Of each op of a kind the shape, dtype, bytes and device of what it made."""
    flow = flow_of(observation)
    each = flow.storages
    return [
        [(each.shapes[n], each.dtypes[n], int(each.nbytes[n]), int(each.device[n])) for n in flow.makes[op]]
        for op, other in enumerate(observation.ops.kinds)
        if other == kind
    ]
