"""torch's symbolic expressions as text: the text gives what torch's own functions give."""

from __future__ import annotations

import random
import re

import pytest
import sympy
from torch.utils._sympy import functions as torch_functions

from memplan_engine.formats.formula_text import NoFormulaError, is_symbol_name, size_text
from memplan_engine.symbolic import parse
from memplan_engine.torch_capture.torch_symbols import formula_text

A, B, C = (sympy.Symbol(name, integer=True, positive=True) for name in ("s77", "s17", "u0"))
NAMES = {A: "batch", B: "seq", C: "u0"}
I, R = sympy.Integer, sympy.Float  # noqa: E741
TF = torch_functions

TEXTS = {
    "4*batch*seq": 4 * A * B,
    "4*batch*(seq//2) + 7": TF.FloorDiv(B, 2) * 4 * A + 7,
    "(batch % 3) + 1": TF.Mod(A, 3) + 1,
    "(seq + 2)//3": TF.CeilToInt(TF.IntTrueDiv(B, I(3))),
    "5*seq//2": TF.TruncToInt(R(2.5) * TF.ToFloat(B)),
    "max(1, 2*batch, u0)": TF.Max(1, C, A * 2),
    "4*min(batch, seq)": TF.Min(A, B) * 4,
    "batch*(batch + 1)//2": A * (A + 1) / 2,
    "batch**3": TF.PowByNatural(A, I(3)),
    "(seq//2) % 5": TF.ModularIndexing(B, I(2), I(5)),
    "batch*seq//(batch + seq)": TF.FloorDiv(A * B, A + B),
    "2*batch": TF.CleanDiv(4 * A, I(2)),
    "2*(batch*seq % 7)": 2 * TF.Mod(A * B, I(7)),
    "((((seq - 1)//2) - 1)//2) + 1": TF.FloorDiv(TF.FloorDiv(B - 1, 2) - 1, 2) + 1,
    "4*(batch + 1)*(seq + 2)": (A + 1) * (B + 2) * 4,
    "(batch % seq)**2": TF.Mod(A, B) ** 2,
    # What torch keeps of a broadcast tensor: the place of its last element, plus one.
    "1024*batch*seq": 1024 * B * (A - 1) + 1024 * B,
}


@pytest.mark.parametrize("text", TEXTS)
def test_text_gives_torch_s_own_values(text: str) -> None:
    written = formula_text(TEXTS[text], NAMES)
    assert re.sub(r"[() ]", "", written) == re.sub(r"[() ]", "", text)
    chance = random.Random(text)
    for _ in range(30):
        values = {symbol: chance.randint(1, 300) for symbol in NAMES}
        named = {NAMES[symbol]: value for symbol, value in values.items()}
        assert eval(written, {"min": min, "max": max}, dict(named)) == int(TEXTS[text].subs(values))
        assert parse(written, named).at(named) == int(TEXTS[text].subs(values))


@pytest.mark.parametrize(
    "expression",
    [
        TF.Where(sympy.Lt(A, B), A, B),
        TF.TruncToInt(R(0.7) * TF.ToFloat(B)),
        sympy.sqrt(A),
        2**A,
    ],
)
def test_what_is_no_formula_of_whole_numbers_is_refused(expression: sympy.Expr) -> None:
    with pytest.raises(NoFormulaError):
        formula_text(expression, NAMES)


def test_large_expressions_are_not_multiplied_out() -> None:
    """Multiplied out, the product has hundreds of terms."""
    text = formula_text(sympy.prod([A + B + number for number in range(1, 25)]), NAMES)
    assert (text.count("batch"), text.count("**")) == (24, 0)


def test_names_of_symbols() -> None:
    assert all(map(is_symbol_name, ("s0", "batch", "_seq", "N1")))
    assert not any(map(is_symbol_name, ("", "1s", "a b", "max", "floor", "lambda", "x[0]", "größe")))


def test_divisions_are_those_of_whole_numbers() -> None:
    n = sympy.Symbol("n", integer=True)
    assert size_text(n * (n - 1) / 2) == "(n*(n - 1))//2"
    assert size_text(sympy.ceiling((n - 3) / sympy.Integer(4))) == "n//4"
