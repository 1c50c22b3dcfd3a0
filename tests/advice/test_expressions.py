"""Which part of a line its ops are, by hand."""

from __future__ import annotations

import pytest

from memplan_engine.advice.expressions import sub_expressions
from memplan_engine.graph import Op, Source

GELU = (
    "return 0.5 * input * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * "
    "(input + 0.044715 * torch.pow(input, 3.0))))"
)


def told(code, kinds, times=1):
    ops = [
        Op(f"op{place}", f"aten.{kind}", ("x",), (), source=Source("a.py", 1, code))
        for place, kind in enumerate(kinds.split() * times)
    ]
    found = sub_expressions(ops)
    return [found.get(op.name, "") for op in ops]


def test_operators_and_calls_in_the_order_of_python():
    assert told(GELU, "mul pow mul add mul tanh add mul") == [
        "0.5 * input",
        "torch.pow(input, 3.0)",
        "0.044715 * torch.pow(input, 3.0)",
        "input + 0.044715 * torch.pow(input, 3.0)",
        "math.sqrt(2.0 / math.pi) * (…)",
        "torch.tanh(…)",
        "1.0 + …",
        "0.5 * input * (…)",
    ]


@pytest.mark.parametrize(
    ("code", "kinds", "expected"),
    [
        ("y = x.view(2, 3).add_(1)", "view add_", ["x.view(2, 3)", "x.view(2, 3).add_(1)"]),
        ("x += residual", "add", ["x += residual"]),
        # What has no part of the line, and parts that leave no op.
        ("y = self.norm(x) + b.to(x.device)", "detach add", ["", "self.norm(x) + b.to(x.device)"]),
        ("y = a * b", "mul mul mul", ["a * b"] * 3),
        # Another order, or one op more than the line has.
        ("y = a * b + c * d", "mul add mul", ["", "", ""]),
        ("y = a * b + c * d", "mul mul mul add", [""] * 4),
        # No whole line of Python.
        ("mask = create(", "add", [""]),
        ("(" * 400 + "a + b" + ")" * 400, "add", [""]),
        ("x\0 + 1", "add", [""]),
        ("a + " * 200 + "b", "add", [""]),
    ],
)
def test_what_a_line_does_not_tell_is_not_said(code, kinds, expected):
    assert told(code, kinds) == expected


def test_a_module_that_runs_twice():
    assert told("y = a * b + c", "mul add", times=2) == ["a * b", "a * b + c"] * 2
