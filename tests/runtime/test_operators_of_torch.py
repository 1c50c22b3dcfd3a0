"""Every operator that torch's own tests know, predicted and run: its results and the most that it holds."""

from __future__ import annotations

import gc
import sys
import types
import unittest
from collections.abc import Iterator
from itertools import accumulate, islice
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from memplan_engine import MemplanError, observe_fake
from memplan_engine.recordings.observed_flow import BEFORE, HELD, flow_peak
from tests.runtime.test_fake_habits import Lives

SAMPLES = 2
"""Of each operator."""
OFF = {"nn.functional.one_hot": "called by a name that was imported before the run"}
"""Those of which a figure is another one in a real run, by name, with the reason."""
REFUSED = {
    "nn.functional.linear_cross_entropy.chunked": "its options are no plain arguments",
    "tensor_split": "places in a tensor are read by C++",
    "to_sparse": "sparse tensors",
}
ELSEWHERE = ("jiterator", "sparse.")
"""Operators of GPUs, and those that take sparse tensors."""


@pytest.fixture
def operators(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    if "expecttest" not in sys.modules:
        # torch's tests import it for a class that is not used here.
        stand_in = types.ModuleType("expecttest")
        vars(stand_in)["TestCase"] = unittest.TestCase
        monkeypatch.setitem(sys.modules, "expecttest", stand_in)
    from torch.testing._internal.common_methods_invocations import op_db

    return [each for each in op_db if not each.name.startswith(ELSEWHERE)]


def name_of(operator: Any) -> str:
    return ".".join(part for part in (operator.name, operator.variant_test_name) if part)


def samples_of(operator: Any, gradients: bool) -> Iterator[Any]:
    types = operator.supported_backward_dtypes("cpu") if gradients else operator.supported_dtypes("cpu")
    if not types or (gradients and not operator.supports_autograd):
        return
    dtype = torch.float32 if torch.float32 in types else min(types, key=str)
    yield from islice(operator.sample_inputs("cpu", dtype, requires_grad=gradients), SAMPLES)


def copied(value: Any) -> Any:
    """`value` with tensors of its own, of the same form."""

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)

    return pytree.tree_map_only(torch.Tensor, copy, value)


def run(operator: Any, sample: Any, gradients: bool) -> Any:
    def called(first: Any, args: Any, kwargs: Any) -> Any:
        result = operator.op(first, *args, **kwargs)
        if gradients:
            leaves = [each for each in pytree.tree_leaves(result) if getattr(each, "requires_grad", False)]
            torch.autograd.backward(leaves, [torch.ones_like(each) for each in leaves])
        return result

    return called, copied((sample.input, sample.args, sample.kwargs))


def measured(called: Any, args: Any) -> tuple[int, int]:
    """Bytes there at the end, and at the fullest moment, of a real run."""
    given = {
        each.untyped_storage()._cdata for each in pytree.tree_leaves(args) if isinstance(each, torch.Tensor)
    }
    with Lives() as lives:
        result = called(*args)
    rows = [row for row in lives.rows if row[0].cdata not in given]
    change = [0] * (lives.operators + 2)
    for _, nbytes, born, gone in rows:
        change[born] += nbytes
        change[lives.operators + 1 if gone is None else gone] -= nbytes
    end = sum(nbytes for ref, nbytes, *_ in rows if not ref.expired())
    del result
    return end, max(accumulate(change))


def predicted(called: Any, args: Any) -> tuple[int, int]:
    flow = observe_fake(called, args).flow
    assert flow is not None
    there = (flow.storages.maker != BEFORE) & (flow.storages.released == HELD)
    return int(flow.storages.nbytes[there].sum()), flow_peak(flow)[0]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("gradients", [False, True])
def test_every_operator_holds_what_it_holds_in_a_real_run(operators: list[Any], gradients: bool) -> None:
    refused: set[str] = set()
    off: dict[str, Any] = {}
    gc.collect()
    # Models are looked for among all objects after each run: not among those of torch's tests.
    gc.freeze()
    try:
        for operator in operators:
            for sample in samples_of(operator, gradients):
                called, args = run(operator, sample, gradients)
                try:
                    ours = predicted(called, args)
                except MemplanError:
                    refused.add(name_of(operator))
                    continue
                called, args = run(operator, sample, gradients)
                try:
                    theirs = measured(called, args)
                except RuntimeError:
                    # A sample of a tensor that shows part of a storage, which its copy does not.
                    continue
                if ours != theirs:
                    off[name_of(operator)] = (ours, theirs)
    finally:
        gc.unfreeze()
    assert off.keys() <= OFF.keys(), off
    assert refused <= REFUSED.keys()
