"""The manifest of a zoo, a TOML file: models, and the axes along which each has variants.

project = "shop"
capacity = "h100-80"
strategies = ["auto"]

[axes]
batch = [1, 8, 32]
dtype = ["float32", "bfloat16"]

[[models]]
name = "ranker"
factory = "nets.py:ranker(layers=4)"
training = "step"
exclude = [{ batch = 32, dtype = "float32" }]
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any

from memplan_engine.accelerators.presets import PRESETS, USUAL
from memplan_engine.errors import InputError, MemplanError
from memplan_engine.preparation import PLANNING_OPTIONS, Preparation
from memplan_engine.strategies import get_strategy
from memplan_engine.torch_capture.factory_spec import parse_factory
from memplan_engine.units import parse_bytes
from memplan_engine.zoo.zoo_values import Manifest, Origin, Pairs, Value, Variant

if TYPE_CHECKING:
    from memplan_engine.zoo.manifest_format import ManifestFile, ModelEntry

MOST = 100_000
"""Variants of a manifest: at half a second each a night's work on one core, and more is a slip."""
OPTIONS = {
    name: option
    for name, option in PLANNING_OPTIONS.items()
    if name not in ("symbols", "schedule", "card", "calibration")
}
"""Of planning, those that any graph takes."""


def read_zoo(path: Path | str) -> Manifest:
    """The manifest in the file `path`; factories, files and scripts lie relative to its folder.

    Raises
    ------
    InputError: a file that is no such manifest: with the table and the key, what stands there, and what
    should. MemplanError: a strategy that nobody knows.
    """
    from pydantic import ValidationError

    from memplan_engine.formats.memplan_json.json_base import explain
    from memplan_engine.zoo.manifest_format import ManifestFile

    path = Path(path)
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(str(path), "", error.strerror or str(error), "a manifest, as TOML") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(str(path), "", str(error), "a manifest, as TOML") from None
    try:
        file = ManifestFile.model_validate(said)
    except ValidationError as error:
        wrong = explain(error, str(path))
        place = wrong.place.replace("field ", "key ")
        expected = wrong.expected
        if wrong.found == "an unknown field":
            raise InputError(str(path), place, "an unknown key", _keys(error)) from None
        raise InputError(str(path), place, wrong.found, expected) from None
    return _Reader(path, file).manifest()


def _keys(error: Any) -> str:
    """The keys of the table in which one was found that it has not."""
    from memplan_engine.zoo.manifest_format import ManifestFile, ModelEntry

    inner = error.errors(include_url=False, include_input=False)[0]["loc"][:-1]
    known: Any = ModelEntry if inner[:1] == ("models",) else ManifestFile
    return f"one of {', '.join(known.model_fields)}"


