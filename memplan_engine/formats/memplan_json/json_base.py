"""What all memplan JSON files share: strictness, columns, and errors that say where."""

from __future__ import annotations

import re
from collections.abc import Callable, Sized
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, FailFast, Field, ValidationError
from pydantic_core import PydanticSerializationError

from memplan_engine.errors import InputError
from memplan_engine.formats.read_limits import JsonWeights, check_json, read_text
from memplan_engine.graph import MAX_BYTES, MOST_DIMENSIONS

Count = Annotated[int, Field(ge=0, le=MAX_BYTES)]
"""Bytes or steps: a whole number from 0 to 2^63−1."""
Counts = Annotated[tuple[Count, ...], FailFast()]
Shape = Annotated[tuple[Count, ...], FailFast(), Field(max_length=MOST_DIMENSIONS)]
Stride = Annotated[int, Field(ge=-MAX_BYTES, le=MAX_BYTES)]
Names = Annotated[tuple[str, ...], FailFast()]
ScopeName = Literal[
    "graph",
    "with_temporaries",
    "with_kernels",
    "eager",
    "eager_predicted",
    "eager_predicted_with_kernels",
    "eager_predicted_uncompiled",
    "eager_predicted_uncompiled_with_kernels",
    "eager_part",
    "buffers",
]
"""What figures count: a `Scope` by its value."""

Model = TypeVar("Model", bound=BaseModel)

WEIGHTS = JsonWeights(objects=480, lists=260, fields=400, values=110)
"""Of pydantic, which parses a whole text before it looks at any of it; a field may be one that is unknown,
of which an error is kept."""
_MOST_ERRORS = 1000
_NO_TEXT = ("a name that is not valid text", "names in Unicode")
MUCH = 10_000_000
"""Characters of a file from which on its texts are looked at before."""
_TEXT = re.compile(r'"(?:[^"\\]+|\\.)*+"', re.DOTALL)
LONGEST_TEXT = 10_000
"""Characters of a name, a path or a line of code: no table shows more, and no formula has more."""


_HEAD = re.compile(r'"format"\s*:\s*"(memplan/[a-z]+)"\s*,\s*"version"\s*:\s*([0-9]{1,9})\s*[,}]')
"""The two fields side by side, as every file of ours has them. Within a text its quotes would be escaped."""


class Strict(BaseModel):
    """A part of a file: no unknown fields, no conversions, no NaN."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, str_max_length=LONGEST_TEXT
    )


class Head(BaseModel):
    """The two fields that say what a file is."""

    model_config = ConfigDict(extra="ignore", strict=True)
    format: str
    version: int


def parse(model: type[Model], text: str, source: str) -> Model:
    """Read JSON as `model`; raises InputError with the path of the first field that is wrong, and for more of
    it than memory should hold."""
    check_json(text, source, WEIGHTS)
    if len(text) > MUCH and not text.isascii():
        _check_texts(text, source)
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise explain(error, source) from None


def _check_texts(text: str, source: str) -> None:
    """Refuse a text that is too long before pydantic makes a string of it: with one letter beyond 16 bits all
    of it has four bytes a letter, several times."""
    for match in _TEXT.finditer(text):
        # Six characters write one: \\u0041.
        if match.end() - match.start() > 6 * LONGEST_TEXT + 2:
            raise InputError(source, "", "a longer text", f"at most {LONGEST_TEXT:,} characters")


ONE_VERSION = "1, all that this memplan can read"


def parse_head(text: str, source: str) -> Head:
    """Read what kind of file it is; raises InputError when it does not say, or is no JSON object.

    Where the two fields stand side by side, nothing is parsed: whoever reads the whole checks them again.
    """
    if found := _HEAD.search(text):
        return Head(format=found[1], version=int(found[2]))
    check_json(text, source, WEIGHTS)
    try:
        return Head.model_validate_json(text)
    except ValidationError as error:
        raise explain(error, source) from None


def check_head(text: str, source: str, form: str, known: str = "", newest: int = 1) -> int:
    """The version of the file, 1 to `newest`. Raise InputError unless it says that it is of the format `form`
    and of one of these; `known`: what is said to be expected, `form` itself unless given."""
    head = parse_head(text, source)
    if head.format != form:
        raise InputError(source, "field format", repr(head.format), known or form)
    if not 1 <= head.version <= newest:
        expected = ONE_VERSION if newest == 1 else f"1 to {newest}, all that this memplan can read"
        raise InputError(source, "field version", str(head.version), expected)
    return head.version


def load_as(model: type[Model], path: Path, form: str, newest: int = 1) -> Model:
    """The file at `path` as `model`; raises InputError unless it is sound, and of the format `form`, in a
    version up to `newest`."""
    text = read_text(path)
    check_head(text, path.name, form, newest=newest)
    return parse(model, text, path.name)


def check_length(
    column: Sized, n: int, place: str, source: str, what: str = "values", each: str = ""
) -> None:
    """Raise InputError unless `column` has `n` entries, one for each of what `each` names."""
    if len(column) != n:
        expected = f"{n}, one for each{each and f' {each}'}"
        raise InputError(source, f"field {place}", f"{len(column)} {what}", expected)


def render(make: Callable[[], BaseModel], source: str) -> bytes:
    """What `make` gives as a line of JSON in UTF-8: fields in their order, what equals its default left out.

    Raises InputError for a value that no file can hold, and for names that are no valid text.
    """
    try:
        return make().model_dump_json(exclude_defaults=True).encode() + b"\n"
    except ValidationError as error:
        raise explain(error, source) from None
    except (PydanticSerializationError, UnicodeEncodeError):
        raise InputError(source, "", *_NO_TEXT) from None


def explain(error: ValidationError, source: str) -> InputError:
    """The first thing that is wrong, as an InputError with the path of its field."""
    if error.error_count() > _MOST_ERRORS:
        found = f"{error.error_count():,} fields and values that are wrong"
        return InputError(source, "", found, "only the fields of the schema")
    # What was found is asked for only where it is shown: of a field that is missing it is the whole file.
    first = error.errors(include_url=False, include_input=False)[0]
    message = str(first["msg"])
    if first["type"] == "json_invalid":
        return InputError(source, "", f"broken JSON ({message.removeprefix('Invalid JSON: ')})", "valid JSON")
    place = f"field {path(first['loc'])}" if first["loc"] else ""
    if first["type"] == "missing":
        return InputError(source, place, "nothing", "a value")
    if first["type"] == "string_unicode":
        return InputError(source, place, *_NO_TEXT)
    if first["type"] == "string_too_long":
        return InputError(source, place, "a longer text", f"at most {LONGEST_TEXT:,} characters")
    if first["type"] == "too_long":
        length, most = first["ctx"]["actual_length"], first["ctx"]["max_length"]
        return InputError(source, place, f"{length:,} values", f"at most {most}")
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return InputError(source, place, "an unknown field", "only the fields of the schema")
    found = shown(error.errors(include_url=False)[0]["input"])
    return InputError(source, place, found, message.removeprefix("Input should be "))


def path(parts: tuple[int | str, ...]) -> str:
    """`("ops", 3, "name")` as `ops[3].name`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return text.removeprefix(".")


def shown(value: Any) -> str:
    """`value` as an error shows it: short."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = "null" if value is None else repr(value[:50] if isinstance(value, str) else value)
    return text if len(text) <= 40 else f"{text[:39]}…"
