"""The change of code beside a suggestion: what a person would write who does the same by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from memplan_engine.advice.code import BY_AUTOGRAD, BY_OPTIMIZER, in_place_code
from memplan_engine.graph import Op, Phase, Source
from memplan_engine.rewrites.reuse.kinds import is_elementwise


@pytest.mark.parametrize(
    ("kind", "inputs", "expected"),
    [
        ("aten.mul", ("x", "y"), "x.mul_(…)"),
        ("aten.mul", ("y", "x"), "x.mul_(…)"),
        ("aten.sub", ("y", "x"), "torch.sub(…, x, out=x)"),
        ("aten.tanh", ("x",), "x.tanh_()"),
        ("aten.relu", ("x",), "F.relu(x, inplace=True)"),
        ("aten.gelu", ("x",), "torch.ops.aten.gelu_(x)"),
        ("aten.where", ("x", "y", "z"), "torch.where(x, …, out=x)"),
        ("aten.where", ("y", "x", "z"), "torch.where(…, x, …, out=x)"),
        ("aten.maximum", ("x", "y"), "torch.maximum(x, …, out=x)"),
        ("aten.__and__", ("x", "y"), "x.bitwise_and_(…)"),
        ("aten.softplus", ("x",), "torch.ops.aten.softplus(x, out=x)"),
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


FLOATS, FLAGS = torch.tensor([0.2, 0.5, 0.7]), torch.tensor([True, False, True])
GIVEN = [
    (FLOATS,),
    (FLOATS, FLOATS.flip(0)),
    (FLAGS,),
    (FLAGS, FLAGS.flip(0)),
    (FLAGS, FLOATS, FLOATS.flip(0)),
]


def kinds_of_torch() -> list[str]:
    """The elementwise operators that torch has, without those of a backward pass."""
    names = {name[6:].split(".")[0] for name in torch._C._dispatch_get_all_op_names() if name[:6] == "aten::"}
    plain = (name for name in names if not (name.startswith("__i") or "backward" in name))
    own = (name for name in plain if name.startswith("__") or not name.endswith("_"))
    return sorted(name for name in own if is_elementwise(f"aten.{name}"))


def written_over(kind: str, values: tuple[torch.Tensor, ...], at: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The value at `at` after what is to be written has run, and what the operator gives."""
    places = [value.clone() for value in values]
    names = [f"v{index}" for index in range(len(values))]
    result: torch.Tensor = getattr(torch.ops.aten, kind)(*values)
    code = in_place_code(Op("op", f"aten.{kind}", tuple(names), ("result",)), names[at])
    others = [name for name in names if name != names[at]]
    # Of two gaps the first stands for what comes before x.
    gaps = [names[:at], names[at + 1 :]] if code.count("…") == 2 else [others]
    for gap in gaps:
        code = code.replace("…", ", ".join(gap), 1)
    scope: dict[str, Any] = {**dict(zip(names, places, strict=True)), "x": places[at], "torch": torch}
    scope["F"] = torch.nn.functional
    eval(code, scope)
    return places[at], result


@pytest.mark.filterwarnings("ignore")
def test_what_to_write_runs_and_gives_the_same() -> None:
    seen = 0
    for kind in kinds_of_torch():
        for values in GIVEN:
            try:
                result = getattr(torch.ops.aten, kind)(*values)
            except (RuntimeError, IndexError, TypeError, NotImplementedError):
                continue
            if not isinstance(result, torch.Tensor) or kind == "positive":
                continue
            for at, value in enumerate(values):
                if value.dtype == result.dtype and value.shape == result.shape:
                    ours, theirs = written_over(kind, values, at)
                    assert torch.equal(ours.nan_to_num(), theirs.nan_to_num()), (kind, at)
                    seen += 1
    assert seen > 100
