"""Mutated files: those that were found once, some of each format, and in the slow tier thousands."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from random import Random

import pytest

from memplan_engine.formats.csv_tables.csv_reader import CsvImporter
from tests.fuzzing import harness
from tests.fuzzing.__main__ import fuzz
from tests.fuzzing.harness import CORPUS, GRAMMARS, Case, commands, finding, little_memory, make_case, seeds

SEED = int(os.environ.get("MEMPLAN_FUZZ_SEED", "0"))
COUNT = int(os.environ.get("MEMPLAN_FUZZ_FILES", "6000"))
"""Of the slow tier, so that it ends in its time: 20,000 take twelve minutes."""
SOUND_OR_FOUND = pytest.mark.parametrize(
    "path", sorted({*seeds(), *CORPUS.iterdir()}), ids=lambda path: path.name
)
EACH = {".pt2": 12}
"""Mutated files of a format that `make test` tries, 50 of the others: a program of torch takes 0.1 s."""


def each_once(path: Path, out: Path) -> list[list[str] | None]:
    """Return the commands that read the file at `path`; None stands for reading a run."""
    return [*{tuple(command): command for command in commands(path, out)}.values()] or [None]


@SOUND_OR_FOUND
def test_sound_files_and_what_was_found_once(path: Path, tmp_path: Path) -> None:
    verbs = {command[0] if command else "": command for command in reversed(each_once(path, tmp_path))}
    for command in verbs.values():
        assert finding(path, command) == ""


@pytest.mark.slow
@SOUND_OR_FOUND
def test_every_command_on_sound_files_and_what_was_found_once(path: Path, tmp_path: Path) -> None:
    for command in each_once(path, tmp_path):
        assert finding(path, command) == ""


def test_every_format_is_put_together_as_it_was() -> None:
    for path in set(seeds()):
        grammar = GRAMMARS[path.suffix]
        tree = grammar.take_apart(path.read_bytes())
        again = (grammar.put_together(tree, Random(seed)) for seed in range(99))
        assert any(_same(grammar.take_apart, data, tree) for data in again), path


def _same(take_apart: Callable[[bytes], object], data: bytes, tree: object) -> bool:
    try:
        return take_apart(data) == tree
    except Exception:
        return False


def test_a_case_follows_from_its_number() -> None:
    cases = [make_case(5, number) for number in range(200)]
    assert cases == [make_case(5, number) for number in range(200)]
    assert len({case.data for case in cases}) > 190
    assert {case.name.rpartition(".")[2] for case in cases} == {"csv", "json", "gz", "pickle", "onnx", "pt2"}


def test_what_takes_too_many_calls_is_a_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,lower,upper,size\na,0,2,8\n")
    command = ["plan", str(path), "--strategy", "naive"]
    assert finding(path, command, counted=True) == ""
    monkeypatch.setattr(harness, "MOST_CALLS", 10)
    assert finding(path, command) == ""
    assert finding(path, command, counted=True).endswith(" calls")


def test_what_should_not_happen_is_a_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,lower,upper,size\na,0,2,8\n")
    command = ["plan", str(path), "--strategy", "naive"]
    assert finding(path, command) == ""

    def fails(*_: object) -> None:
        raise failure

    monkeypatch.setattr(CsvImporter, "load", fails)
    failure: BaseException = ValueError("oops")
    assert "ValueError: oops" in finding(path, command)
    failure = MemoryError()
    assert "more than" in finding(path, command)
    failure = SystemExit(7)
    assert finding(path, command) != ""


def cases_of(suffix: str) -> Iterator[Case]:
    """Yield mutated files of a format, always the same."""
    numbered = (make_case(SEED, number) for number in count(100_000))
    return (case for case in numbered if case.name.endswith(suffix))


@pytest.mark.parametrize("suffix", GRAMMARS)
def test_some_mutated_files_of_each_format(suffix: str, tmp_path: Path) -> None:
    seed = next(path for path in seeds() if path.suffix == suffix)
    # Imports and compiles.
    assert finding(seed, commands(seed, tmp_path)[0]) == ""
    found, parsed = [], 0
    with little_memory():
        cases = list(islice(cases_of(suffix), EACH.get(suffix, 50)))
        for number, case in enumerate(cases):
            path = tmp_path / case.name
            path.write_bytes(case.data)
            choices = each_once(path, tmp_path)
            if wrong := finding(path, choices[number % len(choices)]):
                found.append(f"{case.name}: {wrong}")
            parsed += case.parsed
    assert found == []
    assert parsed >= len(cases) / 3


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_thousands_of_mutated_files() -> None:
    cases = list(fuzz(SEED, 0, COUNT))
    assert len(cases) == COUNT
    found = [f"{name}: {what}" for name, _, what in cases if what]
    assert found == [], f"python -m tests.fuzzing --seed {SEED} --keep FOLDER gives the files"
    assert sum(parsed for _, parsed, _ in cases) >= COUNT / 2
