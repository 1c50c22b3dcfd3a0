"""The command line that plans what a suggestion says."""

from __future__ import annotations

import shlex
from dataclasses import replace

from memplan_engine.advice.values import Suggestion
from memplan_engine.preparation import Preparation, arguments_of
from memplan_engine.what_if.edits import edit_argument


def command_of(suggestion: Suggestion, file: str, asked: Preparation | None = None) -> str:
    """What to type for the plan of `suggestion`, of the model in `file`. `asked` is what the person asked
    for, where a reader has taken symbols out of it."""
    how = suggestion.how if asked is None else _with(asked, suggestion)
    arguments = _options(how, suggestion)
    for edit in suggestion.all_edits:
        arguments += edit_argument(edit)
    verb = "what-if" if suggestion.all_edits else "plan"
    return shlex.join(["memplan", verb, file, *arguments])


def edits_command(suggestion: Suggestion, file: str, edits: str, asked: Preparation) -> str:
    """What to type for the plan of `suggestion` once its changes of buffers are in the file `edits`."""
    arguments = _options(_with(asked, suggestion), suggestion)
    if not suggestion.all_edits:
        return shlex.join(["memplan", "plan", file, *arguments])
    return shlex.join(["memplan", "what-if", file, *arguments, "--edits", edits])


def writing_command(suggestion: Suggestion, number: int, file: str, asked: Preparation) -> str:
    """What to type to have suggestion `number` of the list written: its plan, and its changes of buffers."""
    written = ["--apply", str(number), "-o", "plan.json", "--save-edits", "edits.json"]
    return shlex.join(["memplan", "suggest", file, *_options(asked, suggestion), *written])


def _with(asked: Preparation, suggestion: Suggestion) -> Preparation:
    """Return what was asked for with the options of `suggestion`; symbols that a reader bound stay bound."""
    symbols = {**dict(asked.symbols), **dict(suggestion.how.symbols)}
    return replace(asked, **{**suggestion.options, "symbols": tuple(symbols.items())})


def _options(how: Preparation, suggestion: Suggestion) -> list[str]:
    strategy = suggestion.plan.strategy
    return [*arguments_of(how), *(["--strategy", strategy] if strategy != "auto" else [])]
