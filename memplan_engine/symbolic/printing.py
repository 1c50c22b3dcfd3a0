"""sympy → text of a formula, in the words that every reader of graphs knows."""

from __future__ import annotations

from functools import cache
from typing import Any

from memplan_engine.errors import InputError


def print_formula(expression: Any) -> str:
    """See `expression.to_text`."""
    try:
        text = str(_printer().doprint(expression))
    except _NoFormulaError as error:
        found = f"{error} in {expression}"
        raise InputError(
            "formula", "", found, "a formula of whole numbers, + - * / // % **, min and max"
        ) from None
    # The printers of floors put brackets around themselves, which a whole formula does not need.
    return text[1:-1] if _is_one_bracket(text) else text


class _NoFormulaError(Exception):
    """The part that has no words."""


def _is_one_bracket(text: str) -> bool:
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return place > 0 and place == len(text) - 1
    return False


@cache
def _printer() -> Any:
    import sympy
    from sympy.printing.precedence import PRECEDENCE
    from sympy.printing.str import StrPrinter

    class Printer(StrPrinter):  # type: ignore[misc]
        """Each method is called by sympy for the class in its name."""

        def _bracket(self, expression: Any) -> str:
            text = str(self._print(expression))
            return (
                text if expression.is_Symbol or (expression.is_Integer and expression >= 0) else f"({text})"
            )

        def _print_floor(self, expression: Any) -> str:
            over, under = sympy.together(expression.args[0]).as_numer_denom()
            return f"({self._bracket(over)}//{self._bracket(under)})"

        def _print_ceiling(self, expression: Any) -> str:
            over, under = sympy.together(expression.args[0]).as_numer_denom()
            if under.is_Integer and under > 0:
                return f"({self._bracket(over + under - 1)}//{self._bracket(under)})"
            return f"(-({self._bracket(-over)}//{self._bracket(under)}))"

        def _print_Mod(self, expression: Any) -> str:  # noqa: N802
            one, other = expression.args
            return f"({self._bracket(one)} % {self._bracket(other)})"

        def _print_Max(self, expression: Any) -> str:  # noqa: N802
            return f"max({', '.join(sorted(map(str, map(self._print, expression.args))))})"

        def _print_Min(self, expression: Any) -> str:  # noqa: N802
            return f"min({', '.join(sorted(map(str, map(self._print, expression.args))))})"

        def _print_Pow(self, expression: Any, rational: bool = False) -> str:  # noqa: N802
            base, power = expression.args
            if not power.is_Integer:
                raise _NoFormulaError("a power that is no number")
            text = self.parenthesize(base, PRECEDENCE["Pow"], strict=False)
            if power < 0:
                return f"1/({text}**{-power})" if power != -1 else f"1/{text}"
            return f"{text}**{power}"

        def _print_Function(self, expression: Any) -> str:  # noqa: N802
            raise _NoFormulaError(f"the function {expression.func.__name__!r}")

        def emptyPrinter(self, expression: Any) -> str:  # noqa: N802
            raise _NoFormulaError(f"a {type(expression).__name__}")

        def _refuse(self, expression: Any) -> str:
            raise _NoFormulaError(f"a {type(expression).__name__}")

        _print_Float = _print_Infinity = _print_NegativeInfinity = _print_ComplexInfinity = _refuse  # noqa: N815
        _print_NaN = _print_ImaginaryUnit = _print_Pi = _print_Exp1 = _print_Piecewise = _refuse  # noqa: N815
        _print_Relational = _print_BooleanTrue = _print_BooleanFalse = _refuse  # noqa: N815

    return Printer({"order": None})