@dataclass
class _Reader:
    path: Path
    file: ManifestFile

    def refuse(self, place: str, found: str, expected: str) -> InputError:
        return InputError(str(self.path), f"key {place}", found, expected)

    def manifest(self) -> Manifest:
        """All of it, checked before anything runs."""
        device, capacity = self.capacity()
        variants: list[Variant] = []
        names: set[str] = set()
        for number, entry in enumerate(self.file.models):
            if entry.name in names:
                raise self.refuse(f"models[{number}].name", f"{entry.name!r} twice", "a name for each model")
            names.add(entry.name)
            variants += self.variants(entry, f"models[{number}]", device)
            if len(variants) > MOST:
                raise self.refuse(f"models[{number}].axes", f"more than {MOST:,} variants", "fewer")
        return Manifest(self.path, tuple(variants), self.file.project, capacity, device)

    def capacity(self) -> tuple[str, int | None]:
        given = self.file.capacity
        if isinstance(given, str) and given in PRESETS:
            return given, PRESETS[given].usable_bytes
        if given is None:
            return "", None
        try:
            return "", parse_bytes(str(given))
        except InputError as error:
            expected = f"{error.expected}, or a device: {', '.join(PRESETS)}"
            raise self.refuse("capacity", repr(given), expected) from None

    def variants(self, entry: ModelEntry, place: str, device: str) -> Iterator[Variant]:
        kind = self.kind(entry, place)
        axes = {name: values for name, values in {**self.file.axes, **entry.axes}.items() if values}
        if prod(len(values) for values in axes.values()) > MOST:
            raise self.refuse(f"{place}.axes", f"more than {MOST:,} variants", "fewer")
        left_out = [*self.left_out(self.file.exclude, "exclude", None)]
        left_out += self.left_out(entry.exclude, f"{place}.exclude", axes)
        strategies = self.strategies(entry, place)
        how = self.how({**self.file.options, **entry.options}, place)
        made = []
        for choice in itertools.product(*(dict.fromkeys(values) for values in axes.values())):
            chosen: Pairs = tuple(zip(axes, choice, strict=True))
            if not any(_matches(each, dict(chosen)) for each in left_out):
                origin = self.origin(entry, kind, chosen, place)
                ran_on = (device or USUAL) if origin.script else ""
                made.append(Variant(entry.name, chosen, origin, strategies, how, ran_on))
        if not made:
            raise self.refuse(f"{place}.exclude", "no variant that is left", "fewer exclusions")
        yield from made

    def kind(self, entry: ModelEntry, place: str) -> str:
        given = [name for name in ("factory", "file", "script") if getattr(entry, name)]
        if len(given) != 1:
            found = " and ".join(given) or "neither factory, file nor script"
            expected = 'one of them, as factory = "nets.py:build"'
            raise InputError(str(self.path), f"table {place} ({entry.name})", found, expected)
        useless = {
            "factory": ("arguments", "world"),
            "file": ("arguments", "world", "training"),
            "script": ("training",),
        }
        for key in useless[given[0]]:
            if getattr(entry, key) not in ([], 1, "inference"):
                raise self.refuse(f"{place}.{key}", repr(getattr(entry, key)), f"no {key} of a {given[0]}")
        if given[0] != "factory":
            path = self.path.parent / str(getattr(entry, given[0]))
            if not path.is_file():
                raise self.refuse(f"{place}.{given[0]}", "no such file", f"one at {path}")
        else:
            try:
                parse_factory(entry.factory)
            except InputError as error:
                raise self.refuse(f"{place}.factory", error.found, error.expected) from None
        return given[0]

    def left_out(
        self, given: list[dict[str, Any]], place: str, axes: dict[str, Any] | None
    ) -> Iterator[dict[str, tuple[Value, ...]]]:
        known = axes if axes is not None else {**self.file.axes}
        for entry in self.file.models if axes is None else ():
            known |= entry.axes
        for number, combination in enumerate(given):
            for name in combination:
                if name not in known:
                    expected = f"one of the axes {', '.join(known)}" if known else "axes"
                    raise self.refuse(f"{place}[{number}].{name}", "no axis of that name", expected)
            if combination:
                yield {
                    name: tuple(value) if isinstance(value, list) else (value,)
                    for name, value in combination.items()
                }

    def strategies(self, entry: ModelEntry, place: str) -> tuple[str, ...]:
        given = self.file.strategies if entry.strategies is None else entry.strategies
        where = "strategies" if entry.strategies is None else f"{place}.strategies"
        if not given:
            raise self.refuse(where, "none", 'one at least, as ["auto"]')
        for name in given:
            try:
                get_strategy(name)
            except MemplanError as error:
                raise self.refuse(where, repr(name), f"a strategy: {error}") from None
        return tuple(dict.fromkeys(given))

    def how(self, given: dict[str, Any], place: str) -> Preparation:
        from pydantic import TypeAdapter, ValidationError

        made: dict[str, Any] = {}
        for name, value in given.items():
            where = f"{place}.options.{name}"
            if name not in OPTIONS:
                raise self.refuse(where, "an unknown option", f"one of {', '.join(OPTIONS)}")
            try:
                made[name] = TypeAdapter(OPTIONS[name].kind).validate_python(value)
            except ValidationError as error:
                expected = str(error.errors()[0]["msg"]).removeprefix("Input should be ")
                raise self.refuse(where, repr(value), expected) from None
        return Preparation(**made)

    def origin(self, entry: ModelEntry, kind: str, chosen: Pairs, place: str) -> Origin:
        """The origin of the variant `chosen`: an axis sets the key of its name, else what the factory, the
        file or the script has of that name."""
        from memplan_engine.zoo.manifest_format import OF_STEP, SETTINGS

        theirs = {name: value for name, value in chosen if name not in SETTINGS}
        entry = self.with_settings(entry, {name: value for name, value in chosen if name in SETTINGS}, place)
        if kind == "factory":
            keys = (*OF_STEP, "partition", "functional")
            options = tuple((key, value) for key in keys if (value := getattr(entry, key)) is not None)
            for key, _ in options:
                takes = {"partition": "joint", "functional": None}.get(key, "step")
                if takes is not None and entry.training != takes:
                    found = f"training = {entry.training!r}"
                    raise self.refuse(f"{place}.{key}", found, f'training = "{takes}", which it is of')
            factory = str(parse_factory(entry.factory).replaced(**theirs))
            training = "" if entry.training == "inference" else entry.training
            return Origin(factory=factory, training=training, options=options)
        if kind == "file":
            for name, value in theirs.items():
                if type(value) is not int or value < 0:
                    raise self.refuse(f"{place}.axes.{name}", repr(value), "sizes: whole numbers")
            return Origin(file=entry.file, symbols=tuple(theirs.items()))  # type: ignore[arg-type]
        used = {name for text in entry.arguments for _, name, _, _ in self.fields(text, place) if name}
        for name in [*theirs, *(used - theirs.keys() - {"world"})]:
            if name not in used or name not in {*theirs, "world"}:
                found = f"{{{name}}} in arguments" if name in used else "an axis that no argument has"
                raise self.refuse(f"{place}.axes.{name}", found, "the same names in axes and in arguments")
        filled = {**theirs, "world": entry.world}
        arguments = tuple(text.format_map(filled) for text in entry.arguments)
        return Origin(script=entry.script, arguments=arguments, world=entry.world)

    def fields(self, text: str, place: str) -> list[Any]:
        try:
            found = list(Formatter().parse(text))
        except ValueError as error:
            raise self.refuse(f"{place}.arguments", f"{text!r}: {error}", "as {batch}") from None
        if any(name is not None and (not name.isidentifier() or form or cut) for _, name, form, cut in found):
            raise self.refuse(f"{place}.arguments", repr(text), "names of axes in braces, as {batch}")
        return found

    def with_settings(self, entry: ModelEntry, settings: dict[str, Value], place: str) -> ModelEntry:
        from pydantic import ValidationError

        if not settings:
            return entry
        try:
            return type(entry).model_validate({**entry.model_dump(), **settings})
        except ValidationError as error:
            wrong = error.errors(include_url=False)[0]
            name = wrong["loc"][0]
            expected = str(wrong["msg"]).removeprefix("Input should be ")
            raise self.refuse(f"{place}.axes.{name}", repr(wrong["input"]), expected) from None


def _matches(left_out: dict[str, tuple[Value, ...]], chosen: dict[str, Value]) -> bool:
    return all(name in chosen and chosen[name] in values for name, values in left_out.items())
