"""Formulas: what they mean, what is refused, and that printing parses back."""

from __future__ import annotations

from fractions import Fraction

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine import InputError
from memplan_engine.graph import Symbol
from memplan_engine.symbolic import parse, to_sympy, to_text
from memplan_engine.symbolic.symbol_values import sympy_symbols

AT = {"n": 7, "batch": 2, "seq": 5}
SYMBOLS = tuple(Symbol(name, 1, None, 2) for name in AT)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4*batch*seq", 40),
        ("seq*-3 + 20", 5),
        ("seq//2", 2),
        ("-seq//2", -3),
        ("seq % 3", 2),
        ("-seq % 3", 1),
        ("seq/2*4", 10),
        ("n/2", Fraction(7, 2)),
        ("floor(n/2) + ceiling(n/2)", 7),
        ("floor(n)", 7),
        ("CeilDiv(n, 2) - FloorDiv(n, 2)", 1),
        ("Mod(n, 4)", 3),
        ("max(seq, n, 3) - Min(seq, n)", 2),
        ("max(seq)", 5),
        ("2**10 + n**0", 1025),
        ("-2**2", -4),
        ("(batch + 1)**3", 27),
        ("9223372036854775807*n", 64563604257983430649),
        ("  4 * ( seq ) ", 20),
    ],
)
def test_formulas_are_exact(text: str, value: int | Fraction) -> None:
    formula = parse(text, AT)
    assert formula.at(AT) == value
    symbols = sympy_symbols(SYMBOLS)
    in_sympy = to_sympy(formula, symbols)
    numbers = {symbols[name]: number for name, number in AT.items()}
    assert in_sympy.subs(numbers) == sympy.Rational(value.numerator, value.denominator)
    assert parse(to_text(in_sympy)).at(AT) == value


REFUSED = [
    ("", "a part that cannot be read"),
    ("4*", "a part that cannot be read"),
    ("4 seq", "a part that cannot be read"),
    ("__import__('os').system('true')", "none of these"),
    ("seq.__class__", "none of these"),
    ("sqrt(seq)", "the function 'sqrt'"),
    ("seq[0]", "none of these"),
    ("(lambda: 1)()", "none of these"),
    ("1.5*seq", "'1.5', which is none of these"),
    ("True", "none of these"),
    ("'a'", "none of these"),
    ("seq < 4", "none of these"),
    ("seq if seq else 1", "none of these"),
    ("+seq", "none of these"),
    ("~seq", "none of these"),
    ("seq ^ 2", "none of these"),
    ("seq << 2", "none of these"),
    ("max(*seq)", "none of these"),
    ("max(seq, key=seq)", "the function 'max'"),
    ("max()", "max of 0 arguments"),
    ("Mod(seq)", "Mod of 1 arguments"),
    ("floor(seq, 2)", "floor of 2 arguments"),
    ("seq // 0", "a division by zero"),
    ("Mod(seq, 0)", "a division by zero"),
    ("2**seq", "a power that is not a number"),
    ("seq**-1", "a power that is not a number"),
    ("seq**17", "from 0 to 16"),
    ("((seq**16)**16)**16", "may have"),
    ("9" * 30, "a number above 2^63-1"),
    ("1+" * 160 + "1", "more than 150 levels"),
    ("(" * 300 + "1" + ")" * 300, "a part that cannot be read"),
    ("1+" * 6000 + "1", "12001 characters"),
    ("seq\n+1", "a part that cannot be read"),
]


@pytest.mark.parametrize(("text", "found"), REFUSED, ids=[text[:20] for text, _ in REFUSED])
def test_everything_else_is_refused_by_name(text: str, found: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text, AT, "net.json", "storage 'a'")
    assert str(caught.value).startswith("net.json: storage 'a': found the formula ")
    assert found in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_symbol_is_named_with_those_that_exist() -> None:
    with pytest.raises(InputError) as caught:
        parse("4*sequence", AT, "net.json", "storage 'a'")
    assert str(caught.value) == (
        "net.json: storage 'a': found the symbol 'sequence' in '4*sequence', expected one of n, batch, seq"
    )
    with pytest.raises(InputError, match="expected no symbols, as the graph has none"):
        parse("n", {})


