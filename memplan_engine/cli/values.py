"""What the help calls the values of arguments and options: `--capacity SIZE`, as manual pages have it."""

from __future__ import annotations

from typing import Any

BY_NAME = {
    "align": "NAME=BYTES",
    "alignment": "BYTES",
    "bank": "NAME=CAPACITY",
    "capacity": "SIZE",
    "clip_grad_norm": "NORM",
    "colour_by": "WHAT",
    "compare": "NAMES",
    "drop": "NAME",
    "dynamic": "DIMENSION",
    "fail_above": "GROWTH",
    "height": "LENGTH",
    "in_bank": "NAME",
    "lifetime": "NAME=START:END",
    "names": "NAMES",
    "pin": "NAME=OFFSET",
    "pool": "POOL",
    "resize": "NAME=SIZE",
    "seconds": "SECONDS",
    "split": "NAME=PARTS",
    "strategy": "NAME",
    "symbol": "NAME=VALUE",
    "symbols": "NAME=VALUE",
    "title": "TEXT",
    "values": "VALUES",
    "width": "LENGTH",
}
"""Of parameters whose value is more than what its type says, the word."""
BY_TYPE = {"path": "FILE", "int": "N", "int range": "N", "float": "NUMBER", "str": "TEXT"}
"""By what Typer calls a type; choices are named by themselves."""


def name_values(command: Any) -> None:
    """Call the values of `command`'s parameters as above, but for those that have a name of their own; its
    arguments are called as its sentences call them, FILE, BASE and HEAD."""
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            _name_argument(parameter)
        elif parameter.metavar is None and not parameter.is_flag:
            # Typer 0.29 and newer says it in a way of its own.
            kind = getattr(parameter, "type", None)
            parameter.metavar = BY_NAME.get(parameter.name, kind and BY_TYPE.get(kind.name))


def _name_argument(parameter: Any) -> None:
    several = "..." if parameter.nargs != 1 else ""
    called = (parameter.metavar or parameter.name).upper().removesuffix(several) + several
    parameter.metavar = called
    if parameter.required:
        # Typer would put braces around it, which are read as a choice.
        parameter.get_usage_pieces = lambda _context: [called]
