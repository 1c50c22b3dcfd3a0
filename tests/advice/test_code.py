"""The change of code beside a suggestion: what a person would write who does the same by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memplan_engine.advice.code import BY_AUTOGRAD, BY_OPTIMIZER, in_place_code
from memplan_engine.graph import Op, Phase, Source


@pytest.mark.parametrize(
    ("kind", "inputs", "expected"),
    [
        ("aten.mul", ("x", "y"), "x.mul_(…)"),
        ("aten.mul", ("y", "x"), "x.mul_(…)"),
        ("aten.sub", ("y", "x"), "torch.sub(…, x, out=x)"),
        ("aten.tanh", ("x",), "x.tanh_()"),
        ("aten.relu", ("x",), "F.relu(x, inplace=True)"),
        ("aten.gelu", ("x",), "torch.ops.aten.gelu_(x)"),
        ("Conv2D", ("x",), ""),
    ],
)
def test_what_to_write_for_an_op_in_place(kind, inputs, expected):
    assert in_place_code(Op("op", kind, inputs, ("result",)), "x") == expected


def test_nobody_writes_what_autograd_makes():
    op = Op("op", "aten.tanh_backward", ("x", "y"), ("result",), phase=Phase.BACKWARD)
    assert in_place_code(op, "x") == BY_AUTOGRAD


def test_nobody_writes_what_an_optimizer_of_torch_does() -> None:
    line = Source("train.py", 3, "optimizer.step()")
    op = Op("op", "aten.div", ("x", "y"), ("result",), source=line, phase=Phase.OPTIMIZER)
    assert in_place_code(op, "x") == BY_OPTIMIZER
    own = replace(op, source=replace(line, code="average = average / 2"))
    assert in_place_code(own, "x") == "x.div_(…)"