def test_a_divisor_that_is_always_zero_is_found_in_sympy() -> None:
    with pytest.raises(InputError, match="a division by zero"):
        to_sympy(parse("4 // (n - n)"))


WHOLE = sympy.Symbol("n", integer=True)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (sympy.floor(WHOLE / 2), "n//2"),
        (sympy.ceiling(WHOLE / 4), "(n + 3)//4"),
        (4 * WHOLE * sympy.floor(WHOLE / 2 + 1) + 1, "4*n*((n//2) + 1) + 1"),
        (sympy.floor((WHOLE + 1) / 2) + sympy.floor(WHOLE / 3), "(n//3) + ((n + 1)//2)"),
        (sympy.Max(WHOLE, 4) * 2, "2*max(4, n)"),
        (sympy.Mod(WHOLE, 4), "n % 4"),
        (WHOLE**2 / 2, "n**2/2"),
        (sympy.ceiling(12 / WHOLE), "-((-12)//n)"),
        (sympy.Integer(-3), "-3"),
    ],
)
def test_printing_uses_the_words_of_formulas(expression: sympy.Expr, text: str) -> None:
    printed = to_text(expression)
    assert sorted(printed.split(" + ")) == sorted(text.split(" + "))
    for n in (1, 4, 7):
        assert parse(printed).at({"n": n}) == Fraction(str(expression.subs(WHOLE, n)))


@pytest.mark.parametrize(
    "expression",
    [
        sympy.sqrt(sympy.Symbol("n")),
        sympy.sin(sympy.Symbol("n")),
        sympy.Float(1.5) * sympy.Symbol("n"),
        2 ** sympy.Symbol("n"),
        sympy.pi,
        sympy.oo,
        sympy.zoo,
        sympy.I,
        sympy.Piecewise((1, sympy.Symbol("n") > 2), (3, True)),
        sympy.Symbol("n") > 3,
    ],
    ids=str,
)
def test_what_formulas_have_no_words_for_is_refused(expression: sympy.Expr) -> None:
    with pytest.raises(InputError, match=r"expected a formula of whole numbers"):
        to_text(expression)


def _joined(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    two = st.tuples(parts, parts)
    divisor = st.integers(1, 9).map(str) | st.sampled_from(["n", "(seq + 1)"])
    return st.one_of(
        st.tuples(two, st.sampled_from("+-*")).map(lambda p: f"({p[0][0]} {p[1]} {p[0][1]})"),
        st.tuples(parts, st.sampled_from(["//", "%", "/"]), divisor).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
        st.tuples(st.sampled_from(["min", "max"]), two).map(lambda p: f"{p[0]}({p[1][0]}, {p[1][1]})"),
        st.tuples(st.sampled_from(["floor", "ceiling"]), parts).map(lambda p: f"{p[0]}({p[1]})"),
        st.tuples(parts, divisor).map(lambda p: f"CeilDiv({p[0]}, {p[1]})"),
        parts.map(lambda part: f"(-{part})"),
        st.tuples(parts, st.integers(0, 3)).map(lambda p: f"({p[0]})**{p[1]}"),
    )


FORMULAS = st.recursive(
    st.sampled_from(["n", "seq", "batch"]) | st.integers(0, 99).map(str), _joined, max_leaves=7
)


@given(FORMULAS, st.lists(st.integers(1, 200), min_size=3, max_size=3))
def test_what_is_printed_reads_back_to_the_same_values(text: str, numbers: list[int]) -> None:
    at = dict(zip(("n", "seq", "batch"), numbers, strict=True))
    formula = parse(text, at)
    in_sympy = to_sympy(formula, sympy_symbols(SYMBOLS))
    again = parse(to_text(in_sympy), at)
    assert again.at(at) == formula.at(at)
