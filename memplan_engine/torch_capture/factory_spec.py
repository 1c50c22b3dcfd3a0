"""What names a factory: "package.module:function" or "file.py:function", with arguments or without."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, NamedTuple

from memplan_engine.errors import InputError

EXPECTED = (
    "package.module:function or file.py:function, with arguments such as (batch=8) behind it or without "
    "(a whole script: memplan observe --fake)"
)
LITERALS = "arguments by name, each a number, a text or another plain value: (batch=8, dtype='bfloat16')"


class FactorySpec(NamedTuple):
    """`module` is a dotted name or the path of a file, `function` the dotted path within it, and `arguments`
    what it is called with."""

    module: str
    function: str
    arguments: Mapping[str, Any]

    @property
    def not_found(self) -> str:
        """What is found in a module that has no such function."""
        return f"no {self.function!r} in it"

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.module}:{self.function}" + f"({given})" * bool(given)

    def replaced(self, **arguments: Any) -> FactorySpec:
        """The same with these arguments, instead of or beside its own."""
        return self._replace(arguments={**self.arguments, **arguments})


def parse_factory(spec: str) -> FactorySpec:
    """`spec` in its parts.

    Raises
    ------
    InputError: what names no factory, or arguments that are no plain values.
    """
    source = f"factory {spec}"
    name, bracket, given = spec.partition("(")
    module, colon, function = name.rpartition(":")
    is_file = module.endswith(".py")
    if not (module and colon and function) or (module.startswith(".") and not is_file):
        raise InputError(source, "", repr(spec), EXPECTED)
    if not bracket:
        return FactorySpec(module, function, {})
    try:
        call = ast.parse(f"_({given}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or not isinstance(call.func, ast.Name):
            raise ValueError
        arguments = {each.arg: ast.literal_eval(each.value) for each in call.keywords}
        if None in arguments:
            raise ValueError
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError(source, "arguments", f"({given}", LITERALS) from None
    return FactorySpec(module, function, {str(name): value for name, value in arguments.items()})
